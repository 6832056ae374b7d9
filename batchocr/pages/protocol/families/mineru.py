"""MinerU's way of reading a page: first its layout, then every block at native resolution.

mineru_vl_utils' MinerUClientHelper does the parsing, the cropping and the post-processing, configured as MinerUClient
does it, so that our text is MinerU's.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from loguru import logger
from mineru_vl_utils.mineru_client import (
    DEFAULT_PROMPTS,
    DEFAULT_SAMPLING_PARAMS,
    MinerUClientHelper,
    MinerUSamplingParams,
)
from mineru_vl_utils.post_process.table_image_processor import (
    TABLE_IMAGE_TOKEN_MAP_KEY,
    build_table_image_map,
    replace_table_image_tokens,
)
from mineru_vl_utils.structs import ContentBlock

from batchocr.data import Block, Completion, Page, Reading, Request, Sampling, box_area, shared_area
from batchocr.errors import RefusedError
from batchocr.pages.protocol.base import Reader, pixels_of
from batchocr.pages.protocol.detected_layout import detected_blocks
from batchocr.pages.protocol.ink import Ink
from batchocr.pages.protocol.reading import reading_of, with_answer
from batchocr.pages.protocol.rescue import has_running_text, is_lost, rescued_texts
from batchocr.pages.protocol.revision import MAX_LAYOUT_TOKENS
from batchocr.pages.protocol.shortfalls import (
    answer_shortfalls,
    block_shortfalls,
    field_of,
    is_unparsed,
    layout_shortfalls,
)
from batchocr.pages.protocol.trusted_text import TrustedText
from batchocr.processes.messages import Setup

PICTURE_CODE_SEED: Final = 0
"""Seed of the codes drawn over pictures inside tables: always the same, so that a page reads the same every time."""

MAX_READ_AREA: Final = 4.0
"""The area that all crops of a page may cover together, in pages. A sound layout covers the page once or twice, a
looping one a hundred times, which no memory would hold."""

_TRUSTED: Final = "_batchocr_trusted"
"""Our key on a ContentBlock whose text is the page's own, which it holds."""

_COMPLETION: Final = "_batchocr_completion"
"""Our key on a ContentBlock: post-processing reorders, drops and replaces blocks, but keeps foreign keys."""

_UNPARSABLE_NUMBER: Final = re.compile(r"(?<!\d)\d{4301,}")
"""A number that is too long for `int`. Coordinates end at 1000, so MinerU would skip such a box anyway."""


def protocol(setup: Setup) -> MinerUProtocol:
    """The protocol with the options of a run."""
    return MinerUProtocol(
        max_new_tokens=setup.max_new_tokens,
        penalties=setup.penalties,
        read_figures=setup.figures == "read",
        detector=setup.detector,
    )


class MinerUProtocol:
    """Reads pages as MinerUClient.two_step_extract does.

    max_new_tokens: per block; a layout has a limit of its own. penalties: MinerU's own; False decodes greedily and
    without any rules. read_figures: MinerU's image analysis. detector: the fingerprint of that which is asked for
    layouts, in place of the model. prompts: by type of block, or `[layout]` and `[default]`.
    """

    def __init__(
        self,
        *,
        max_new_tokens: int,
        penalties: bool,
        read_figures: bool = False,
        detector: str = "",
        prompts: Mapping[str, str] = DEFAULT_PROMPTS,
    ) -> None:
        if penalties and any(each.repetition_penalty not in (None, 1.0) for each in DEFAULT_SAMPLING_PARAMS.values()):
            raise NotImplementedError("this version of mineru-vl-utils sets a repetition penalty: install 2.0.7")
        logger.disable("mineru_vl_utils")  # it logs every layout
        self._max_new_tokens = max_new_tokens
        self._penalties = penalties
        self._detector = detector
        self._prompts = dict(prompts)
        self._helper = MinerUClientHelper(
            backend="transformers",  # any but "http-client" gives images, not PNGs
            prompts=self._prompts,
            sampling_params=DEFAULT_SAMPLING_PARAMS,
            layout_image_size=(1036, 1036),
            min_image_edge=28,
            max_image_edge_ratio=50,
            simple_post_process=False,
            handle_equation_block=True,
            abandon_list=False,
            abandon_paratext=False,
            image_analysis=read_figures,
            debug=False,
        )

    def read(self, page: Page) -> Reader:
        """Return the generator that reads this page: a batch about its layout, then one about its blocks.
        Raises RefusedError."""
        ink = Ink(page.image)
        [layout] = yield [self._layout_request(page)]
        if layout.error is not None:
            raise RefusedError(f"the page's layout could not be asked for: {layout.error}")
        blocks = self._parse_layout(layout.text, page.image.size)
        num_surplus = _drop_surplus(blocks)
        if page.glyphs:
            _take_trusted(blocks, page)
        requests, asked = self._block_requests(page, blocks)
        batches, again = [requests] if requests else [], page.again
        del page, requests  # and the batch is popped, so that its pixels do not stay here while the model answers
        completions = (yield batches.pop()) if batches else []
        rescued: dict[int, str] = {}
        if again and any(map(is_lost, completions)) and (page_again := again()):
            rescued = rescued_texts(asked, completions, page_again)
        return self._finish(ink, layout, blocks, num_surplus, asked, completions, rescued)

    def _layout_request(self, page: Page) -> Request:
        if self._detector:
            return Request(pixels_of(page.image), "", Sampling(1), detector=self._detector)
        width, height = self._helper.layout_image_size
        return Request(
            pixels=pixels_of(page.image),
            prompt=self._prompts["[layout]"],
            sampling=self._sampling(DEFAULT_SAMPLING_PARAMS["[layout]"], MAX_LAYOUT_TOKENS),
            resize_to=(height, width),
        )

    def _parse_layout(self, text: str, page_size: tuple[int, int]) -> list[ContentBlock]:
        """The blocks that MinerU finds in the text, whatever the text is; none if it finds none. Or the detector's."""
        if self._detector:
            return [ContentBlock(type, list(bbox)) for type, bbox in detected_blocks(text, *page_size)]
        blocks: list[ContentBlock] = self._helper.parse_layout_output(_UNPARSABLE_NUMBER.sub("9999", text))
        return blocks

    def _block_requests(self, page: Page, blocks: list[ContentBlock]) -> tuple[list[Request], list[ContentBlock]]:
        """The questions about the blocks that are to be read, and those blocks. Removes from `blocks` what MinerU
        removes."""
        with _same_picture_codes():
            crops, prompts, sampling_params, indices = self._helper.prepare_for_extract(page.image, blocks)
        _name_pictures_in_tables(blocks)
        requests, asked = [], []
        for crop, prompt, params, index in zip(crops, prompts, sampling_params, indices, strict=True):
            block = blocks[index]
            if _TRUSTED not in block:
                sampling = self._sampling(params, self._max_new_tokens)
                if self._penalties and block.type == "table":
                    sampling = replace(sampling, loop_check="at_limit")
                asked.append(block)
                requests.append(Request(pixels_of(crop), prompt, sampling, round=1))
        return requests, asked

    def _sampling(self, params: MinerUSamplingParams, max_new_tokens: int) -> Sampling:
        if not self._penalties:
            return Sampling(max_new_tokens, loop_check="never")
        return Sampling(
            max_new_tokens=max_new_tokens,
            presence_penalty=params.presence_penalty or 0.0,
            frequency_penalty=params.frequency_penalty or 0.0,
            no_repeat_ngram_size=params.no_repeat_ngram_size or 0,
        )

    def _finish(
        self,
        ink: Ink,
        layout: Completion,
        blocks: list[ContentBlock],
        num_surplus: int,
        asked: Sequence[ContentBlock],
        completions: Sequence[Completion],
        rescued: Mapping[int, str],
    ) -> Reading:
        shortfalls = layout_shortfalls(layout, len(blocks), num_surplus, MAX_READ_AREA, ink)
        for block, completion in zip(asked, completions, strict=True):
            block[_COMPLETION] = completion
            block.content = completion.text if completion.error is None else None
        for number, text in rescued.items():
            asked[number][_TRUSTED] = text
        for block in blocks:
            block.content = block.get(_TRUSTED, block.content)
            if block.type == "equation" and block.content is None:
                block.content = ""  # a None in an equation_block would end all post-processing of the page
        pictures = {id(block): block.get(TABLE_IMAGE_TOKEN_MAP_KEY) for block in blocks}  # gone after post-processing
        processed = self._helper.post_process(blocks)
        unparsed = [index for index, block in enumerate(processed) if is_unparsed(block, block.get(_COMPLETION))]
        for index in unparsed:  # of some, MinerU drops the text
            table = processed[index]
            text = table[_COMPLETION].text
            table.content = field_of(text, "content") or replace_table_image_tokens(text, pictures[id(table)])
        places = enumerate(zip(completions, _places(asked, blocks, processed), strict=True))
        shortfalls += answer_shortfalls([answer for number, answer in places if number not in rescued])
        shortfalls += block_shortfalls([(block, block.get(_COMPLETION)) for block in processed], unparsed, ink)
        return reading_of(
            [_to_block(block) for block in processed],
            layout,
            completions,
            ink=ink,
            shortfalls=shortfalls,
            rescued_blocks=sum(_TRUSTED in block and _COMPLETION in block for block in processed),
        )


def _take_trusted(blocks: Sequence[ContentBlock], page: Page) -> None:
    """Give blocks that are plain text of the page that text."""
    trusted = TrustedText(page.glyphs, page.image)
    for block in blocks:
        if has_running_text(block) and (own := trusted.of(block.bbox)) is not None:
            block[_TRUSTED] = own.text


def _drop_surplus(blocks: list[ContentBlock]) -> int:
    """Remove the blocks beyond MAX_READ_AREA from the end of the list. Returns how many."""
    area = 0.0
    for index, block in enumerate(blocks):
        area += box_area(block.bbox)
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


def _places(
    asked: Sequence[ContentBlock], blocks: Sequence[ContentBlock], processed: Sequence[ContentBlock]
) -> list[int | None]:
    """The index in `processed` of each block asked about, or of the equation that it was joined into; None if MinerU
    dropped it. blocks: those that were processed."""
    given = {id(block) for block in blocks}
    kept = {id(block): index for index, block in enumerate(processed)}
    joined = {index: block for index, block in enumerate(processed) if id(block) not in given}

    def place(part: ContentBlock) -> int | None:
        if id(part) in kept or part.type != "equation" or not joined:
            return kept.get(id(part))
        return max(joined, key=lambda index: shared_area(part.bbox, joined[index].bbox))

    return [place(block) for block in asked]


def _to_block(block: ContentBlock) -> Block:
    x0, y0, x1, y1 = block.bbox
    unread = Block(
        type=block.type,
        bbox=(x0, y0, x1, y1),
        angle=block.angle,
        content=block.content or None,
        merge_prev=block.get("merge_prev", False),
        text_source=("page" if _TRUSTED in block else "model") if block.content else None,
    )
    completion: Completion | None = block.get(_COMPLETION)
    if completion is None or completion.error is not None:
        return unread
    return replace(
        with_answer(unread, completion),
        content=block.content,
        text_source="page" if _TRUSTED in block else "model",
        sub_type=block.get("sub_type") or None,
        description=field_of(completion.text, "caption") or None,
    )
