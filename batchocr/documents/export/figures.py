"""The pictures of a document, cut out of its pages, and their files."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Final

from PIL import Image

from batchocr.data import Block, Box, Encoding, ErrorKind, Failure
from batchocr.documents.assembly.document import AssembledDocument, Piece, Place
from batchocr.documents.export.placing.document import DocumentText
from batchocr.pages.parts import encoded
from batchocr.pages.turning import PICTURE_IN_TABLE, box_named
from batchocr.processes.messages import Part
from batchocr.processes.source_files import SourceFile, SourceFiles, Steps, drawing

_MAX_PICTURES_IN_TABLE: Final = 200
"""The most pictures in a table: a layout never finds more, but a model may write any number."""

_NEAR: Final = 0.01
"""How far a picture may stand out of its table, as a share of the page."""

_NO_AREA: Final = Failure("damaged", "its box has no area")


@dataclass(frozen=True, slots=True)
class File:
    """A file to be written."""

    path: str
    """The file's path below the folder of the export, separated by `/`."""
    data: bytes | memoryview
    shows: str = ""
    """What a picture is of, as in Picture; empty if the file is no picture."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture as the content of a file."""

    data: bytes
    shows: str
    """What the picture is of: the same text for the same box of the same page of the same version of a document, in the
    same encoding."""


Cut = Iterator[tuple[Place, Picture | Failure]]
"""Places of a document, each with its picture or why there is none."""


class Figures:
    """The pictures of one document."""

    def __init__(
        self,
        document: AssembledDocument,
        file: SourceFile | Failure,
        sources: SourceFiles,
        earlier: Callable[[str], bytes | None],
        text: DocumentText,
    ) -> None:
        """file: the document's. earlier: gives the picture that an earlier export has cut, by what it shows."""
        self.text = text
        """The words of the document, and where they stand."""
        self.file = file
        self._rows = {row.page_index: row for row in document.rows}
        self._sources = sources
        self._earlier = earlier
        self.missing: dict[Place, ErrorKind] = {}
        """Why places could not be cut out, and were not cut by an earlier export."""

    def cut(self, places: Iterable[Place], encoding: Encoding) -> Cut:
        """Yield each place once, with its picture, upright, RGB, in px of the row's size, or as an earlier export has
        cut it; or why it cannot be had, for a mark in its place. Workers begin when this is called. Quickest in the
        order of pages; equal boxes are cut once."""
        by_page = groupby(dict.fromkeys(places), attrgetter("page_index"))
        drawn = self._sources.ahead((group := list(of_page), self._drawing(group, encoding)) for _, of_page in by_page)
        return ((place, self._picture(place, encoding, parts)) for group, parts in drawn for place in group)

    def _drawing(self, places: Sequence[Place], encoding: Encoding) -> Steps[Mapping[Part, bytes] | Failure]:
        parts = dict.fromkeys(self._part(place, encoding) for place in places)
        return drawing(self.file, self._rows[places[0].page_index], list(parts))

    def _part(self, place: Place, encoding: Encoding) -> Part:
        return place.bbox, encoding, _lies_turned_by(self._rows[place.page_index].blocks[place.block])

    def _picture(self, place: Place, encoding: Encoding, drawn: Mapping[Part, bytes] | Failure) -> Picture | Failure:
        shows = self._shows(place, encoding)
        if not isinstance(drawn, Failure):
            cut = drawn[self._part(place, encoding)]
            return Picture(cut, shows) if cut else _NO_AREA
        data = self._earlier(shows)
        if data is None and encoding == "jpeg" and (png := self._earlier(self._shows(place, "png"))) is not None:
            data = encoded(Image.open(io.BytesIO(png)), encoding)
        if data is None:
            self.missing[place] = drawn.kind
            return drawn
        return Picture(data, shows)

    def _shows(self, place: Place, encoding: Encoding) -> str:
        row = self._rows[place.page_index]
        turn = [angle] if (angle := _lies_turned_by(row.blocks[place.block])) else []
        return json.dumps([row.doc_id, place.page_index, row.width, row.height, *place.bbox, encoding, *turn])


def _lies_turned_by(block: Block) -> int:
    """By how many degrees a block lies turned clockwise: 90, 180 or 270; 0 if that is not known."""
    return block.angle if block.angle in (90, 180, 270) else 0


def pieces_of(document: AssembledDocument) -> Iterator[Piece]:
    """The document's pieces in the order in which they are shown, each with its captions and footnotes around it."""
    for part in document.parts:
        if isinstance(part, Piece):
            yield from part.with_captions


def picture_places(document: AssembledDocument) -> Iterator[Place]:
    """Where the document has figures, and pictures within tables, in the order of `pieces_of`."""
    for piece in pieces_of(document):
        if piece.kind.role == "figure":
            yield piece.places[0]
        elif piece.kind.role == "table" and piece.content and "#bbox=" in piece.content:
            yield from pictures_in_table(document, piece).values()


def pictures_in_table(document: AssembledDocument, table: Piece) -> Mapping[str, Place]:
    """The pictures that a table refers to, by what it calls them: `#bbox=…`; those alone that stand within it."""
    rows = {row.page_index: row for row in document.rows}
    found: dict[str, Place] = {}
    for place in table.places:
        content = rows[place.page_index].blocks[place.block].content or ""
        for name in dict.fromkeys(PICTURE_IN_TABLE.findall(content)):
            box = box_named(name)
            if len(found) < _MAX_PICTURES_IN_TABLE and _is_within(box, place.bbox):
                found.setdefault(name, replace(place, bbox=box))
    return found


def with_pictures(html: str, document: AssembledDocument, table: Piece, tag: Callable[[Place], str | None]) -> str:
    """The table with what `tag` makes of each of its pictures; one without a tag, or of no place in it, stays as it
    is."""
    if "#bbox=" not in html:
        return html
    places = pictures_in_table(document, table)

    def tagged(found: re.Match[str]) -> str:
        return (tag(places[found[1]]) if found[1] in places else None) or found[0]

    return PICTURE_IN_TABLE.sub(tagged, html)


def _is_within(box: Box, around: Box) -> bool:
    x0, y0, x1, y1 = around
    return x0 - _NEAR <= box[0] <= box[2] <= x1 + _NEAR and y0 - _NEAR <= box[1] <= box[3] <= y1 + _NEAR


def picture_files(cut: Cut, folder: str, pictures: dict[Place, str | Failure]) -> Iterator[File]:
    """Yield `FOLDER/page-P-block-B.png` for each place.

    Sets in `pictures` the path of each from the text beside the folder, or why there is none.
    """
    numbers: Counter[str] = Counter()
    for place, picture in cut:
        if isinstance(picture, Failure):
            pictures[place] = picture
            continue
        block = f"page-{place.page_index + 1}-block-{place.block}"
        numbers[block] += 1
        last = f"{block}-{numbers[block]}" if numbers[block] > 1 else block
        path = f"{folder}/{last}.png"
        pictures[place] = path[folder.rfind("/") + 1 :]
        yield File(path, picture.data, picture.shows)
