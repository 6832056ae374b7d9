"""MinerU's way of reading a page: first its layout, then every block at native resolution.

The only module that knows mineru_vl_utils. Its MinerUClientHelper does the parsing, the cropping and the
post-processing, configured as MinerUClient does it, so that our text is MinerU's.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import mineru_vl_utils
from loguru import logger
from mineru_vl_utils.mineru_client import (
    DEFAULT_PROMPTS,
    DEFAULT_SAMPLING_PARAMS,
    MinerUClientHelper,
    MinerUSamplingParams,
)
from mineru_vl_utils.post_process.table_image_processor import TABLE_IMAGE_TOKEN_MAP_KEY, build_table_image_map
from mineru_vl_utils.structs import ContentBlock
from PIL import Image

from batchocr.data import Block, Completion, Page, Pixels, Reading, Request, Sampling
from batchocr.errors import RefusedError
from batchocr.protocol.base import Reader
from batchocr.protocol.markdown import to_markdown

_REVISION: Final = 4
"""Changes whenever a change here, in to_markdown, in sanitize or in the engine's rules against loops may alter the text
of a page."""

VERSION: Final = f"mineru {mineru_vl_utils.__version__} r{_REVISION}"

PICTURE_CODE_SEED: Final = 0
"""Seed of the codes drawn over pictures inside tables: always the same, so that a page reads the same every time."""

MAX_LAYOUT_TOKENS: Final = 8192
"""The limit of a layout's answer, whatever is allowed for a block: a layout cut short loses whole blocks. A block's
line takes 12 to 20 tokens, so this is for more than 400 blocks; MinerU sets no limit."""

MAX_READ_AREA: Final = 8.0
"""The area that all crops of a page may cover together, in pages. A sound layout covers the page once or twice, a
looping one a hundred times, which no memory would hold."""

_UNPARSABLE_NUMBER: Final = re.compile(r"(?<!\d)\d{4301,}")
"""Too long for `int`. Coordinates end at 1000, so MinerU would skip such a box anyway."""

_NO_TEXT: Final = "[Non-Text]"
_COMPLETION: Final = "_batchocr_completion"
"""Our key on a ContentBlock: post-processing reorders, drops and replaces blocks, but keeps foreign keys."""


class MinerUProtocol:
    """Reads pages as MinerUClient.two_step_extract does, without image analysis.

    max_new_tokens: per block; a layout has a limit of its own. penalties: MinerU's own; False decodes greedily and
    without any rules.
    """

    def __init__(self, *, max_new_tokens: int, penalties: bool) -> None:
        logger.disable("mineru_vl_utils")  # it logs every layout
        self._max_new_tokens = max_new_tokens
        self._penalties = penalties
        self._helper = MinerUClientHelper(
            backend="transformers",  # any but "http-client" gives images, not PNGs
            prompts=DEFAULT_PROMPTS,
            sampling_params=DEFAULT_SAMPLING_PARAMS,
            layout_image_size=(1036, 1036),
            min_image_edge=28,
            max_image_edge_ratio=50,
            simple_post_process=False,
            handle_equation_block=True,
            abandon_list=False,
            abandon_paratext=False,
            image_analysis=False,
            debug=False,
        )

    def read(self, page: Page) -> Reader:
        """Return the generator that reads this page, in one or two rounds. Raises RefusedError."""
        [layout] = yield [self._layout_request(page)]
        if layout.error is not None:
            raise RefusedError(f"the page's layout could not be asked for: {layout.error}")
        blocks = self._parse_layout(layout.text)
        num_surplus = _drop_surplus(blocks)
        requests, asked = self._block_requests(page, blocks)
        rounds = [requests] if requests else []
        del page, requests  # and the round is popped, so that no pixels stay here while the model answers
        completions = (yield rounds.pop()) if rounds else []
        return self._finish(layout, blocks, num_surplus, asked, completions)

    def _layout_request(self, page: Page) -> Request:
        width, height = self._helper.layout_image_size
        return Request(
            pixels=_pixels(page.image),
            prompt=DEFAULT_PROMPTS["[layout]"],
            sampling=self._sampling(DEFAULT_SAMPLING_PARAMS["[layout]"], MAX_LAYOUT_TOKENS),
            resize_to=(height, width),
        )

    def _parse_layout(self, text: str) -> list[ContentBlock]:
        """The blocks that MinerU finds in the text, whatever the text is; none if it finds none."""
        blocks: list[ContentBlock] = self._helper.parse_layout_output(_UNPARSABLE_NUMBER.sub("9999", text))
        return blocks

    def _block_requests(self, page: Page, blocks: list[ContentBlock]) -> tuple[list[Request], list[ContentBlock]]:
        """The questions about the blocks to read, and those blocks. Removes from `blocks` what MinerU removes."""
        with _same_picture_codes():
            crops, prompts, sampling_params, indices = self._helper.prepare_for_extract(page.image, blocks)
        _name_pictures_in_tables(blocks)
        requests = [
            Request(_pixels(crop), prompt, self._block_sampling(params, blocks[index].type), round=1)
            for crop, prompt, params, index in zip(crops, prompts, sampling_params, indices, strict=True)
        ]
        return requests, [blocks[index] for index in indices]

    def _block_sampling(self, params: MinerUSamplingParams, block_type: str) -> Sampling:
        sampling = self._sampling(params, self._max_new_tokens)
        return replace(sampling, loop_check="at_limit") if self._penalties and block_type == "table" else sampling

    def _sampling(self, params: MinerUSamplingParams, max_new_tokens: int) -> Sampling:
        if not self._penalties:
            return Sampling(max_new_tokens, loop_check="never")
        return Sampling(
            max_new_tokens=max_new_tokens,
            presence_penalty=params.presence_penalty or 0.0,
            frequency_penalty=params.frequency_penalty or 0.0,
            repetition_penalty=params.repetition_penalty or 1.0,
            no_repeat_ngram_size=params.no_repeat_ngram_size or 0,
        )

    def _finish(
        self,
        layout: Completion,
        blocks: list[ContentBlock],
        num_surplus: int,
        asked: list[ContentBlock],
        completions: Sequence[Completion],
    ) -> Reading:
        reasons = _layout_reasons(layout, blocks, num_surplus)
        for block, completion in zip(asked, completions, strict=True):
            block[_COMPLETION] = completion
            block.content = completion.text if completion.error is None else None
        for block in blocks:
            if block.type == "equation" and block.content is None:
                block.content = ""  # a None in an equation_block would end all post-processing of the page
        processed = self._helper.post_process(blocks)
        reasons += _block_reasons(completions, _num_unparsed_tables(processed))
        read = tuple(_to_block(block) for block in processed)
        answers = [layout, *completions]
        return Reading(
            markdown=to_markdown(read),
            blocks=read,
            image_tokens=sum(answer.image_tokens for answer in answers),
            output_tokens=sum(answer.output_tokens for answer in answers),
            degraded="; ".join(reasons) or None,
        )


def _pixels(image: Image.Image) -> Pixels:
    return Pixels(image.height, image.width, image.tobytes())


def _drop_surplus(blocks: list[ContentBlock]) -> int:
    """Remove the blocks beyond MAX_READ_AREA from the end of the list. Returns how many."""
    area = 0.0
    for index, block in enumerate(blocks):
        x0, y0, x1, y1 = block.bbox
        area += (x1 - x0) * (y1 - y0)
        if area > MAX_READ_AREA:
            num_surplus = len(blocks) - index
            del blocks[index:]
            return num_surplus
    return 0


@contextmanager
def _same_picture_codes() -> Iterator[None]:
    """Inside the block, MinerU draws the same codes for every page; other users of `random` notice nothing."""
    state = random.getstate()
    random.seed(PICTURE_CODE_SEED)
    try:
        yield
    finally:
        random.setstate(state)


def _name_pictures_in_tables(blocks: list[ContentBlock]) -> None:
    """Make a picture inside a table become `<img src="#bbox=x0,y0,x1,y1"/>`, in shares of the page.

    MinerU hides such a picture behind a code, drops its block and replaces the code with the picture as a base64 data
    URI: megabytes in a column of text. What it looks like is on the page; where it is, no block says any more, so that
    is what we keep. If one of several pictures is less than a pixel wide, `#` alone stands for each: MinerU does not
    say which one it left out.
    """
    for table, pictures in build_table_image_map(blocks).items():
        codes = blocks[table].get(TABLE_IMAGE_TOKEN_MAP_KEY, {})
        names = [f"#bbox={','.join(f'{share:g}' for share in blocks[picture].bbox)}" for picture in pictures]
        if len(names) != len(codes):
            names = ["#"] * len(codes)
        if codes:
            blocks[table][TABLE_IMAGE_TOKEN_MAP_KEY] = dict(zip(codes, names, strict=True))


def _layout_reasons(layout: Completion, blocks: Sequence[ContentBlock], num_surplus: int) -> list[str]:
    reasons = []
    if layout.finish_reason == "length":
        reasons.append("the layout hit its token limit")
    if layout.finish_reason == "repetition":
        reasons.append("the layout looped")
    if layout.text.strip() and not blocks:
        reasons.append(f"the layout, {len(layout.text)} characters, contains no block")
    if num_surplus:
        reasons.append(
            f"the layout names blocks of more than {MAX_READ_AREA:g} pages together: {_blocks(num_surplus)} left out"
        )
    return reasons


def _block_reasons(completions: Sequence[Completion], num_unparsed_tables: int) -> list[str]:
    answered = Counter(completion.finish_reason for completion in completions if completion.error is None)
    errors = [completion.error for completion in completions if completion.error is not None]
    reasons = []
    if answered["length"]:
        reasons.append(f"{_blocks(answered['length'])} hit the token limit")
    if answered["repetition"]:
        reasons.append(f"{_blocks(answered['repetition'])} looped")
    if errors:
        reasons.append(f"{_blocks(len(errors))} could not be read: {errors[0]}")
    if num_unparsed_tables:
        reasons.append(f"{num_unparsed_tables} table{'s' * (num_unparsed_tables > 1)} could not be parsed")
    return reasons


def _blocks(count: int) -> str:
    return f"{count} block{'s' * (count > 1)}"


def _num_unparsed_tables(processed: Iterable[ContentBlock]) -> int:
    """How many tables the model gave text for that did not become HTML: MinerU drops it, or leaves it as it is."""
    return sum(
        block.type == "table"
        and _COMPLETION in block
        and block[_COMPLETION].text.strip() not in ("", _NO_TEXT)
        and not (block.content or "").startswith("<table")
        for block in processed
    )


def _to_block(block: ContentBlock) -> Block:
    x0, y0, x1, y1 = block.bbox
    unread = Block(
        type=block.type,
        bbox=(x0, y0, x1, y1),
        angle=block.angle,
        content=block.content or None,
        merge_prev=block.get("merge_prev", False),
    )
    completion: Completion | None = block.get(_COMPLETION)
    if completion is None or completion.error is not None:
        return unread
    return replace(
        unread,
        content=block.content,
        confidence=completion.mean_probability,
        min_logprob=completion.min_logprob,
        output_tokens=completion.output_tokens,
        finish_reason=completion.finish_reason,
    )
