"""A document as one page to read in a browser, its figures as image files beside it.

Nothing in it is active and nothing comes from elsewhere, whatever the model wrote: see `documents/markup/html` and
SECURITY.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

from markupsafe import Markup

from batchocr.data import Failure, letters_end
from batchocr.documents.assembly.document import AssembledDocument, Gap, PageEnd, Piece, Place
from batchocr.documents.export.figures import Cut, Figures, File, picture_files, picture_places, pictures_in_table
from batchocr.documents.export.formats import FormatOptions
from batchocr.documents.export.md import Pictures
from batchocr.documents.export.words import missing_figure_in_words
from batchocr.documents.markup.html import block_html, inline_html
from batchocr.documents.markup.mathml import shown_characters
from batchocr.documents.markup.own_files import own_template, own_text, policy_hash

REVISION: Final = 2

_PACKAGE: Final = "batchocr.documents.export"
_LOWEST_HEADING: Final = 6
_PICTURE: Final = re.compile('<span class="picture" data-bbox="([^"]*)"></span>')
_MAX_TITLE: Final = 200


def files(document: AssembledDocument, name: str, figures: Figures, options: FormatOptions) -> Iterator[File]:
    """Yield `NAME.html.images/page-P-block-B.png` for each figure, then `NAME.html`; see `Format`."""
    return _files(document, name, figures.cut(picture_places(document), "png"))


def _files(document: AssembledDocument, name: str, cut: Cut) -> Iterator[File]:
    pictures: dict[Place, str | Failure] = {}
    yield from picture_files(cut, f"{name}.html.images", pictures)
    yield File(f"{name}.html", document_html(document, pictures).encode())


def document_html(document: AssembledDocument, pictures: Pictures) -> str:
    """The document as a page of HTML. pictures: of each place with a picture, the path of its file from the page; or
    why there is none."""
    pieces = (part for part in document.parts if isinstance(part, Piece) and part.content)
    headings = [piece for piece in pieces if piece.kind.role == "heading"]
    page = _Page(document, pictures)
    parts = [page.part(part) for part in document.parts]
    source = shown_characters(document.source)
    title = shown_characters(headings[0].content or "") if headings else source
    style = own_text(_PACKAGE, "page.css")
    return own_template(_PACKAGE, "page.html.j2").render(
        title=title[: letters_end(title, _MAX_TITLE)],
        source=source,
        page_count=document.page_count,
        outline=[_heading(piece) for piece in headings],
        num_gaps=page.num_gaps,
        parts=[part for part in parts if part],
        style=Markup(style),
        style_hash=policy_hash(style),
    )


class _Page:
    """The parts of a page of HTML, which shows a document."""

    def __init__(self, document: AssembledDocument, pictures: Pictures) -> None:
        self._document = document
        self._pictures = pictures
        self.num_gaps = 0
        """How many marks of something missing were written so far."""

    def part(self, part: Piece | Gap | PageEnd) -> Markup:
        if isinstance(part, Gap):
            return self._gap(*part.in_words)
        if isinstance(part, PageEnd):
            number = part.page_index + 1
            return Markup('<div class="page" id="end-of-page-{0}">end of page {0}</div>').format(number)
        shown = Markup("\n").join(filter(None, (self._piece(piece) for piece in part.with_captions)))
        if not shown:
            return shown
        tag = "figure" if part.kind.role in ("figure", "table") else "div"
        return Markup('<{0} class="piece" id="{1}">{2}</{0}>').format(tag, _id(part), shown)

    def _piece(self, piece: Piece) -> Markup:
        if piece.kind.role == "figure":
            return self._figure(piece)
        made = block_html(piece.type, piece.content, level=piece.level)
        if piece.kind.role == "table":
            made = self._with_pictures(made, piece)
        name = piece.kind.html
        return Markup(f'<div class="{name}">{made}</div>' if made and name else made)

    def _figure(self, piece: Piece) -> Markup:
        picture = self._pictures[piece.places[0]]
        if isinstance(picture, Failure):
            return self._gap(*missing_figure_in_words(piece, picture))
        text = piece.description or f"{piece.type} of page {piece.places[0].page_index + 1}"
        image = Markup('<img src="{}" alt="{}">').format(quote(picture, safe="/"), shown_characters(text))
        said = "" if piece.content == piece.description else block_html(piece.type, piece.content)
        return image + Markup(f'<div class="wide">{said}</div>' if said else "")

    def _with_pictures(self, table: str, piece: Piece) -> str:
        """The table with its pictures."""
        if 'class="picture"' not in table:
            return table
        places = pictures_in_table(self._document, piece)

        def tag(found: re.Match[str]) -> str:
            picture = self._pictures.get(places[name]) if (name := f"#bbox={found[1]}") in places else None
            if not isinstance(picture, str):
                return "(picture not available)"
            return Markup('<img src="{}" alt="">').format(quote(picture, safe="/"))

        return _PICTURE.sub(tag, table)

    def _gap(self, what: str, why: str) -> Markup:
        self.num_gaps += 1
        return Markup('<p class="gap" id="gap-{}"><strong>{}:</strong> {}</p>').format(
            self.num_gaps, what, shown_characters(why)
        )


def _heading(piece: Piece) -> dict[str, object]:
    """A line of the table of contents. id: of the piece on the page."""
    title = Markup(inline_html(" ".join((piece.content or "").split())))
    return {"level": min(piece.level or 1, _LOWEST_HEADING), "title": title, "id": _id(piece)}


def _id(piece: Piece) -> str:
    """The id of a piece on the page, as in the names of figures' files."""
    place = piece.places[0]
    return f"page-{place.page_index + 1}-block-{place.block}"
