"""PaddleOCR-VL's way of reading a page: a detector finds its parts, and the model reads nearly all of them.

Source: `pipelines/paddleocr_vl`, `layout_analysis/processors.py` and `PaddleOCR-VL*.yaml` of paddlex 3.7.2.
docs/models.md says what differs, and why.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final, TypeAlias

from PIL import Image

from batchocr.data import Block, Box, Page, Request, around, shared_area
from batchocr.pages.protocol.base import Reader, pixels_of
from batchocr.pages.protocol.detected_layout import (
    LEAST_PX,
    Found,
    found_in,
    one_of_each,
    type_of,
    within_page,
    without_contained,
    without_overlaps,
    without_whole_page,
)
from batchocr.pages.protocol.detected_parts import Parts, part_sampling, read_parts
from batchocr.pages.protocol.formulas import as_block, latex_of, with_marks
from batchocr.pages.protocol.otsl import table_html
from batchocr.pages.protocol.repeats import line_said_once, said_once
from batchocr.processes.messages import Setup

_OCR, _FORMULA = "OCR:", "Formula Recognition:"
_FORMULAS: Final = ("formula", "display_formula", "inline_formula")
_PROMPTS: Final[Mapping[str, str]] = {**dict.fromkeys(_FORMULAS, _FORMULA), "table": "Table Recognition:"}
"""The prompts by the detector's labels; what has another label is asked about with `OCR:`."""
_FIGURE_PROMPTS: Final[Mapping[str, str]] = {"chart": "Chart Recognition:", "seal": "Seal Recognition:"}
"""The prompts of figures by the detector's labels; figures are read on request."""
_PICTURES: Final = frozenset({"image", "header_image", "footer_image"})
"""The labels of pictures that are never read."""

_ALIGNED_PX: Final = 5
_GAP: Final = 0.5
"""The largest gap between two texts that are read together, as a share of the height of the higher one."""
_TALLEST: Final = 3
"""How many times as high as wide crops that are read together are at most; higher ones are read apart."""
_PAPER: Final = 200
"""The darkest level of grey that is no ink, if a crop goes from 0 to 255."""
_LEAST_CROP_PX: Final = 2
"""The px up to which a crop keeps its margin: without it, it would be no wider or higher."""

_SHARE_DIGITS: Final = 4
"""The digits that are left of a box's edges: a quarter of a pixel at 200 dpi."""

_LONG, _LONG_TABLE = 100, 5000
"""The lengths from which on answers, and answers that are tables, are looked at for what they say again and again."""
_ROUNDS, _LEAST_REPEATED = 5, 8
"""How often an answer has to say a thing for it to count as repeated, and the least letters of that thing; a shorter
one is taken several times."""


Group: TypeAlias = list[Found]
"""The parts that are read together; mostly only one. Boxes are in pixels."""


def protocol(setup: Setup) -> PaddleProtocol:
    """The protocol with the options of a run."""
    return PaddleProtocol(
        max_new_tokens=setup.max_new_tokens,
        penalties=setup.penalties,
        read_figures=setup.figures == "read",
        detector=setup.detector,
    )


class PaddleProtocol:
    """Reads pages as PaddleOCR-VL's own pipeline does.

    max_new_tokens: per block. penalties: False decodes without any rules. read_figures: charts and seals are read.
    detector: the fingerprint of that which is asked for layouts.
    """

    def __init__(self, *, max_new_tokens: int, penalties: bool, read_figures: bool, detector: str) -> None:
        self._max_new_tokens = max_new_tokens
        self._penalties = penalties
        self._detector = detector
        self._unread = _PICTURES if read_figures else _PICTURES | _FIGURE_PROMPTS.keys()

    def read(self, page: Page) -> Reader:
        """Return the generator that reads this page: a batch about its layout, then one about its blocks.
        Raises RefusedError."""
        return read_parts(page, self._detector, self._asked, cleaned)

    def _asked(self, layout: str, image: Image.Image) -> tuple[Parts, dict[int, Request]]:
        groups = groups_of(kept_of(found_in(layout), *image.size), self._unread | {"table"})
        labels = [group[0].label for group in groups]
        requests = {
            index: self._request(label, crop_of(image, group))
            for index, (label, group) in enumerate(zip(labels, groups, strict=True))
            if label not in self._unread
        }
        joined = {index for index, group in enumerate(groups) if len(group) > 1}
        return Parts(labels, [_block(group, *image.size) for group in groups], joined), requests

    def _request(self, label: str, crop: Image.Image) -> Request:
        prompt = {**_FIGURE_PROMPTS, **_PROMPTS}.get(label, _OCR)
        sampling = part_sampling(self._max_new_tokens, penalties=self._penalties, is_table=label == "table")
        return Request(pixels_of(without_margin(crop) if prompt == _FORMULA else crop), prompt, sampling, round=1)


def kept_of(found: Sequence[Found], width: int, height: int) -> list[Found]:
    """The parts of a page, in pixels. width, height: of the page in px."""
    found = [replace(each, box=_in_pixels(each.box, width, height)) for each in found]
    found = without_contained(without_whole_page(one_of_each(found, (1, 1)), width, height, (width, height)))
    found = [replace(each, box=within_page(each.box, width, height)) for each in found if each.label != "reference"]
    return without_overlaps([each for each in found if _least_side(each.box) >= LEAST_PX])


def groups_of(found: Sequence[Found], apart: Collection[str]) -> list[Group]:
    """The parts in groups that are read together, in reading order: what lies between two texts that are read together
    comes after them. apart: labels of figures and tables."""
    obstacles = [each for each in found if each.label in apart]
    groups, last = list[Group](), Group()
    for each in found:
        if each.label in apart:
            groups.append([each])
        elif last and _goes_on(last[-1], each, obstacles):
            last.append(each)
        else:
            last = [each]
            groups.append(last)
    return [each for group in groups for each in _not_too_tall(group)]


def _goes_on(before: Found, after: Found, obstacles: Sequence[Found]) -> bool:
    """Whether a text may go on in another one: the other is below it, and an obstacle moves one of its edges."""
    if before.label != "text" or after.label != "text":
        return False
    (x0, y0, x1, y1), (left, top, right, bottom) = before.box, after.box
    is_below = bottom >= y0 and abs(top - y1) < _GAP * max(y1 - y0, bottom - top) and left < x1 and right > x0
    at_left, at_right = _aligned(before, after)
    both = around([before.box, after.box])
    return is_below and at_left != at_right and any(shared_area(both, each.box) for each in obstacles)


def _aligned(one: Found, other: Found) -> tuple[bool, bool]:
    """Whether two boxes begin, and whether they end, at the same place."""
    return abs(one.box[0] - other.box[0]) <= _ALIGNED_PX, abs(one.box[2] - other.box[2]) <= _ALIGNED_PX


def _not_too_tall(group: Group) -> list[Group]:
    """The group; or each part by itself, if all below each other are far higher than wide."""
    widths, heights = zip(*((x1 - x0, y1 - y0) for x0, y0, x1, y1 in (each.box for each in group)), strict=True)
    return [[each] for each in group] if sum(heights) >= _TALLEST * max(widths) else [group]


def crop_of(image: Image.Image, group: Group) -> Image.Image:
    """The pixels of what is read together, below each other on white paper."""
    sheet = image.crop(group[0].box)
    for before, after in pairwise(group):
        crop, (at_left, _) = image.crop(after.box), _aligned(before, after)
        above, width = sheet, max(sheet.width, crop.width)
        sheet = Image.new("RGB", (width, above.height + crop.height), "white")
        sheet.paste(above, (0 if at_left else width - above.width, 0))
        sheet.paste(crop, (0 if at_left else width - crop.width, above.height))
    return sheet


def without_margin(crop: Image.Image) -> Image.Image:
    """The part of a crop that has ink; all of it if there is hardly any."""
    grey = crop.convert("L")
    low, high = grey.getextrema()
    assert isinstance(low, int) and isinstance(high, int)  # there is one band
    span = max(1, high - low)
    ink = grey.point([255 if int((level - low) / span * 255) <= _PAPER else 0 for level in range(256)]).getbbox()
    return crop.crop(ink) if low < high and ink and _least_side(ink) > _LEAST_CROP_PX else crop


def cleaned(label: str, answer: str) -> str:
    """What the answer about a part says, formulas marked as in every block."""
    text = answer.strip()
    if len(text) > (_LONG_TABLE if label == "table" else _LONG):
        text = line_said_once(text) if "\n" in text else said_once(text, _ROUNDS, unit=_LEAST_REPEATED, share=0.5)
    if label == "table":
        return table_html(text) or text
    if label in _FORMULAS:
        return as_block(text)
    if label == "formula_number":
        return latex_of(text)
    return _chart_table(text) if label == "chart" else with_marks(text)


def _chart_table(text: str) -> str:
    """A chart's values as a table in Markdown, if they are one: its columns are separated, its heading is not."""
    head, *rows = text.split("\n")
    if "|" not in head or not rows or not rows[0].strip("|-: "):
        return text
    return "\n".join([head, "|".join(["---"] * (head.strip().strip("|").count("|") + 1)), *rows])


def _block(group: Group, width: int, height: int) -> Block:
    edges = zip(around([each.box for each in group]), (width, height) * 2, strict=True)
    x0, y0, x1, y1 = (round(edge / side, _SHARE_DIGITS) for edge, side in edges)
    return Block(type_of(group[0].label), (x0, y0, x1, y1), None, None)


def _in_pixels(box: Box, width: int, height: int) -> Box:
    x0, y0, x1, y1 = (round(share * side) for share, side in zip(box, (width, height) * 2, strict=True))
    return x0, y0, x1, y1


def _least_side(box: Box) -> float:
    x0, y0, x1, y1 = box
    return min(x1 - x0, y1 - y0)
