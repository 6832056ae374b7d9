"""Which part of a piece stands where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from batchocr.data import PageResult
from batchocr.documents.assembly.document import Piece, Place


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a piece's text that stands in a place. start, end: as shares of the text."""

    place: Place
    start: float
    end: float


def shares_of(piece: Piece, rows: Mapping[int | None, PageResult]) -> list[Share]:
    """For each place of the piece its share, by the length of the text there. rows: by page."""
    if len(piece.places) == 1:
        return [Share(piece.places[0], 0.0, 1.0)]
    lengths = [len(rows[place.page_index].blocks[place.block].content or "") for place in piece.places]
    total = sum(lengths) or 1
    ends = [length / total for length in accumulate(lengths)]
    return [Share(place, start, end) for place, start, end in zip(piece.places, [0.0, *ends[:-1]], ends, strict=True)]
