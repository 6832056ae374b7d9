"""What a format is: a module that makes files of a document. It writes none itself: `export.py` does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol, cast

if TYPE_CHECKING:
    from batchocr.documents.assembly.document import AssembledDocument
    from batchocr.documents.export.figures import Figures, File

FORMATS: Final = {
    "md": "Markdown",
    "mineru": "the files of MinerU's output folder",
    "chunks": "JSON Lines for retrieval",
    "docling": "a DoclingDocument",
    "html": "a page to read",
    "pdf": "the pages with invisible text, to be searched",
    "hocr": "where each word is",
    "alto": "the same in another form",
    "dolma": "JSON Lines to train models with",
    "pages": "a text for each page",
}
"""The formats by their names, which are those of their modules in this folder, each with what it makes."""
DATASET: Final = "dolma"
"""The format whose files hold many documents each, and are made anew each time."""
NEED_PAGES: Final = ("pdf", "hocr", "alto")
"""The formats that show pages, and have nothing to say of a document without any."""


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """What the user may choose."""

    page_breaks: bool = False
    """Whether to mark where pages end."""
    max_chars: int = 2000
    """The longest text of a chunk."""
    language: str = ""
    """The language of the text, as a BCP 47 tag."""
    force_text: bool = False
    """Whether to give a page text also where it has visible text of its own."""
    page_names: str = "{stem}-page-{page}.md"
    """The path of a page's file, below the folder of the export: `{stem}` stands for what `Format.files` calls `name`,
    `{page}` for the number of the page, from 1."""


class Format(Protocol):
    """What each format's module offers."""

    REVISION: int
    """The revision of the format. It goes up with every change in what it writes, so that documents exported before are
    written again."""

    def files(self, document: AssembledDocument, name: str, figures: Figures, options: FormatOptions) -> Iterator[File]:
        """Yield the document's files, one at a time; pictures as they are cut, the text that refers to them last. What
        workers do for it is begun when this is called, long before the first file is asked for.

        name: the path, below the folder of the export, that the document's files are to have, without a suffix: of
        `a/b` come `a/b.md`, `a/b.images/…`. It is unique, fits the file system and holds no control characters.
        """
        ...


def format_named(name: str) -> Format:
    """The format of this name, loaded now: some formats need libraries that others do not. name: one of FORMATS."""
    return cast(Format, import_module(f"batchocr.documents.export.{name}"))
