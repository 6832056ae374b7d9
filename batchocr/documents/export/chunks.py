"""A document in chunks for retrieval: JSON Lines, each a text of a size that knows its headings, pages and boxes."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from batchocr.documents.assembly.document import AssembledDocument, Gap, PageEnd, Piece, Place
from batchocr.documents.assembly.tables import table_cells
from batchocr.documents.export.cutting import CutText, cut_table, cut_text
from batchocr.documents.export.figures import Figures, File
from batchocr.documents.export.formats import FormatOptions
from batchocr.documents.export.words import shares_of
from batchocr.pages.protocol.markdown import block_markdown, code_in
from batchocr.pages.protocol.sanitize import inert_table

REVISION: Final = 2

_BETWEEN: Final = "\n\n"
_NEAR: Final = 0.01
"""How far a part of a piece may reach into a block, as a share of the piece, without being in it: where the text of two
blocks was joined, characters were left out."""


def files(document: AssembledDocument, name: str, figures: Figures, options: FormatOptions) -> Iterator[File]:
    """Yield `NAME.chunks.jsonl`; see `Format`."""
    lines = [json.dumps(chunk, ensure_ascii=False) + "\n" for chunk in chunks(document, options.max_chars)]
    yield File(f"{name}.chunks.jsonl", "".join(lines).encode())


def chunks(document: AssembledDocument, max_chars: int) -> list[dict[str, Any]]:
    """The document's chunks in reading order. Text is Markdown, as in `md`, without figures.

    A chunk holds what stands below one heading, begins with the headings that come right before it, and is longer than
    `max_chars` only where a heading is, or a single table row or formula with its headings, caption or header row.
    """
    gathering = _Gathering(document, max_chars)
    for part in document.parts:
        if isinstance(part, Gap):
            gathering.end_text()
        elif isinstance(part, PageEnd):
            continue
        elif part.kind.role == "heading":
            gathering.add_heading(part)
        else:
            gathering.add(part.with_captions)
    return gathering.finished()


class _Gathering:
    """Chunks while they are made."""

    def __init__(self, document: AssembledDocument, max_chars: int) -> None:
        self._document = document
        self._rows = {row.page_index: row for row in document.rows}
        self._max_chars = max_chars
        self._chunks: list[dict[str, Any]] = []
        self._seen: Counter[str] = Counter()
        self._path: list[tuple[int, str]] = []
        self._texts: list[str] = []
        self._places: list[Place] = []
        self._has_headings_only = True

    def finished(self) -> list[dict[str, Any]]:
        self._end()
        return self._chunks

    def end_text(self) -> None:
        """End the chunk; a chunk that holds nothing but headings goes on."""
        if not self._has_headings_only:
            self._end()

    def add_heading(self, piece: Piece) -> None:
        """Begin what stands below this heading."""
        level = piece.level or 1
        text = block_markdown(piece.type, piece.content or "", level=level)
        if not text:
            return
        self.end_text()
        if len(text) > self._room() // 2:
            self._end()
        self._path = [*(above for above in self._path if above[0] < level), (level, text.lstrip("#").strip())]
        self._append(text, piece.places)

    def add(self, group: Sequence[Piece]) -> None:
        """Add what belongs together: a piece with its captions and footnotes."""
        pieces = [(piece, text) for piece in group if (text := block_markdown(piece.type, piece.content or ""))]
        if not pieces:
            return
        length = len(_BETWEEN.join(text for _, text in pieces))
        if length > self._room():
            self.end_text()
        for piece, text in pieces:
            if len(text) <= self._room():
                self._append(text, piece.places)
            else:
                self._append_parts(piece, text)
            self._has_headings_only = False

    def _append_parts(self, piece: Piece, text: str) -> None:
        """Append a piece for which there is no room, in as many chunks as it takes."""
        if self._room() <= self._max_chars // 4:
            self._end()
        for number, part in enumerate(self._cut(piece, text)):
            if number:
                self._end()
            self._append(part.text, self._places_of(piece, part))

    def _room(self) -> int:
        """How long a text may be that is added now; below 0 behind a longer heading, row or formula."""
        return self._max_chars - sum(len(text) + len(_BETWEEN) for text in self._texts)

    def _append(self, text: str, places: Sequence[Place]) -> None:
        self._texts.append(text)
        self._places += places

    def _cut(self, piece: Piece, text: str) -> Iterator[CutText]:
        """The piece in parts, the first for what room there is."""
        content = (piece.content or "").strip()
        if piece.kind.role == "formula":
            return iter([CutText(text, 0.0, 1.0)])
        if piece.kind.role == "table" and content.startswith("<table"):
            table = table_cells(inert_table(content))
            if table is None:
                return iter([CutText(text, 0.0, 1.0)])
            parts = cut_table(table, self._room(), self._max_chars)
            # Once more: what two rows make together may act, and they were apart.
            return (replace(part, text=inert_table(part.text)) for part in parts)
        if piece.kind.role == "code":
            language, code = code_in(content)
            return cut_text(code, lambda code: _code(language, code), self._room(), self._max_chars)
        return cut_text(content, partial(block_markdown, piece.type), self._room(), self._max_chars)

    def _places_of(self, piece: Piece, part: CutText) -> list[Place]:
        """Where the part stands: the places of the blocks whose text it has."""
        found = [
            share.place
            for share in shares_of(piece, self._rows)
            if share.start < part.end - _NEAR and part.start + _NEAR < share.end
        ]
        return found or list(piece.places)

    def _end(self) -> None:
        """End the chunk, and begin the next below the same headings."""
        if self._texts:
            text = _BETWEEN.join(self._texts)
            places = list(dict.fromkeys(self._places))
            pages = sorted({place.page_index + 1 for place in places})
            self._chunks.append(
                {
                    "id": self._new_id(pages, text),
                    "source": self._document.source,
                    "doc_id": self._document.doc_id,
                    "pages": pages,
                    "boxes": [{"page": place.page_index + 1, "bbox": list(place.bbox)} for place in places],
                    "heading_path": [title for _, title in self._path],
                    "text": text,
                }
            )
        self._texts, self._places, self._has_headings_only = [], [], True

    def _new_id(self, pages: list[int], text: str) -> str:
        """An id that stays the same for the same text on the same pages; another if that is there a second time."""
        said = json.dumps([self._document.source, pages, text])
        self._seen[said] += 1
        return hashlib.sha256(f"{said}{self._seen[said]}".encode()).hexdigest()[:32]


def _code(language: str, code: str) -> str:
    return block_markdown("code", f"```{language}\n{code.strip(chr(10))}\n```")
