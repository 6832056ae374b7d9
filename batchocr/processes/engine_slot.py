"""A device of a session, the engine that runs on it now, and what became of those before."""

from __future__ import annotations

from dataclasses import dataclass, field

from batchocr.machine import peak_resident_bytes
from batchocr.processes.batches import BatchPart
from batchocr.processes.counts import Counts, sum_of
from batchocr.processes.engine_process import EngineProcess

_MAX_FAILED_STARTS = 6
"""Give a device up after this many consecutive engines that were lost before they were ready."""
_MAX_LOSSES = 24
_MAX_LOSSES_AT_FIRST = 8
"""Give a device up after this many consecutive losses without a good answer; after fewer if it never gave one."""
_MAX_KILLED = 30
"""Give a device up after this many consecutive engines that were killed from outside."""


@dataclass(slots=True)
class EngineUse:
    """How a device was used. device: its name; several may be called cpu. counts: of all engines that ran on it.
    num_lost: how many of them were lost. peak_bytes: the most host memory that any held. given_up: why no engine runs
    on it any more; empty if one does."""

    device: str
    kernels: str = ""
    counts: Counts = field(default_factory=Counts)
    num_lost: int = 0
    peak_bytes: int | None = None
    given_up: str = ""


class EngineSlot:
    """A device, and the engine that runs on it now. use: how the device was used since the last `forget`, as of the
    last `note_use`. sent: what the engine was asked and has not answered, by task. work: how much that is, in tokens.
    num_failed_starts, num_losses and num_killed count consecutive engines, for the limits above."""

    def __init__(self, device: str, process: EngineProcess) -> None:
        self.use = EngineUse(device)
        self.process = process
        self.sent: dict[int, BatchPart] = {}
        self.work = 0.0
        self.num_failed_starts = self.num_losses = self.num_killed = 0
        self.has_answered = False
        self.counts_of_lost = Counts()

    @property
    def device(self) -> str:
        return self.use.device

    @property
    def is_ready(self) -> bool:
        return self.process.ready is not None

    @property
    def is_hopeless(self) -> bool:
        return (
            self.num_failed_starts >= _MAX_FAILED_STARTS
            or self.num_losses >= (_MAX_LOSSES if self.has_answered else _MAX_LOSSES_AT_FIRST)
            or self.num_killed >= _MAX_KILLED
        )

    def send(self, part: BatchPart) -> None:
        self.sent[part.batch.task_id] = part
        self.work += part.work
        self.process.ask(part.batch.task_id, part.batch.shared, part.positions)

    def take_back(self, task_id: int) -> BatchPart:
        """Remove what was sent for this task, and return it: it is answered, or its engine is lost."""
        part = self.sent.pop(task_id)
        self.work -= part.work
        return part

    def count_loss(self, *, killed: bool) -> None:
        """Count the current engine as lost."""
        self.use.num_lost += 1
        if not self.is_ready:
            self.num_failed_starts += 1
            return
        self.num_failed_starts = 0
        self.num_losses += not killed
        self.num_killed += killed

    def forget(self) -> None:
        """Drop what was sent, and count from zero."""
        self.sent.clear()
        self.work = 0.0
        self.use.counts = self.counts_of_lost = Counts()
        self.use.num_lost = 0
        self.process.forget()

    def note_use(self) -> None:
        """Record what a report needs and what is known only while the process lives."""
        use, ready = self.use, self.process.ready
        use.peak_bytes = max(peak_resident_bytes(self.process.pid) or 0, use.peak_bytes or 0) or None
        use.counts = sum_of([self.counts_of_lost, self.process.counts])
        if ready is not None:
            use.kernels = ready.kernels
