"""GLM-OCR's way of reading a page: a detector finds its parts, and the model reads those that have text.

Source: `config.yaml`, `layout`, `utils` and `postprocess` of glmocr 0.1.5. docs/models.md says what differs, and why.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from PIL import Image

from batchocr.data import Block, Box, Page, Request
from batchocr.pages.protocol.base import Reader, pixels_of
from batchocr.pages.protocol.detected_layout import (
    Found,
    found_in,
    one_of_each,
    type_of,
    within_page,
    without_whole_page,
)
from batchocr.pages.protocol.detected_parts import Parts, part_sampling, read_parts
from batchocr.pages.protocol.formulas import FORMULA, as_block, marked
from batchocr.pages.protocol.repeats import line_said_once, said_once
from batchocr.processes.messages import Setup

_TEXT, _TABLE, _FORMULA = "Text Recognition:", "Table Recognition:", "Formula Recognition:"
PROMPTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("abstract", "algorithm", "content", "doc_title", "figure_title", "formula_number"), _TEXT),
    **dict.fromkeys(("paragraph_title", "reference_content", "seal", "text", "vertical_text"), _TEXT),
    "vision_footnote": _TEXT,
    **dict.fromkeys(("display_formula", "inline_formula"), _FORMULA),
    "table": _TABLE,
}
"""The prompts by the detector's labels; what has another label is not read."""

_REPETITION_PENALTY: Final = 1.1
_WITHIN: Final = 0.8
"""The share of a box that lies in a larger one if it is dropped."""
_NEVER_WITHIN: Final = frozenset({"image", "seal", "chart"})
_FRAME: Final = "reference"
"""The label of a box around what is listed: of two such boxes the smaller one stays, and what lies in it stays too."""
_THOUSAND: Final = 1000

_SIGNS: Final[Mapping[str, str]] = {"doc_title": r"#+\s*", "paragraph_title": r"(?:[-*] \s*)?(?:#+\s*)?"}
"""What the model may put before a heading, by its label."""
_LITERAL_TABS: Final = re.compile(r"\A(?:\\t)+(?![a-z])|(?<!\\t)(?:\\t)+\Z")
"""Tabs at the ends of an answer that are written as a backslash and a letter; `\theta` is no tab."""
_RUN: Final = re.compile(r"(\.|·|_|\\_)\1{3,}")
"""A run of leaders, of which three are enough."""
_IN_TEXT: Final = re.compile(rf"{FORMULA}|^(?:·|•|[*-] )[ \t]*", re.MULTILINE | re.DOTALL)
"""A formula, or the sign before an item."""
_IN_TABLE: Final = re.compile(r"(?<![\\$])\$\$([^$<]+)\$\$|(?<![\\$])\$(?!\$)((?:[^$\\<]|\\.)+)\$(?![\d$])")
"""A formula that does not cross a tag, and so lies within a cell."""

_LONG: Final = 2048
"""The length from which on answers are looked at for what they say again and again."""
_ROUNDS, _LEAST_REPEATED = 10, 10
"""How often an answer has to say a thing for it to count as repeated, and the least letters of that thing; a shorter
one is taken several times."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a page that a detector found."""

    label: str
    """The detector's."""
    box: tuple[int, int, int, int]
    """The part's box, in thousandths of the page."""

    def crop(self, image: Image.Image) -> Image.Image | None:
        """The pixels of the part; None if it is less than one wide or high."""
        width, height = image.size
        sides = (width, height, width, height)
        left, top, right, bottom = (int(edge * side / _THOUSAND) for edge, side in zip(self.box, sides, strict=True))
        return image.crop((left, top, right, bottom)) if left < right and top < bottom else None

    def block(self) -> Block:
        """The part as a block that is not read yet."""
        x0, y0, x1, y1 = (edge / _THOUSAND for edge in self.box)
        return Block(type_of(self.label), (x0, y0, x1, y1), None, None)


def protocol(setup: Setup) -> GlmProtocol:
    """The protocol with the options of a run."""
    return GlmProtocol(max_new_tokens=setup.max_new_tokens, penalties=setup.penalties, detector=setup.detector)


class GlmProtocol:
    """Reads pages as GLM-OCR's own pipeline does.

    max_new_tokens: per block. penalties: GLM-OCR's own; False decodes greedily and without any rules. detector: the
    fingerprint of that which is asked for layouts.
    """

    def __init__(self, *, max_new_tokens: int, penalties: bool, detector: str) -> None:
        self._max_new_tokens = max_new_tokens
        self._penalties = penalties
        self._detector = detector

    def read(self, page: Page) -> Reader:
        """Return the generator that reads this page: a batch about its layout, then one about its blocks.
        Raises RefusedError."""
        return read_parts(page, self._detector, self._asked, cleaned)

    def _asked(self, layout: str, image: Image.Image) -> tuple[Parts, dict[int, Request]]:
        parts, requests = parts_of(layout, *image.size), dict[int, Request]()
        for index, part in enumerate(parts):
            prompt = PROMPTS.get(part.label)
            if prompt and (crop := part.crop(image)):
                sampling = part_sampling(
                    self._max_new_tokens,
                    penalties=self._penalties,
                    is_table=prompt == _TABLE,
                    repetition_penalty=_REPETITION_PENALTY,
                )
                requests[index] = Request(pixels_of(crop), prompt, sampling, round=1)
        return Parts([part.label for part in parts], [part.block() for part in parts]), requests


def parts_of(answer: str, width: int, height: int) -> list[Part]:
    """The parts of a page in the detector's order. answer: the detector's. width, height: of the page in px."""
    found = without_whole_page(one_of_each(found_in(answer), (1 / width, 1 / height)), width, height)
    kept = [each for each in found if not any(_goes_for(each, other) for other in found)]
    boxes = [(each.label, within_page(each.box)) for each in kept]
    return [
        Part(label, _thousandths(box, width, height)) for label, box in boxes if box[0] < box[2] and box[1] < box[3]
    ]


def _goes_for(each: Found, other: Found) -> bool:
    """Whether the box `each` is dropped because of `other`."""
    if other.label == _FRAME:
        return each.label == _FRAME and other.lies_in(each, _WITHIN)
    return each.label not in _NEVER_WITHIN and each.lies_in(other, _WITHIN)


def _thousandths(box: Box, width: int, height: int) -> tuple[int, int, int, int]:
    """The box in thousandths of the page, rounded down to pixels first."""
    left, top, right, bottom = (
        int(int(share * side) / side * _THOUSAND) for share, side in zip(box, (width, height) * 2, strict=True)
    )
    return left, top, right, bottom


def cleaned(label: str, answer: str) -> str:
    """What the answer about a part says, formulas and items marked as in every block."""
    text = answer.strip()
    prompt = PROMPTS[label]
    is_whole = prompt == _TABLE and text.startswith("<table") and text.endswith("</table>")
    if not is_whole and not (prompt == _FORMULA and text.startswith("$$") and text.endswith("$$")):
        text = _RUN.sub(r"\1\1\1", _LITERAL_TABS.sub("", text).strip())
        if len(text) >= _LONG:
            text = line_said_once(said_once(text, _ROUNDS, unit=_LEAST_REPEATED))
    if prompt == _TABLE:
        return _IN_TABLE.sub(marked, text)
    if prompt == _FORMULA:
        return as_block(text)
    text = re.sub(rf"\A{_SIGNS[label]}", "", text) if label in _SIGNS else text
    return _IN_TEXT.sub(_written, text).strip()


def _written(found: re.Match[str]) -> str:
    return marked(found) if any(found.groups()) else "• "
