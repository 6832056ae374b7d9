"""Tables to be looked at, and their review pages."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from batchocr.data import Block, Failure, PageResult
from batchocr.documents.assembly.assemble import OpenedTable, open_table
from batchocr.documents.review.choose import Sort, choose
from batchocr.documents.review.review import Written, write_review
from batchocr.option_values import PageSpec
from batchocr.tables.schema import RunMetadata
from tests.support.documents import METADATA, write_table


class WhitePages:
    """In place of SourceFiles, which starts a process: every page is white. gone: sources that are not there."""

    def __init__(self, gone: Sequence[str] = ()) -> None:
        self._gone = gone
        self.found: list[str] = []

    def find(self, source: str, doc_id: str | None) -> str | Failure:
        self.found.append(source)
        return Failure("not_found", f"{source} is not there") if source in self._gone else source

    def page_image(self, file: str, row: PageResult) -> Image.Image | Failure:
        assert row.width and row.height
        return Image.new("RGB", (row.width, row.height), "white")


def block(type: str, content: str | None, top: float = 0.1, **more: object) -> Block:
    """A block across the page, a twentieth of it high."""
    return Block(type, (0.1, top, 0.9, top + 0.05), 0, content, **more)  # type: ignore[arg-type]


def row(source: str, page_index: int | None = 0, *blocks: Block, **more: object) -> PageResult:
    """A row of a page of 850 × 1100 px."""
    doc_id = hashlib.sha256(source.encode("utf-8", "backslashreplace")).hexdigest()
    fields = {"doc_id": doc_id, "page_count": 9, "width": 850, "height": 1100, "dpi": 100.0} | more
    return PageResult(source, page_index, **({"status": "ok", "blocks": blocks} | fields))  # type: ignore[arg-type]


def failed(source: str, page_index: int | None = None, message: str = "it is no PDF") -> PageResult:
    return PageResult(source, page_index, "failed", error_kind="damaged", error_message=message)


def saved(folder: Path, rows: Sequence[PageResult], metadata: RunMetadata = METADATA) -> OpenedTable:
    return open_table(write_table(folder / "table.parquet", rows, metadata))


def reviewed(
    folder: Path,
    rows: Sequence[PageResult],
    source_files: object | None = None,
    *,
    metadata: RunMetadata = METADATA,
    sort: Sort = "order",
    limit: int = 200,
    pages: PageSpec | None = None,
) -> tuple[Path, Written]:
    """The review page of these rows, and what was said of it."""
    table, out = saved(folder, rows, metadata), folder / "review.html"
    choice = choose(table.rows(), sort, limit, pages)
    return out, write_review(out, choice, table, source_files or WhitePages())  # type: ignore[arg-type]
