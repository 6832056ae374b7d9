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
    """A block with its lines, which run in the direction of `angle`."""

    number: int
    """The block's index in the page's row."""
    type: str
    box: Box
    angle: int
    """By how many degrees the block lies turned clockwise on the page; as `angle` of Block."""
    confidence: float | None
    lines: tuple[PlacedLine, ...]
    is_whole: bool = False
    """Whether the block's lines could not be told apart, so that it is one word with all its text."""


@dataclass(frozen=True, slots=True)
class PageText:
    """A page with its words."""

    page_index: int
    width: int | None
    """The width of the page, as its row has it; None if the page could not be read."""
    height: int | None
    """The height of the page, as its row has it; None if the page could not be read."""
    dpi: float | None
    """The resolution of the page, as its row has it; None if it is not known."""
    blocks: tuple[BlockWords, ...]
    is_ok: bool = True
    """Whether all of the page was read."""


_PAGE: TypeAdapter[PageText] = TypeAdapter(PageText)


def line_of(page: PageText) -> bytes:
    """The page as a line of the file."""
    return _PAGE.dump_json(page) + b"\n"


def pages_in(path: str) -> Iterator[PageText]:
    """The pages of the file, one at a time."""
    with open(path, "rb") as file:
        for line in file:
            yield _PAGE.validate_json(line)
