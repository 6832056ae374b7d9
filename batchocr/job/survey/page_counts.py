"""How many pages documents have, counted in worker processes without reading the files in full: nothing is hashed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from batchocr.config import Config
from batchocr.data import Document
from batchocr.processes.messages import Failed, LookAtPages, PagesSeen, Setup
from batchocr.processes.pool import WorkerPool

_WORKER_BYTES = 4 * 2**30
_LOOK_INTERVAL_S = 1.0


def count_pages(documents: Sequence[Document], config: Config, *, workers: int) -> Iterator[tuple[int, int | None]]:
    """Yield the index of each document and how many pages it has, in order of completion; None for one that cannot be
    opened, each within `page_timeout`. Raises BatchOcrError if no worker can be started."""
    known_bad = [index for index, document in enumerate(documents) if document.problem is not None]
    yield from ((index, None) for index in known_bad)
    waiting = iter(sorted(set(range(len(documents))).difference(known_bad)))
    num_left = len(documents) - len(known_bad)
    setup = replace(Setup.of(config, _WORKER_BYTES), protocol="pixels")
    with WorkerPool(max(1, min(workers, num_left)), setup) as pool:
        while num_left:
            pool.renew_worn()
            free = [worker for worker in pool.workers if not worker.task_ids]
            for worker, index in zip(free, waiting, strict=False):
                worker.send(LookAtPages(index, documents[index].path, ()))
            counts: dict[int, int | None] = {}
            for loss in pool.replace_lost(config.page_timeout):
                counts |= dict.fromkeys(loss.task_ids)
            for _, message in pool.wait(_LOOK_INTERVAL_S):
                if isinstance(message, PagesSeen | Failed):
                    counts[message.task_id] = message.page_count if isinstance(message, PagesSeen) else None
            num_left -= len(counts)
            yield from counts.items()
