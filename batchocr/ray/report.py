"""The report of a run on a cluster: what all actors did together, and each of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from batchocr.data import ErrorKind, Status, counted
from batchocr.errors import ExitCode
from batchocr.job.stats.ledger import ExitReason
from batchocr.job.stats.report import Items, RunFacts, Setting, ratio
from batchocr.ray.folder import PartRows
from batchocr.ray.machines import MachineReport

_WAITS = 0.1
"""If actors were idle for more than this share of the time, idle actors are the bottleneck."""


@dataclass(frozen=True, slots=True)
class Parts:
    """How many parts the output has."""

    planned: int
    already_done: int
    """By earlier runs."""
    read: int
    lost_twice: int
    """Those whose rows say `crashed`."""


@dataclass(slots=True)
class ActorReport:
    """What an actor did."""

    node: str
    parts: int = 0
    pages_read: int = 0
    busy_seconds: float = 0.0
    """From being given an item to its part being there, of all items."""
    ready_seconds: float = 0.0
    pages_per_second: float = 0.0
    """While it was busy."""


@dataclass(frozen=True, slots=True)
class ClusterReport(RunFacts):
    """What came of a run on a cluster. Rates are per second of work, from the first actor that was ready to the end,
    for what was read in this run."""

    pages_per_second: float
    exit_reason: ExitReason
    pages_read: int
    documents: int
    skipped_files: Mapping[str, int]
    items: Items
    """Rows of the whole output."""
    newest: Items | None
    """Those of documents that are new or have changed since the last run that ended well; None if all are."""
    errors: Mapping[ErrorKind, int]
    parts: Parts
    wall_seconds: float
    plan_seconds: float
    """Until the items were known."""
    start_up_seconds: float
    """From then until an actor was ready."""
    work_seconds: float
    driver_cpu_seconds: float
    """Of this process, for the whole run."""
    actors: tuple[ActorReport, ...]
    actors_lost: int
    machines: tuple[MachineReport, ...]
    """Those that the run did without from some moment on."""
    settings: Mapping[str, Setting]
    max_page_error_rate: float
    max_degraded_rate: float
    bottleneck: str = ""
    """One line: what limits the rate."""

    @property
    def complete(self) -> bool:
        """Whether the run finished on its own."""
        return self.exit_reason == "finished"

    @property
    def nothing_to_do(self) -> bool:
        """Whether earlier runs had read every part before this one."""
        return self.complete and self.parts.read == 0

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the command."""
        if not self.complete:
            return ExitCode.INTERRUPTED if self.exit_reason == "interrupted" else ExitCode.STOPPED
        return ExitCode.TOO_MANY_FAILURES if self.exceeded else ExitCode.DONE

    @property
    def exceeded(self) -> list[str]:
        """A sentence for each share that is larger than it may be. The parts are not read for doubtful pages."""
        rates = self.max_page_error_rate, self.max_degraded_rate
        return self.items.exceeded(*rates) + (self.newest.exceeded_as_newest(*rates) if self.newest else [])

    def to_json(self) -> str:
        """The report as a JSON object; times in seconds."""
        added = {"complete": self.complete, "exit_code": self.exit_code}
        return json.dumps(
            {"pages_per_second": self.pages_per_second} | asdict(self) | added, indent=2, ensure_ascii=False
        )

    def to_text(self) -> str:
        """The report in a few lines."""
        items, parts, num_actors = self.items, self.parts, len(self.actors)
        lines = [
            f"{counted(self.pages_read, 'page')} read at {self.pages_per_second:.2f} pages/s by "
            f"{counted(num_actors, 'actor')} (plan {self.plan_seconds:.1f} s, start-up "
            f"{self.start_up_seconds:.1f} s, work {self.work_seconds:.1f} s)",
            "",
            f"rows         {items.found:,} = {items.ok:,} ok + {items.degraded:,} degraded + {items.failed:,} failed + "
            f"{items.skipped:,} skipped + {items.not_reached:,} not reached; in {counted(self.documents, 'document')}",
            f"parts        {parts.planned:,}, of which {parts.already_done:,} were there before and {parts.read:,} "
            "were read now",
        ]
        if self.errors:
            lines.append("errors       " + ", ".join(f"{count:,} {kind}" for kind, count in self.errors.items()))
        lines += [
            f"actor        {actor.pages_per_second:.2f} pages/s on {actor.node}: {counted(actor.pages_read, 'page')} "
            f"in {counted(actor.parts, 'part')}, busy {ratio(actor.busy_seconds, actor.ready_seconds):.0%} of its time"
            for actor in self.actors
        ]
        lines += [f"actors lost  {self.actors_lost}"] if self.actors_lost else []
        lines += [f"machine      {each.name} {each.fate}: {each.why}" for each in self.machines]
        return "\n".join([*lines, f"bottleneck   {self.bottleneck}"])


@dataclass(slots=True)
class Tally:
    """What has been counted so far."""

    found: int = 0
    """Rows, as far as is known."""
    by_status: Counter[Status] = field(default_factory=Counter)
    errors: Counter[ErrorKind] = field(default_factory=Counter)
    newest: frozenset[str] | None = None
    """The newest documents, by `source`; None if all are."""
    of_newest: Counter[Status] = field(default_factory=Counter)
    """Their rows, by status."""
    already_done: int = 0
    """Rows that earlier runs have read."""
    pages_read: int = 0
    bottlenecks: Counter[str] = field(default_factory=Counter)
    parts_before: int = 0
    """Parts that are left as they were."""
    parts_read: int = 0
    lost_twice: int = 0
    actors_lost: int = 0

    def take(self, rows: PartRows) -> None:
        """Add the rows of a part."""
        self.by_status.update(rows.by_status)
        self.errors.update(rows.errors)
        for (source, status), number in rows.by_document.items():
            self.of_newest[status] += number * (source in (self.newest or ()))

    @property
    def done(self) -> int:
        return self.by_status.total()

    def items(self, *, finished: bool) -> Items:
        found = self.done if finished else max(self.found, self.done)
        return Items.of(self.by_status, found=found, not_reached=found - self.done, already_done=self.already_done)


def name_bottleneck(tally: Tally, actors: tuple[ActorReport, ...]) -> str:
    """One line on what limits the rate."""
    if not tally.pages_read:
        return "none: no page was read in this run"
    waited = 1 - ratio(sum(actor.busy_seconds for actor in actors), sum(actor.ready_seconds for actor in actors))
    if waited > _WAITS:
        return (
            f"items: the actors had nothing to read {waited:.0%} of the time, while others finished theirs; lower "
            "--pages-per-task, or use fewer actors"
        )
    [(said, _)] = tally.bottlenecks.most_common(1)
    return f"within an actor: {said}"
