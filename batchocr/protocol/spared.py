"""The blocks of one page that may take their text from the PDF, from the layout to the verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, Protocol, cast

from PIL import Image

from batchocr.data import Completion, LayerUse, Page
from batchocr.protocol.audit import Audit
from batchocr.protocol.audit_plan import LineQuestion, plan_audit
from batchocr.protocol.layer_text import LayerBlock, LegiblePage

_TEXTS: Final = {
    *("text", "title", "doc_title", "paragraph_title", "list_item", "ref_text"),
    *("header", "footer", "page_number", "page_footnote", "aside_text"),
    *("caption", "image_caption", "table_caption", "code_caption"),
    *("footnote", "image_footnote", "table_footnote"),
}
"""Types of blocks whose text is what is seen, line after line."""

_LEAST_HEIGHT: Final = 28
_MOST_RATIO: Final = 50
"""What MinerU scales up, or sets on white, lines of text are set on paper of their own colour."""


class LaidOut(Protocol):
    """A block of a layout. bbox: x0, y0, x1, y1 as shares of the page."""

    @property
    def type(self) -> str: ...
    @property
    def bbox(self) -> Sequence[float]: ...
    @property
    def angle(self) -> int | None: ...


class SparedBlocks:
    """Which blocks the model is not asked about, and what they say. Without a text layer there are none."""

    def __init__(self, page: Page, blocks: Sequence[LaidOut]) -> None:
        self._blocks = list(blocks)
        self._numbers = {id(block): number for number, block in enumerate(self._blocks)}
        self._legible = _legible(page, blocks)
        plan = plan_audit(self._legible)
        self._spared, self._questions = plan.spared, plan.questions
        self._audit = Audit(self._legible)
        self._num_letters = self._num_wrong = 0
        self.texts: dict[int, str] = {}
        """By the id of the block; empty before the verdict."""

    def __contains__(self, block: LaidOut) -> bool:
        """Whether the block waits for the verdict."""
        return self._numbers[id(block)] in self._spared

    @property
    def any(self) -> bool:
        """Whether any block does."""
        return bool(self._spared)

    def line_images(self, page: Image.Image) -> list[Image.Image]:
        """The lines to ask about, before the verdict."""
        return [_image_of(self._legible[question.block], question, page) for question in self._questions]

    def settle(self, lines: Sequence[Completion], answered: Sequence[tuple[LaidOut, Completion]]) -> list[LaidOut]:
        """Decide what the spared blocks say. Returns those that the model has to read after all.

        lines: the answers about `line_images`. answered: those about blocks that are not spared.
        """
        for question, answer in zip(self._questions, lines, strict=True):
            num_letters, num_wrong = self._hear(question, answer)
            self._num_letters += num_letters
            self._num_wrong += num_wrong
        for block, answer in answered:
            number = self._numbers[id(block)]
            if number in self._legible:
                self._hear(LineQuestion(number, 0, len(self._legible[number].lines) - 1), answer)
        texts = {number: self._audit.text_of(number) for number in sorted(self._spared)}
        self.texts = {id(self._blocks[number]): text for number, text in texts.items() if text is not None}
        self._spared = frozenset()
        return [self._blocks[number] for number, text in texts.items() if text is None]

    def use(self) -> LayerUse:
        """What came of it."""
        return LayerUse(len(self.texts), len(self._questions), self._num_letters, self._num_wrong)

    def _hear(self, question: LineQuestion, answer: Completion) -> tuple[int, int]:
        """What the audit makes of an answer; one that has no end says nothing."""
        if answer.error is not None or answer.finish_reason != "stop":
            return 0, 0
        return self._audit.hear(question, answer.text)


def _legible(page: Page, blocks: Sequence[LaidOut]) -> dict[int, LayerBlock]:
    """The legible blocks of text, by their number."""
    if page.layer is None:
        return {}
    legible = LegiblePage(page.layer, page.image)
    found = {
        number: legible.block(block.bbox)
        for number, block in enumerate(blocks)
        if block.type in _TEXTS and not block.angle
    }
    return {number: block for number, block in found.items() if block is not None}


def _image_of(block: LayerBlock, question: LineQuestion, page: Image.Image) -> Image.Image:
    """The lines, cut out of the page; with more of their paper around them if the model would find them too low."""
    top, bottom = block.rows(question.first, question.last)
    crop = page.crop((block.box[0], top, block.box[2], bottom))
    height = max(crop.height, _LEAST_HEIGHT, math.ceil(crop.width / _MOST_RATIO))
    colors = cast(list[tuple[int, Any]], crop.getcolors(crop.width * crop.height))
    image = Image.new("RGB", (crop.width, height), max(colors)[1])
    image.paste(crop, (0, (height - crop.height) // 2))
    return image
