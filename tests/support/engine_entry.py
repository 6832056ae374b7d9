"""`python engine_entry.py FOLDER FD`: a real engine that misbehaves as a folder says.

Each process that is started takes the next fault of the folder; once all are taken, the others are as they should be.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Fault = tuple[str, str]
"""Where something goes wrong, and what: a behaviour of `misbehave`. start: before torch is there. hello: when the
device has been found, and is not yet said. loading: before the model is loaded. encoding, decoding, answers: in one
stage or the other, or when there are answers that are not yet said, once the engine has answered SOUND_BATCHES."""

SOUND_BATCHES = 4
"""So many that no batch that one engine was lost with is there when the next one is lost."""


def write_faults(folder: Path, *faults: Fault) -> tuple[str, ...]:
    """The command for engines that have these faults, in the order in which they are started, one after the other."""
    folder.mkdir()
    (folder / "faults.json").write_text(json.dumps(faults))
    return (sys.executable, "-P", __file__, str(folder))


def num_started(folder: Path) -> int:
    """How many engines there were."""
    return len(list(folder.glob("engine *")))


def _take_fault(folder: Path) -> Fault:
    """That of this process."""
    faults, number = json.loads((folder / "faults.json").read_text()), num_started(folder)
    (folder / f"engine {number}").touch(exist_ok=False)
    return tuple(faults[number]) if number < len(faults) else ("", "")


def misbehave(behaviour: str, descriptor: int) -> None:
    match behaviour:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "exit":
            os._exit(7)
        case "garbage":
            os.write(descriptor, b"no frame begins like this")
        case "torn":
            os.write(descriptor, b"\xff\x00\x00\x00\x00{")
            os._exit(0)
        case "out of memory":
            import torch

            raise torch.OutOfMemoryError("no memory")


def _serve(folder: Path, descriptor: int) -> None:
    point, behaviour = _take_fault(folder)
    num_answered = 0

    def fail_at(here: str) -> None:
        if point == here:
            misbehave(behaviour, descriptor)

    fail_at("start")
    # Loading torch takes longer than all the rest.
    from batchocr.engine import serve
    from batchocr.engine.model.language import LanguageModel
    from batchocr.engine.model.vision import VisionModel
    from batchocr.processes.channel import Channel
    from batchocr.processes.engine_messages import Answers, DeviceFound

    def fail_at_work(here: str) -> None:
        if num_answered >= SOUND_BATCHES:
            fail_at(here)

    def fail_before_saying(channel: object, message: object, *_: object) -> None:
        nonlocal num_answered
        if isinstance(message, DeviceFound):
            fail_at("hello")
        if isinstance(message, Answers):
            fail_at_work("answers")
            num_answered += 1

    _before(Channel, "send", fail_before_saying)
    _before(serve, "load_engine", lambda *_: fail_at("loading"))
    _before(VisionModel, "layers", lambda *_: fail_at_work("encoding"))
    _before(LanguageModel, "decode", lambda *_: fail_at_work("decoding"))
    serve.serve(descriptor)


def _before(owner: object, name: str, act: Callable[..., None]) -> None:
    """Have a function do something first."""
    function: Callable[..., Any] = getattr(owner, name)

    def act_and_go_on(*arguments: Any, **named: Any) -> Any:
        act(*arguments)
        return function(*arguments, **named)

    setattr(owner, name, act_and_go_on)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), int(sys.argv[2]))
