"""A document as MinerU's output folder: the files that RAGFlow, LightRAG, Dify's plugin and others read.

Source: MinerU's "Output Files" (docs/en/reference/output_files.md), 3.x, VLM backend. The JSON holds what the model
wrote, as MinerU's does; only the Markdown is inert.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from batchocr.data import Failure
from batchocr.documents.assembly.document import AssembledDocument, PageEnd, Piece, Place
from batchocr.documents.export.figures import Cut, Figures, File, picture_places, pieces_of, with_pictures
from batchocr.documents.export.formats import FormatOptions
from batchocr.documents.export.md import Pictures, document_markdown
from batchocr.documents.export.words import with_dollars
from batchocr.pages.kinds import CONTENTS, LIST, Role, kind_of
from batchocr.pages.protocol.markdown import INLINE_FORMULA, latex_in

REVISION: Final = 2

Item = dict[str, Any]
"""An entry of a content list, as JSON."""

_SHOWN: Final = frozenset[Role](("figure", "table", "formula"))
"""The roles of the pieces of which MinerU keeps a picture, although it reads tables and formulas."""

_ORDERED: Final = re.compile(r"\(?(?:\d{1,4}|[A-Za-z]|[ivxIVX]{1,6})[.)]\s")
_SPANNING: Final = re.compile(r"\b(?:row|col)span\b", re.IGNORECASE)
_TABLE_TAG: Final = re.compile(r"<table\b", re.IGNORECASE)


def files(document: AssembledDocument, name: str, figures: Figures, options: FormatOptions) -> Iterator[File]:
    """Yield everything in a folder of the document's name; see `Format`."""
    return _files(document, name, figures.cut(_places(document), "jpeg"), options)


def _files(document: AssembledDocument, name: str, cut: Cut, options: FormatOptions) -> Iterator[File]:
    stem = f"{name}/{name.rpartition('/')[2]}"
    pictures: dict[Place, str | Failure] = {}
    for place, picture in cut:
        if isinstance(picture, Failure):
            pictures[place] = picture
            continue
        pictures[place] = f"images/{hashlib.sha256(picture.data).hexdigest()}.jpg"
        yield File(f"{name}/{pictures[place]}", picture.data, picture.shows)
    flat, paged = _content_lists(document, pictures)
    yield _json(f"{stem}_content_list.json", flat)
    yield _json(f"{stem}_content_list_v2.json", paged)
    yield _json(f"{stem}_model.json", _model_output(document))
    yield File(f"{stem}.md", document_markdown(document, pictures, options).encode())


def _places(document: AssembledDocument) -> Iterator[Place]:
    """Where MinerU has a picture, in reading order: also of formulas, and of each part of a table."""
    pieces = [piece for piece in pieces_of(document) if piece.kind.role in _SHOWN]
    shown = (place for piece in pieces for place in (piece.places[0], *_rest_of_table(piece)))
    yield from sorted({*shown, *picture_places(document)}, key=lambda place: (place.page_index, place.block))


def _rest_of_table(piece: Piece) -> Sequence[Place]:
    """The parts of a table behind the first."""
    return piece.places[1:] if piece.kind.role == "table" else ()


def _json(path: str, content: object) -> File:
    return File(path, json.dumps(content, ensure_ascii=False, indent=2, allow_nan=False).encode())


def _content_lists(document: AssembledDocument, pictures: Pictures) -> tuple[list[Item], list[list[Item]]]:
    """The flat content list, and the content list by pages. A piece is on the page on which it begins; what belongs to
    the sheet follows the text of its page. A part of a table that began before is an entry with its picture alone."""
    rows = {row.page_index: row for row in document.rows}
    parts_on: defaultdict[int, list[Piece]] = defaultdict(list)
    flat: list[Item] = []
    paged: list[list[Item]] = [[] for _ in range(_num_pages(document))]

    def add(first: Item, second: Item, page_index: int, bbox: Sequence[float]) -> None:
        box = [round(1000 * min(1.0, max(0.0, share))) for share in bbox]
        flat.append({**first, "bbox": box, "page_idx": page_index})
        paged[page_index].append({**second, "bbox": box})

    def add_piece(piece: Piece) -> None:
        if (entries := _Item(document, piece, pictures).entries()) is not None:
            add(*entries, piece.places[0].page_index, piece.places[0].bbox)

    for part in document.parts:
        if isinstance(part, Piece):
            add_piece(part)
            for place in _rest_of_table(part):
                rest = replace(part, content=None, places=(place,), captions=(), footnotes=())
                parts_on[place.page_index].append(rest)
        elif isinstance(part, PageEnd):
            for block in rows[part.page_index].blocks:
                if kind_of(block.type).role == "furniture" and block.content:
                    add(*_of_the_sheet(block.type, block.content), part.page_index, block.bbox)
            for rest in parts_on[part.page_index + 1]:
                add_piece(rest)
    return flat, paged


def _num_pages(document: AssembledDocument) -> int:
    """How many pages there are up to the last one with a row: a damaged document may claim any number."""
    return 1 + max((row.page_index for row in document.rows if row.page_index is not None), default=-1)


def _model_output(document: AssembledDocument) -> list[list[Item]]:
    """The blocks of each page as the model gave them."""
    pages: list[list[Item]] = [[] for _ in range(_num_pages(document))]
    for row in document.rows:
        if row.page_index is not None:
            pages[row.page_index] = [
                {
                    "type": block.type,
                    "bbox": list(block.bbox),
                    "angle": block.angle,
                    "score": block.confidence,
                    "content": block.content,
                }
                for block in row.blocks
            ]
    return pages


class _Item:
    """A piece on its way into both content lists."""

    def __init__(self, document: AssembledDocument, piece: Piece, pictures: Pictures) -> None:
        self._document = document
        self._piece = piece
        self._pictures = pictures
        self._content = (piece.content or "").strip()

    def entries(self) -> tuple[Item, Item] | None:
        """The entry of the first list and of the second, without page and box; None for a piece without content."""
        role = self._piece.kind.role
        if role == "figure":
            return self._figure()
        if not self._content and role != "table":
            return None
        if role == "footnote" and not self._piece.kind.of:
            return _of_the_sheet(self._piece.type, self._content)
        by_role: dict[Role, Callable[[], tuple[Item, Item]]] = {
            "heading": self._heading,
            "table": self._table,
            "formula": self._equation,
            "code": self._code,
            "list": self._list,
        }
        return by_role.get(role, self._text)()

    def _text(self) -> tuple[Item, Item]:
        content = {"paragraph_content": _spans(self._content)}
        return {"type": "text", "text": with_dollars(self._content)}, {
            "type": self._piece.kind.mineru,
            "content": content,
        }

    def _heading(self) -> tuple[Item, Item]:
        text = " ".join(self._content.split())
        level = self._piece.level or 1
        return (
            {"type": "text", "text": with_dollars(text), "text_level": level},
            {"type": self._piece.kind.mineru, "content": {"title_content": _spans(text), "level": level}},
        )

    def _figure(self) -> tuple[Item, Item]:
        kind = self._piece.type
        first = {"type": kind, "img_path": self._picture(), **self._notes(_texts, kind)}
        content = {"image_source": {"path": self._picture()}, **self._notes(_spans, kind)}
        if kind == "chart" or self._content:
            content["content"] = self._content
        if kind == "chart":
            first["content"] = self._content
        return first, {"type": kind, "content": content}

    def _table(self) -> tuple[Item, Item]:
        html = with_pictures(self._content, self._document, self._piece, self._tag)
        nest_level = 2 if len(_TABLE_TAG.findall(html)) > 1 else 1
        is_complex = nest_level > 1 or _SPANNING.search(html)
        content = {
            "image_source": {"path": self._picture()},
            **self._notes(_spans, "table"),
            "html": html,
            "table_type": "complex_table" if is_complex else "simple_table",
            "table_nest_level": nest_level,
        }
        first = {"type": "table", "img_path": self._picture(), **self._notes(_texts, "table"), "table_body": html}
        return first, {"type": self._piece.kind.mineru, "content": content}

    def _equation(self) -> tuple[Item, Item]:
        latex = latex_in(self._content)
        source = {"path": self._picture()}
        first = {"type": "equation", "img_path": self._picture(), "text": f"$$\n{latex}\n$$", "text_format": "latex"}
        content = {"math_content": latex, "math_type": "latex", "image_source": source}
        return first, {"type": self._piece.kind.mineru, "content": content}

    def _code(self) -> tuple[Item, Item]:
        kind, is_plain = self._piece.type, not self._piece.kind.has_formulas
        body = self._content if is_plain else with_dollars(self._content)
        first = {"type": "code", "sub_type": kind, "code_body": body, **self._notes(_texts, "code")}
        content: Item = {**self._notes(_spans, kind), f"{kind}_content": [{"type": "text", "content": body}]}
        if is_plain:
            content["code_language"] = "txt"
        return first, {"type": kind, "content": content}

    def _list(self) -> tuple[Item, Item]:
        lines = [line.strip() for line in self._content.split("\n") if line.strip()]
        kind = self._piece.type
        first: Item = {"type": self._piece.kind.mineru}
        if kind != CONTENTS:
            first["sub_type"] = "ref_text" if kind == "ref_text" else "text"
        first["list_items"] = [with_dollars(line) for line in lines]
        content: Item = {
            "list_type": "reference_list" if kind == "ref_text" else "text_list",
            "list_items": [{"item_type": "text", "item_content": _spans(line)} for line in lines],
        }
        if kind == LIST:
            content["attribute"] = "ordered" if all(map(_ORDERED.match, lines)) else "unordered"
        return first, {"type": first["type"], "content": content}

    def _notes(self, parts_of: Callable[[str], list[Any]], kind: str) -> Item:
        """The captions and footnotes as entries of a content list, each as its parts."""
        notes = {"caption": self._piece.captions, "footnote": self._piece.footnotes}
        return {
            f"{kind}_{name}": [part for note in of_name for part in parts_of(note.content or "")]
            for name, of_name in notes.items()
        }

    def _picture(self) -> str:
        """The path of the piece's picture; '' if it could not be cut out, as in MinerU's own files."""
        picture = self._pictures.get(self._piece.places[0])
        return picture if isinstance(picture, str) else ""

    def _tag(self, place: Place) -> str | None:
        picture = self._pictures.get(place)
        return f'<img src="{picture}"/>' if isinstance(picture, str) else None


def _of_the_sheet(kind: str, content: str) -> tuple[Item, Item]:
    name = kind_of(kind).mineru
    return (
        {"type": kind, "text": with_dollars(content)},
        {"type": name, "content": {f"{name}_content": _spans(content)}},
    )


def _texts(text: str) -> list[str]:
    """The text, if there is any, with its formulas in it."""
    return [with_dollars(text)] if text else []


def _spans(text: str) -> list[Item]:
    """The entries of a text and its formulas, one after the other."""
    return [
        {"type": "equation_inline", "content": part.strip()} if i % 2 else {"type": "text", "content": part}
        for i, part in enumerate(INLINE_FORMULA.split(text))
        if part.strip()
    ]
