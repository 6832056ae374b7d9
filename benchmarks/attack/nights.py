"""Commands that write a table are killed at one of their steps, in every form that a table has, also while a second one
is at work: the same command ends their work, perhaps on another machine, and nothing is lost, doubled or hidden.

A step is a call that names a file or makes it last, or a request to a store that changes an object; some die at any
moment. Meanwhile others read: `open_table`, an export, and pyarrow and DuckDB what lies there.

    python -m benchmarks.attack.nights NIGHT...

repeats the nights of these numbers, which are said of each fault.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal

from benchmarks.attack.tally import Tally

if TYPE_CHECKING:
    from tests.support.dying import Command, Ended
    from tests.support.nights import Archive, Machine, Night

_READS_EVERY_S = 0.02
_SECOND_WITHIN_S = 1.0
"""After the first one."""


@dataclass(frozen=True)
class Draw:
    """What happens in a night."""

    form: str
    order: int
    """Its place in ORDERS."""
    reading: bool
    """Whether a page is to be read, too."""
    dies_at: Literal["call", "request", "moment"]
    share: float
    """How far the command comes, of all steps, or of the time, of an undisturbed one."""
    is_done: bool
    """Whether the store does what it is asked to, though nobody hears the answer."""
    elsewhere: bool
    """Whether another machine goes on."""
    second_s: float | None
    """When a second command begins; None if there is none."""
    second_elsewhere: bool
    is_killed: bool


def draw(dice: random.Random) -> Draw:
    from tests.support.nights import FORMS, ORDERS

    form = dice.choice(FORMS)
    kinds: tuple[Literal["call", "request", "moment"], ...] = ("call", "call", "moment")
    if form.startswith("s3://"):
        kinds = ("request", "request", "request", "call", "moment")
    has_second = dice.random() < 0.25
    return Draw(
        form,
        order=dice.randrange(len(ORDERS)),
        reading=dice.random() < 0.3,
        dies_at=dice.choice(kinds),
        share=dice.random(),
        is_done=dice.random() < 0.5,
        elsewhere=dice.random() < 0.5,
        second_s=dice.uniform(0, _SECOND_WITHIN_S) if has_second else None,
        second_elsewhere=dice.random() < 0.5,
        is_killed=not has_second or dice.random() < 0.5,
    )


def attack(dice: random.Random, count: int, tally: Tally, folder: Path | None) -> None:
    """count: kills in all. folder: unused."""
    with _archive() as archive:
        num_killed = 0
        while num_killed < count:
            num_killed += _night(archive, dice.getrandbits(32), tally)


@contextmanager
def _archive() -> Iterator[Archive]:
    """Documents and tables, and what commands need to start quickly."""
    import pytest

    from batchocr.processes import child
    from tests.support.nights import Archive
    from tests.support.object_store import running_store, used
    from tests.support.process_template import ProcessTemplates
    from tests.support.running import make_quick_model

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = stack.enter_context(used(stack.enter_context(running_store())))
        if isinstance(child.subprocess, ModuleType):  # in a test it is patched already
            patched = stack.enter_context(pytest.MonkeyPatch.context())
            patched.setattr(child, "subprocess", stack.enter_context(ProcessTemplates()))
        yield Archive(folder, make_quick_model(folder / "model"), store)


def _night(archive: Archive, number: int, tally: Tally) -> bool:
    """Whether a command was killed."""
    from tests.support.nights import ORDERS

    drawn = draw(random.Random(number))
    order = ORDERS[drawn.order]
    night = archive.night(drawn.form, order, reading=drawn.reading)
    faults: list[str] = []
    with night.machine("one") as one, night.machine("another") as another:
        with _watched(night, faults, tally):
            ended = _disturbed(night, drawn, one, another)
        faults += _faults_of_codes(night, drawn, ended)
        faults += [*night.check_ours(), *night.check_theirs()]
        last = night.run(another if drawn.elsewhere else one)
        is_stopped = any(end.code == 75 for end in ended) and not _killed(ended)
        if is_stopped and order.continues and "nothing to do" not in last.said:
            faults.append(f"after one that was stopped, the same command has something to do: {last.said}")
    faults += [*night.check_end(), *night.check_theirs()]
    for end in _killed(ended):
        tally.add(f"killed at a {drawn.dies_at}: {order} as {drawn.form}")
        faults += [f"a traceback: {end.said}"] if "Traceback" in end.said else []
    tally.add(f"nights with {len(ended)} at work")
    for fault in dict.fromkeys(faults):
        said = f"night {number}: {drawn}\n{order}, ended {[end.code for end in night.ends]}, at {_last_steps(ended)}"
        tally.fault(fault.partition(":")[0], f"{said}\n{fault}\n".encode(), ".txt")
        print(f"{said}\n  {fault[:2000]}", flush=True)
    return bool(_killed(ended))


def _disturbed(night: Night, drawn: Draw, one: Machine, another: Machine) -> list[Ended]:
    """How the command ended, and a second one, if there is one."""
    second: list[Command] = []

    def start_second(after_s: float) -> None:
        time.sleep(after_s)
        second.append(night.start(another if drawn.second_elsewhere else one))

    expected = night.expected
    num = {"call": len(expected.end.steps), "request": expected.num_requests}.get(drawn.dies_at, 0)
    at = 1 + int(drawn.share * num) if drawn.is_killed else 0
    with ThreadPoolExecutor(1) as starting:
        if drawn.second_s is not None:
            starting.submit(start_second, drawn.second_s)
        night.run(
            one,
            step=at if drawn.dies_at == "call" else 0,
            request=at if drawn.dies_at == "request" else 0,
            is_done=drawn.is_done,
            within_s=drawn.share * expected.end.seconds if at and drawn.dies_at == "moment" else None,
        )
    night.ends.extend(command.ended() for command in second)
    return [*night.ends]


def _killed(ended: list[Ended]) -> list[Ended]:
    return [end for end in ended if end.is_killed]


def _last_steps(ended: list[Ended]) -> list[str]:
    return [step for end in ended for step in end.steps[-1:]]


def _faults_of_codes(night: Night, drawn: Draw, ended: list[Ended]) -> Iterator[str]:
    """What is wrong with how they ended, if they were not killed."""
    usual = {0, night.expected.end.code}
    if drawn.second_s is not None:  # refused by a lock, or overtaken
        usual |= {6, 75} if night.in_store else {6}
    for end in ended:
        if not end.is_killed and end.code not in usual:
            yield f"exit code {end.code}: {end.said}"
    if not _killed(ended) and not {end.code for end in ended} & {0, night.expected.end.code}:
        yield f"neither has ended its work: {[end.said for end in ended]}"


@contextmanager
def _watched(night: Night, faults: list[str], tally: Tally) -> Iterator[None]:
    """Inside, others read the table again and again. faults: takes what they find that is wrong."""
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(_READS_EVERY_S):
            found = night.rows()
            tally.add("reads that were refused" if isinstance(found, str) else "reads")
            wrong = [] if isinstance(found, str) else [*night.check_ours(found)]
            faults.extend(f"meanwhile, {fault}" for fault in [*wrong, *night.check_theirs()])

    texts = night.folder / "texts"
    export = night.export(texts)
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
    faults.extend(night.check_export(export.ended(), texts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nights", nargs="+", type=int, metavar="NIGHT")
    tally = Tally(None)
    with _archive() as archive:
        for number in parser.parse_args().nights:
            _night(archive, number, tally)
    print(f"{sum(tally.faults.values())} faults")


if __name__ == "__main__":
    main()
