"""The driver: it gives items to actors, the largest first, replaces actors that are lost, and counts results."""

from __future__ import annotations

import logging
import math
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from batchocr.config import Config
from batchocr.data import Failure, counted
from batchocr.errors import BatchOcrError, EngineError, OutputError, OutputMismatchError
from batchocr.job.progress import Progress, RunProgress, event
from batchocr.job.stats.report import Setting
from batchocr.job.stop import StopSwitch
from batchocr.machine import own_version
from batchocr.pages.input.sources import Found
from batchocr.ray.cluster import ActorPlan, connected, plan_actors, start_actor
from batchocr.ray.deaths import Deaths
from batchocr.ray.folder import OutputFolder, PartRows, read_part
from batchocr.ray.items import ClusterPlan, Item, newest_documents
from batchocr.ray.machines import MAX_FAILURES, MachineReport, Machines
from batchocr.ray.reader import ItemRead, Loaded, Reader
from batchocr.ray.report import ActorReport, Tally
from batchocr.tables import parquet
from batchocr.tables.known import needs_no_attempt
from batchocr.tables.schema import RunMetadata, require_same_settings
from batchocr.tables.selection import selection_of

logger = logging.getLogger(__name__)

_TICK_S = 0.5
_WAIT_NOTICE_S = 60.0
_OWN_CHECK_S = 30.0
"""How often to look whether another run has begun in the same folder."""
_IDLE_S = 60.0
"""An actor that has nothing to read for so long gives its machine back."""
_SLOW = 4.0
_SLOW_S = 30.0
"""An item that takes so many times as long as others of its size, and so long, is given to an idle actor, too."""


@dataclass(slots=True)
class _Actor:
    """An actor, what it was asked (`call`), and the item that it is reading, if any."""

    handle: Any
    plan: ActorPlan
    report: ActorReport
    call: Any = None
    machine: str = ""
    """The id of its node, once it has said it."""
    item: Item | None = None
    is_ready: bool = False
    since_s: float = 0.0
    """When it was given its item, or had read the last one."""
    ready_s: float = 0.0


class Driver:
    """Has items read by actors, until all are, or the run is stopped. Raises the errors of `Reader.load` and
    OutputError; an item whose actors die becomes failed rows."""

    def __init__(
        self,
        config: Config,
        found: Found,
        folder: OutputFolder,
        items: Sequence[Item],
        earlier: ClusterPlan | None,
        *,
        actors: int | None,
    ) -> None:
        self.tally = Tally(found=sum(item.num_rows for item in items), newest=newest_documents(items, earlier))
        self.settings: dict[str, Setting] = {}
        self.first_ready_s: float | None = None
        self.machines: Sequence[MachineReport] = ()
        """Those that were lost or left out."""
        self.actor_reports: list[ActorReport] = []
        """Of all actors that were ready, also of those that were lost."""
        self._ray: ModuleType
        self._config = config
        self._folder = folder
        self._roots = found.roots
        self._items = tuple(items)
        self._metadata = earlier.metadata if earlier is not None else None
        self._before: dict[str, PartRows] = {}
        self._has_begun = False
        self._machines: Machines
        self._deaths: Deaths
        self._said_s = 0.0
        self._own_s = 0.0
        self._actors: list[_Actor] = []
        self._wanted = actors
        self._waiting: list[Item] = []
        self._said: dict[str, str] = {}
        """By the names of items, what the last actor that died of one said."""
        self._failure: Exception | None = None
        """Why the last one could not start."""
        self._held: list[Item] = []
        """Of which actors have died, perhaps with their machines."""
        self._read_s, self._rows_read = 0.0, 0
        """What all items took that were read, and their rows."""
        self._choose_waiting()

    def _choose_waiting(self) -> None:
        """Leave out the items whose parts are there, unless they have failed rows that may be tried again."""
        if self._metadata is not None:
            self._before = self._folder.rows_of(self._items, self._metadata)
        for item in self._items:
            rows = self._before.get(item.name)
            if rows is not None:
                self.tally.already_done += rows.by_status.total() - rows.by_status["failed"]
            if rows is not None and all(needs_no_attempt(*row, self._config.retry_failed) for row in rows.outcomes):
                self.tally.parts_before += 1
                self.tally.take(rows)
            else:
                self._waiting.append(item)
        self._waiting.sort(key=lambda item: (item.num_rows, -item.number))  # the last is the first to be read

    def run(self, address: str | None, stop: StopSwitch, progress: Progress | None) -> None:
        """Read all items on the cluster at `address`. Once the run is stopped, only the items being read are finished,
        as long as the grace period lasts."""
        if not self._waiting and self._metadata is not None:  # documents may be gone all the same
            self._begin(self._metadata, self.tally.newest)
            return
        with connected(address) as self._ray:
            self._read_all(stop, progress, has_started_ray=address is None)

    def accept_newest(self) -> None:
        """Record that the run has ended well: the next one is judged by the documents that are new then. Raises
        OutputError."""
        if self.tally.newest != frozenset() and self._metadata is not None:
            self._begin(self._metadata, frozenset())

    def _begin(self, metadata: RunMetadata, newest: frozenset[str] | None, *, afresh: bool = False) -> None:
        """Record what this run reads. newest: as in ClusterPlan."""
        self._folder.begin(ClusterPlan("", metadata, self._config.pages, self._items, newest), afresh=afresh)

    def _read_all(self, stop: StopSwitch, progress: Progress | None, *, has_started_ray: bool) -> None:
        self._machines = Machines(self._ray)
        self._deaths, self.machines = Deaths(self._machines), self._machines.reports
        self._said_s = time.perf_counter()
        plan = plan_actors(self._machines.resources, self._config, self._wanted)
        stop.phase = "reading"
        try:
            while self._waiting or self._reading() or self._held:
                if progress is not None:
                    progress.show(self._progress())
                now = plan_actors(self._machines.resources, self._config, self._wanted)
                plan = now if self._machines.are_there(now.needed) else plan  # those that are away may come back
                if plan.gpus:  # also while all machines that have some are away
                    self._config = replace(self._config, device="cuda")
                if stop.reason is None:
                    self._start_actors(plan)
                    self._give_out()
                elif not self._reading() or stop.grace_is_over:
                    break
                self._wait()
                self._look_at_machines(plan)
                self._look_at_nodes(stop, has_started_ray=has_started_ray)
                if self._has_begun and time.perf_counter() - self._own_s > _OWN_CHECK_S:
                    self._own_s = time.perf_counter()
                    self._folder.require_own()
            if self._has_begun:
                self._folder.end(self._items)
        finally:
            for actor in list(self._actors):
                self._end(actor)
            if progress is not None:
                progress.show(self._progress())
                progress.close()

    def _reading(self) -> list[_Actor]:
        return [actor for actor in self._actors if actor.item is not None]

    def _progress(self) -> RunProgress:
        status = self.tally.by_status
        planned = max(self.tally.found, self.tally.done)
        return RunProgress(
            self.tally.done, planned, True, status["failed"], self.tally.pages_read, degraded=status["degraded"]
        )

    def _start_actors(self, plan: ActorPlan) -> None:
        """Start as many as there should be, but no more than there are items for; a slow one is for two."""
        for actor in [actor for actor in self._actors if not actor.machine and actor.plan.needed != plan.needed]:
            self._end(actor)  # there may be no machine any more that has so much
        needed = len(self._waiting) + len(self._reading()) + (self._slow_item() is not None)
        while len(self._actors) < min(plan.count, needed):
            config = replace(self._config, device="cuda" if plan.gpus else "cpu")
            handle = start_actor(
                self._ray,
                Reader,
                plan,
                self._machines.selector(),
                config,
                self._folder,
                self._roots,
                cpus=plan.cpus,
                per_node=plan.per_node,
                begun_in=self._metadata,
            )
            self._actors.append(_Actor(handle, plan, ActorReport(""), call=handle.machine.remote()))

    def _give_out(self) -> None:
        for actor in [actor for actor in self._actors if actor.is_ready and actor.item is None]:
            item = self._next_for(actor.machine) or self._slow_item()
            if item is not None:
                actor.item = item
                actor.since_s = time.perf_counter()
                actor.call = actor.handle.read.remote(item, again=item.name in self._before)
            elif not (self._waiting or self._held) and time.perf_counter() - actor.since_s > _IDLE_S:
                self._end(actor)

    def _slow_item(self) -> Item | None:
        """An item whose one actor takes far longer than others of its size took; not one of which actors have died."""
        times = Counter(actor.item.number for actor in self._reading() if actor.item is not None)
        per_row_s = self._read_s / self._rows_read if self._rows_read else math.inf
        for actor in self._reading():
            if actor.item is None or times[actor.item.number] > 1 or self._deaths.died_on(actor.item.name):
                continue
            usual_s = per_row_s * actor.item.num_rows
            if time.perf_counter() - actor.since_s > max(_SLOW_S, _SLOW * usual_s):
                return actor.item
        return None

    def _next_for(self, machine: str) -> Item | None:
        """The next item that is to be read there: not one of which an actor died there, if another machine is left."""
        ready = {actor.machine for actor in self._actors if actor.is_ready}
        for place in reversed(range(len(self._waiting))):
            died_on = self._deaths.died_on(self._waiting[place].name)
            if machine not in died_on or not ready - died_on:
                return self._waiting.pop(place)
        return None

    def _wait(self) -> None:
        """Take what has ended, waiting a moment if nothing has."""
        by_call = {actor.call: actor for actor in self._actors if actor.call is not None}
        if not by_call:
            time.sleep(_TICK_S)
            return
        ended, _ = self._ray.wait(list(by_call), num_returns=1, timeout=_TICK_S)
        for call in ended:
            self._take(by_call[call])

    def _look_at_machines(self, plan: ActorPlan) -> None:
        """Do without those that were lost or are left out. Raises an error if none is left."""
        self._machines.look()
        self._deaths.judge()
        held, self._held = self._held, []
        for item in held:
            self._try_again(item)
        for actor in [actor for actor in self._actors if actor.machine in self._machines.left_out]:
            self._end(actor)
            if actor.item is not None and self._is_unread(actor.item):
                self._waiting.append(actor.item)
        if not self._machines.are_left(plan.needed):
            whys = "; ".join(f"{each.name}: {each.why}" for each in self._machines.reports if each.fate == "left out")
            raise self._failure or EngineError(f"no machine is left on which actors can be started: {whys}"[:2000])

    def _look_at_nodes(self, stop: StopSwitch, *, has_started_ray: bool) -> None:
        """Name the nodes now and then, as long as no actor is ready. A Ray that was started here and has lost its node
        ends the run, as no other will come."""
        if any(actor.is_ready for actor in self._actors) or time.perf_counter() - self._said_s < _WAIT_NOTICE_S:
            return
        self._said_s = time.perf_counter()
        nodes = self._ray.nodes()
        why = "the cluster may be busy, have no room for them, or still load the model"
        if has_started_ray and not any(node["Alive"] for node in nodes):
            stop.request()
            why = "the Ray that was started here has ended, as when memory runs out; run the same command again"
        states = (f"{node['NodeManagerHostname']} ({'alive' if node['Alive'] else 'dead'})" for node in nodes)
        logger.warning("no actor is ready yet: %s; nodes: %s", why, ", ".join(states)[:1000])

    def _take(self, actor: _Actor) -> None:
        call, actor.call = actor.call, None
        try:
            value = self._ray.get(call)
        except self._ray.exceptions.RayTaskError as error:  # raised by the actor, which is still there
            self._lost(actor, error.cause)
        except self._ray.exceptions.RayError as error:
            self._lost(actor, error)
        else:
            if isinstance(value, str):
                actor.machine, actor.report.node = value, self._machines.use(value)
                actor.call = actor.handle.load.remote()
            elif isinstance(value, Loaded):
                self._ready(actor, value)
            else:
                self._read(actor, value)

    def _ready(self, actor: _Actor, loaded: Loaded) -> None:
        """Take note of an actor that can read, unless its rows would not fit with the others."""
        try:
            self._require_fitting(loaded)
        except OutputMismatchError as error:
            self._lost(actor, error)
            return
        if not self._has_begun:
            self._begin(loaded.metadata, self.tally.newest, afresh=self._config.overwrite)
            self._has_begun, self._metadata, self.settings = True, loaded.metadata, loaded.settings
            self._own_s = time.perf_counter()
        self.first_ready_s = self.first_ready_s or time.perf_counter()
        actor.is_ready, actor.ready_s = True, time.perf_counter()
        actor.since_s = actor.ready_s
        self.actor_reports.append(actor.report)

    def _require_fitting(self, loaded: Loaded) -> None:
        """Raise OutputMismatchError if rows of this actor would not fit with the others."""
        if loaded.metadata.batchocr_version != own_version():
            raise OutputMismatchError(
                f"batchocr is {loaded.metadata.batchocr_version} on {loaded.node} and {own_version()} here: install "
                "the same on all nodes"
            )
        if self._metadata is not None:
            require_same_settings(str(self._folder), self._metadata, loaded.metadata)

    def _read(self, actor: _Actor, read: ItemRead) -> None:
        """Count an item that was read."""
        item, actor.item = actor.item, None
        took_s, actor.since_s = time.perf_counter() - actor.since_s, time.perf_counter()
        actor.report.busy_seconds += took_s
        assert item is not None
        for slower in [other for other in self._actors if other.item is item]:
            slower.report.busy_seconds += actor.since_s - slower.since_s
            self._end(slower)  # it may never come to an end, nor read anything else
        self._deaths.was_read(item.name, actor.machine)
        self._machines.did_well(actor.machine)
        self._read_s, self._rows_read = self._read_s + took_s, self._rows_read + item.num_rows
        self.tally.parts_read += 1
        actor.report.parts += 1
        self.tally.take(read.rows)
        if read.report is not None:
            actor.report.pages_read += read.report.pages_read
            self.tally.pages_read += read.report.pages_read
            self.tally.bottlenecks[read.report.bottleneck] += read.report.pages_read

    def _lost(self, actor: _Actor, error: Exception) -> None:
        """Remove an actor that died or cannot go on. Its item is tried again, or its rows fail. Raises an error if no
        actor can start anywhere, or nobody can write into the folder."""
        message = _in_a_line(error)
        self._end(actor)
        self.tally.actors_lost += actor.is_ready
        logger.warning(
            "an actor was lost%s: %s",
            f" on {actor.report.node}" if actor.report.node else " before it was ready",
            message,
            extra=event("worker_lost", error_kind="crashed", error_message=message),
        )
        if isinstance(error, OutputError):
            self._folder.try_to_put()
        if not actor.is_ready or isinstance(error, OutputError):
            self._machines.failed(actor.machine or self._machines.of_error(error), message)
            is_ours = isinstance(error, BatchOcrError)
            self._failure = error if is_ours else EngineError(f"no actor can be started: {message}")
            if self.first_ready_s is None and self._machines.num_failing >= MAX_FAILURES:
                raise self._failure
        if actor.item is None:
            return
        actor.report.busy_seconds += time.perf_counter() - actor.since_s
        if isinstance(error, OutputError):
            self._waiting += [actor.item] if self._is_unread(actor.item) else []
            return
        self._said[actor.item.name] = message
        is_preempted = bool(getattr(error, "preempted", False))
        is_raised = not isinstance(error, self._ray.exceptions.RayError)  # by an actor that is still there
        by_itself = is_raised or actor.machine == self._machines.own
        self._deaths.add(actor.item.name, actor.machine, is_preempted=is_preempted, by_itself=by_itself)
        if self._is_unread(actor.item):
            self._try_again(actor.item)

    def _is_unread(self, item: Item) -> bool:
        """Whether no actor reads an item, which one has lost; none has read it, as that would have ended the others."""
        return all(actor.item is not item for actor in self._actors)

    def _try_again(self, item: Item) -> None:
        """Have an item read again, or give it up, as soon as it is known whether actors have died of it."""
        match self._deaths.next(item.name):
            case "read again":
                self._waiting.append(item)
            case "wait":
                self._held.append(item)
            case "give up":
                num_actors, rows = self._deaths.num_died(item.name), counted(item.num_rows, "row")
                logger.warning("%s took %d actors down: failed with it: %s", item.name, num_actors, rows)
                self.tally.lost_twice += 1
                self._fail(item, f"it took {num_actors} actors down: {self._said[item.name]}"[:2000])

    def _fail(self, item: Item, message: str) -> None:
        """Put a part in which every row says that it crashed; one that is there from an earlier run stays."""
        assert self._metadata is not None
        self.tally.parts_read += 1
        if item.name in self._before:
            self.tally.take(self._before[item.name])
            return
        failed = item.failed_rows(Failure("crashed", message), attempts=self._deaths.num_died(item.name))
        metadata = replace(self._metadata, input_roots=self._roots, selection=selection_of(self._config))
        with tempfile.TemporaryDirectory(prefix="batchocr-") as folder:
            parquet.write(local := Path(folder, item.name), failed, metadata)
            self._folder.files.put(local, item.name)
            self.tally.take(read_part(local, self._metadata, item.name)[0])

    def _end(self, actor: _Actor) -> None:
        self._actors.remove(actor)
        if actor.is_ready:
            actor.report.ready_seconds = time.perf_counter() - actor.ready_s
            busy_s = actor.report.busy_seconds
            actor.report.pages_per_second = actor.report.pages_read / busy_s if busy_s else 0.0
        self._ray.kill(actor.handle)


def _in_a_line(error: Exception) -> str:
    """What an error says. Ray's are pages long, with advice about Ray."""
    if isinstance(error, BatchOcrError):
        return str(error)
    lines = [line.strip() for line in str(error).partition("Some common causes")[0].splitlines() if line.strip()]
    said = " ".join(lines if len(lines) < 4 else [lines[0], *lines[-2:]])
    return f"{type(error).__name__}: {said}"[:500].strip()
