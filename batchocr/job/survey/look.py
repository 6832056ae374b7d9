"""Documents looked at without reading them: opened, hashed, and some of their pages measured, in worker processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from batchocr.config import Config
from batchocr.data import Document, Failure, PageSeen
from batchocr.option_values import parse_page_spec
from batchocr.processes.messages import Failed, LookAtPages, OpenDocument, Opened, PagesSeen, Setup
from batchocr.processes.pool import WorkerPool
from batchocr.processes.worker import Loss

MAX_SAMPLE = 40
MIN_SAMPLE = 3
"""How many pages of a document are measured at least, evenly spread, as the pages of a document are alike."""
MEASURED_PAGES = 10_000
"""How many pages are measured in all: with more documents than this allows for, fewer pages of each."""


@dataclass(frozen=True, slots=True)
class DocumentSeen:
    """What was found out about a document."""

    document: Document
    doc_id: str | None = None
    """SHA-256 of the file, hex; None if it could not be hashed."""
    page_count: int | None = None
    """The pages of the document; None if it could not be opened."""
    wanted: Sequence[int] = ()
    """The indices of the document's pages that would be read."""
    problem: Failure | None = None
    """Why the document cannot be opened, or its pages cannot be measured."""
    same: bool = False
    """Whether a document before it has the same bytes; its pages are then not measured again."""
    format: str = ""
    pages: tuple[PageSeen | None, ...] = ()
    """The pages of the document's sample; None for one that cannot be read."""


def look_at(documents: Sequence[Document], config: Config, *, workers: int) -> Iterator[DocumentSeen]:
    """Yield what was found out about each document, in order of completion.

    config: its `pages`, `dpi`, `password` and `page_timeout` count. Raises BatchOcrError if no worker can be started.
    """
    yield from (DocumentSeen(document, problem=document.problem) for document in documents if document.problem)
    spec = parse_page_spec(config.pages)
    sample = max(MIN_SAMPLE, min(MAX_SAMPLE, MEASURED_PAGES // max(1, len(documents))))
    opened: dict[int, DocumentSeen] = {}
    known_ids: set[str] = set()
    tasks = (OpenDocument(index, document.path) for index, document in enumerate(documents) if not document.problem)
    with _pool(config, min(workers, len(documents))) as pool:
        for worker, message in pool.map(tasks, config.page_timeout):
            if isinstance(message, Loss):
                [index] = message.task_ids
                yield replace(opened.pop(index, DocumentSeen(documents[index])), problem=message.failure)
                continue
            seen = opened.pop(message.task_id, DocumentSeen(documents[message.task_id]))
            if isinstance(message, Opened | Failed) and seen.doc_id is None and message.doc_id is not None:
                seen = replace(seen, doc_id=message.doc_id, same=message.doc_id in known_ids)
                known_ids.add(message.doc_id)
            if isinstance(message, Opened):
                wanted = seen.document.chosen(spec.pages(message.page_count))
                seen = replace(seen, page_count=message.page_count, wanted=wanted)
                if not seen.same:
                    opened[message.task_id] = seen
                    pages = tuple(spread(seen.wanted, sample))
                    worker.send(LookAtPages(message.task_id, seen.document.path, pages, message.size, message.mtime_ns))
                    continue
            elif isinstance(message, PagesSeen):
                seen = replace(seen, format=message.format, pages=message.pages)
            elif isinstance(message, Failed):
                seen = replace(seen, problem=message.failure)
            yield seen


def open_documents(documents: Sequence[Document], config: Config, *, workers: int) -> Iterator[tuple[int, Opened]]:
    """Yield the index of each document that can be opened, with what is to be known of it then, in order of completion.
    Raises BatchOcrError if no worker can be started."""
    tasks = (OpenDocument(index, document.path) for index, document in enumerate(documents))
    with _pool(config, min(workers, len(documents))) as pool:
        for _, message in pool.map(tasks, config.page_timeout):
            if isinstance(message, Opened):
                yield message.task_id, message


def _pool(config: Config, workers: int) -> WorkerPool:
    """Workers that read nothing, and start sooner without the model's protocol."""
    return WorkerPool(max(1, workers), Setup.of(config))


def spread(items: Sequence[int], most: int) -> list[int]:
    """The items, evenly spread, the first and the last among them; as many of them as allowed."""
    if len(items) <= most:
        return list(items)
    return [items[place * (len(items) - 1) // (most - 1)] for place in range(most)]
