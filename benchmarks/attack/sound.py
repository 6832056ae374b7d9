"""Which sound pages are called damaged: folders of sound documents, opened and rendered as a run does it.

    python -m benchmarks.attack.sound FOLDER...

A file is sound if a second reader, PDFium or Pillow, draws its pages without complaint, and its name does not say that
it is broken. A page is marked if it is degraded, or if it or its document failed. Of the marked pages of PDFs those are
counted that lack something: PDFium draws where nothing is here. The rest is left to a reader's judgement. No model is
needed.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import pypdfium2
from PIL import Image

from batchocr.errors import PageError
from batchocr.pages.input.page_pixels import DECODING_ERRORS
from batchocr.pages.input.render import RenderableDocument, open_document
from benchmarks import ROOT
from benchmarks.attack.fates import DPI, Darkness, apart, darkness
from benchmarks.record import Record, benchmark_parser

_BROKEN = re.compile(
    "bad|bomb|broken|corrupt|crash|cycle|_dos|damaged|fuzz|ghostscript|invalid|missing|not_enough|oom-|overflow|pdfbox|"
    "poppler|recurs|redhat|reallybig|segfault|shortfile|syntax|too_large|trunc|unbound|unknown",
    re.IGNORECASE,
)
"""In names of test files that are broken, and of those that were made by fuzzing these programs."""

_MOST_PAGES = 10
"""Of a document: long ones shall not count for more than many others."""

_CELL = 8
_INKED = 12
"""How dark a cell is on average that has something on it, out of 255."""

_FAINT = 0.25
"""A cell that has less than this share of its darkness has nothing on it."""

_LACKS = 0.01
"""A page that has nothing on more than this share of the cells that PDFium draws on lacks something."""

_REASON_LETTERS = 100

Seen = tuple[str | None, bool]
"""Why a page is marked, None if it is not; and whether it lacks something."""


def see(path: Path) -> Iterator[Seen]:
    """Each page of a sound file; none of another."""
    second = _second_reading(path)
    try:
        document = open_document(str(path), password=None, dpi=DPI)
    except PageError as error:
        yield from ((_reason(error), drawn is not None and bool(drawn.any())) for drawn in second)
        return
    with closing(document):
        pages = second if _is_pdf(path) else second[: document.page_count]  # a preview or a mask is no page
        for index, drawn in enumerate(pages):
            yield _see_page(document, index, drawn)


def _see_page(document: RenderableDocument, index: int, second: Darkness | None) -> Seen:
    try:
        page = document.render(index)
    except PageError as error:
        return _reason(error), second is not None and bool(second.any())
    if page.lost is None:
        return page.doubt and _words(page.doubt), False
    return _words(page.lost), second is not None and _lacks(second, page.image)


def _second_reading(path: Path) -> list[Darkness | None]:
    """How PDFium draws the pages of a PDF, or None for each page of an image; empty if the file is not sound."""
    if _BROKEN.search(path.name):
        return []
    try:
        return _by_pdfium(path) if _is_pdf(path) else _by_pillow(path)
    except (pypdfium2.PdfiumError, MemoryError, Warning, *DECODING_ERRORS):
        return []


def _is_pdf(path: Path) -> bool:
    return b"%PDF" in path.read_bytes()[:1024]


def _by_pdfium(path: Path) -> list[Darkness | None]:
    with closing(pypdfium2.PdfDocument(path)) as pdf:
        pdf.init_forms()
        pages = (pdf[index].render(scale=DPI / 72) for index in range(min(len(pdf), _MOST_PAGES)))
        return [darkness(page.to_pil().convert("L")) for page in pages]


def _by_pillow(path: Path) -> list[Darkness | None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Image.open(path) as image:
            num_frames = getattr(image, "n_frames", 1) if image.format in ("TIFF", "GIF") else 1
            for frame in range(min(num_frames, _MOST_PAGES)):
                image.seek(frame)
                image.load()
    return [None] * min(num_frames, _MOST_PAGES)


def _lacks(second: Darkness, image: Image.Image) -> bool:
    """Whether a page has nothing on it where the second reader draws something."""
    ours = darkness(image.convert("L").resize(second.shape[::-1]))
    theirs, here = _cells(second), _cells(ours)
    return bool(((theirs > _INKED) & (here < _FAINT * theirs)).sum() > _LACKS * (theirs > _INKED).sum())


def _cells(pixels: Darkness) -> Darkness:
    rows, columns = pixels.shape[0] // _CELL, pixels.shape[1] // _CELL
    whole = pixels[: rows * _CELL, : columns * _CELL]
    means: Darkness = whole.reshape(rows, _CELL, columns, _CELL).mean(axis=(1, 3), dtype=np.float32)
    return means


def _reason(error: PageError) -> str:
    return f"{error.error_kind}: {_words(str(error))}"


def _words(text: str) -> str:
    """What is said, without what differs from file to file."""
    return re.sub(r"\d+", "N", text)[:_REASON_LETTERS]


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("folders", type=Path, nargs="*", help="with sound documents", metavar="FOLDER")
    given = parser.parse_args(arguments)
    record = Record("sound", given)
    folders = given.folders or [ROOT / "sample_data" / "documents"]
    num_files = num_pages = 0
    marked: Counter[str] = Counter()
    lacking: Counter[str] = Counter()
    where: dict[str, list[str]] = {}
    for path in sorted(path for folder in folders for path in folder.rglob("*") if path.is_file()):
        found = apart(partial(see, path))
        seen: list[Seen] = [("one of the two readers crashed, or hangs", False)] if found is None else found
        num_files += bool(seen)
        num_pages += len(seen)
        for index, (reason, lacks) in enumerate(seen):
            if reason is not None:
                marked[reason] += 1
                lacking[reason] += lacks
                where.setdefault(reason, []).append(f"{path.name}, page {index + 1}")
    for reason, number in marked.most_common():
        record.add({"pages": number, "lacking": lacking[reason], "reason": reason, "first": where[reason][0]})
    record.note("sound", f"{num_pages} pages of {num_files} files")
    record.note("marked", [name for names in where.values() for name in names] or "none")
    record.figure("sound_pages", num_pages)
    record.figure("sound_pages_marked", marked.total())
    record.figure("sound_pages_marked_that_lack_something", lacking.total())


if __name__ == "__main__":
    main()
