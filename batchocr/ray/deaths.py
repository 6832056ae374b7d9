"""The deaths of actors: which items they were reading, and whether they died by themselves or with their machines."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Set
from dataclasses import dataclass
from typing import Literal

from batchocr.ray.machines import Machines

MAX_ATTEMPTS = 3
"""Attempts at an item whose actor dies each time. After them its rows say `crashed`."""
MAX_ATTEMPTS_ON_LOST_MACHINES = 5
"""Attempts at an item whose machine was lost or preempted each time, which is not the item's fault."""


@dataclass(frozen=True, slots=True)
class _Death:
    """An actor that died while it read an item."""

    item: int
    machine: str
    since_s: float


class Deaths:
    """What is known of the deaths of actors. An item is known by its number."""

    def __init__(self, machines: Machines) -> None:
        self._attempts: Counter[int] = Counter()
        """Attempts at an item whose actor died by itself."""
        self._machines = machines
        self._on_lost: Counter[int] = Counter()
        """Attempts at an item whose machine was lost."""
        self._unknown: list[_Death] = []
        """The deaths of which Ray may not know yet that the machine was lost."""
        self._died_on: defaultdict[int, set[str]] = defaultdict(set)
        self._read: dict[int, str] = {}
        """The machines on which items were read although an actor had died of them."""

    def add(self, item: int, machine: str, *, is_preempted: bool, by_itself: bool) -> None:
        """Take note of a death. is_preempted: the machine was taken away. by_itself: it is known that the machine is
        there."""
        if is_preempted:
            self._on_lost[item] += 1
        elif by_itself:
            self._is_of_item(item, machine)
        else:
            self._unknown.append(_Death(item, machine, time.perf_counter()))

    def judge(self) -> None:
        """Decide about the deaths for which Ray has had time to notice that the machine was lost."""
        undecided, self._unknown = self._unknown, []
        for death in undecided:
            if not self._machines.is_alive(death.machine):
                self._on_lost[death.item] += 1
            elif self._machines.looked_s - death.since_s > self._machines.noticed_s:
                self._is_of_item(death.item, death.machine)
            else:
                self._unknown.append(death)

    def next(self, item: int) -> Literal["read again", "wait", "give up"]:
        """What is to be done about an item."""
        if self._attempts[item] >= MAX_ATTEMPTS or self._on_lost[item] >= MAX_ATTEMPTS_ON_LOST_MACHINES:
            return "give up"
        unknown = sum(death.item == item for death in self._unknown)
        may_be_own, may_be_lost = self._attempts[item] + unknown, self._on_lost[item] + unknown
        is_sure = may_be_own < MAX_ATTEMPTS and may_be_lost < MAX_ATTEMPTS_ON_LOST_MACHINES
        return "read again" if is_sure else "wait"

    def num_died(self, item: int) -> int:
        """How many actors died while they read the item, with their machines or without."""
        return self._attempts[item] + self._on_lost[item]

    def died_on(self, item: int) -> Set[str]:
        """The machines on which actors died of the item, or may have."""
        return {*self._died_on.get(item, ()), *(death.machine for death in self._unknown if death.item == item)}

    def was_read(self, item: int, machine: str) -> None:
        """Take note that an actor has read an item: those that died of it elsewhere may have died of their machine."""
        self._read[item] = machine
        for other in self._died_on.get(item, set()) - {machine}:
            self._machines.died_of(other, item)

    def _is_of_item(self, item: int, machine: str) -> None:
        self._attempts[item] += 1
        self._died_on[item].add(machine)
        if self._read.get(item, machine) != machine:
            self._machines.died_of(machine, item)
