"""The objects of a PDF as text. What cannot be read, or is not there, is `null`."""

from __future__ import annotations

import re

import pymupdf

from batchocr.input.mupdf_warnings import REFUSALS

_REFERENCE = re.compile(r"\b(\d+) \d+ R\b")


def object_text(document: pymupdf.Document, number: int) -> str:
    """An object; of a stream, its dictionary."""
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


def references(text: str) -> list[int]:
    """The numbers of the objects that a text refers to."""
    return [int(number) for number in _REFERENCE.findall(text)]


def array_references(document: pymupdf.Document, number: int, key: str) -> list[int] | None:
    """What an array in an object's dictionary refers to; None if the value is no array. The array may be an object of
    its own."""
    text = value_text(document, number, key)
    if _REFERENCE.fullmatch(text):
        text = object_text(document, references(text)[0])
    return references(text) if text.startswith("[") else None
