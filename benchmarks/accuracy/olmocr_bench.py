"""A small bench in the form of olmOCR-bench, of pages whose content is known: the exam, and documents of the sample.

    python -m benchmarks.accuracy.olmocr_bench FOLDER

makes FOLDER/pdfs and the tests beside it; `recipes/benchmarks/olmocr-bench.sh FOLDER` reads and scores it.
A test is of olmOCR's: a sentence is there (`text.jsonl`), stands before another (`order.jsonl`), a running title is not
there (`headers.jsonl`), a cell stands beside another (`tables.jsonl`), a formula looks the same (`math.jsonl`).
"""

from __future__ import annotations

import argparse
import html
import io
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain, groupby, pairwise
from pathlib import Path
from typing import Any

import pymupdf
from PIL import Image, ImageSequence

from batchocr.documents.assembly.tables import table_cells
from sample_data import documents_text

SAMPLE_DATA = Path(documents_text.__file__).parent
_DPI = 200
"""At which images are pages, as `run` draws them: each px stays one."""
_MAX_DIFFS = 2
"""Letters of a sentence that may be wrong."""
_MIN_LETTERS, _MAX_LETTERS = 12, 100
"""Of a text that is looked for: a shorter one may stand elsewhere on the page."""
_SENTENCE = re.compile(r"(?<![^.!?] )[A-Z“][^.!?]{20,100}[.!?](?= |$)")
_MAX_SENTENCES = 3
"""Of a block."""
_READ = ("text", "title", "heading", "list_item")
_RUNNING = ("header", "footer")

Blocks = Sequence[tuple[str, str]]
"""The type and the content of each block of a page."""
Test = dict[str, Any]


def make_bench(folder: Path) -> None:
    """Write the PDFs and the tests."""
    tests: dict[str, list[Test]] = defaultdict(list)
    for path, pages in [*_exam(), *_sample()]:
        name = f"{path.stem}.pdf"
        _write_pdf(path, folder / "pdfs" / name)
        for page, blocks in enumerate(pages, start=1):
            for number, (group, test) in enumerate(_tests(blocks)):
                known = {"pdf": name, "page": page, "id": f"{path.stem}_{page}_{number:03}", "checked": "verified"}
                tests[group].append(known | test)
    for group, of_group in tests.items():
        (folder / f"{group}.jsonl").write_text("".join(json.dumps(test) + "\n" for test in of_group))


def _exam() -> Iterator[tuple[Path, list[Blocks]]]:
    rows = map(json.loads, (SAMPLE_DATA / "exam/truth.jsonl").read_text().splitlines())
    for source, pages in groupby(rows, key=lambda row: row["source"]):
        of_pages = [[(block["type"], block["content"]) for block in page["blocks"]] for page in pages]
        yield SAMPLE_DATA / "exam" / source, of_pages


def _sample() -> Iterator[tuple[Path, list[Blocks]]]:
    cells = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in documents_text.ARTICLE_TABLE]
    table = f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"
    texts = [_as_texts(documents_text.ARTICLE_OPENING), _as_texts(documents_text.ARTICLE_CLOSING)]
    yield _document("article.pdf"), [texts[0], [*texts[1], ("table", table)]]
    yield _document("two-columns.pdf"), [[*documents_text.COLUMNS_LEFT, *documents_text.COLUMNS_RIGHT]]
    yield _document("scanned-letter.png"), [_as_texts(documents_text.LETTER)]
    yield _document("fax.tiff"), [_as_texts((title, *texts)) for title, texts in documents_text.FAX_PAGES]


def _document(name: str) -> Path:
    return SAMPLE_DATA / "documents" / name


def _as_texts(texts: Sequence[str]) -> Blocks:
    return [("text", text) for text in texts]


def _write_pdf(path: Path, to: Path) -> None:
    """The document; or the frames of an image, each as a page."""
    to.parent.mkdir(parents=True, exist_ok=True)
    with pymupdf.open() as made:
        if path.suffix == ".pdf":
            with pymupdf.open(path) as document:
                made.insert_pdf(document)
        else:
            with Image.open(path) as image:
                for frame in ImageSequence.Iterator(image):
                    width, height = (72 * side / _DPI for side in frame.size)
                    frame.save(pixels := io.BytesIO(), "PNG")
                    made.new_page(width=width, height=height).insert_image((0, 0, width, height), stream=pixels)
        made.save(to)


def _tests(blocks: Blocks) -> Iterator[tuple[str, Test]]:
    """The tests of a page, each with the file that it goes into."""
    sentences = [found for type, content in blocks if type in _READ for found in _sentences(content)]
    for sentence in sentences:
        yield "text", {"type": "present", "text": sentence, "max_diffs": _MAX_DIFFS}
    for before, after in pairwise(sentences):
        yield "order", {"type": "order", "before": before, "after": after, "max_diffs": _MAX_DIFFS}
    for type, content in blocks:
        if type in _RUNNING and len(content) >= _MIN_LETTERS:
            yield "headers", {"type": "absent", "text": content}
        elif type == "equation":
            yield "math", {"type": "math", "math": content}
        elif type == "table" and (table := table_cells(content)) is not None:
            for left, right in chain.from_iterable(map(pairwise, table.rows)):
                if left.html and right.html:
                    cells = {"cell": html.unescape(right.html), "left": html.unescape(left.html)}
                    yield "tables", {"type": "table", **cells, "max_diffs": _MAX_DIFFS}


def _sentences(content: str) -> list[str]:
    """The first sentences of a block; all of it, if it is short and has none."""
    text = " ".join(content.removeprefix("•").split())
    short = [text] if _MIN_LETTERS <= len(text) <= _MAX_LETTERS else []
    return _SENTENCE.findall(text)[:_MAX_SENTENCES] or short


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    make_bench(parser.parse_args().folder)


if __name__ == "__main__":
    main()
