"""A document as a text file for each page, under names that the user chooses: what benchmarks score."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from batchocr.documents.assembly.assemble import assemble
from batchocr.documents.assembly.document import AssembledDocument
from batchocr.documents.export.data_text import text_of
from batchocr.documents.export.figures import Figures, File, pieces_of
from batchocr.documents.export.formats import FormatOptions
from batchocr.documents.export.names import safe_part
from batchocr.documents.export.refusal import FileRefusedError
from batchocr.errors import UsageError

REVISION: Final = 1


def files(document: AssembledDocument, name: str, figures: Figures, options: FormatOptions) -> Iterator[File]:
    """Yield a file for each row, empty if nothing was read; so is the first page of a document that could not be
    opened. See `Format`. Raises FileRefusedError if two pages would have the same name."""
    levels = {piece.places[0]: piece.level for piece in pieces_of(document)}
    texts: dict[str, str] = {}
    for row in document.rows:
        path = options.page_names.format(stem=name, page=(row.page_index or 0) + 1)
        if path in texts:
            raise FileRefusedError(f"several of its pages would be {path}: put {{page}} into --page-names")
        # Alone, so that nothing of the next page is joined to it; its headings have the levels of the document.
        pieces = pieces_of(assemble(document.source, [row]))
        text = text_of(replace(piece, level=levels.get(piece.places[0], piece.level)) for piece in pieces)
        texts[path] = f"{text}\n" if text else ""
    for path, text in texts.items():
        yield File(path, text.encode())


def as_page_names(names: str) -> str:
    """The names of pages' files, as in FormatOptions. Raises UsageError if they lead out of the folder, or name no
    document."""
    try:
        path, other = (names.format(stem=stem, page=1) for stem in "ab")
    except (LookupError, ValueError, AttributeError):
        path = other = ""
    if path == other or any(part != safe_part(part) for part in path.split("/")):
        raise UsageError(f"--page-names {names!r}: give a path within DIR that has {{stem}}, as {{stem}}_pg{{page}}.md")
    return names
