"""Objects that a page is drawn with and that are not in its PDF: MuPDF does without, and mostly says nothing.

A file that was cut off loses those at its end, a damaged sector one or two. Sound files name none that is not there:
not one of 433 pages of public test sets.
"""

from __future__ import annotations

import re

import pymupdf

from batchocr.input.pdf_objects import array_references, object_text, references, value_text

_NOT_DRAWN = re.compile(r"/(Parent|P|Metadata|PieceInfo|OC|Properties|A|Dest|Popup) ?\d+ \d+ R")
"""References that lead away from the page, or to what is never drawn."""


class MissingObjects:
    """Looks for them page by page, at what earlier pages share only once."""

    def __init__(self, document: pymupdf.Document) -> None:
        self._document = document
        self._complete: set[int] = set()

    def of_page(self, page: int) -> int:
        """How many there are. page: the number of its own object."""
        contents = self.contents(page)
        if not contents:
            return 0
        missing = {number for number in contents if object_text(self._document, number) == "null"}
        waiting = _drawn(self._resources(page))
        seen = waiting | self._complete
        while waiting:
            number = waiting.pop()
            text = object_text(self._document, number)
            if text == "null":
                missing.add(number)
            waiting |= _drawn(text) - seen
            seen |= waiting
        if not missing:
            self._complete = seen
        return len(missing)

    def contents(self, page: int) -> list[int]:
        """The numbers of the page's content streams."""
        streams = array_references(self._document, page, "Contents")
        return references(value_text(self._document, page, "Contents")) if streams is None else streams

    def _resources(self, page: int) -> str:
        """Those of the page, or of the nearest node of the page tree that has any."""
        nodes: set[int] = set()
        while page not in nodes:
            if (resources := value_text(self._document, page, "Resources")) != "null":
                return resources
            nodes.add(page)
            page = next(iter(references(value_text(self._document, page, "Parent"))), page)
        return "null"


def _drawn(text: str) -> set[int]:
    return set(references(_NOT_DRAWN.sub("", text)))
