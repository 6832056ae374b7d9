"""Which actors a cluster has room for, and what the driver does when they are lost; with a stand-in for Ray."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from batchocr.config import Config
from batchocr.data import Document, Failure, Status
from batchocr.errors import EngineError, ModelError, OutputError, OutputMismatchError, UsageError
from batchocr.job.stop import StopSwitch
from batchocr.machine import own_version
from batchocr.ray import driver, machines
from batchocr.ray.cluster import ActorPlan, Cluster, joined, plan_actors
from batchocr.ray.driver import Driver
from batchocr.ray.items import Item
from batchocr.ray.reader import ItemRead, Loaded
from batchocr.tables import parquet
from batchocr.tables.known import KnownRow
from batchocr.tables.schema import RunMetadata
from batchocr.tables.target import Target

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
        alive = [node["NodeID"] for node in nodes if node["Alive"]] or [(nodes or self._nodes)[0]["NodeID"]]
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

    def _stuck_call(self, documents: Sequence[Document] = ()) -> Callable[[], ItemRead]:
        self.stuck_calls.append(lambda: read_of(documents))
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

    def read(self, documents: Sequence[Document]) -> ItemRead:
        if self.ending is not None:
            raise self.ending
        return read_of(documents)


def read_of(documents: Sequence[Document]) -> ItemRead:
    """As if each had one page."""
    return ItemRead(documents[0].source, None, Counter[Status](ok=len(documents)))


@dataclass
class Driven:
    """A driver that has ended, and what was read."""

    driver: Driver
    rows: Counter[Status] = field(default_factory=Counter)
    names: list[str] = field(default_factory=list)


@pytest.fixture
def drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Driven]:
    """Has documents of one page read by actors that differ from `Actor` as is said: three in an item, or so many items
    of one."""

    def run(
        ray: StandIn | None = None,
        address: str | None = None,
        stop: StopSwitch | None = None,
        actors: int | None = None,
        items: int = 0,
        device: str = "auto",
        **said: object,
    ) -> Driven:
        @contextmanager
        def connected(_: object) -> Iterator[StandIn]:
            yield ray or StandIn({"CPU": 2})

        monkeypatch.setattr(machines, "_LOOK_S", 0.0)
        monkeypatch.setattr(driver, "_TICK_S", 0.0)
        monkeypatch.setattr(driver, "connected", connected)
        monkeypatch.setattr(driver, "joined", lambda address: address)
        monkeypatch.setattr(driver, "Reader", type("Said", (Actor,), said))
        documents = [Document(name, name) for name in (f"{number}.pdf" for number in range(items or 3))]
        parts = [[document] for document in documents] if items else [documents]
        names, rows = list[str](), Counter[Status]()

        def take(read: ItemRead) -> None:
            names.append(read.name)
            rows.update(read.rows)

        running = Driver(
            Config(device=device),
            Cluster(address, actors=actors),
            Target(str(tmp_path / "out"), 1),
            (),
            metadata=None,
            on_ready=lambda metadata: None,
            on_read=take,
        )
        try:
            waiting = [Item(number, part, len(part)) for number, part in enumerate(parts)]
            running.read(waiting, stop or StopSwitch(), lambda: None)
        finally:
            running.close()
        return Driven(running, rows, names)

    return run


def test_an_item_is_tried_three_times(drive: Callable[..., Driven], tmp_path: Path) -> None:
    ended = drive(ending=RayError("it died"), items=1)
    [row] = parquet.read_rows(tmp_path / "out" / ended.names[0])
    assert (row.source, row.error_kind, row.attempts) == ("0.pdf", "crashed", 3)
    assert (ended.rows, ended.driver.num_given_up, ended.driver.num_lost) == ({"failed": 1}, 1, 3)


def test_of_several_documents_those_are_read_of_which_no_actor_dies(drive: Callable[..., Driven]) -> None:
    def read(self: Actor, documents: Sequence[Document]) -> ItemRead:
        if any(document.source == "1.pdf" for document in documents):
            raise RayError("it died")
        return read_of(documents)

    ended = drive(read=read)
    assert (ended.rows, ended.driver.num_lost) == ({"ok": 2, "failed": 1}, 6)


def test_of_pages_that_are_given_up_each_has_a_row_unless_an_earlier_run_has_one() -> None:
    some, row = Document("a.pdf", "a.pdf", pages={1, 2}), KnownRow(0, "ok", "0", 3, 1, 0, 9, 8)
    failed = [*Item(1, [some], 2, row).failed_rows(Failure("crashed", "it died"), attempts=2)]
    assert [(each.page_index, each.doc_id, each.page_count, each.file_bytes) for each in failed] == [
        (1, "0", 3, 9),
        (2, "0", 3, 9),
    ]
    assert not [*Item(1, [some], 2).failed_rows(Failure("crashed", "it died"), attempts=2)]


def test_pages_that_an_actor_leaves_are_read_by_others(drive: Callable[..., Driven]) -> None:
    def read(self: Actor, documents: Sequence[Document]) -> ItemRead:
        asked.append([(each.source, each.pages) for each in documents])
        if len(asked) > 1:
            return ItemRead("more", None, Counter[Status](ok=sum(len(each.pages or "1") for each in documents)))
        rest = replace(documents[0], pages=frozenset(range(1, 2001))), *documents[1:]
        return ItemRead("first", None, Counter[Status](ok=1), rest, KnownRow(0, "ok", "0", 2001, 1, 0))

    asked: list[list[tuple[str, Set[int] | None]]] = []
    assert drive(read=read).rows == {"ok": 2003}
    assert [[(name, pages and len(pages)) for name, pages in each] for each in asked[1:]] == [
        [("0.pdf", 1000)],
        [("0.pdf", 1000)],
        [("1.pdf", None), ("2.pdf", None)],
    ]


MACHINE: dict[str, float] = {"CPU": 2}


def test_an_item_is_tried_again_while_machines_are_lost_with_it(drive: Callable[..., Driven]) -> None:
    """Ray says of both that they are alive until the second one has gone, too."""
    ray = StandIn(*[MACHINE] * 3, lost={"node-0", "node-1"}, notices_after=40)
    ray._raylet.Config.health_check_initial_delay_ms = lambda: 10**6
    ended = drive(ray, actors=1)
    assert (ended.driver.num_lost, ended.rows["ok"]) == (2, 3)
    assert {each.name for each in ended.driver.machines} == {"node-0", "node-1"}


def test_an_item_whose_machine_is_lost_each_time_is_given_up(drive: Callable[..., Driven]) -> None:
    ray = StandIn(*[MACHINE] * 9, lost={f"node-{number}" for number in range(9)}, notices_after=0)
    ended = drive(ray, actors=1, items=1)
    assert (ended.driver.num_lost, ended.rows["failed"]) == (5, 1)


def test_a_machine_that_is_lost_with_several_actors_costs_no_item_an_attempt(
    drive: Callable[..., Driven],
) -> None:
    ray = StandIn(MACHINE, MACHINE, lost={"node-1"}, notices_after=20)
    ended = drive(ray, actors=6, items=12)
    assert ended.rows["ok"] == 12


def test_a_machine_on_which_no_actor_can_start_is_left_out_and_the_others_read_on(
    drive: Callable[..., Driven], caplog: pytest.LogCaptureFixture
) -> None:
    def load(self: Actor) -> Loaded:
        if self.node == "node-1":
            raise ModelError("the driver is too old")
        return Loaded(self.node, METADATA, {})

    ray = StandIn(MACHINE, MACHINE)
    ended = drive(ray, load=load, items=12, actors=2)
    assert ended.rows["ok"] == 12
    [left_out] = ended.driver.machines
    assert (left_out.name, left_out.fate) == ("node-1", "left out")
    assert left_out.why == "3 actors failed there in a row, the last one so: the driver is too old"
    assert f"the machine node-1 is left out: {left_out.why}" in caplog.text


def test_a_machine_on_which_an_actor_cannot_start_now_and_then_is_not_left_out(
    drive: Callable[..., Driven],
) -> None:
    ray, died = StandIn(MACHINE), set[str]()

    def load(self: Actor) -> Loaded:
        if len(ray.started) % 2:
            raise ModelError("the network is away")
        return Loaded(self.node, METADATA, {})

    def read(self: Actor, documents: Sequence[Document]) -> ItemRead:
        if documents[0].source not in died:
            died.add(documents[0].source)
            raise EngineError("no device is left")
        return read_of(documents)

    ended = drive(ray, load=load, read=read, items=4)
    assert (ended.rows["ok"], ended.driver.machines) == (4, [])


def test_if_no_actor_has_ever_started_three_machines_that_failed_once_end_the_run(
    drive: Callable[..., Driven],
) -> None:
    ray = StandIn(*[MACHINE] * 9)
    with pytest.raises(ModelError, match="there is no model"):
        drive(ray, loading=ModelError("there is no model"), items=12, actors=3)
    assert len(ray.started) < 9


def test_an_item_that_takes_too_long_is_read_by_an_idle_actor_too(
    drive: Callable[..., Driven], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "_SLOW_S", 0.0)
    ended = drive(StandIn(MACHINE, MACHINE, stuck={"node-1"}), items=12, actors=2)
    assert (ended.rows["ok"], len(ended.names)) == (12, 12)


def test_an_actor_that_reads_what_another_has_read_keeps_no_item_waiting(
    drive: Callable[..., Driven], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing ever ends on the machine that is left to read the item of which an actor died, until that is replaced."""
    monkeypatch.setattr(driver, "_SLOW_S", 0.0)
    ray, died = StandIn(MACHINE, MACHINE, stuck=(stuck := {"node-1"})), set[str]()
    kill = ray.kill

    def read(self: Actor, documents: Sequence[Document]) -> ItemRead:
        if not died:
            died.add(documents[0].source)
            raise EngineError("no device is left")
        return read_of(documents)

    def mend(handle: Any) -> None:
        kill(handle)
        stuck.discard(handle.node)

    monkeypatch.setattr(ray, "kill", mend)
    ended = drive(ray, read=read, items=12, actors=2)
    assert (ended.rows["ok"], len(ended.names)) == (12, 12)


def test_an_item_that_takes_too_long_gets_another_actor_though_idle_ones_have_been_ended(
    drive: Callable[..., Driven], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "_IDLE_S", 0.0)
    ray, kill = StandIn(MACHINE, MACHINE, stuck={"node-0"}), StandIn.kill

    def ended(self: StandIn, handle: Any) -> None:
        kill(self, handle)
        monkeypatch.setattr(driver, "_SLOW_S", 0.0)

    monkeypatch.setattr(StandIn, "kill", ended)
    assert drive(ray, items=12, actors=2).rows["ok"] == 12
    assert ray.started == ["node-0", "node-1", "node-1"]


def test_an_actor_that_has_nothing_to_read_gives_its_machine_back(
    drive: Callable[..., Driven], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "_IDLE_S", 0.0)
    ray = StandIn(MACHINE, MACHINE, stuck={"node-1"})
    given_back: list[tuple[str, int]] = []

    def kill(handle: Any) -> None:
        given_back.append((handle.node, len(ray.stuck_calls)))
        ray.stuck_calls.clear()  # so that it ends

    monkeypatch.setattr(ray, "kill", kill)
    assert drive(ray, items=3, actors=2).rows["ok"] == 3
    assert given_back == [("node-0", 1), ("node-1", 0)]


def test_without_a_number_there_is_an_actor_for_each_machine_that_comes(
    drive: Callable[..., Driven], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "_SLOW_S", 0.0)
    ray, others = StandIn(MACHINE, stuck={"node-0"}), StandIn(MACHINE, MACHINE)
    start = ray.remote

    def remote(**options: Any) -> Callable[[type[Any]], Any]:
        found = start(**options)
        ray._nodes += others.nodes()[1:] if len(ray._nodes) == 1 else []
        return found

    monkeypatch.setattr(ray, "remote", remote)
    assert drive(ray, items=12).rows["ok"] == 12
    assert ray.started == ["node-0", "node-1"]


def test_when_all_gpus_are_lost_another_is_waited_for_and_no_cpu_takes_its_place(
    drive: Callable[..., Driven], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu: dict[str, float] = {"CPU": 2, "GPU": 1}
    ray, later = StandIn(MACHINE, gpu, lost={"node-1"}, notices_after=0), StandIn(MACHINE, MACHINE, gpu)
    devices = set[str]()

    def started(self: Actor, config: Config, *_: object, **__: object) -> None:
        devices.add(config.device)
        if len(ray.started) == 2:
            ray._nodes += later.nodes()[2:]

    monkeypatch.setattr(Actor, "__init__", started)
    ended = drive(ray, items=2)
    assert (ended.rows["ok"], set(ray.started), devices) == (2, {"node-1", "node-2"}, {"cuda"})


def test_a_cluster_without_gpus_says_so_when_it_is_asked_for_some(
    drive: Callable[..., Driven], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(driver, "_WAIT_NOTICE_S", 0.0)
    drive(NoNodeAlive(stop := StopSwitch()), address="auto", stop=stop, device="cuda")
    assert "no machine that is alive has a GPU" in caplog.messages[0]


def test_an_actor_that_fits_on_no_machine_any_more_makes_room_for_one_that_does(
    drive: Callable[..., Driven], monkeypatch: pytest.MonkeyPatch
) -> None:
    ray, nodes = StandIn({"CPU": 16}), StandIn.nodes
    monkeypatch.setattr(ray, "nodes", lambda: nodes(ray if ray.started else StandIn({"CPU": 32})))
    assert drive(ray, items=2).rows["ok"] == 2
    assert len(ray.started) == 2


def test_a_machine_whose_actors_die_of_items_that_others_read_is_left_out(
    drive: Callable[..., Driven],
) -> None:
    def read(self: Actor, documents: Sequence[Document]) -> ItemRead:
        if self.node == "node-0":
            raise EngineError("no device is left")
        return read_of(documents)

    ended = drive(StandIn(MACHINE, MACHINE), read=read, items=12, actors=2)
    assert ended.rows["ok"] == 12
    assert [(each.name, each.fate) for each in ended.driver.machines] == [("node-0", "left out")]


@pytest.mark.parametrize("number", [1, 2])
def test_the_last_machine_stays_though_actors_die_there_now_and_then(drive: Callable[..., Driven], number: int) -> None:
    died = set[str]()

    def read(self: Actor, documents: Sequence[Document]) -> ItemRead:
        if documents[0].source not in died:
            died.add(documents[0].source)
            raise EngineError("no device is left")
        return read_of(documents)

    ended = drive(StandIn(*[MACHINE] * number), read=read, items=12, actors=number)
    assert ended.rows["ok"] == 12
    assert len(ended.driver.machines) < number


@pytest.mark.parametrize("ending", [EngineError("no device is left"), KeyError("a bug")])
def test_what_an_actor_raises_costs_an_attempt_at_once(drive: Callable[..., Driven], ending: Exception) -> None:
    ray = StandIn(MACHINE)
    ray._raylet.Config.health_check_initial_delay_ms = lambda: 10**9
    assert drive(ray, ending=ending, items=1).driver.num_lost == 3


def test_what_is_not_the_fault_of_an_item_ends_the_run(drive: Callable[..., Driven]) -> None:
    with pytest.raises(OutputError, match="the disk is full"):
        drive(ending=OutputError("the disk is full"))
    with pytest.raises(ModelError, match="there is no model"):
        drive(loading=ModelError("there is no model"))
    with pytest.raises(EngineError, match="no actor can be started"):
        drive(loading=RayError("it died"))


def test_all_nodes_need_the_same_version(drive: Callable[..., Driven]) -> None:
    with pytest.raises(OutputMismatchError, match=r"0\.0 on node-0"):
        drive(metadata=RunMetadata("0.0", "none", "0", "0", {}))


@pytest.mark.parametrize(("address", "reason"), [(None, "requested"), ("auto", "stop_after")])
def test_a_ray_that_was_started_here_and_is_dead_ends_the_run_and_other_clusters_are_waited_for(
    drive: Callable[..., Driven],
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
    drive: Callable[..., Driven], monkeypatch: pytest.MonkeyPatch
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
