"""A document as Docling's JSON, for all that reads a DoclingDocument. Needs the extra `docling`.

Text is what the model wrote, with formulas between dollar signs: Docling's own exporters escape it.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from pydantic import AnyUrl

from batchocr.data import Block, Failure, PageResult
from batchocr.documents.assembly.document import AssembledDocument, Gap, PageEnd, Piece, Place
from batchocr.documents.assembly.tables import TableCells, cell_text, clean_table
from batchocr.documents.export.figures import Cut, Figures, File, Picture, pieces_of
from batchocr.documents.export.formats import FormatOptions
from batchocr.documents.export.words import Share, list_items, shares_of, with_dollars
from batchocr.errors import UsageError
from batchocr.pages.kinds import kind_of
from batchocr.pages.parts import pixel_box
from batchocr.pages.protocol.markdown import code_in, figure_parts, latex_in
from batchocr.pages.protocol.sanitize import harmless_characters
from batchocr.pages.turning import turned_box

try:
    from docling_core.types.doc import (
        BoundingBox,
        CodeItem,
        CodeLanguageLabel,
        ContentLayer,
        CoordOrigin,
        DescriptionMetaField,
        DocItemLabel,
        DoclingDocument,
        DocumentOrigin,
        ImageRef,
        ListItem,
        PictureItem,
        PictureMeta,
        ProvenanceItem,
        Size,
        TableCell,
        TableData,
        TableItem,
        TextItem,
    )
except ImportError as error:
    raise UsageError("--format docling needs docling-core: pip install '.[docling]' in a clone of batchocr") from error

REVISION: Final = 4

_LANGUAGES: Final = {language.value.lower(): language for language in CodeLanguageLabel}
_MIME_TYPES: Final = {"pdf": "application/pdf"} | {
    name: f"image/{name}" for name in ("png", "jpeg", "tiff", "gif", "bmp")
}
"""The image types that Docling takes on every machine, by suffix. It refuses others, unless the system that reads them
has a table of its own with image/webp and the like in it."""
_SAME_SUFFIX: Final = {"jpg": "jpeg", "jfif": "jpeg", "tif": "tiff", "dib": "bmp"}
_POINTS_PER_INCH: Final = 72
_MAX_LEVEL: Final = 100


def files(document: AssembledDocument, name: str, figures: Figures, options: FormatOptions) -> Iterator[File]:
    """Yield `NAME.docling.json` with its figures in it, as Docling looks for files from where it is run; see `Format`.

    Pages are in points where the resolution is known, else in px; boxes from the top left; page headers and footers as
    furniture.
    """
    places = (piece.places[0] for piece in pieces_of(document) if piece.kind.role == "figure")
    return _files(document, name, figures.cut(places, "png"))


def _files(document: AssembledDocument, name: str, cut: Cut) -> Iterator[File]:
    writer = _Writer(document, name.rpartition("/")[2], dict(cut))
    for part in document.parts:
        if isinstance(part, Gap):
            writer.add_gap(part)
        elif isinstance(part, PageEnd):
            writer.add_furniture(part.page_index)
        else:
            writer.add(part)
    yield File(f"{name}.docling.json", writer.made.model_dump_json(by_alias=True, exclude_none=True).encode())


class _Writer:
    """A DoclingDocument while it is made."""

    def __init__(self, document: AssembledDocument, name: str, pictures: Mapping[Place, Picture | Failure]) -> None:
        self._pictures = pictures
        self._rows: dict[int | None, PageResult] = {row.page_index: row for row in document.rows}
        self.made = DoclingDocument(name=name, origin=_origin(document))
        for row in document.rows:
            if row.page_index is not None and row.width and row.height:
                size = Size(width=row.width * _scale(row), height=row.height * _scale(row))
                self.made.add_page(page_no=row.page_index + 1, size=size)

    def add_gap(self, gap: Gap) -> None:
        """Add a paragraph that says what is missing."""
        self.made.add_text(label=DocItemLabel.TEXT, text=": ".join(gap.in_words))

    def add_furniture(self, page_index: int) -> None:
        """Add what belongs to the sheet of this page rather than to the text."""
        for number, block in enumerate(self._rows[page_index].blocks):
            text = _text(block.content)
            if kind_of(block.type).role == "furniture" and text:
                place = Place(page_index, block.bbox, number)
                self.made.add_text(
                    label=_furniture_label(block, self._rows[page_index].orientation or 0),
                    text=text,
                    prov=self._provenance(Share(place, 0.0, 1.0), text),
                    content_layer=ContentLayer.FURNITURE,
                )

    def add(self, piece: Piece) -> None:
        """Add a piece with its captions and footnotes, and what was read in a figure. The footnotes stand behind the
        piece: Docling's exporters leave out those that are part of a table."""
        captions = [self._add_text(caption, DocItemLabel.CAPTION) for caption in piece.captions]
        item: PictureItem | TableItem | CodeItem | None = None
        role = piece.kind.role
        if role == "figure":
            item = self._add_picture(piece)
            if piece.description:
                item.meta = PictureMeta(description=DescriptionMetaField(text=harmless_characters(piece.description)))
        elif role == "table" and (table := clean_table(harmless_characters(piece.content or "").strip())):
            own = replace(piece, content=_text(cell_text(table.caption)), places=piece.places[:1])
            captions.append(self._add_text(own, DocItemLabel.CAPTION))
            item = self.made.add_table(data=_table_data(table))
        elif role == "code":
            item = self._add_code(piece)
        else:
            self._add_text(piece)
        if item is not None:
            item.prov = self._all_provenance(piece, getattr(item, "text", ""))
            item.captions = [caption.get_ref() for caption in captions if caption is not None]
        for footnote in piece.footnotes:
            self._add_text(footnote, DocItemLabel.FOOTNOTE)
        if role == "figure" and piece.content and piece.content != piece.description:
            for kind, part in figure_parts(piece.content):
                self.add(replace(piece, type=kind, content=part, captions=(), footnotes=()))

    def _add_text(self, piece: Piece, label: DocItemLabel | None = None) -> TextItem | None:
        """Add the piece as text of some kind; returns None if it has none, or is a list."""
        text = _text(piece.content)
        if not text:
            return None
        own = DocItemLabel(piece.kind.docling)
        if own == DocItemLabel.LIST_ITEM:
            self._add_list(piece, text)
            return None
        if own == DocItemLabel.TITLE:
            item: TextItem = self.made.add_title(text=" ".join(text.split()))
        elif own == DocItemLabel.SECTION_HEADER:
            item = self.made.add_heading(text=" ".join(text.split()), level=min(piece.level or 1, _MAX_LEVEL))
        elif own == DocItemLabel.FORMULA:
            item = self.made.add_formula(text=latex_in(text))
        else:
            item = self.made.add_text(label=label or own, text=text)
        item.prov = self._all_provenance(piece, item.text)
        return item

    def _add_list(self, piece: Piece, text: str) -> None:
        """Add a group with the list's items. An item is on the page where it begins."""
        items = list_items(text)
        shares = shares_of(piece, self._rows)
        groups = [self.made.add_list_group()]
        last: ListItem | None = None
        for index, (depth, number, item) in enumerate(items):
            del groups[depth + 1 :]
            if depth >= len(groups):
                groups.append(self.made.add_list_group(parent=last))
            share = next((share for share in shares if index / len(items) < share.end), shares[-1])
            prov = self._provenance(replace(share, start=0.0, end=1.0), item)
            last = self.made.add_list_item(
                item, enumerated=bool(number), marker=number or "-", parent=groups[-1], prov=prov
            )

    def _add_picture(self, piece: Piece) -> PictureItem:
        place = piece.places[0]
        row = self._rows[place.page_index]
        picture = self._pictures.get(place)
        if not isinstance(picture, Picture) or not row.width or not row.height:
            return self.made.add_picture()
        left, top, right, bottom = pixel_box(place.bbox, row.width, row.height)
        sides = right - left, bottom - top
        width, height = sides[::-1] if row.blocks[place.block].angle in (90, 270) else sides
        dpi = round(row.dpi or _POINTS_PER_INCH)
        uri = AnyUrl(f"data:image/png;base64,{b64encode(picture.data).decode()}")
        return self.made.add_picture(
            image=ImageRef(mimetype="image/png", dpi=dpi, size=Size(width=width, height=height), uri=uri)
        )

    def _add_code(self, piece: Piece) -> CodeItem:
        language, code = code_in(harmless_characters(piece.content or "").strip())
        return self.made.add_code(text=code, code_language=_LANGUAGES.get(language.lower()))

    def _all_provenance(self, piece: Piece, text: str) -> list[ProvenanceItem]:
        return [self._provenance(share, text) for share in shares_of(piece, self._rows)]

    def _provenance(self, share: Share, text: str) -> ProvenanceItem:
        """Where a share of the text stands."""
        row = self._rows[share.place.page_index]
        width, height = ((length or 1) * _scale(row) for length in (row.width, row.height))
        left, top, right, bottom = (min(1.0, max(0.0, side)) for side in share.place.bbox)
        return ProvenanceItem(
            page_no=share.place.page_index + 1,
            bbox=BoundingBox(
                l=left * width, t=top * height, r=right * width, b=bottom * height, coord_origin=CoordOrigin.TOPLEFT
            ),
            charspan=(round(share.start * len(text)), round(share.end * len(text))),
        )


def _origin(document: AssembledDocument) -> DocumentOrigin | None:
    """The file, with 64 bits of its hash, as Docling has them; None if the file could not be read."""
    if document.doc_id is None:
        return None
    filename = document.source.rpartition("/")[2]
    suffix = filename.rpartition(".")[2].lower()
    mimetype = _MIME_TYPES.get(_SAME_SUFFIX.get(suffix, suffix), "application/octet-stream")
    return DocumentOrigin(mimetype=mimetype, binary_hash=int(document.doc_id[-16:], 16), filename=filename)


def _scale(row: PageResult) -> float:
    """How many points a pixel is; 1 where the resolution is not known."""
    return _POINTS_PER_INCH / row.dpi if row.dpi else 1.0


def _text(content: str | None) -> str:
    return with_dollars(harmless_characters(content or "").strip())


def _furniture_label(block: Block, orientation: int) -> DocItemLabel:
    """The label of a page's furniture; the number of a page is a header or a footer by where it stands."""
    kind = kind_of(block.type)
    _, top, _, bottom = turned_box(block.bbox, orientation)
    is_number_above = kind.mineru == "page_number" and top + bottom < 1
    return DocItemLabel.PAGE_HEADER if is_number_above else DocItemLabel(kind.docling)


def _table_data(table: TableCells) -> TableData:
    """The table's cells as text."""
    num_header_rows = table.num_header_rows
    cells = [
        TableCell(
            text=_text(cell_text(cell.html)),
            row_span=cell.rowspan,
            col_span=cell.colspan,
            start_row_offset_idx=cell.row,
            end_row_offset_idx=cell.end_row,
            start_col_offset_idx=cell.column,
            end_col_offset_idx=cell.column + cell.colspan,
            column_header=cell.is_header or cell.row < num_header_rows,
        )
        for row in table.rows
        for cell in row
    ]
    return TableData(table_cells=cells, num_rows=len(table.rows), num_cols=table.num_columns)
