"""Which actors a cluster has room for, and what the driver does when they are lost; with a stand-in for Ray."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from batchocr.config import Config
from batchocr.data import PageResult
from batchocr.documents.assembly.assemble import open_table
from batchocr.errors import EngineError, ModelError, OutputError, OutputMismatchError, UsageError
from batchocr.job.stop import StopSwitch
from batchocr.machine import own_version
from batchocr.pages.input.sources import Found, find_documents
from batchocr.ray import driver, machines
from batchocr.ray.cluster import ActorPlan, joined, plan_actors
from batchocr.ray.folder import OutputFolder, PartRows
from batchocr.ray.items import ClusterPlan, Item, plan_items
from batchocr.ray.reader import ItemRead, Loaded
from batchocr.tables import parquet
from batchocr.tables.schema import RunMetadata
from tests.support.running import draw_pdf

METADATA = RunMetadata(own_version(), "none", "0", "0", {"dtype": "float32"})


class RayError(Exception):
    """Stands for Ray's: an actor died."""


class RayTaskError(RayError):
    """Stands for Ray's: an actor raised `cause`."""

    def __init__(self, cause: Exception) -> None:
        self.cause = cause


class StandIn:
    """A Ray whose actors are objects of this process, each on the machine that has the fewest. A call is made when its
    result is asked for. stuck: machines on which no item is ever read to its end. lost: machines that go down as soon
    as an actor reads there; Ray says so to who has asked `notices_after` times before."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(
        self,
        *resources: dict[str, float],
        alive: bool = True,
        stuck: Set[str] = frozenset(),
        lost: Set[str] = frozenset(),
        notices_after: int = 9**9,
    ) -> None:
        self._nodes = [
            {"Resources": found, "Alive": alive, "NodeManagerHostname": f"node-{number}", "NodeID": f"node-{number}"}
            for number, found in enumerate(resources)
        ]
        self._lost, self._stuck = lost, stuck
        self._looks_left = notices_after
        self._down: set[str] = set()
        self._running: list[str] = []
        self._turn = 0
        self.stuck_calls: list[Callable[[], ItemRead]] = []
        self.started: list[str] = []
        """The machines of the actors, as they were started."""
        config = dict.fromkeys(("initial_delay_ms", "period_ms", "timeout_ms", "failure_threshold"), lambda: 0)
        self._raylet = SimpleNamespace(
            Config=SimpleNamespace(**{f"health_check_{name}": of for name, of in config.items()})
        )

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: "the driver's")

    def nodes(self) -> list[dict[str, Any]]:
        self._looks_left -= 1
        for node in self._nodes if self._looks_left < 0 else []:
            node["Alive"] = node["Alive"] and node["NodeID"] not in self._down
        return self._nodes

    def remote(
        self, *, label_selector: dict[str, str], num_gpus: int = 0, num_cpus: int = 0, **_: object
    ) -> Callable[[type[Any]], Any]:
        left_out = label_selector.get("ray.io/node-id", "!in()").removeprefix("!in(").removesuffix(")").split(",")
        nodes = [node for node in self._nodes if node["Resources"].get("GPU", 0) >= num_gpus]
        alive = [node["NodeID"] for node in nodes if node["Alive"]] or [nodes[0]["NodeID"]]
        able = [machine for machine in alive if machine not in left_out]
        is_pending = all(node["Alive"] and node["Resources"].get("CPU", 0) < num_cpus for node in nodes)

        def actor_of(made: type[Any]) -> Any:
            def method(found: Callable[..., object]) -> Any:
                return SimpleNamespace(remote=lambda *given, **named: lambda: found(*given, **named))

            def start(*given: object, **named: object) -> Any:
                actor = made(*given, **named)
                actor.node = min(able, key=self._running.count)
                self._running.append(actor.node)
                self.started.append(actor.node)

                def load() -> object:
                    if actor.node in self._down:
                        raise RayError("its machine has died")
                    return actor.load()

                def read(*given: object, **named: object) -> object:
                    if actor.node in self._lost:
                        self._down.add(actor.node)
                        raise RayError("its machine has died")
                    return actor.read(*given, **named)

                calls = {"machine": lambda: actor.node, "load": load, "read": read}
                methods = {name: method(call) for name, call in calls.items()}
                if is_pending:
                    methods["machine"] = SimpleNamespace(remote=self._stuck_call)
                if actor.node in self._stuck:
                    methods["read"] = SimpleNamespace(remote=self._stuck_call)
                return SimpleNamespace(node=actor.node, **methods)

            return SimpleNamespace(remote=start)

        return actor_of

    def _stuck_call(self, item: Item | None = None, **_: object) -> Callable[[], ItemRead]:
        self.stuck_calls.append(lambda: ItemRead(PartRows(Counter(ok=item.num_rows if item else 0), Counter()), None))
        return self.stuck_calls[-1]

    def wait(self, calls: list[Any], **_: object) -> tuple[list[Any], list[Any]]:
        self._turn += 1
        call = calls.pop(self._turn % len(calls))
        return ([] if call in self.stuck_calls else [call]), calls

    def get(self, call: Callable[[], object]) -> object:
        try:
            return call()
        except RayError:
            raise
        except Exception as error:
            raise RayTaskError(error) from error

    def kill(self, handle: Any) -> None:
        self._running.remove(handle.node)


class NoNodeAlive(StandIn):
    """A Ray whose nodes are dead: no call ends. It asks for a stop at the third wait, and lasts for five."""

    def __init__(self, stop: StopSwitch) -> None:
        super().__init__({"CPU": 2}, {"CPU": 2}, alive=False)
        self._stop = stop
        self._num_waits = 0

    def wait(self, calls: list[Any], **_: object) -> tuple[list[Any], list[Any]]:
        self._num_waits += 1
        assert self._num_waits < 5, "the run goes on"
        if self._num_waits == 3:
            self._stop.request("stop_after")
        return [], calls


@pytest.mark.parametrize(
    ("nodes", "device", "wanted", "plan"),
    [
        ([{"CPU": 64, "GPU": 8}, {"CPU": 64, "GPU": 8}], "auto", None, ActorPlan(16, 8, 8, 1)),
        ([{"CPU": 4}, {"CPU": 64, "GPU": 8}, {"CPU": 24, "GPU": 4}], "auto", None, ActorPlan(12, 8, 6, 1)),
        ([{"CPU": 64, "GPU": 8}], "cuda", 64, ActorPlan(64, 8, 8, 1)),
        ([{"CPU": 64, "GPU": 8}], "cpu", None, ActorPlan(1, 1, 64, 0)),
        ([{"CPU": 16}, {"CPU": 8}, {"memory": 1}], "auto", None, ActorPlan(2, 1, 8, 0)),
        ([{"CPU": 16}, {"CPU": 8}], "auto", 4, ActorPlan(4, 2, 4, 0)),
        ([{"CPU": 2}], "auto", 8, ActorPlan(8, 8, 1, 0)),
    ],
)
def test_there_is_an_actor_for_each_gpu_or_each_node_with_its_share_of_the_cores(
    nodes: list[dict[str, float]], device: str, wanted: int | None, plan: ActorPlan
) -> None:
    assert plan_actors(nodes, Config(device=device), wanted) == plan


def test_ray_chooses_the_gpus() -> None:
    with pytest.raises(UsageError, match="--device cuda:1"):
        plan_actors([{"CPU": 2}], Config(device="cuda:1"), None)


class Actor:
    """Loads, and then does as the test says. node: of which it says that it is."""

    node = "node-0"
    metadata = METADATA
    ending: Exception | None = None
    loading: Exception | None = None

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def load(self) -> Loaded:
        if self.loading is not None:
            raise self.loading
        return Loaded(self.node, self.metadata, {})

    def read(self, item: Item, *, again: bool) -> ItemRead:
        if self.ending is not None:
            raise self.ending
        return ItemRead(PartRows(Counter(ok=item.num_rows), Counter()), None)


@pytest.fixture
def drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., driver.Driver]:
    """Has a document of three pages read by actors that differ from `Actor` as is said; or one of so many pages, which
    are an item each."""
    (tmp_path / "in").mkdir()
    draw_pdf(tmp_path / "in" / "a.pdf", "one", "two", "three")

    def run(
        ray: StandIn | None = None,
        address: str | None = None,
        stop: StopSwitch | None = None,
        earlier: ClusterPlan | None = None,
        actors: int | None = None,
        pages: int = 0,
        **said: object,
    ) -> driver.Driver:
        @contextmanager
        def connected(_: object) -> Iterator[StandIn]:
            yield ray or StandIn({"CPU": 2})

        monkeypatch.setattr(machines, "_LOOK_S", 0.0)
        monkeypatch.setattr(driver, "_TICK_S", 0.0)
        monkeypatch.setattr(driver, "connected", connected)
        monkeypatch.setattr(driver, "Reader", type("Said", (Actor,), said))
        if pages:
            draw_pdf(tmp_path / "in" / "a.pdf", *map(str, range(pages)))
        listed = find_documents([str(tmp_path / "in")])
        found, folder = Found(listed.documents, {}, listed.roots), OutputFolder(str(tmp_path / "out"))
        items = plan_items(found, Config(), earlier, 1 if pages else 1000)
        running = driver.Driver(Config(), found, folder, items, earlier, actors=actors)
        running.run(address, stop or StopSwitch(), None)
        return running

    return run


def test_an_item_is_tried_twice(drive: Callable[..., driver.Driver], tmp_path: Path) -> None:
    ended = drive(ending=RayError("it died"))
    rows = list(open_table(tmp_path / "out").rows())
    assert [(row.source, row.page_index, row.error_kind) for row in rows] == [("a.pdf", n, "crashed") for n in range(3)]
    assert {row.attempts for row in rows} == {ended.tally.actors_lost} == {2}
    assert ended.tally.items(finished=True).failed == 3


MACHINE: dict[str, float] = {"CPU": 2}


def test_an_item_is_tried_again_while_machines_are_lost_with_it(drive: Callable[..., driver.Driver]) -> None:
    """Ray says of both that they are alive until the second one has gone, too."""
    ray = StandIn(*[MACHINE] * 3, lost={"node-0", "node-1"}, notices_after=40)
    ray._raylet.Config.health_check_initial_delay_ms = lambda: 10**6
    ended = drive(ray, actors=1)
    assert (ended.tally.actors_lost, ended.tally.items(finished=True).ok) == (2, 3)
    assert {each.name for each in ended.machines} == {"node-0", "node-1"}


def test_an_item_whose_machine_is_lost_each_time_is_given_up(drive: Callable[..., driver.Driver]) -> None:
    ray = StandIn(*[MACHINE] * 9, lost={f"node-{number}" for number in range(9)}, notices_after=0)
    ended = drive(ray, actors=1)
    assert (ended.tally.actors_lost, ended.tally.items(finished=True).failed) == (5, 3)


def test_a_machine_that_is_lost_with_several_actors_costs_no_item_an_attempt(
    drive: Callable[..., driver.Driver],
) -> None:
    ray = StandIn(MACHINE, MACHINE, lost={"node-1"}, notices_after=20)
    ended = drive(ray, actors=6, pages=12)
    assert ended.tally.items(finished=True).ok == 12


def test_a_machine_on_which_no_actor_can_start_is_left_out_and_the_others_read_on(
    drive: Callable[..., driver.Driver], caplog: pytest.LogCaptureFixture
) -> None:
    def load(self: Actor) -> Loaded:
        if self.node == "node-1":
            raise ModelError("the driver is too old")
        return Loaded(self.node, METADATA, {})

    ray = StandIn(MACHINE, MACHINE)
    ended = drive(ray, load=load, pages=12, actors=2)
    assert ended.tally.items(finished=True).ok == 12
    [left_out] = ended.machines
    assert (left_out.name, left_out.fate) == ("node-1", "left out")
    assert left_out.why == "3 actors failed there in a row, the last one so: the driver is too old"
    assert f"the machine node-1 is left out: {left_out.why}" in caplog.text


def test_a_machine_on_which_an_actor_cannot_start_now_and_then_is_not_left_out(
    drive: Callable[..., driver.Driver],
) -> None:
    ray, died = StandIn(MACHINE), set[str]()

    def load(self: Actor) -> Loaded:
        if len(ray.started) % 2:
            raise ModelError("the network is away")
        return Loaded(self.node, METADATA, {})

    def read(self: Actor, item: Item, *, again: bool) -> ItemRead:
        if item.name not in died:
            died.add(item.name)
            raise EngineError("no device is left")
        return ItemRead(PartRows(Counter(ok=item.num_rows), Counter()), None)

    ended = drive(ray, load=load, read=read, pages=4)
    assert (ended.tally.items(finished=True).ok, ended.machines) == (4, [])


def test_if_no_actor_has_ever_started_three_machines_that_failed_once_end_the_run(
    drive: Callable[..., driver.Driver],
) -> None:
    ray = StandIn(*[MACHINE] * 9)
    with pytest.raises(ModelError, match="there is no model"):
        drive(ray, loading=ModelError("there is no model"), pages=12, actors=3)
    assert len(ray.started) < 9


def test_an_item_that_takes_too_long_is_read_by_an_idle_actor_too(
    drive: Callable[..., driver.Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "_SLOW_S", 0.0)
    ended = drive(StandIn(MACHINE, MACHINE, stuck={"node-1"}), pages=12, actors=2)
    assert (ended.tally.items(finished=True).ok, ended.tally.parts_read) == (12, 12)


def test_an_actor_that_reads_what_another_has_read_keeps_no_item_waiting(
    drive: Callable[..., driver.Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing ever ends on the machine that is left to read the item of which an actor died, until that is replaced."""
    monkeypatch.setattr(driver, "_SLOW_S", 0.0)
    ray, died = StandIn(MACHINE, MACHINE, stuck=(stuck := {"node-1"})), set[str]()
    kill = ray.kill

    def read(self: Actor, item: Item, *, again: bool) -> ItemRead:
        if not died:
            died.add(item.name)
            raise EngineError("no device is left")
        return ItemRead(PartRows(Counter(ok=item.num_rows), Counter()), None)

    def mend(handle: Any) -> None:
        kill(handle)
        stuck.discard(handle.node)

    monkeypatch.setattr(ray, "kill", mend)
    ended = drive(ray, read=read, pages=12, actors=2)
    assert (ended.tally.items(finished=True).ok, ended.tally.parts_read) == (12, 12)


def test_an_item_that_takes_too_long_gets_another_actor_though_idle_ones_have_been_ended(
    drive: Callable[..., driver.Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "_IDLE_S", 0.0)
    ray, kill = StandIn(MACHINE, MACHINE, stuck={"node-0"}), StandIn.kill

    def ended(self: StandIn, handle: Any) -> None:
        kill(self, handle)
        monkeypatch.setattr(driver, "_SLOW_S", 0.0)

    monkeypatch.setattr(StandIn, "kill", ended)
    assert drive(ray, pages=12, actors=2).tally.items(finished=True).ok == 12
    assert ray.started == ["node-0", "node-1", "node-1"]


def test_an_actor_that_has_nothing_to_read_gives_its_machine_back(
    drive: Callable[..., driver.Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "_IDLE_S", 0.0)
    ray = StandIn(MACHINE, MACHINE, stuck={"node-1"})
    given_back: list[tuple[str, int]] = []

    def kill(handle: Any) -> None:
        given_back.append((handle.node, len(ray.stuck_calls)))
        ray.stuck_calls.clear()  # so that it ends

    monkeypatch.setattr(ray, "kill", kill)
    assert drive(ray, pages=3, actors=2).tally.items(finished=True).ok == 3
    assert given_back == [("node-0", 1), ("node-1", 0)]


def test_without_a_number_there_is_an_actor_for_each_machine_that_comes(
    drive: Callable[..., driver.Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "_SLOW_S", 0.0)
    ray, others = StandIn(MACHINE, stuck={"node-0"}), StandIn(MACHINE, MACHINE)
    start = ray.remote

    def remote(**options: Any) -> Callable[[type[Any]], Any]:
        found = start(**options)
        ray._nodes += others.nodes()[1:] if len(ray._nodes) == 1 else []
        return found

    monkeypatch.setattr(ray, "remote", remote)
    assert drive(ray, pages=12).tally.items(finished=True).ok == 12
    assert ray.started == ["node-0", "node-1"]


def test_when_all_gpus_are_lost_another_is_waited_for_and_no_cpu_takes_its_place(
    drive: Callable[..., driver.Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu: dict[str, float] = {"CPU": 2, "GPU": 1}
    ray, later = StandIn(MACHINE, gpu, lost={"node-1"}, notices_after=0), StandIn(MACHINE, MACHINE, gpu)
    devices = set[str]()

    def started(self: Actor, config: Config, *_: object, **__: object) -> None:
        devices.add(config.device)
        if len(ray.started) == 2:
            ray._nodes += later.nodes()[2:]

    monkeypatch.setattr(Actor, "__init__", started)
    ended = drive(ray, pages=2)
    assert (ended.tally.items(finished=True).ok, set(ray.started), devices) == (2, {"node-1", "node-2"}, {"cuda"})


def test_an_actor_that_fits_on_no_machine_any_more_makes_room_for_one_that_does(
    drive: Callable[..., driver.Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    ray, nodes = StandIn({"CPU": 16}), StandIn.nodes
    monkeypatch.setattr(ray, "nodes", lambda: nodes(ray if ray.started else StandIn({"CPU": 32})))
    assert drive(ray, pages=2).tally.items(finished=True).ok == 2
    assert len(ray.started) == 2


def test_a_machine_whose_actors_die_of_items_that_others_read_is_left_out(
    drive: Callable[..., driver.Driver],
) -> None:
    def read(self: Actor, item: Item, *, again: bool) -> ItemRead:
        if self.node == "node-0":
            raise EngineError("no device is left")
        return ItemRead(PartRows(Counter(ok=item.num_rows), Counter()), None)

    ended = drive(StandIn(MACHINE, MACHINE), read=read, pages=12, actors=2)
    assert ended.tally.items(finished=True).ok == 12
    assert [(each.name, each.fate) for each in ended.machines] == [("node-0", "left out")]


@pytest.mark.parametrize("number", [1, 2])
def test_the_last_machine_stays_though_actors_die_there_now_and_then(
    drive: Callable[..., driver.Driver], number: int
) -> None:
    died = set[str]()

    def read(self: Actor, item: Item, *, again: bool) -> ItemRead:
        if item.name not in died:
            died.add(item.name)
            raise EngineError("no device is left")
        return ItemRead(PartRows(Counter(ok=item.num_rows), Counter()), None)

    ended = drive(StandIn(*[MACHINE] * number), read=read, pages=12, actors=number)
    assert ended.tally.items(finished=True).ok == 12
    assert len(ended.machines) < number


def test_of_a_later_run_the_rows_of_what_is_new_are_counted_until_one_ends_well(
    drive: Callable[..., driver.Driver], tmp_path: Path
) -> None:
    folder = OutputFolder(str(tmp_path / "out"))
    first = drive(ending=RayError("it died"))
    assert (plan := folder.plan()) is not None and plan.newest is None, "all are"
    first.accept_newest()
    assert (plan := folder.plan()) is not None and plan.newest == set()
    draw_pdf(tmp_path / "in" / "b.pdf", "four", "five")
    for _ in range(2):
        later = drive(ending=RayError("it died"), earlier=folder.plan())
        assert (later.tally.newest, later.tally.of_newest["failed"]) == ({"b.pdf"}, 2)
        assert (plan := folder.plan()) is not None and plan.newest == {"b.pdf"}
    later.accept_newest()
    assert (plan := folder.plan()) is not None and plan.newest == set()


def test_a_part_of_which_rows_were_skipped_and_none_failed_is_not_read_again(
    drive: Callable[..., driver.Driver], tmp_path: Path
) -> None:
    items = plan_items(find_documents([str(tmp_path / "in")]), Config(), None, 1000)
    rows = [PageResult("a.pdf", page, "skipped", page_count=3, error_kind="absent") for page in range(3)]
    parquet.write(tmp_path / items[0].name, rows, METADATA)
    OutputFolder(str(tmp_path / "out")).files.put(tmp_path / items[0].name, items[0].name)
    tally = drive(earlier=ClusterPlan("", METADATA, None, tuple(items))).tally
    assert (tally.parts_before, tally.parts_read, tally.errors) == (1, 0, {"absent": 3})


@pytest.mark.parametrize("ending", [EngineError("no device is left"), KeyError("a bug")])
def test_what_an_actor_raises_costs_an_attempt_at_once(drive: Callable[..., driver.Driver], ending: Exception) -> None:
    ray = StandIn(MACHINE)
    ray._raylet.Config.health_check_initial_delay_ms = lambda: 10**9
    assert drive(ray, ending=ending).tally.actors_lost == 2


def test_what_is_not_the_fault_of_an_item_ends_the_run(drive: Callable[..., driver.Driver]) -> None:
    with pytest.raises(OutputError, match="the disk is full"):
        drive(ending=OutputError("the disk is full"))
    with pytest.raises(ModelError, match="there is no model"):
        drive(loading=ModelError("there is no model"))
    with pytest.raises(EngineError, match="no actor can be started"):
        drive(loading=RayError("it died"))


def test_a_run_ends_when_another_one_begins_in_its_folder(drive: Callable[..., driver.Driver], tmp_path: Path) -> None:
    def read(_: object, item: object, *, again: bool) -> ItemRead:
        OutputFolder(str(tmp_path / "out")).begin(ClusterPlan("", METADATA, None, ()))
        return ItemRead(PartRows(Counter(), Counter()), None)

    with pytest.raises(OutputError, match="another run has begun"):
        drive(read=read)


def test_all_nodes_need_the_same_version(drive: Callable[..., driver.Driver]) -> None:
    with pytest.raises(OutputMismatchError, match=r"0\.0 on node-0"):
        drive(metadata=RunMetadata("0.0", "none", "0", "0", {}))


@pytest.mark.parametrize(("address", "reason"), [(None, "requested"), ("auto", "stop_after")])
def test_a_ray_that_was_started_here_and_is_dead_ends_the_run_and_other_clusters_are_waited_for(
    drive: Callable[..., driver.Driver],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    address: str | None,
    reason: str,
) -> None:
    monkeypatch.setattr(driver, "_WAIT_NOTICE_S", 0.0)
    drive(ray=NoNodeAlive(stop := StopSwitch()), address=address, stop=stop)
    assert stop.reason == reason
    assert caplog.messages[0].endswith("nodes: node-0 (dead), node-1 (dead)")
    assert ("started here has ended" in caplog.messages[0]) == (address is None)


def test_an_actor_that_was_lost_with_the_last_node_is_no_failed_start(
    drive: Callable[..., driver.Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "_WAIT_NOTICE_S", 0.0)
    drive(ray=StandIn({"CPU": 2}, alive=False), stop=(stop := StopSwitch()), loading=RayError("its node has died"))
    assert stop.reason == "requested"


def test_a_run_starts_ray_unless_a_cluster_is_named_or_it_is_connected_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    assert joined(None) is None
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    assert joined(None) == "auto"
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert joined(None) == "10.0.0.1:6379"
    assert joined("auto") == "auto"
