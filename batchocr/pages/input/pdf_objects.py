"""The objects of a PDF as text. What cannot be read, or is not there, is `null`."""

from __future__ import annotations

import re

import pymupdf

from batchocr.pages.input.mupdf_warnings import REFUSALS, all_warnings, forget_warnings

_REFERENCE = re.compile(r"\b([1-9]\d*) \d+ R\b")
"""The pattern of a reference to an object; a reference to object 0 is one to nothing."""


def object_text(document: pymupdf.Document, number: int) -> str:
    """The text of an object; of a stream, of its dictionary."""
    try:
        return str(document.xref_object(number, compressed=True))
    except REFUSALS:
        return "null"


def value_text(document: pymupdf.Document, number: int, key: str) -> str:
    """A value in an object's dictionary; it may be a reference."""
    try:
        return str(document.xref_get_key(number, key)[1])
    except REFUSALS:
        return "null"


def resolved_text(document: pymupdf.Document, number: int, key: str) -> str:
    """A value in an object's dictionary, which may be an object of its own."""
    text = value_text(document, number, key)
    found = reference(text)
    return text if found is None else object_text(document, found)


def reference(text: str) -> int | None:
    """The number of the object that a value refers to; None if it is no reference."""
    found = _REFERENCE.fullmatch(text)
    return int(found[1]) if found else None


def references(text: str) -> list[int]:
    """The numbers of the objects that a text refers to."""
    return [int(number) for number in _REFERENCE.findall(text)]


def array_references(document: pymupdf.Document, number: int, key: str) -> list[int] | None:
    """What an array in an object's dictionary refers to; None if the value is no array. The array may be an object of
    its own."""
    text = resolved_text(document, number, key)
    return references(text) if text.startswith("[") else None


def inherited_text(document: pymupdf.Document, page: int, key: str) -> str:
    """A value of a page, or of the nearest node of the page tree above it that has one."""
    nodes: set[int] = set()
    while page not in nodes:
        if (text := value_text(document, page, key)) != "null":
            return text
        nodes.add(page)
        page = next(iter(references(value_text(document, page, "Parent"))), page)
    return "null"


def unpacked(data: bytes, filters: str, parameters: str = "null") -> bytes | None:
    """What these filters of a PDF make of data; None if MuPDF finds an error in it. MuPDF forgets its earlier
    warnings."""
    with pymupdf.open() as document:
        stream = document.get_new_xref()
        document.update_object(stream, "<<>>")
        document.update_stream(stream, data, compress=False, new=True)
        document.xref_set_key(stream, "Filter", filters)
        document.xref_set_key(stream, "DecodeParms", parameters)
        forget_warnings()
        try:
            plain = bytes(document.xref_stream(stream))
        except REFUSALS:
            return None
    return None if all_warnings() else plain
