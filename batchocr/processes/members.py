"""The documents within files, as workers list them: an index is as hostile as a page."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from batchocr.data import Document, Failure, valid_text
from batchocr.processes.messages import Failed, ListMembers, MembersListed
from batchocr.processes.pool import WorkerPool
from batchocr.processes.worker import Loss
from batchocr.storage.members import MemberAddress

logger = logging.getLogger(__name__)

_NOTICE_S: Final = 10.0


@dataclass(slots=True)
class Within:
    """What is within a file."""

    container: Document
    documents: list[Document] = field(default_factory=list)
    """In its order; at the end the file itself, if not all of it can be listed."""
    skipped: Counter[str] = field(default_factory=Counter)
    """How many others there are, as `SkippedFiles.by_kind` says it."""
    names: set[str] = field(default_factory=set)
    """The `source` of each document."""

    def add(self, listed: MembersListed) -> None:
        """Add what a worker says. A name that was there before gets the member's number."""
        self.skipped.update(listed.skipped)
        for found in listed.members:
            member = found.member
            source = f"{self.container.source}/{valid_text(member.name)}"
            while source in self.names:
                source = f"{source} ({member.ordinal})"
            self.names.add(source)
            address = str(MemberAddress(self.container.path, listed.version, member))
            self.documents.append(Document(address, source, found.problem, size=member.size, mtime_ns=member.mtime_ns))
        if listed.problem is not None:
            self.fail(listed.problem)

    def fail(self, problem: Failure) -> None:
        """Add the file itself, which cannot be listed any further."""
        self.documents.append(Document(self.container.path, self.container.source, problem))


def list_within(containers: Sequence[Document], pool: WorkerPool, timeout_s: float) -> list[Within]:
    """What is within each of the files. timeout_s: for a step. Raises BatchOcrError if no worker can be started."""
    found = [Within(container) for container in containers]
    said_s = time.monotonic()
    tasks = (ListMembers(index, container.path) for index, container in enumerate(containers))
    for worker, message in pool.map(tasks, timeout_s):
        if isinstance(message, Loss):
            for index in message.task_ids:
                found[index].fail(message.failure)
        elif isinstance(message, Failed):
            found[message.task_id].fail(message.failure)
        elif isinstance(message, MembersListed):
            within = found[message.task_id]
            within.add(message)
            if not message.is_last:
                worker.send(ListMembers(message.task_id, within.container.path, goes_on=True))
            if time.monotonic() - said_s > _NOTICE_S:
                said_s = time.monotonic()
                num_found = sum(len(each.documents) for each in found)
                logger.info("listing what is in archives: %s documents so far", f"{num_found:,}")
    for within in found:
        within.names.clear()  # they would take memory for as long as the documents
    return found
