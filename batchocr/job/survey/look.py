"""Documents looked at without reading them: opened, hashed, and some of their pages measured, in worker processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from batchocr.config import Config
from batchocr.data import Document, Failure, PageSeen
from batchocr.page_spec import PageSpec, parse_page_spec
from batchocr.processes.messages import Failed, LookAtPages, OpenDocument, Opened, PagesSeen, Setup
from batchocr.processes.pool import WorkerPool
from batchocr.processes.worker import Arrived, Worker

MAX_SAMPLE = 40
MIN_SAMPLE = 3
"""Pages of a document that are measured, evenly spread, as those of a document are alike."""
MEASURED_PAGES = 10_000
"""With more documents than these allow for, fewer pages of each are measured."""

_WORKER_BYTES = 4 * 2**30
_LOOK_INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class DocumentSeen:
    """What was found out about a document.

    doc_id: None if it could not be hashed. page_count: None if it could not be opened. wanted: the indices of its pages
    that would be read. problem: why it cannot be opened, or its pages cannot be measured. same: whether a document
    before it has the same bytes; its pages are then not measured again. pages: those of the sample; None for one that
    cannot be read.
    """

    document: Document
    doc_id: str | None = None
    page_count: int | None = None
    wanted: Sequence[int] = ()
    problem: Failure | None = None
    same: bool = False
    format: str = ""
    pages: tuple[PageSeen | None, ...] = ()


class Look:
    """Looks at documents, several at a time. In a `with` block, which ends its workers."""

    def __init__(self, documents: Sequence[Document], config: Config, *, workers: int) -> None:
        """Start the workers. config: its `pages`, `dpi`, `password` and `page_timeout` count. Raises BatchOcrError."""
        self._documents = documents
        self._spec: PageSpec | None = parse_page_spec(config.pages) if config.pages else None
        self._timeout_s = config.page_timeout
        self._sample = max(MIN_SAMPLE, min(MAX_SAMPLE, MEASURED_PAGES // max(1, len(documents))))
        self._begun: dict[int, DocumentSeen] = {}
        self._seen_ids: set[str] = set()
        setup = replace(Setup.of(config, _WORKER_BYTES), protocol="pixels")
        self._pool = WorkerPool(max(1, min(workers, len(documents))), setup)

    def __enter__(self) -> Look:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    def documents(self) -> Iterator[DocumentSeen]:
        """Yield what was found out about each document, in order of completion. Raises BatchOcrError if no worker can
        be started."""
        waiting = iter(range(len(self._documents)))
        num_left = len(self._documents)
        while num_left:
            self._pool.renew_worn()
            for seen in self._give_out(waiting):
                num_left -= 1
                yield seen
            for loss in self._pool.replace_lost(self._timeout_s):
                for task_id in loss.task_ids:
                    num_left -= 1
                    yield replace(self._begun.pop(task_id), problem=loss.failure)
            for worker, message in self._pool.wait(_LOOK_INTERVAL_S if self._begun else 0):
                if (found := self._take(worker, message)) is not None:
                    num_left -= 1
                    yield found

    def _give_out(self, waiting: Iterator[int]) -> Iterator[DocumentSeen]:
        """Give each worker that has nothing to do a document. Yields those of which there is nothing to look at."""
        for worker in [worker for worker in self._pool.workers if not worker.task_ids]:
            for index in waiting:
                document = self._documents[index]
                if document.problem is None:
                    self._begun[index] = DocumentSeen(document)
                    worker.send(OpenDocument(index, document.path))
                    break
                yield DocumentSeen(document, problem=document.problem)

    def _take(self, worker: Worker, message: Arrived) -> DocumentSeen | None:
        """The document that this message ends; None if it goes on."""
        if isinstance(message, Opened):
            return self._opened(worker, message)
        if isinstance(message, PagesSeen):
            return replace(self._begun.pop(message.task_id), format=message.format, pages=message.pages)
        if isinstance(message, Failed):
            seen = self._begun.pop(message.task_id)
            if seen.doc_id is None and message.doc_id is not None:
                seen = replace(seen, doc_id=message.doc_id, same=self._is_known(message.doc_id))
            return replace(seen, problem=message.failure)
        return None

    def _opened(self, worker: Worker, opened: Opened) -> DocumentSeen | None:
        wanted = range(opened.page_count) if self._spec is None else self._spec.pages(opened.page_count)
        seen = replace(
            self._begun[opened.task_id],
            doc_id=opened.doc_id,
            page_count=opened.page_count,
            wanted=wanted,
            same=self._is_known(opened.doc_id),
        )
        self._begun[opened.task_id] = seen
        if seen.same:
            return self._begun.pop(opened.task_id)
        worker.send(LookAtPages(opened.task_id, seen.document.path, tuple(spread(wanted, self._sample))))
        return None

    def _is_known(self, doc_id: str) -> bool:
        """Whether a document before had these bytes; from now on, one had."""
        known = doc_id in self._seen_ids
        self._seen_ids.add(doc_id)
        return known


def spread(items: Sequence[int], most: int) -> list[int]:
    """As many of the items as allowed, evenly spread, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[place * (len(items) - 1) // (most - 1)] for place in range(most)]
