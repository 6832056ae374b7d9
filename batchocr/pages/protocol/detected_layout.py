"""What a layout detector found on a page, as blocks: merged as its authors do it, under the names of our types.

Knows PP-DocLayoutV2 and V3, and no model that reads the blocks. `detected_blocks` has the rules of the detectors'
authors; a family whose authors have others puts them together from the same functions.
Source: PaddleX, pipelines/PaddleOCR-VL.yaml, layout_analysis/processors.py and object_detection/processors.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from batchocr.data import Box, box_area, box_overlap, shared_area

BLOCK_TYPES: Final[Mapping[str, str]] = {
    "abstract": "text",
    "algorithm": "algorithm",
    "aside_text": "aside_text",
    "chart": "chart",
    "content": "index",
    "display_formula": "equation",
    "doc_title": "doc_title",
    "figure_title": "caption",
    "footer": "footer",
    "footer_image": "footer",
    "footnote": "page_footnote",
    "formula": "equation",
    "formula_number": "formula_number",
    "header": "header",
    "header_image": "header",
    "image": "image",
    "inline_formula": "equation",
    "number": "page_number",
    "paragraph_title": "paragraph_title",
    "reference": "ref_text",
    "reference_content": "ref_text",
    "seal": "image",
    "table": "table",
    "text": "text",
    "vertical_text": "text",
    "vision_footnote": "footnote",
}
"""The detectors' labels → types of blocks; another label is `unknown`, and read as text."""

_SAME_CLASS, _OTHER_CLASS = 0.6, 0.98
"""The overlap, as intersection over union, from which on two boxes are of one thing: two of one class, and two of
different classes."""

_HOLDS_ALL: Final = frozenset({"chart", "display_formula", "formula", "inline_formula", "doc_title", "paragraph_title"})
_WITHIN: Final = 0.9
"""The share of a box that lies in a box of one of these classes if the box within is dropped."""

_FIGURES: Final = frozenset({"image", "table", "seal", "chart"})
_OVERLAP, _FORMULA_OVERLAP = 0.7, 0.5
"""The share of the smaller of two boxes that the other covers if they overlap: the smaller one is dropped, or the
formula within a text."""

_WHOLE_PAGE: Final = {"lying": 0.82, "standing": 0.93}
"""The share of the page above which an image is the page itself, if there is anything else, by how the page lies."""

LEAST_PX: Final = 6
"""What is less wide or high holds nothing."""
_SHARE_DIGITS: Final = 3


@dataclass(frozen=True, slots=True)
class Found:
    """Something that a detector found."""

    label: str
    score: float
    box: Box
    """The found box, in shares of the page, or in pixels; it may reach over an edge."""

    @property
    def area(self) -> float:
        return box_area(self.box)

    def shares(self, other: Found) -> float:
        """What is in both boxes, as a share of the smaller."""
        least = min(self.area, other.area)
        return shared_area(self.box, other.box) / least if least else 0.0

    def lies_in(self, other: Found, least_share: float) -> bool:
        """Whether at least this share of the box is in the other, which is larger; of two boxes alike, in the surer
        one."""
        is_larger = (other.area, other.score) > (self.area, self.score)
        return is_larger and shared_area(self.box, other.box) >= least_share * self.area


def detected_blocks(answer: str, width: int, height: int) -> list[tuple[str, Box]]:
    """The blocks in reading order: their types, and where they are in shares of the page, in thousandths.

    answer: of `engine/model/detector.py`. width, height: of the page in px.
    """
    found = [replace(each, box=_rounded(within_page(each.box))) for each in found_in(answer)]
    merged = without_overlaps(without_contained(without_whole_page(one_of_each(found), width, height)))
    return [
        (type_of(each.label), each.box)
        for each in merged
        if (each.box[2] - each.box[0]) * width >= LEAST_PX and (each.box[3] - each.box[1]) * height >= LEAST_PX
    ]


def found_in(answer: str) -> list[Found]:
    """All that a detector found, in its order."""
    return [Found(label, score, (x0, y0, x1, y1)) for label, score, x0, y0, x1, y1 in json.loads(answer or "[]")]


def type_of(label: str) -> str:
    """The type of block that a label stands for."""
    return BLOCK_TYPES.get(label, "unknown")


def within_page(box: Box, width: float = 1.0, height: float = 1.0) -> Box:
    """The part of the box that is on the page. width, height: of the page, in the box's unit."""
    x0, y0, x1, y1 = (min(side, max(0.0, edge)) for edge, side in zip(box, (width, height) * 2, strict=True))
    return x0, y0, x1, y1


def _rounded(box: Box) -> Box:
    x0, y0, x1, y1 = (round(share, _SHARE_DIGITS) for share in box)
    return x0, y0, x1, y1


def one_of_each(found: Sequence[Found], pixel: tuple[float, float] = (0.0, 0.0)) -> list[Found]:
    """The boxes, without those for which there is a surer box of the same thing. pixel: by how much they are taken to
    be wider and higher."""

    def grown(each: Found) -> Box:
        x0, y0, x1, y1 = each.box
        return x0, y0, x1 + pixel[0], y1 + pixel[1]

    kept: list[Found] = []
    for each in sorted(found, key=lambda each: -each.score):
        limits = ((other, _SAME_CLASS if each.label == other.label else _OTHER_CLASS) for other in kept)
        if all(box_overlap(grown(each), grown(other)) < limit for other, limit in limits):
            kept.append(each)
    return [each for each in found if any(each is other for other in kept)]


def without_whole_page(
    found: Sequence[Found], width: int, height: int, unit: tuple[float, float] = (1.0, 1.0)
) -> list[Found]:
    """The boxes, without images that are the page itself, if there is anything else. width, height: of the page in px.
    unit: its sides in that of the boxes."""
    largest = _WHOLE_PAGE["lying" if width > height else "standing"] * unit[0] * unit[1]
    kept = [each for each in found if each.label != "image" or box_area(within_page(each.box, *unit)) <= largest]
    return kept or list(found)


def without_contained(found: Sequence[Found]) -> list[Found]:
    """The boxes, without those that lie in a chart, a formula or a title."""
    holders = [each for each in found if each.label in _HOLDS_ALL]
    return [each for each in found if not any(each.lies_in(other, _WITHIN) for other in holders)]


def without_overlaps(found: Sequence[Found]) -> list[Found]:
    """The boxes, without frames around references that were found, formulas within text, and the smaller of two that
    overlap, unless one of them is a figure; a table counts as a figure only beside other figures."""
    dropped: set[int] = set()
    for first, one in enumerate(found):
        for second, other in enumerate(found[first + 1 :], first + 1):
            if first in dropped or second in dropped:
                continue
            shared, labels = one.shares(other), {one.label, other.label}
            if labels == {"reference", "reference_content"} and shared > _OVERLAP:
                dropped.add(first if one.label == "reference" else second)
            elif "inline_formula" in labels:
                if shared > _FORMULA_OVERLAP:
                    dropped |= {index for index in (first, second) if found[index].label == "inline_formula"}
            elif shared > _OVERLAP and not _may_overlap(labels):
                dropped.add(second if one.area >= other.area else first)
    return [each for index, each in enumerate(found) if index not in dropped]


def _may_overlap(labels: set[str]) -> bool:
    return len(labels) > 1 and bool(labels & _FIGURES) and ("table" not in labels or labels <= _FIGURES)
