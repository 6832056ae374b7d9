"""A machine for the jobs in `recipes/`, and what stands for the schedulers that read them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from configparser import RawConfigParser
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conftest import ROOT

RECIPES = ROOT / "recipes"


@dataclass(frozen=True)
class Machine:
    """A machine with the commands that recipes call. All its paths begin with `root`."""

    root: Path

    def prepared(self, recipe: str) -> str:
        """The text of a recipe, with this machine's paths."""
        text = (RECIPES / recipe).read_text()
        for path in ("/data/", "/models/", "/opt/batchocr/"):
            assert f"{self.root}{path}" not in text
            text = re.sub(rf"(?<![\w.]){path}", f"{self.root}{path}", text)
        return text

    def install(self, name: str, script: str) -> None:
        """Make a command of this name, which runs the shell script."""
        path = self.root / "opt" / "batchocr" / "bin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def run(self, command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, whatever its exit code."""
        known = {**os.environ, "PATH": f"{self.root}/opt/batchocr/bin:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
        return subprocess.run(
            command, env=known | environment, cwd=self.root, capture_output=True, text=True, timeout=120, check=False
        )


def unit(machine: Machine, name: str) -> RawConfigParser:
    parser = RawConfigParser(comment_prefixes=("#",), delimiters=("=",))
    parser.optionxform = str  # type: ignore[method-assign,assignment]
    parser.read_string(machine.prepared(f"systemd/{name}"))
    return parser


@dataclass
class Task:
    """What `@task` makes of a function, as far as the recipe uses it."""

    function: Callable[..., None]
    options: dict[str, object] = field(default_factory=dict)
    mapped: list[object] | None = None
    """What each of its instances is given; None if there is one, which is given nothing."""
    earlier: list[Task] = field(default_factory=list)

    def expand(self, **arguments: list[object]) -> Task:
        [self.mapped] = arguments.values()
        return self

    def __call__(self) -> Task:
        return self

    def __rshift__(self, later: Task) -> Task:
        later.earlier.append(self)
        return later

    def __rrshift__(self, earlier: list[Task]) -> Task:
        self.earlier += earlier
        return self


class FailError(Exception):
    """Stands for AirflowFailException: no further attempt is made."""


def ends_well(*tasks: Task) -> bool:
    """Whether Airflow shows a run of these tasks as a success: the state of a run is that of the tasks which no other
    comes after. The tasks begin in this order, if those before them ended as their rule says."""
    states: dict[int, str] = {}
    for task in tasks:
        before = {states[id(each)] for each in task.earlier}
        rule = str(task.options.get("trigger_rule", "all_success"))
        begins = {"all_success": before <= {"success"}, "all_done": True, "one_failed": "failed" in before}[rule]
        states[id(task)] = _ended(task) if begins else "skipped" if rule == "one_failed" else "failed"
    followed = {id(each) for task in tasks for each in task.earlier}
    return "failed" not in {state for task, state in states.items() if task not in followed}


def _ended(task: Task) -> str:
    """The state of a task in the end, after as many attempts at each of its instances as it has."""
    for arguments in [[]] if task.mapped is None else [[given] for given in task.mapped]:
        for _ in range(1 + int(str(task.options.get("retries", 0)))):
            try:
                task.function(*arguments)
            except FailError:
                return "failed"
            except RuntimeError:
                continue
            break
        else:
            return "failed"
    return "success"


def make_task(function: Callable[..., None] | None = None, **options: object) -> Any:
    return Task(function, options) if function else lambda given: Task(given, options)
