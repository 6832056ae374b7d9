"""The documents of a table as they are now, for those who show or cut out what is in them.

They are looked at in a worker process and under a deadline, like those of a run.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

from PIL import Image

from batchocr.config import Config
from batchocr.data import Additions, Document, Failure, OutlineEntry, PageResult, SearchableMade, failed_completion
from batchocr.processes.members import list_within
from batchocr.processes.messages import (
    Completions,
    Failed,
    Finished,
    OpenDocument,
    Opened,
    Outline,
    ReadOutline,
    ReadPage,
    SearchableWritten,
    Setup,
    WriteSearchable,
)
from batchocr.processes.pool import WorkerPool
from batchocr.processes.worker import Arrived, Asked, Loss
from batchocr.storage.members import is_container
from batchocr.storage.uris import is_uri

_NOT_ITS_PIXELS = Failure("crashed", "the worker process said something else than what the page looks like")
"""Only a worker that a hostile document has taken over does so."""

_ESCAPED = re.compile(r"\\ud(c[89a-f][0-9a-f])")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A document's file, which is the version that its rows were read from."""

    path: str
    source: str
    doc_id: str
    page_count: int
    size: int
    """In bytes."""
    mtime_ns: int


def draw_again(task_id: int, file: SourceFile, row: PageResult) -> ReadPage:
    """The task of drawing a page as it was drawn for its row. One that was scaled down to fit has less than whole dpi,
    and is scaled down again."""
    assert row.page_index is not None
    dpi = None if row.dpi is None else max(1, math.ceil(row.dpi - 1e-6))
    return ReadPage(task_id, file.path, row.page_index, file.size, file.mtime_ns, dpi)


class SourceFiles:
    """Finds documents by their `source` in a table, and draws their pages. One thing at a time; in a `with` block."""

    def __init__(self, roots: Sequence[str], config: Config) -> None:
        """roots: folders in which a `source` is looked for, and files that have one.
        Raises BatchOcrError if no worker can be started."""
        self._roots = roots
        setup = replace(Setup.of(config), protocol="pixels", text_layer="off")
        self._pool = WorkerPool(1, setup)
        self._members: dict[str, dict[str, str]] = {}
        """The addresses of the documents within the file that was looked at last, by their paths."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    def find(self, source: str, doc_id: str | None) -> SourceFile | Failure:
        """The file of a document, or why it is not there: `changed` if there is only another version. Raises
        BatchOcrError if no worker can be started."""
        failure = Failure("not_found", f"{source} is not there: say with --input where the documents are")
        for path in self._candidates(source):
            found = self._ask(OpenDocument(0, path))
            if isinstance(found, Failure):
                failure = found
            elif isinstance(found, Opened) and found.doc_id == doc_id:
                return SourceFile(path, source, found.doc_id, found.page_count, found.size, found.mtime_ns)
            else:
                failure = Failure("changed", f"{path} has changed since it was read")
        return failure

    def outline(self, file: SourceFile) -> list[OutlineEntry]:
        """The outline of a PDF; empty if it has none, or none that can be read."""
        found = self._ask(ReadOutline(0, file.path, file.size, file.mtime_ns))
        return list(found.entries) if isinstance(found, Outline) else []

    def page_image(self, file: SourceFile, row: PageResult) -> Image.Image | Failure:
        """The page of a row as it was read: RGB, row.width × row.height px; or why it cannot be drawn."""
        if row.page_index is None or not (row.width and row.height):
            return Failure("damaged", "the row is of no page that could be drawn")
        self._pool.recycle_workers()
        asked = self._ask(draw_again(0, file, row))
        if isinstance(asked, Failure):
            return asked
        if not (isinstance(asked, Asked) and len(asked.batch.message.questions) == 1):
            return _NOT_ITS_PIXELS
        [request] = asked.batch.requests()
        pixels = request.pixels
        ended = self._ask(Completions(0, (failed_completion("nobody reads it"),)))
        if isinstance(ended, Failure):
            return ended
        if not isinstance(ended, Finished):
            return _NOT_ITS_PIXELS
        if (pixels.width, pixels.height) != (row.width, row.height):
            return Failure("changed", f"the page is now drawn with {pixels.width} × {pixels.height} px")
        return Image.frombytes("RGB", (pixels.width, pixels.height), bytes(pixels.data))

    def write_searchable(
        self, file: SourceFile, text_path: str, to_path: str, additions: Additions
    ) -> SearchableMade | Failure:
        """Write the document as a PDF with the text of its pages, as in `WriteSearchable`."""
        self._pool.recycle_workers()
        answer = self._ask(WriteSearchable(0, file.path, file.size, file.mtime_ns, text_path, to_path, additions))
        if isinstance(answer, Failure):
            return answer
        return answer.made if isinstance(answer, SearchableWritten) else _NOT_ITS_PIXELS

    def _candidates(self, source: str) -> Iterator[str]:
        """The files that the source may be, of those that exist; each once."""
        names = [source, _ESCAPED.sub(lambda escaped: chr(int(f"d{escaped[1]}", 16)), source)]
        candidates = [os.path.join(root, name) for root in self._roots for name in names if os.path.isdir(root)]
        candidates += [root for root in self._roots if os.path.basename(root) == os.path.basename(source)]
        candidates, objects = list(dict.fromkeys(candidates + names)), list(_objects(self._roots, source))
        yield from filter(os.path.isfile, candidates)
        yield from objects
        yield from (member for path in candidates + objects if (member := self._member(path)))

    def _member(self, path: str) -> str | None:
        """The address of a document within a file, of this path below that of the file; None if it is none."""
        above = (path[: slash.start()] for slash in re.finditer("/", path))
        container = next((each for each in above if is_container(each) and (is_uri(each) or os.path.isfile(each))), "")
        if not container:
            return None
        if container not in self._members:
            [within] = list_within([Document(container, container)], self._pool)
            self._members = {container: {source: found.path for source, found in within.documents.items()}}
        return self._members[container].get(path)

    def _ask(self, message: OpenDocument | ReadOutline | ReadPage | WriteSearchable | Completions) -> Arrived | Failure:
        """A worker that is killed from outside is nobody's fault, and asked once more if it had nothing else."""
        answer = self._pool.ask_alone(message, self._pool.setup.page_timeout_s)
        if isinstance(answer, Loss) and answer.killed and not isinstance(message, Completions):
            answer = self._pool.ask_alone(message, self._pool.setup.page_timeout_s)
        return answer.failure if isinstance(answer, Failed | Loss) else answer


def _objects(roots: Sequence[str], source: str) -> Iterator[str]:
    """The objects of stores that the source may be; whether they exist, asking for them says."""
    if is_uri(source):
        yield source
        return
    for root in filter(is_uri, roots):
        yield root if root.endswith(f"/{source}") else f"{root.rstrip('/')}/{source}"
