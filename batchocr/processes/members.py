"""The documents within files, as workers list them: an index is as hostile as a page."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from batchocr.data import Document, Failure, counted
from batchocr.errors import UsageError
from batchocr.processes.messages import Failed, ListMembers, MembersListed
from batchocr.processes.pool import WorkerPool
from batchocr.processes.worker import Loss
from batchocr.storage.listing import Documents
from batchocr.storage.members import Member, MemberAddress, is_compressed
from batchocr.storage.temporary import delete_at_end
from batchocr.storage.unpacked import own_folder

logger = logging.getLogger(__name__)

_NOTICE_S: Final = 10.0


@dataclass(slots=True)
class Within:
    """What is within a file."""

    container: Document
    documents: Documents = field(default_factory=Documents)
    """The documents in the file, in its order; at the end the file itself, if not all of it can be listed."""
    skipped: Counter[str] = field(default_factory=Counter)
    """How many other files there are in the file, as `SkippedFiles.by_kind` says it."""
    version: tuple[int, int] | None = None
    """Size and mtime of the file, if these are all of its documents."""
    _taken: set[str] = field(default_factory=set)
    """The `source` of each document that a worker has listed."""

    def add(self, listed: MembersListed) -> None:
        """Add what a worker says of the file."""
        self.skipped.update(listed.skipped)
        self.documents.extend(self._named(member, listed.version) for member in listed.members)
        if listed.problem is not None:
            self.fail(listed.problem)
        elif listed.is_last:
            self.version = listed.version

    def _named(self, member: Member, version: tuple[int, int]) -> Document:
        """The document of a member; if it has the name of another before it, the member's number is added to that."""
        source = f"{self.container.source}/{member.name}"
        while source in self._taken:
            source = f"{source} ({member.ordinal})"
        self._taken.add(source)
        address = MemberAddress(self.container.path, version, member)
        return Document(str(address), source, size=member.size, mtime_ns=member.mtime_ns)

    def fail(self, problem: Failure) -> None:
        """Add the file itself, which cannot be listed any further."""
        self.documents.extend([replace(self.container, problem=problem)])


def list_within(containers: Sequence[Document], pool: WorkerPool, *, is_second: bool = False) -> list[Within]:
    """What is within each of the files. What had to be unpacked for that is removed when this process ends. If a worker
    was killed from outside, its file is listed a second time. Raises BatchOcrError if no worker can be started."""
    found = [Within(container) for container in containers]
    if any(is_compressed(container.path) for container in containers):
        with suppress(OSError, UsageError):  # whoever unpacks one says it
            folder = own_folder(pool.setup.work_dir, pool.setup.folder_name)
            delete_at_end(folder)
            logger.info("compressed tars are unpacked into %s, and that is removed at the end", folder)
    said_s, killed = time.monotonic(), list[int]()
    tasks = (ListMembers(index, container.path) for index, container in enumerate(containers))
    for worker, message in pool.map(tasks, pool.setup.page_timeout_s):
        if isinstance(message, Loss | Failed):
            for index in message.task_ids if isinstance(message, Loss) else [message.task_id]:
                found[index].fail(message.failure)
                if isinstance(message, Loss) and message.killed:
                    killed.append(index)
        elif isinstance(message, MembersListed):
            found[message.task_id].add(message)
            path = containers[message.task_id].path
            if not message.is_last:
                worker.send(ListMembers(message.task_id, path, goes_on=True))
            elif not found[message.task_id].documents:
                logger.info("%s holds no document", path)
            if time.monotonic() - said_s > _NOTICE_S:
                said_s = time.monotonic()
                num_found = sum(len(each.documents) for each in found)
                logger.info("listing what is in archives: %s so far", counted(num_found, "document"))
    if killed and not is_second:
        again = list_within([containers[index] for index in killed], pool, is_second=True)
        for index, within in zip(killed, again, strict=True):
            found[index] = within
    return found
