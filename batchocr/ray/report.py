"""The report of a run on a cluster: what all actors did together, and each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from batchocr.data import counted
from batchocr.job.stats.report import TableReport, ratio
from batchocr.ray.machines import MachineReport

_WAITS = 0.1
"""The share of the time from which on idle actors are the bottleneck."""


@dataclass(slots=True)
class ActorReport:
    """What an actor did."""

    node: str
    items: int = 0
    pages_read: int = 0
    busy_seconds: float = 0.0
    """How long all items took together, each from being given to the actor to its being put."""
    ready_seconds: float = 0.0
    pages_per_second: float = 0.0
    """The pages/s that the actor read while it was busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReport(TableReport):
    """What came of a run on a cluster. The work begins with the first actor that was ready."""

    plan_seconds: float
    """How long it took until it was known what is to be read."""
    driver_cpu_seconds: float
    """The CPU time of the driver's process, for the whole run."""
    items_read: int
    items_given_up: int
    """Items whose rows say `crashed`."""
    actors: tuple[ActorReport, ...]
    actors_lost: int
    machines: tuple[MachineReport, ...]
    """The machines that the run did without from some moment on."""

    def to_text(self) -> str:
        """The report in a few lines."""
        items, num_actors = self.items, len(self.actors)
        lines = [
            f"{counted(self.pages_read, 'page')} read at {self.pages_per_second:.2f} pages/s by "
            f"{counted(num_actors, 'actor')} (plan {self.plan_seconds:.1f} s, start-up "
            f"{self.start_up_seconds:.1f} s, work {self.work_seconds:.1f} s, table {self.table_seconds:.1f} s)",
            "",
            f"rows         {items.found:,} = {items.ok:,} ok + {items.degraded:,} degraded + {items.failed:,} failed + "
            f"{items.skipped:,} skipped + {items.not_reached:,} not reached; in {counted(self.documents, 'document')}",
        ]
        if self.errors:
            lines.append("errors       " + ", ".join(f"{count:,} {kind}" for kind, count in self.errors.items()))
        lines += [
            f"actor        {actor.pages_per_second:.2f} pages/s on {actor.node}: {counted(actor.pages_read, 'page')} "
            f"in {counted(actor.items, 'item')}, busy {ratio(actor.busy_seconds, actor.ready_seconds):.0%} of its time"
            for actor in self.actors
        ]
        lines += [f"actors lost  {self.actors_lost}"] if self.actors_lost else []
        lines += [f"machine      {each.name} {each.fate}: {each.why}" for each in self.machines]
        return "\n".join([*lines, f"bottleneck   {self.bottleneck}"])


def name_bottleneck(said: Counter[str], actors: Sequence[ActorReport]) -> str:
    """One line on what limits the rate. said: how many pages were read by actors, by what these say limits them."""
    if not said:
        return "none: no page was read in this run"
    waited = 1 - ratio(sum(actor.busy_seconds for actor in actors), sum(actor.ready_seconds for actor in actors))
    if waited > _WAITS:
        return (
            f"items: the actors had nothing to read {waited:.0%} of the time, while others finished theirs; lower "
            "--pages-per-task, or use fewer actors"
        )
    return f"within an actor: {said.most_common(1)[0][0]}"
