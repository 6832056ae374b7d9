"""The driver: it gives items to actors, the largest first, replaces actors that are lost, and counts results."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from batchocr.config import Config
from batchocr.data import Failure
from batchocr.errors import BatchOcrError, EngineError, OutputError, OutputMismatchError
from batchocr.job.progress import event
from batchocr.job.stats.report import Setting
from batchocr.job.stop import StopSwitch
from batchocr.machine import own_version
from batchocr.ray.cluster import ActorPlan, Cluster, connected, joined, plan_actors, start_actor
from batchocr.ray.deaths import Deaths
from batchocr.ray.items import Item, Items
from batchocr.ray.machines import MAX_FAILURES, MachineReport, Machines
from batchocr.ray.reader import ItemRead, Loaded, Reader
from batchocr.ray.report import ActorReport
from batchocr.tables.schema import RunMetadata, require_same_settings
from batchocr.tables.target import Target

logger = logging.getLogger(__name__)

_TICK_S = 0.5
_WAIT_NOTICE_S = 60.0
_IDLE_S = 60.0
"""How long an actor with nothing to read keeps its machine."""
_SLOW = 4.0
_SLOW_S = 30.0
"""How long an item has to take at least, and `_SLOW` times as long as others of its size, to be given to an idle actor,
too."""


@dataclass(slots=True)
class _Actor:
    """An actor, what it was asked (`call`), and the item that it is reading, if any."""

    handle: Any
    plan: ActorPlan
    report: ActorReport
    call: Any = None
    machine: str = ""
    """The id of the actor's node, once the actor has said it."""
    item: Item | None = None
    is_ready: bool = False
    since_s: float = 0.0
    """When the actor was given its item, or had read the last one."""
    ready_s: float = 0.0


class Driver:
    """Has items read by actors; `close` it. Raises the errors of `Reader.load` and OutputError; an item whose actors
    die becomes failed rows.

    metadata: of rows that are there, or of those that the first actor reads; None until one is ready. on_ready: called
    then. on_read: called with what was read.
    """

    def __init__(
        self,
        config: Config,
        cluster: Cluster,
        target: Target,
        roots: tuple[str, ...],
        *,
        metadata: RunMetadata | None,
        on_ready: Callable[[RunMetadata], None],
        on_read: Callable[[ItemRead], None],
    ) -> None:
        self.settings: dict[str, Setting] = {}
        self.first_ready_s: float | None = None
        self.machines: Sequence[MachineReport] = ()
        """The machines that were lost or left out."""
        self.actor_reports: list[ActorReport] = []
        """The reports of all actors that were ready, also of those that were lost."""
        self.num_lost = self.num_given_up = 0
        """Actors that were lost, and items that were given up."""
        self.items = Items(cluster.pages_per_task)
        self._has_started_ray = False
        self._ray: ModuleType
        self._config = config
        self._cluster = cluster
        self._target = target
        self._roots = roots
        self._metadata = metadata
        self._on_ready, self._on_read = on_ready, on_read
        self._machines: Machines
        self._deaths: Deaths
        self._closing = ExitStack()
        self._said_s = 0.0
        self._actors: list[_Actor] = []
        self._waiting: list[Item] = []
        self._said: dict[int, str] = {}
        """What the last actor that died of an item said, by the item's number."""
        self._failure: Exception | None = None
        """Why the last failed start of an actor failed."""
        self._held: list[Item] = []
        """The items of which actors have died, while it is open whether these died with their machines."""
        self._read_s, self._pages_read = 0.0, 0
        """What all items took that were read, and how many pages they were to have."""

    def read(self, items: Iterable[Item], stop: StopSwitch, tick: Callable[[], None]) -> bool:
        """Have these items read; returns whether all were. Once the run is stopped, only those that are being read are
        finished, as long as the grace period lasts. tick: called at least about twice a second."""
        self._waiting = sorted(items, key=_by_size)
        if self._waiting and not self._actors:
            self._connect()
        self._said_s = time.perf_counter()
        plan = plan_actors(self._machines.resources, self._config, self._cluster.actors) if self._waiting else None
        while plan is not None and (self._waiting or self._reading() or self._held):
            tick()
            now = plan_actors(self._machines.resources, self._config, self._cluster.actors)
            plan = now if self._machines.are_there(now.needed) else plan  # those that are away may come back
            if plan.gpus:  # also while all machines that have some are away
                self._config = replace(self._config, device="cuda")
            if stop.reason is None:
                self._start_actors(plan)
                self._give_out()
            elif not self._reading() or stop.grace_is_over:
                return False
            self._wait()
            self._look_at_machines(plan)
            self._look_at_nodes(plan, stop)
        return True

    @property
    def num_left(self) -> int:
        """How many documents have pages that were not read yet."""
        reading = [actor.item for actor in self._reading() if actor.item is not None]
        return sum(len(item.documents) for item in (*self._waiting, *self._held, *reading))

    def close(self) -> None:
        """End all actors, and a Ray that was started here."""
        for actor in list(self._actors):
            self._end(actor)
        self._closing.close()

    def _connect(self) -> None:
        address = joined(self._cluster.address)
        self._ray = self._closing.enter_context(connected(address))
        self._has_started_ray = address is None
        self._machines = Machines(self._ray)
        self._deaths, self.machines = Deaths(self._machines), self._machines.reports

    def _reading(self) -> list[_Actor]:
        return [actor for actor in self._actors if actor.item is not None]

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
                self._target,
                self._roots,
                cpus=plan.cpus,
                per_node=plan.per_node,
                max_pages=self._cluster.pages_per_task,
                begun_in=self._metadata,
            )
            self._actors.append(_Actor(handle, plan, ActorReport(""), call=handle.machine.remote()))

    def _give_out(self) -> None:
        for actor in [actor for actor in self._actors if actor.is_ready and actor.item is None]:
            item = self._next_for(actor.machine) or self._slow_item()
            if item is not None:
                actor.item = item
                actor.since_s = time.perf_counter()
                actor.call = actor.handle.read.remote([*item.documents])
            elif not (self._waiting or self._held) and time.perf_counter() - actor.since_s > _IDLE_S:
                self._end(actor)

    def _slow_item(self) -> Item | None:
        """An item whose one actor takes far longer than other items of its size took; no item of which actors have
        died."""
        times = Counter(actor.item.number for actor in self._reading() if actor.item is not None)
        per_page_s = self._read_s / self._pages_read if self._pages_read else math.inf
        for actor in self._reading():
            if actor.item is None or times[actor.item.number] > 1 or self._deaths.died_on(actor.item.number):
                continue
            usual_s = per_page_s * actor.item.num_pages
            if time.perf_counter() - actor.since_s > max(_SLOW_S, _SLOW * usual_s):
                return actor.item
        return None

    def _next_for(self, machine: str) -> Item | None:
        """The next item that is to be read there: not one of which an actor died there, if another machine is left."""
        ready = {actor.machine for actor in self._actors if actor.is_ready}
        for place in reversed(range(len(self._waiting))):
            died_on = self._deaths.died_on(self._waiting[place].number)
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
        """Do without machines that were lost or are left out. Raises an error if none is left."""
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

    def _look_at_nodes(self, plan: ActorPlan, stop: StopSwitch) -> None:
        """Name the nodes now and then, as long as no actor is ready. A Ray that was started here and has lost its node
        ends the run, as no other will come."""
        if any(actor.is_ready for actor in self._actors) or time.perf_counter() - self._said_s < _WAIT_NOTICE_S:
            return
        self._said_s = time.perf_counter()
        nodes = self._ray.nodes()
        why = "the cluster may be busy, have no room for them, or still load the model"
        if plan.gpus and not self._machines.are_there({"GPU": plan.gpus}):
            why = "no machine that is alive has a GPU: it waits for one, --device cpu does without"
        if self._has_started_ray and not any(node["Alive"] for node in nodes):
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
        """Take note of an actor that can read, unless its rows would not fit with those of the others."""
        try:
            self._require_fitting(loaded)
        except OutputMismatchError as error:
            self._lost(actor, error)
            return
        if self.first_ready_s is None:
            self._on_ready(loaded.metadata)
            self._metadata, self.settings = loaded.metadata, loaded.settings
        self.first_ready_s = self.first_ready_s or time.monotonic()
        actor.is_ready, actor.ready_s = True, time.perf_counter()
        actor.since_s = actor.ready_s
        self.actor_reports.append(actor.report)

    def _require_fitting(self, loaded: Loaded) -> None:
        """Raise OutputMismatchError if rows of this actor would not fit with the rows of other actors."""
        if loaded.metadata.batchocr_version != own_version():
            raise OutputMismatchError(
                f"batchocr is {loaded.metadata.batchocr_version} on {loaded.node} and {own_version()} here: install "
                "the same on all nodes"
            )
        if self._metadata is not None:
            require_same_settings(self._target.out, self._metadata, loaded.metadata)

    def _read(self, actor: _Actor, read: ItemRead) -> None:
        """Count an item that was read."""
        item, actor.item = actor.item, None
        took_s, actor.since_s = time.perf_counter() - actor.since_s, time.perf_counter()
        actor.report.busy_seconds += took_s
        assert item is not None
        for slower in [other for other in self._actors if other.item is item]:
            slower.report.busy_seconds += actor.since_s - slower.since_s
            self._end(slower)  # it may never come to an end, nor read anything else
        self._deaths.was_read(item.number, actor.machine)
        self._machines.did_well(actor.machine)
        self._read_s, self._pages_read = self._read_s + took_s, self._pages_read + item.num_pages
        actor.report.items += 1
        if read.report is not None:
            actor.report.pages_read += read.report.pages_read
        for message, extra in read.said:
            logger.warning("%s", message, extra=extra)
        self._on_read(read)
        rest = [*read.rest]
        if read.row is not None:
            self._waiting += self.items.of_pieces(rest.pop(0), read.row)
        self._waiting += self.items.of_some(rest)
        self._waiting.sort(key=_by_size)

    def _lost(self, actor: _Actor, error: Exception) -> None:
        """Remove an actor that died or cannot go on. Its item is tried again, or its rows fail. Raises an error if no
        actor can start anywhere, or nobody can write into the folder."""
        message = _in_a_line(error)
        self._end(actor)
        self.num_lost += actor.is_ready
        logger.warning(
            "an actor was lost%s: %s",
            f" on {actor.report.node}" if actor.report.node else " before it was ready",
            message,
            extra=event("worker_lost", error_kind="crashed", error_message=message),
        )
        if isinstance(error, OutputError):
            self._target.require_writable()
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
        self._said[actor.item.number] = message
        is_preempted = bool(getattr(error, "preempted", False))
        is_raised = not isinstance(error, self._ray.exceptions.RayError)  # by an actor that is still there
        by_itself = is_raised or actor.machine == self._machines.own
        self._deaths.add(actor.item.number, actor.machine, is_preempted=is_preempted, by_itself=by_itself)
        if self._is_unread(actor.item):
            self._try_again(actor.item)

    def _is_unread(self, item: Item) -> bool:
        """Whether no actor reads an item that one actor has lost; and none has read it, as that would have ended the
        others."""
        return all(actor.item is not item for actor in self._actors)

    def _try_again(self, item: Item) -> None:
        """Have an item read again, or give it up, as soon as it is known whether its actors have died of it."""
        match self._deaths.next(item.number):
            case "read again":
                self._waiting.append(item)
            case "wait":
                self._held.append(item)
            case "give up" if len(item.documents) > 1:  # one of them may be to blame
                self._waiting += self.items.of_each(item.documents)
                self._waiting.sort(key=_by_size)
            case "give up":
                num_actors, source = self._deaths.num_died(item.number), item.documents[0].source
                logger.warning("%s took %d actors down: failed with it", source, num_actors)
                self._fail(item, f"it took {num_actors} actors down: {self._said[item.number]}"[:2000])

    def _fail(self, item: Item, message: str) -> None:
        """Put rows that say that the item crashed; rows from an earlier run stay."""
        assert self._metadata is not None
        self.num_given_up += 1
        rows = [*item.failed_rows(Failure("crashed", message), attempts=self._deaths.num_died(item.number))]
        name = self._target.put_rows(rows, self._metadata) if rows else ""
        self._on_read(ItemRead(name, rows=Counter(row.status for row in rows)))

    def _end(self, actor: _Actor) -> None:
        self._actors.remove(actor)
        if actor.is_ready:
            actor.report.ready_seconds = time.perf_counter() - actor.ready_s
            busy_s = actor.report.busy_seconds
            actor.report.pages_per_second = actor.report.pages_read / busy_s if busy_s else 0.0
        self._ray.kill(actor.handle)


def _in_a_line(error: Exception) -> str:
    """What an error says, in one line: errors of Ray are pages long, with advice about Ray."""
    if isinstance(error, BatchOcrError):
        return str(error)
    lines = [line.strip() for line in str(error).partition("Some common causes")[0].splitlines() if line.strip()]
    said = " ".join(lines if len(lines) < 4 else [lines[0], *lines[-2:]])
    return f"{type(error).__name__}: {said}"[:500].strip()


def _by_size(item: Item) -> tuple[int, int]:
    """The sort key of items that wait: the last one is read first."""
    return item.num_pages, -item.number
