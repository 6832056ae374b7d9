"""How a page is read by those families of models that read the parts which a detector finds, each with a prompt by its
label."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TypeAlias

from PIL import Image

from batchocr.data import Block, Completion, LoopCheck, Page, Reading, Request, Sampling
from batchocr.errors import RefusedError
from batchocr.pages.kinds import kind_of
from batchocr.pages.protocol.base import Reader, pixels_of
from batchocr.pages.protocol.ink import Ink
from batchocr.pages.protocol.reading import reading_of, with_answer
from batchocr.pages.protocol.rescue import is_lost, rescued_texts
from batchocr.pages.protocol.shortfalls import answer_shortfalls, block_shortfalls, is_unparsed, layout_shortfalls


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a page, not read yet."""

    labels: Sequence[str]
    """The detector's."""
    blocks: Sequence[Block]
    joined: Set[int] = frozenset()
    """Indices of the parts that the detector found in pieces: what else lies in their boxes is not theirs."""


Ask: TypeAlias = Callable[[str, Image.Image], tuple[Parts, dict[int, Request]]]
"""A function that finds the parts in the detector's answer and the page, and gives the questions, by the index of the
part that each is about."""
Clean: TypeAlias = Callable[[str, str], str]
"""A function that gives what a block holds, by its label and the model's answer."""


def read_parts(page: Page, detector: str, ask: Ask, clean: Clean) -> Reader:
    """Return the generator that reads this page: a batch about its layout, then one about its blocks. detector: the
    fingerprint of that which is asked. Raises RefusedError."""
    ink, again = Ink(page.image), page.again
    [layout] = yield [Request(pixels_of(page.image), "", Sampling(1), detector=detector)]
    if layout.error is not None:
        raise RefusedError(f"the page's layout could not be asked for: {layout.error}")
    parts, requests = ask(layout.text, page.image)
    asked, batches = list(requests), [list(requests.values())] if requests else []
    del page, requests  # and the batch is popped, so that its pixels do not stay here while the model answers
    completions = (yield batches.pop()) if batches else []
    answers = dict(zip(asked, completions, strict=True))
    blocks, rescued = list(parts.blocks), dict[int, str]()
    if again and any(map(is_lost, completions)) and (page_again := again()):
        whole = [index for index in asked if index not in parts.joined]
        texts = rescued_texts([blocks[index] for index in whole], [answers[index] for index in whole], page_again)
        rescued = {whole[number]: text for number, text in texts.items()}
    for index, answer in answers.items():
        blocks[index] = _answered(parts.labels[index], blocks[index], answer, rescued.get(index), clean)
    return _finish(ink, layout, blocks, answers, rescued)


def part_sampling(max_new_tokens: int, *, penalties: bool, is_table: bool, repetition_penalty: float = 1.0) -> Sampling:
    """How an answer about a part is decoded. penalties: False decodes greedily and without any rules."""
    if not penalties:
        return Sampling(max_new_tokens, loop_check="never")
    loop_check: LoopCheck = "at_limit" if is_table else "at_once"
    return Sampling(max_new_tokens, loop_check=loop_check, repetition_penalty=repetition_penalty)


def _answered(label: str, block: Block, completion: Completion, own: str | None, clean: Clean) -> Block:
    """The block as it was read. own: the page's own text in place of what was lost."""
    if completion.error is None:
        block = with_answer(block, completion)
    if own is not None:
        return replace(block, content=own, text_source="page")
    if completion.error is not None:
        return block
    sub_type = label if kind_of(block.type).role == "figure" else None
    return replace(block, content=clean(label, completion.text), text_source="model", sub_type=sub_type)


def _finish(
    ink: Ink, layout: Completion, blocks: Sequence[Block], answers: Mapping[int, Completion], rescued: Collection[int]
) -> Reading:
    """The page that was read. answers: by the index of their block. rescued: indices of blocks with the page's own
    text."""
    unparsed = [index for index, block in enumerate(blocks) if is_unparsed(block, answers.get(index))]
    shortfalls = [
        *layout_shortfalls(layout, len(blocks), 0, 0, ink),
        *answer_shortfalls([(answer, index) for index, answer in answers.items() if index not in rescued]),
        *block_shortfalls([(block, answers.get(index)) for index, block in enumerate(blocks)], unparsed, ink),
    ]
    completions = list(answers.values())
    return reading_of(blocks, layout, completions, ink=ink, shortfalls=shortfalls, rescued_blocks=len(rescued))
