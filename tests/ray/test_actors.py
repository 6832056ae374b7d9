"""Which actors a cluster has room for, and what the driver does when they are lost; with a stand-in for Ray."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from batchocr.config import Config
from batchocr.data import PageResult
from batchocr.documents.assembly.assemble import open_table
from batchocr.errors import BatchOcrError, EngineError, ModelError, OutputError, OutputMismatchError, UsageError
from batchocr.job.stop import StopSwitch
from batchocr.machine import own_version
from batchocr.pages.input.sources import Found, find_documents
from batchocr.ray import driver
from batchocr.ray.cluster import ActorPlan, joined, plan_actors
from batchocr.ray.folder import OutputFolder, PartRows
from batchocr.ray.items import ClusterPlan, plan_items
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
    """A Ray whose actors are objects of this process. A call is made when its result is asked for."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, *resources: dict[str, float], alive: bool = True) -> None:
        self._nodes = [
            {"Resources": found, "Alive": alive, "NodeManagerHostname": f"node-{number}"}
            for number, found in enumerate(resources)
        ]

    def nodes(self) -> list[dict[str, Any]]:
        return self._nodes

    def remote(self, **_: object) -> Callable[[type[Any]], Any]:
        def actor_of(made: type[Any]) -> Any:
            def method(found: Callable[..., object]) -> Any:
                return SimpleNamespace(remote=lambda *given, **named: lambda: found(*given, **named))

            def start(*given: object, **named: object) -> Any:
                actor = made(*given, **named)
                return SimpleNamespace(load=method(actor.load), read=method(actor.read))

            return SimpleNamespace(remote=start)

        return actor_of

    def wait(self, calls: list[Any], **_: object) -> tuple[list[Any], list[Any]]:
        return calls[:1], calls[1:]

    def get(self, call: Callable[[], object]) -> object:
        try:
            return call()
        except BatchOcrError as error:
            raise RayTaskError(error) from error

    def kill(self, handle: object) -> None:
        pass


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
    assert plan_actors(StandIn(*nodes), Config(device=device), wanted) == plan  # type: ignore[arg-type]


def test_ray_chooses_the_gpus() -> None:
    with pytest.raises(UsageError, match="--device cuda:1"):
        plan_actors(StandIn({"CPU": 2}), Config(device="cuda:1"), None)  # type: ignore[arg-type]


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

    def read(self, item: object, *, again: bool) -> None:
        if self.ending is not None:
            raise self.ending


@pytest.fixture
def drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., driver.Driver]:
    """Has a document of three pages read by actors that differ from `Actor` as is said."""
    (tmp_path / "in").mkdir()
    draw_pdf(tmp_path / "in" / "a.pdf", "one", "two", "three")

    def run(
        ray: StandIn | None = None,
        address: str | None = None,
        stop: StopSwitch | None = None,
        earlier: ClusterPlan | None = None,
        **said: object,
    ) -> driver.Driver:
        @contextmanager
        def connected(_: object) -> Iterator[StandIn]:
            yield ray or StandIn({"CPU": 2})

        monkeypatch.setattr(driver, "connected", connected)
        monkeypatch.setattr(driver, "Reader", type("Said", (Actor,), said))
        listed = find_documents([str(tmp_path / "in")])
        found, folder = Found(listed.documents, {}, listed.roots), OutputFolder(str(tmp_path / "out"))
        items = plan_items(found, Config(), earlier, 1000)
        running = driver.Driver(Config(), found, folder, items, earlier, actors=None)
        running.run(address, stop or StopSwitch(), None)
        return running

    return run


@pytest.mark.parametrize(("node", "attempts"), [("node-0", 2), ("a node that is gone", 5)])
def test_an_item_is_tried_twice_and_more_often_if_its_node_was_lost(
    drive: Callable[..., driver.Driver], tmp_path: Path, node: str, attempts: int
) -> None:
    ended = drive(node=node, ending=RayError("it died"))
    rows = list(open_table(tmp_path / "out").rows())
    assert [(row.source, row.page_index, row.error_kind) for row in rows] == [("a.pdf", n, "crashed") for n in range(3)]
    assert {row.attempts for row in rows} == {ended.tally.actors_lost} == {attempts}
    assert ended.tally.items(finished=True).failed == 3


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


def test_an_engine_that_is_gone_for_good_costs_an_attempt(drive: Callable[..., driver.Driver]) -> None:
    assert drive(ending=EngineError("no device is left")).tally.actors_lost == 2


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
