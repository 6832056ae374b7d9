"""A document as a PDF that can be searched: its pages as they are, with invisible text over what was read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from batchocr.documents.assembly.document import AssembledDocument
from batchocr.documents.export.figures import Figures, File
from batchocr.documents.export.formats import FormatOptions
from batchocr.pages.input.folders import SEARCHABLE

REVISION: Final = 3


def files(document: AssembledDocument, name: str, figures: Figures, options: FormatOptions) -> Iterator[File]:
    """Yield `NAME.searchable.pdf`, which later runs know by that name; see `Format`. Raises FileRefusedError if the
    document cannot be had."""
    yield File(f"{name}{SEARCHABLE}", figures.text.searchable_pdf())
