"""A document as a Markdown file, its figures as image files beside it.

As in the column `markdown`, nothing in it is active in a browser, whatever the model wrote; see SECURITY.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from html import escape
from typing import Final
from urllib.parse import quote

from batchocr.data import Failure
from batchocr.documents.assembly.document import AssembledDocument, Piece, Place, joined_markdown
from batchocr.documents.export.figures import Cut, Figures, File, picture_files, picture_places, with_pictures
from batchocr.documents.export.formats import FormatOptions
from batchocr.documents.export.words import missing_figure_in_words
from batchocr.pages.protocol.markdown import block_markdown, figure_markdown

REVISION: Final = 2

Pictures = Mapping[Place, str | Failure]
"""The path of the picture's file from that of the text, for each place with a picture; or why there is none."""

_NO_PICTURE: Final = "(picture not available)"


def files(document: AssembledDocument, name: str, figures: Figures, options: FormatOptions) -> Iterator[File]:
    """Yield `NAME.images/page-P-block-B.png` for each figure, then `NAME.md`; see `Format`."""
    return _files(document, name, figures.cut(picture_places(document), "png"), options)


def _files(document: AssembledDocument, name: str, cut: Cut, options: FormatOptions) -> Iterator[File]:
    pictures: dict[Place, str | Failure] = {}
    yield from picture_files(cut, f"{name}.images", pictures)
    yield File(f"{name}.md", document_markdown(document, pictures, options).encode())


def document_markdown(document: AssembledDocument, pictures: Pictures, options: FormatOptions) -> str:
    """The text of a document; ends with one newline, or is empty."""
    of_piece = partial(_piece_markdown, document, pictures)
    return joined_markdown(document.parts, of_piece, page_breaks=options.page_breaks)


def _piece_markdown(document: AssembledDocument, pictures: Pictures, piece: Piece) -> str:
    if piece.kind.role == "figure":
        return _figure(piece, pictures[piece.places[0]])
    text = block_markdown(piece.type, piece.content or "", level=piece.level)
    return with_pictures(text, document, piece, partial(_tag, pictures)) if piece.kind.role == "table" else text


def _figure(piece: Piece, picture: str | Failure) -> str:
    if isinstance(picture, Failure):
        what, why = missing_figure_in_words(piece, picture)
        return f"**{what}:** {block_markdown('text', why)}"
    return figure_markdown(piece.type, quote(picture, safe="/"), piece.content, piece.description)


def _tag(pictures: Pictures, place: Place) -> str:
    picture = pictures[place]
    return _NO_PICTURE if isinstance(picture, Failure) else f'<img src="{escape(quote(picture, safe="/"))}">'
