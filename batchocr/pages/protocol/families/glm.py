"""GLM-OCR's way of reading a page: a detector finds its parts, and the model reads those that have text.

Source: `config.yaml`, `layout`, `utils` and `postprocess` of glmocr 0.1.5. docs/models.md says what differs, and why.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from PIL import Image

from batchocr.data import Block, Box, Completion, LoopCheck, Page, Reading, Request, Sampling
from batchocr.errors import RefusedError
from batchocr.pages.kinds import kind_of
from batchocr.pages.protocol.base import Reader, pixels_of
from batchocr.pages.protocol.detected_layout import (
    Found,
    found_in,
    one_of_each,
    type_of,
    within_page,
    without_whole_page,
)
from batchocr.pages.protocol.ink import Ink
from batchocr.pages.protocol.reading import reading_of, with_answer
from batchocr.pages.protocol.rescue import is_lost, rescued_texts
from batchocr.pages.protocol.shortfalls import answer_shortfalls, block_shortfalls, is_unparsed, layout_shortfalls
from batchocr.processes.messages import Setup

_TEXT, _TABLE, _FORMULA = "Text Recognition:", "Table Recognition:", "Formula Recognition:"
PROMPTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("abstract", "algorithm", "content", "doc_title", "figure_title", "formula_number"), _TEXT),
    **dict.fromkeys(("paragraph_title", "reference_content", "seal", "text", "vertical_text"), _TEXT),
    "vision_footnote": _TEXT,
    **dict.fromkeys(("display_formula", "inline_formula"), _FORMULA),
    "table": _TABLE,
}
"""By the detector's labels; what has another one is not read."""

_REPETITION_PENALTY: Final = 1.1
_WITHIN: Final = 0.8
"""A box is dropped of which so much lies in a larger one."""
_NEVER_WITHIN: Final = frozenset({"image", "seal", "chart"})
_FRAME: Final = "reference"
"""Goes around what is listed: of two, the smaller one stays, and what lies in it stays too."""
_THOUSAND: Final = 1000

_SIGNS: Final[Mapping[str, str]] = {"doc_title": r"#+\s*", "paragraph_title": r"(?:[-*] \s*)?(?:#+\s*)?"}
"""What the model may put before a heading, by its label."""
_LITERAL_TABS: Final = re.compile(r"\A(?:\\t)+(?![a-z])|(?:\\t)+\Z")
"""At the ends of an answer, as a backslash and a letter; `\\theta` is no tab."""
_RUN: Final = re.compile(r"(\.|·|_|\\_)\1{3,}")
"""Leaders, of which three are enough."""
_OPENING: Final = re.compile(r"\A(?:\$\$|\\\[|\\\()")
_CLOSING: Final = re.compile(r"(?:\$\$|\\\]|\\\))\Z")
_IN_TEXT: Final = re.compile(
    r"(?<![\\$])\$\$([^$]+)\$\$|(?<![\\$])\$(?!\$)((?:[^$\\]|\\.)+)\$(?![\d$])|^(?:·|•|[*-] )[ \t]*", re.MULTILINE
)
"""A formula, or the sign before an item. "$5 and $6" are prices."""
_IN_TABLE: Final = re.compile(r"(?<![\\$])\$\$([^$<]+)\$\$|(?<![\\$])\$(?!\$)((?:[^$\\<]|\\.)+)\$(?![\d$])")
"""A formula, which lies within a cell."""

_LONG: Final = 2048
"""Shorter answers are not looked at for what they say again and again."""
_REPEATED: Final = 10
"""Letters of what is said again at least, and how often; also of lines."""
_OF_LINES: Final = 0.8


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a page."""

    label: str
    """The detector's."""
    box: tuple[int, int, int, int]
    """In thousandths of the page."""

    def crop(self, image: Image.Image) -> Image.Image | None:
        """Its pixels; None if it is less than one wide or high."""
        width, height = image.size
        sides = (width, height, width, height)
        left, top, right, bottom = (int(edge * side / _THOUSAND) for edge, side in zip(self.box, sides, strict=True))
        return image.crop((left, top, right, bottom)) if left < right and top < bottom else None

    def block(self) -> Block:
        """It as a block that is not read yet."""
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
        ink, again = Ink(page.image), page.again
        [layout] = yield [Request(pixels_of(page.image), "", Sampling(1), detector=self._detector)]
        if layout.error is not None:
            raise RefusedError(f"the page's layout could not be asked for: {layout.error}")
        parts = parts_of(layout.text, *page.image.size)
        requests = self._requests(page.image, parts)
        asked, batches = list(requests), [list(requests.values())] if requests else []
        del page, requests  # and the batch is popped, so that its pixels do not stay here while the model answers
        completions = (yield batches.pop()) if batches else []
        blocks, rescued = [part.block() for part in parts], dict[int, str]()
        if again and any(map(is_lost, completions)) and (page_again := again()):
            texts = rescued_texts([blocks[index] for index in asked], completions, page_again)
            rescued = {asked[number]: text for number, text in texts.items()}
        answers = dict(zip(asked, completions, strict=True))
        for index, answer in answers.items():
            blocks[index] = _answered(parts[index].label, blocks[index], answer, rescued.get(index))
        return _finish(ink, layout, blocks, answers, rescued)

    def _requests(self, image: Image.Image, parts: Sequence[Part]) -> dict[int, Request]:
        """The questions, by the index of the part that each is about."""
        requests = {}
        for index, part in enumerate(parts):
            prompt = PROMPTS.get(part.label)
            if prompt and (crop := part.crop(image)):
                requests[index] = Request(pixels_of(crop), prompt, self._sampling(prompt), round=1)
        return requests

    def _sampling(self, prompt: str) -> Sampling:
        if not self._penalties:
            return Sampling(self._max_new_tokens, loop_check="never")
        loop_check: LoopCheck = "at_limit" if prompt == _TABLE else "at_once"
        return Sampling(self._max_new_tokens, loop_check=loop_check, repetition_penalty=_REPETITION_PENALTY)


def parts_of(answer: str, width: int, height: int) -> list[Part]:
    """The parts of a page in the detector's order. answer: the detector's. width, height: of the page in px."""
    found = without_whole_page(one_of_each(found_in(answer), (1 / width, 1 / height)), width, height)
    kept = [each for each in found if not any(_goes_for(each, other) for other in found)]
    boxes = [(each.label, within_page(each.box)) for each in kept]
    return [
        Part(label, _thousandths(box, width, height)) for label, box in boxes if box[0] < box[2] and box[1] < box[3]
    ]


def _goes_for(each: Found, other: Found) -> bool:
    """Whether a box is dropped because of another one."""
    if other.label == _FRAME:
        return each.label == _FRAME and other.lies_in(each, _WITHIN)
    return each.label not in _NEVER_WITHIN and each.lies_in(other, _WITHIN)


def _thousandths(box: Box, width: int, height: int) -> tuple[int, int, int, int]:
    """The box in thousandths of the page, rounded down to pixels first."""
    left, top, right, bottom = (
        int(int(share * side) / side * _THOUSAND) for share, side in zip(box, (width, height) * 2, strict=True)
    )
    return left, top, right, bottom


def _answered(label: str, block: Block, completion: Completion, own: str | None) -> Block:
    """The block as it was read. own: the page's own text in place of what was lost."""
    if completion.error is None:
        block = with_answer(block, completion)
    if own is not None:
        return replace(block, content=own, text_source="page")
    if completion.error is not None:
        return block
    sub_type = label if kind_of(block.type).role == "figure" else None
    return replace(block, content=cleaned(label, completion.text), text_source="model", sub_type=sub_type)


def _finish(
    ink: Ink, layout: Completion, blocks: Sequence[Block], answers: Mapping[int, Completion], rescued: Collection[int]
) -> Reading:
    """The page. answers: by the index of their block. rescued: indices of blocks with the page's own text."""
    unparsed = [index for index, block in enumerate(blocks) if is_unparsed(block, answers.get(index))]
    shortfalls = [
        *layout_shortfalls(layout, len(blocks), 0, 0, ink),
        *answer_shortfalls([(answer, index) for index, answer in answers.items() if index not in rescued]),
        *block_shortfalls([(block, answers.get(index)) for index, block in enumerate(blocks)], unparsed, ink),
    ]
    completions = list(answers.values())
    return reading_of(blocks, layout, completions, ink=ink, shortfalls=shortfalls, rescued_blocks=len(rescued))


def cleaned(label: str, answer: str) -> str:
    """What the answer about a part says, formulas and items marked as in every block."""
    text = answer.strip()
    prompt = PROMPTS[label]
    is_whole = prompt == _TABLE and text.startswith("<table") and text.endswith("</table>")
    if not is_whole and not (prompt == _FORMULA and text.startswith("$$") and text.endswith("$$")):
        text = _RUN.sub(r"\1\1\1", _LITERAL_TABS.sub("", text).strip())
        text = without_repeats(text) if len(text) >= _LONG else text
    if prompt == _TABLE:
        return _IN_TABLE.sub(_marked, text)
    if prompt == _FORMULA:
        latex = _CLOSING.sub("", _OPENING.sub("", text).strip()).strip()
        return f"\\[\n{latex}\n\\]" if latex else ""
    text = re.sub(rf"\A{_SIGNS[label]}", "", text) if label in _SIGNS else text
    return _IN_TEXT.sub(_marked, text).strip()


def _marked(found: re.Match[str]) -> str:
    if "$" not in found[0]:
        return "• "
    latex = (found[1] or found[2]).strip()
    return f"\\({latex}\\)" if latex else found[0]


def without_repeats(text: str) -> str:
    """The text up to where it begins to say the same again and again, and that once."""
    longest = len(text) // _REPEATED
    unit = rf"(.{{{_REPEATED},{longest}}}?)\1{{{_REPEATED - 1},}}"
    if longest >= _REPEATED and (found := re.search(unit, text, re.DOTALL)):
        return text[: found.end(1)]
    lines = text.split("\n")
    filled = [index for index, line in enumerate(lines) if line.strip()]
    said = [lines[index].strip() for index in filled]
    common, count = Counter(said).most_common(1)[0]
    if count >= max(_REPEATED, _OF_LINES * len(said)):
        for place in range(len(said) - 2):
            if said[place : place + 3] == [common] * 3:
                return "\n".join(lines[: filled[place] + 1])
    return text
