"""A worker process as the run sees it: what it was given, what it says, and why it is lost."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from batchocr.data import Failure
from batchocr.processes.channel import FROM_WORKER, TO_WORKER, ChannelError
from batchocr.processes.child import Child
from batchocr.processes.messages import (
    Answer,
    Began,
    Completions,
    Drawn,
    DrawPage,
    Ended,
    Finished,
    FromWorker,
    ListMembers,
    LookAtPages,
    MembersListed,
    OfTask,
    OpenDocument,
    Opened,
    PagesSeen,
    ReadPage,
    RequestBatch,
    SearchableWritten,
    Setup,
    Started,
    Task,
    ToWorker,
    WriteSearchable,
)
from batchocr.processes.pixels import SharedBatch
from batchocr.processes.running_clock import RunningClock

_ONE_CORE = {"OMP_NUM_THREADS": "1"}

_ASKED: Final[dict[type[Any], Any]] = {
    Opened: OpenDocument,
    PagesSeen: LookAtPages,
    MembersListed: ListMembers,
    Drawn: DrawPage,
    SearchableWritten: WriteSearchable,
}
"""The task that each of these messages answers; all other messages answer any task."""

_START_S = 60.0
"""How long a worker that has work but has not begun any may be silent: it may still be starting."""

_MOST_MISSING_PAGES = 1000
"""The most pages for which a document need not have bytes: far more than a document may claim and not have; each page
that it has takes some bytes."""

_CLOCK_SLACK_S = 5.0
"""How much longer a step may have taken than the run's clock says, which is looked at only now and then. The worker's
own goes on while the whole job is suspended."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What an engine has to answer, for Completions in the same order."""

    task_id: int
    batch: SharedBatch


Arrived: TypeAlias = Began | Ended | Asked | Answer


@dataclass(frozen=True, slots=True)
class Loss:
    """A worker that was lost; another has taken its place."""

    worker: Worker
    task_ids: frozenset[int]
    """The tasks that the lost worker held."""
    doing: Began | None
    """What the worker was doing; None if nothing. That task is to blame, unless the worker was killed."""
    busy_s: float
    """How long the worker had been doing that."""
    failure: Failure
    killed: bool = False
    """Whether a SIGKILL from outside ended the worker: of a user, or of the kernel's OOM killer."""


class Worker(Child[ToWorker, FromWorker, Arrived]):
    """A worker process and what is known about it."""

    def __init__(self, setup: Setup, command: Sequence[str], clock: RunningClock) -> None:
        """Start the worker. clock: for its time limits. Raises OSError."""
        super().__init__(command, TO_WORKER, FROM_WORKER, name="worker", environment=_ONE_CORE)
        self._clock = clock
        self.task_ids: set[int] = set()
        """The tasks that the worker holds."""
        self.doing: Began | None = None
        """What the worker is doing; None if nothing."""
        self.num_pages = 0
        """How many pages the worker has been given so far; those of a document to look at together count as one."""
        self.has_spoken = False
        self._owes: dict[int, Task | Completions] = {}
        """What the worker has to do for now, by task: what it was last sent."""
        self._progress_s = self._clock.now()
        self._tell(setup)

    @property
    def backlog(self) -> int:
        """How many tasks the worker has work to do for now; the other tasks it holds are waiting for their
        completions."""
        return len(self._owes)

    def send(self, message: Task | Completions) -> None:
        """Give the worker something to do. Never blocks; a worker that has died is found by
        `WorkerPool.replace_lost`."""
        if not self._owes:
            self._progress_s = self._clock.now()
        self.num_pages += isinstance(message, ReadPage | LookAtPages | DrawPage)
        self.task_ids.add(message.task_id)
        self._owes[message.task_id] = message
        self._tell(message)

    def loss(self, timeout_s: float) -> Loss | None:
        """Why the worker is lost: it died, broke the protocol, or was busy with one thing for longer than `timeout_s`;
        None if it is not."""
        if self.fault is not None:
            return self._loss(Failure("crashed", f"the worker process was ended: {self.fault}"))
        if self.channel.closed:
            death = self.death()
            return self._loss(death.failure, killed=death.killed)
        limit_s = timeout_s if self.doing else max(timeout_s, _START_S)
        if not self._owes or self._clock.now() - self._progress_s <= limit_s:
            return None
        if self.doing:
            late = f"it took longer than {limit_s:g} s to {self.doing.activity} (--page-timeout)"
        else:
            late = f"its worker process said nothing for {limit_s:g} s"
        return self._loss(Failure("timeout", late))

    def _follow(self, message: FromWorker, descriptor: int | None) -> Sequence[Arrived]:
        if not isinstance(message, Started):
            return [self._arrived(message, descriptor)]
        self.has_spoken = True
        if descriptor is not None:
            os.close(descriptor)
        return []

    def _arrived(self, message: OfTask, descriptor: int | None) -> Arrived:
        """Record a message, and add a batch's pixels to it. Raises ChannelError if it is out of turn."""
        if not self._is_due(message) or isinstance(message, RequestBatch) is (descriptor is None):
            if descriptor is not None:
                os.close(descriptor)
            raise ChannelError(f"it sent {message.type!r} of task {message.task_id} out of turn")
        if isinstance(message, Opened) and message.page_count > _most_pages(self._owes[message.task_id], message):
            raise ChannelError(f"it claims {message.page_count:,} pages, more than the file has bytes")
        self.has_spoken = True
        if isinstance(message, Began) and self.doing is not None and self.doing.task_id == message.task_id:
            self.doing = message  # the same activity, of which more is known
            return message
        began_s, self._progress_s = self._progress_s, self._clock.now()
        if isinstance(message, Ended):
            most_s = self._progress_s - began_s + _CLOCK_SLACK_S
            message = replace(message, seconds=min(message.seconds, most_s))
        if isinstance(message, Began | Ended):
            self.doing = message if isinstance(message, Began) else None
            return message
        del self._owes[message.task_id]
        if isinstance(message, RequestBatch):
            assert descriptor is not None
            return Asked(message.task_id, SharedBatch(message, descriptor))
        self.task_ids.discard(message.task_id)
        return message

    def _is_due(self, message: OfTask) -> bool:
        """Whether the worker may say this now, in answer to what it was last sent in this task."""
        asked = self._owes.get(message.task_id)
        if isinstance(message, RequestBatch | Finished):
            return isinstance(asked, ReadPage | Completions)
        if isinstance(message, PagesSeen) and isinstance(asked, LookAtPages):
            return len(message.pages) == len(asked.page_indices)
        if isinstance(message, Drawn) and isinstance(asked, DrawPage):
            return len(message.sizes) == len(asked.parts) and asked.takes(message.sizes)
        return asked is not None and isinstance(asked, _ASKED.get(type(message), Task | Completions))

    def _loss(self, failure: Failure, *, killed: bool = False) -> Loss:
        busy_s = self._clock.now() - self._progress_s if self.doing else 0.0
        return Loss(self, frozenset(self.task_ids), self.doing, busy_s, failure, killed)


def _most_pages(task: Task | Completions, opened: Opened) -> int:
    """The most pages that the opened document can have."""
    size = opened.size
    if isinstance(task, OpenDocument):
        with suppress(OSError, ValueError):  # it has just gone, is an object, or is within a file
            size = os.path.getsize(task.path)
    return size + _MOST_MISSING_PAGES
