"""The throughput report: what a run's counters say once it has ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from batchocr.data import ErrorKind
from batchocr.errors import ExitCode, OutputError
from batchocr.job.stats.gates import GateCounts
from batchocr.job.stats.quality import Distribution
from batchocr.processes.counts import Stage
from batchocr.tables.atomic import atomic_file, reading, require_writable
from batchocr.tables.files import UNFINISHED_REPORT

ExitReason = Literal["finished", "stopped", "interrupted", "failed"]
_BEGINNING = b'{\n  "pages_per_second": '
"""Of every report, those of runs on a cluster among them."""
Setting: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Items:
    """found: as far as documents have been opened. not_reached: items that no run has read, if this one ended early.
    already_done: those of the others that earlier runs dealt with.
    """

    found: int
    ok: int
    degraded: int
    failed: int
    skipped: int
    not_reached: int
    already_done: int


@dataclass(frozen=True, slots=True)
class StageReport:
    """busy_share: of the work time; for worker stages, of that of all workers. mean_fill: None without a limit."""

    busy_seconds: float
    busy_share: float
    batches: int
    mean_fill: float | None
    items: int
    items_per_busy_second: float


@dataclass(frozen=True, slots=True)
class PerPage:
    """What was computed for a page read in this run: figures in pages/s cannot be compared without it."""

    patches: float
    image_tokens: float
    output_tokens: float


@dataclass(frozen=True, slots=True)
class SavedReport:
    """What this run did not do twice. questions: all that its pages asked; from_run, from_cache: those of them that no
    engine was asked, because another page of this run, or an earlier run, had. pages: rows made from those of a file of
    the same bytes; documents: how many have such rows."""

    questions: int
    from_run: int
    from_cache: int
    documents: int
    pages: int


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """A device and the engines that were there, or all devices together: then seconds and shares are means.

    device: its name, or those of all. lost: how many of its engines. idle: not busy with any stage. starved: while no
    page had a request. peak_memory_bytes: of the GPU, None on a CPU. peak_host_bytes: main memory of the largest
    engine. batches_halved: by stage, how often a batch did not fit into memory and was tried again at half its size.
    preemptions: how often a sequence had to begin again because the KV cache was full.
    """

    device: str
    kernels: str
    lost: int
    idle_seconds: float
    idle_share: float
    starved_seconds: float
    starved_share: float
    model_flop_per_second: float
    peak_memory_bytes: int | None
    peak_host_bytes: int | None
    batches_halved: Mapping[Stage, int]
    preemptions: int


@dataclass(frozen=True, slots=True)
class QueueReport:
    mean_tokens: float
    max_tokens: int


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Peak resident memory of the main process, and of the worker and the engine that used the most."""

    peak_main_bytes: int | None
    peak_worker_bytes: int | None
    peak_engine_bytes: int | None


@dataclass(frozen=True, slots=True)
class Report:
    """The throughput report. Rates are per second of work, for what was read in this run; those of tokens, and the
    means per page, for what was computed.

    skipped_files: files in the folders of the input that are no documents, by suffix. table_seconds: for building the
    table, once all rows were in the journal. bottleneck: one line, what limits the rate and the option that would
    change that. ink_outside, text_layer_agreement: over all rows of the table; if there is none, over the pages read in
    this run. worse_documents, worse_pages: those whose files have changed since an earlier run read them better.
    doubtful: the pages of the table whose quality is under 0.5, if it was written. rows_gone, rows_not_asked: rows of
    earlier runs that stay in the table and are no items of this run: of documents that are not there any more, and
    others. With --prune, what was removed.
    """

    pages_per_second: float
    image_tokens_per_second: float
    output_tokens_per_second: float
    exit_reason: ExitReason
    error: str | None
    pages_read: int
    documents: int
    skipped_files: Mapping[str, int]
    documents_not_opened: int
    items: Items
    errors: Mapping[ErrorKind, int]
    wall_seconds: float
    start_up_seconds: float
    work_seconds: float
    table_seconds: float
    per_page: PerPage
    saved: SavedReport
    ink_outside: Distribution
    text_layer_agreement: Distribution
    stages: Mapping[Stage, StageReport]
    embedding_queue: QueueReport
    device: DeviceReport
    engines: tuple[DeviceReport, ...]
    host_memory: HostMemory
    workers: int
    settings: Mapping[str, Setting]
    max_page_error_rate: float
    max_degraded_rate: float
    max_doubtful_rate: float
    bottleneck: str = ""
    worse_documents: int = 0
    worse_pages: int = 0
    doubtful: int = 0
    rows_gone: int = 0
    rows_not_asked: int = 0

    @property
    def complete(self) -> bool:
        """Whether the run finished on its own."""
        return self.exit_reason == "finished"

    @property
    def nothing_to_do(self) -> bool:
        """Whether earlier runs had dealt with every row before this one."""
        return self.complete and 0 < self.items.found == self.items.already_done

    @property
    def ledger_adds_up(self) -> bool:
        items = self.items
        return items.found == items.ok + items.degraded + items.failed + items.skipped + items.not_reached

    @property
    def exceeded(self) -> list[str]:
        """A sentence for each share that is larger than it may be."""
        items = self.items
        counts = GateCounts(items.found, items.failed, items.ok + items.degraded, items.degraded, self.doubtful)
        return counts.exceeded(self.max_page_error_rate, self.max_degraded_rate, self.max_doubtful_rate)

    @property
    def exit_code(self) -> ExitCode | None:
        """The exit code of the command. None if an error ended the run, as that error has it."""
        if self.exit_reason == "failed":
            return None
        if not self.complete:
            return ExitCode.INTERRUPTED if self.exit_reason == "interrupted" else ExitCode.STOPPED
        if not self.ledger_adds_up:
            return ExitCode.BUG
        return ExitCode.TOO_MANY_FAILURES if self.exceeded or self.worse_pages else ExitCode.DONE

    def to_json(self) -> str:
        """The report as a JSON object; times in seconds, memory in bytes, shares from 0 to 1."""
        added = {
            "complete": self.complete,
            "exit_code": self.exit_code,
            "ledger_adds_up": self.ledger_adds_up,
        }
        return json.dumps(asdict(self) | added, indent=2, ensure_ascii=False)


def require_place(path: Path) -> None:
    """Check before the work that a report can be put there, in place of another at most. Raises OutputError."""
    require_writable(path)
    if path.exists():
        with reading(path), open(path, "rb") as file:
            beginning = file.read(len(_BEGINNING))
        if beginning not in (b"", _BEGINNING, UNFINISHED_REPORT):
            raise OutputError(f"{path} is no report: it is left as it is; move it away, or choose another place")


def write_report(report: Report, path: Path) -> None:
    """Write the report as JSON, whole or not at all. Raises OutputError."""
    with atomic_file(path) as file:
        file.write(report.to_json().encode() + b"\n")
