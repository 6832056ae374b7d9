"""The text of a document's pages and where it stands, in a file: written by an export, read by a worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, TypeAdapter

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Box = tuple[Share, Share, Share, Share]
"""x0, y0, x1, y1 as shares of the page as a viewer shows it."""


@dataclass(frozen=True, slots=True)
class Word:
    text: str
    box: Box


@dataclass(frozen=True, slots=True)
class PlacedLine:
    box: Box
    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class BlockWords:
    """A block with its lines, which run in the direction of `angle`, as in Block. number: its index in the row.
    is_whole: its lines could not be told apart, and it is one word with all its text."""

    number: int
    type: str
    box: Box
    angle: int
    confidence: float | None
    lines: tuple[PlacedLine, ...]
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class PageText:
    """width, height, dpi: as in the page's row; None if it could not be read. is_ok: whether all of it was."""

    page_index: int
    width: int | None
    height: int | None
    dpi: float | None
    blocks: tuple[BlockWords, ...]
    is_ok: bool = True


_PAGE: TypeAdapter[PageText] = TypeAdapter(PageText)


def line_of(page: PageText) -> bytes:
    """The page as a line of the file."""
    return _PAGE.dump_json(page) + b"\n"


def pages_in(path: str) -> Iterator[PageText]:
    """The pages of the file, one at a time."""
    with open(path, "rb") as file:
        for line in file:
            yield _PAGE.validate_json(line)
