"""The machines of a cluster: which are alive, and which are left out, as actors cannot start or do not last there.

A machine is known by the id that Ray gives its node. Ray takes a while to notice that one was lost: until then it says
that it is alive, and starts actors there.
"""

from __future__ import annotations

import logging
import re
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

logger = logging.getLogger(__name__)

MAX_FAILURES = 3
"""How many actors in a row that cannot start on a machine have it left out; and, as long as none was ready anywhere,
how many machines on which one could not start end the run."""
_MAX_DEADLY_ITEMS = 3
"""The number of items that leave a machine out if actors died of them there and others then read them elsewhere."""
_ADDRESS = re.compile(r"\bip[=:] ?([0-9a-f.:]+)")
_LOOK_S = 1.0
_HEALTH_CHECK_S = 120.0
"""How long Ray takes to find that a machine was lost, if it does not say so."""

Fate = Literal["left out", "lost"]


@dataclass(frozen=True, slots=True)
class MachineReport:
    """A machine that a run did without from some moment on."""

    name: str
    fate: Fate
    why: str


class Machines:
    """What a run knows of the machines of its cluster."""

    def __init__(self, ray: ModuleType) -> None:
        self.left_out: set[str] = set()
        self.reports: list[MachineReport] = []
        self.noticed_s = _health_check_s(ray)
        """How long Ray may take to notice that a machine was lost."""
        self.own = str(ray.get_runtime_context().get_node_id())
        """The id of the driver's machine, which is there."""
        self._ray = ray
        self._nodes: dict[str, dict[str, Any]] = {}
        self.looked_s = 0.0
        """When Ray was asked last."""
        self._failures: defaultdict[str, int] = defaultdict(int)
        self._deadly: defaultdict[str, set[int]] = defaultdict(set)
        self._used: set[str] = set()
        """The machines on which there was an actor."""
        self._lost: set[str] = set()
        self.look()

    def look(self) -> None:
        """Ask Ray which machines there are, unless that was just now; those that were lost are said."""
        if time.perf_counter() - self.looked_s < _LOOK_S:
            return
        self.looked_s = time.perf_counter()
        self._nodes = {node["NodeID"]: node for node in self._ray.nodes()}
        lost = {machine for machine in self._used if not self.is_alive(machine)}
        for machine in lost - self._lost - self.left_out:
            self._report(machine, "lost", "Ray says that it is dead")
        self._lost |= lost

    def name(self, machine: str) -> str:
        """What the users of a machine call it; empty if that is not known."""
        return str(self._nodes.get(machine, {}).get("NodeManagerHostname", ""))

    def is_alive(self, machine: str) -> bool:
        """Whether Ray takes the machine for alive, which it may do for `noticed_s` after the machine was lost."""
        return bool(self._nodes.get(machine, {}).get("Alive", False))

    @property
    def resources(self) -> list[Mapping[str, float]]:
        """What there is for actors on each that is alive and not left out."""
        return [self._nodes[machine]["Resources"] for machine in self._alive() - self.left_out]

    def are_left(self, needed: Mapping[str, float]) -> bool:
        """Whether a machine that has what an actor needs is not left out, or there is no such machine yet."""
        able = {machine for machine in self._alive() if _has(self._nodes[machine]["Resources"], needed)}
        return not able or bool(able - self.left_out)

    def are_there(self, needed: Mapping[str, float]) -> bool:
        """Whether a machine that is alive and not left out has what an actor needs, though others may use it."""
        return any(_has(resources, needed) for resources in self.resources)

    def _alive(self) -> set[str]:
        return {machine for machine, node in self._nodes.items() if node["Alive"]}

    @property
    def num_failing(self) -> int:
        """How many of the machines that are alive actors failed on; each actor that failed where nobody knows counts
        for one."""
        known = sum(self.is_alive(machine) for machine in self._failures)
        return known + self._failures.get("", 0)

    def selector(self) -> dict[str, str]:
        """What keeps Ray from starting an actor on machines that are left out; others may still come."""
        return {"ray.io/node-id": f"!in({','.join(sorted(self.left_out))})"} if self.left_out else {}

    def use(self, machine: str) -> str:
        """Take note that there is an actor; returns what the machine is called."""
        self._used.add(machine)
        return self.name(machine)

    def of_error(self, error: Exception) -> str:
        """The machine that Ray names in an error by its address; empty if it names none, or several have that
        address."""
        found = _ADDRESS.search(str(error))
        at = [machine for machine, node in self._nodes.items() if found and node.get("NodeManagerAddress") == found[1]]
        return at[0] if len(at) == 1 else ""

    def failed(self, machine: str, why: str) -> None:
        """Take note that an actor could not start there, or not write what it had read."""
        self._failures[machine] += 1
        if self._failures[machine] >= MAX_FAILURES and self.is_alive(machine):
            self._leave_out(machine, f"{MAX_FAILURES} actors failed there in a row, the last one so: {why}")

    def did_well(self, machine: str) -> None:
        """Take note that an actor has read there, and written what it had read: only failures in a row count."""
        self._failures.pop(machine, None)

    def died_of(self, machine: str, item: int) -> None:
        """Take note that an actor died there of an item that was read on another machine. The last one stays."""
        self._deadly[machine].add(item)
        others = [other for other in self._used - self.left_out - {machine} if self.is_alive(other)]
        if others and len(self._deadly[machine]) >= _MAX_DEADLY_ITEMS:
            self._leave_out(machine, f"actors died there of {len(self._deadly[machine])} items that others then read")

    def _leave_out(self, machine: str, why: str) -> None:
        if machine not in self.left_out:
            self.left_out.add(machine)
            self._report(machine, "left out", why)

    def _report(self, machine: str, fate: Fate, why: str) -> None:
        report = MachineReport(self.name(machine), fate, why)
        self.reports.append(report)
        logger.warning("the machine %s is %s: %s", report.name, fate, why)


def _has(resources: Mapping[str, float], needed: Mapping[str, float]) -> bool:
    return all(resources.get(name, 0) >= number for name, number in needed.items())


def _health_check_s(ray: ModuleType) -> float:
    """How long Ray may take to notice that a machine was lost."""
    try:
        config = ray._raylet.Config
        once_ms = config.health_check_period_ms() + config.health_check_timeout_ms()
        return float(config.health_check_initial_delay_ms() + config.health_check_failure_threshold() * once_ms) / 1e3
    except AttributeError:
        return _HEALTH_CHECK_S
