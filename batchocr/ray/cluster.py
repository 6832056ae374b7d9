"""Ray, which is imported only here: connecting to a cluster, and how many actors it has room for."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from batchocr.config import Config
from batchocr.errors import EngineError, UsageError
from batchocr.machine import usable_cores

PAGES_PER_TASK = 1000
_ANSWER_S = 10.0
_RAYS_ENDINGS = (signal.SIGTERM, 1)
"""Ray's own exit codes for a SIGTERM that comes while it starts."""
_OBJECT_STORE_BYTES = 100 << 20
"""The bytes of the object store of a Ray that is started here: only items and reports pass through it."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where to read, and with how many actors. Raises UsageError."""

    address: str | None = None
    """The address of the cluster; `auto`: the one that this machine is of; None: this machine alone."""
    pages_per_task: int = PAGES_PER_TASK
    """About how many pages an item has."""
    actors: int | None = None
    """How many actors there should be; None: one for each GPU, or one for each node if there are no GPUs."""

    def __post_init__(self) -> None:
        for flag, number in (("--pages-per-task", self.pages_per_task), ("--actors", self.actors)):
            if number is not None and number < 1:
                raise UsageError(f"{flag} {number}: should be greater than 0")


def load_ray() -> ModuleType:
    """The library Ray. Raises UsageError if it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise UsageError(f"a cluster's run needs Ray: pip install '.[ray]' in a clone of batchocr ({error})") from error
    module: ModuleType = ray
    return module


def joined(address: str | None) -> str | None:
    """Where the cluster is that a run joins; None if it starts Ray on this machine. address: as the user gives it; None
    stands for the cluster of RAY_ADDRESS, or of the program, if there is one."""
    return address or os.environ.get("RAY_ADDRESS") or ("auto" if load_ray().is_initialized() else None)


@contextmanager
def connected(address: str | None) -> Iterator[ModuleType]:
    """Ray, connected to the cluster at `address` in the block; None starts one on this machine for as long. A program
    that is connected already stays so. Raises UsageError, EngineError."""
    ray = load_ray()
    if ray.is_initialized():
        yield ray
        return
    own = signal.getsignal(signal.SIGTERM)
    here = {"num_cpus": usable_cores(), "include_dashboard": False, "object_store_memory": _OBJECT_STORE_BYTES}
    where = {"address": address} if address else here
    try:
        _require_answer(address or "")
        try:
            ray.init(**where, log_to_driver=False, logging_level=logging.ERROR)
        finally:
            _leave_sigterm_to(own)
    except SystemExit as end:
        ray.shutdown()
        if end.code in _RAYS_ENDINGS:
            signal.raise_signal(signal.SIGTERM)  # now that of whoever had it before
        raise
    except (OSError, ValueError, RuntimeError, ImportError, AssertionError, ray.exceptions.RayError) as error:
        ray.shutdown()
        of_cluster = f"no connection to a Ray cluster at {address}, whose token is needed if it has one"
        wanted = of_cluster if address else "Ray cannot be started here"
        raise EngineError(f"{wanted}: {type(error).__name__}: {error}") from error
    try:
        yield ray
    finally:
        ray.shutdown()
        _leave_sigterm_to(own)  # Ray has taken it away without a word to Python


def _require_answer(address: str) -> None:
    """Raise OSError if nobody listens at this host and port: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_S).close()


def _leave_sigterm_to(own: Any) -> None:
    """Have SIGTERM handled as it was before Ray took it."""
    if threading.current_thread() is threading.main_thread():  # it takes it nowhere else
        signal.signal(signal.SIGTERM, own)


@dataclass(frozen=True, slots=True)
class ActorPlan:
    """How many actors there should be, how many of them on a node, and what each takes of it."""

    count: int
    per_node: int
    cpus: int
    gpus: int

    @property
    def needed(self) -> Mapping[str, float]:
        """The resources of an actor, as Ray calls them."""
        return {"CPU": self.cpus, "GPU": self.gpus}


def plan_actors(nodes: Sequence[Mapping[str, float]], config: Config, wanted: int | None) -> ActorPlan:
    """The actors to start: one for each GPU, with its share of the cores; without GPUs, one for each node, with all of
    its cores. nodes: the resources of each. wanted: how many actors instead, also on nodes that are yet to come. Raises
    UsageError."""
    with_gpus = [node for node in nodes if node.get("GPU", 0) >= 1]
    if "," in config.device or ":" in config.device:
        raise UsageError(f"--device {config.device}: on a cluster it is auto, cuda or cpu; Ray chooses the GPUs")
    if config.device == "cuda" or (config.device == "auto" and with_gpus):
        cores = min((int(node.get("CPU", 1)) // int(node["GPU"]) for node in with_gpus), default=1)
        gpus = [int(node["GPU"]) for node in with_gpus]
        return ActorPlan(wanted or sum(gpus) or 1, max(gpus, default=1), max(1, cores), 1)
    with_cpus = [int(node["CPU"]) for node in nodes if node.get("CPU", 0) >= 1] or [1]
    count = wanted or len(with_cpus)
    per_node = -(-count // len(with_cpus))
    return ActorPlan(count, per_node, max(1, min(with_cpus) // per_node), 0)


def start_actor(
    ray: ModuleType,
    made: type[Any],
    plan: ActorPlan,
    where: Mapping[str, str],
    *arguments: object,
    **named: object,
) -> Any:
    """A handle of an actor of this class, whose method `machine` returns the id of its node. Ray neither restarts it
    nor repeats its calls, which it would do without end. where: a selector of nodes."""

    class OnMachine(made):  # type: ignore[misc]  # only here the class is known
        def machine(self) -> str:
            return str(ray.get_runtime_context().get_node_id())

    OnMachine.__name__ = OnMachine.__qualname__ = made.__name__  # Ray calls its processes so
    options = {"num_cpus": plan.cpus, "num_gpus": plan.gpus, "max_restarts": 0, "max_task_retries": 0}
    return ray.remote(label_selector=dict(where), **options)(OnMachine).remote(*arguments, **named)
