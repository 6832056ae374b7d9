"""The review page: one HTML file that loads nothing else.

What a model wrote is hostile. It stands in the file as JSON in script elements that no browser runs, without any `<`;
HTML in it has been sanitised by `markup`; and the policy in the file's head lets only our own script and style act.
Each page is parsed when it is shown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from markupsafe import Markup

from batchocr.data import Failure, PageResult
from batchocr.documents.findings import AuditFinding
from batchocr.documents.markup.own_files import own_template, own_text, policy_hash
from batchocr.documents.review.choose import ChosenPage, PageKey, key_of
from batchocr.documents.review.page import MAX_FINDINGS, Json, page_data, page_entry, picture
from batchocr.documents.review.summary import groups
from batchocr.errors import OutputError
from batchocr.processes.source_files import SourceFiles
from batchocr.tables.atomic import atomic_file, reading
from batchocr.tables.opened import StoredRows
from batchocr.tables.schema import RunMetadata

_GENERATOR = b'<meta name="generator" content="batchocr view">'
_HEAD_BYTES = 1024
_PACKAGE = "batchocr.documents.review"


@dataclass(frozen=True, slots=True)
class Written:
    """What a review page that was written shows, in numbers."""

    pages: int
    """How many pages are shown."""
    documents: int
    """How many rows are shown that are of a document as a whole, because it has no page that could be read."""
    missing: int
    """How many pages that were read have no picture."""
    size_bytes: int


def require_replaceable(path: Path) -> None:
    """Raise OutputError if there is a file at `path` that is no review page of ours."""
    if not path.exists():
        return
    with reading(path), open(path, "rb") as file:
        if _GENERATOR not in file.read(_HEAD_BYTES):
            raise OutputError(f"{path} is not a review page: it is left as it is, choose another --out")


def write_review(
    path: Path,
    choice: ChosenPage,
    table: StoredRows,
    source_files: SourceFiles,
    *,
    findings: Mapping[PageKey, Sequence[AuditFinding]] | None = None,
    step: Callable[[], None] = lambda: None,
) -> Written:
    """Write the chosen pages as one HTML file, whole or not at all; one picture at a time is in memory. table: where
    the pages are from. findings: of an audit. step: called after each page. Raises OutputError."""
    pages = _Pages(choice, source_files, findings or {}, step)
    css, script = own_text(_PACKAGE, "review.css"), own_text(_PACKAGE, "review.js")
    name, others = table.parts[0].path.name, len(table.parts) - 1
    parts = own_template(_PACKAGE, "review.html.j2").generate(
        css=Markup(css),
        script=Markup(script),
        policy=_policy(css, script),
        title=f"{name} and {others} more" if others else name,
        statuses=choice.statuses,
        num_rows=sum(choice.statuses.values()),
        num_wanted=choice.num_wanted,
        num_shown=len(choice.rows),
        sort=choice.sort,
        groups=groups(table),
        pages=pages.written(),
        index=lambda: _data(pages.index(table.metadata)),
    )
    with atomic_file(path) as file:
        for part in parts:
            file.write(part.encode("utf-8", "backslashreplace"))
        size_bytes = file.tell()
    num_pages = sum(chosen.row.page_index is not None for chosen in choice.rows)
    return Written(num_pages, len(choice.rows) - num_pages, pages.missing, size_bytes)


class _Pages:
    """The pages of the file, made one at a time, document by document."""

    def __init__(
        self,
        choice: ChosenPage,
        source_files: SourceFiles,
        findings: Mapping[PageKey, Sequence[AuditFinding]],
        step: Callable[[], None],
    ) -> None:
        self.missing = 0
        """How many pages have no picture so far."""
        self._findings = findings
        self._choice = choice
        self._source_files = source_files
        self._find = lru_cache(maxsize=1)(source_files.find)
        self._step = step
        self._sources: list[str] = []
        self._entries: dict[int, Json] = {}

    def written(self) -> Iterator[dict[str, Any]]:
        """Yield what the template needs of each page. number: its place among those chosen."""
        numbered = enumerate(self._choice.rows)
        for number, chosen in sorted(numbered, key=lambda item: (item[1].row.source, item[1].row.doc_id or "")):
            row = chosen.row
            if row.source not in self._sources[-1:]:
                self._sources.append(row.source)
            found = self._findings.get(key_of(row), ())
            findings = sorted(found, key=lambda finding: -finding.weight)[:MAX_FINDINGS]
            self._entries[number] = page_entry(chosen, len(self._sources) - 1, len(findings))
            image, missing = self._picture(row)
            yield {"number": number, "picture": image, "data": _data(page_data(row, missing, findings))}
            self._step()

    def index(self, metadata: RunMetadata) -> dict[str, Any]:
        """What the script needs to list all pages, once they are written."""
        return {
            "table": metadata.settings_fingerprint,
            "sort": self._choice.sort,
            "sources": self._sources,
            "pages": [self._entries[number] for number in range(len(self._entries))],
        }

    def _picture(self, row: PageResult) -> tuple[str, str]:
        """The picture of the row's page, and why there is none."""
        if row.page_index is None or not (row.width and row.height):
            return "", ""
        found = self._find(row.source, row.doc_id)
        image = found if isinstance(found, Failure) else self._source_files.page_image(found, row)
        if isinstance(image, Failure):
            self.missing += 1
            return "", f"No picture: {image.message}"
        return picture(image, row.dpi), ""


def _policy(css: str, script: str) -> str:
    """What the browser allows: our own style and script, known by their hashes, and the pictures in the file."""
    return (
        f"default-src 'none'; script-src '{policy_hash(script)}'; style-src '{policy_hash(css)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _data(value: object) -> Markup:
    """The value as JSON in ASCII. Nothing in it can end a script element or begin another."""
    return Markup(json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"))
