"""What a document is now, for `batchocr verify`: looked at in a worker process and under a deadline, as hashing or
opening it may take for ever, or end the process."""

from __future__ import annotations

from dataclasses import dataclass, replace

from batchocr.config import Config
from batchocr.data import Document
from batchocr.processes.messages import Failed, Setup
from batchocr.processes.pool import WorkerPool
from batchocr.processes.worker import Loss

_WORKER_BYTES = 2 * 2**30


@dataclass(frozen=True, slots=True)
class DocumentNow:
    """doc_id: None if the file could not be hashed. page_count: None if it could not be opened. problem: why not.
    is_known: False if a worker was lost over it, so that nothing can be said about it."""

    doc_id: str | None = None
    page_count: int | None = None
    problem: str = ""
    is_known: bool = True


class Examiner:
    """Looks at one document after the other. Ends its worker with its `with` block."""

    def __init__(self, config: Config) -> None:
        """Start the worker, which loads while the tables are read. Raises BatchOcrError."""
        self._timeout_s = config.page_timeout
        # No page is read, and a worker starts sooner without the protocol.
        self._pool = WorkerPool(1, replace(Setup.of(config, _WORKER_BYTES), protocol="pixels"))

    def look_at(self, document: Document) -> DocumentNow:
        """The document as it is now. Raises BatchOcrError if no worker can be started."""
        if document.problem is not None:
            return DocumentNow(problem=document.problem.message)
        found = self._pool.open_alone(document.path, self._timeout_s)
        if isinstance(found, Loss):
            return DocumentNow(problem=found.failure.message, is_known=False)
        if isinstance(found, Failed):
            return DocumentNow(found.doc_id, problem=found.failure.message)
        return DocumentNow(found.doc_id, found.page_count)

    def close(self) -> None:
        """End the worker."""
        self._pool.close()
