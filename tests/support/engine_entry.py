"""`python engine_entry.py FOLDER FD`: a real engine that misbehaves as a folder says, which notes what it is asked.

Each process that is started takes the next fault of the folder; once all are taken, the others are as they should be.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

Fault = tuple[str, str]
"""Where something goes wrong, one of the points below, and what: a behaviour of `misbehave`."""

POINTS = ("before hello", "hello", "loading", "encoding", "decoding", "answers")
"""Before torch is there; when the device has been found, and is not yet said; before the model is loaded; and, once the
engine has a page that no other had, in one stage or the other, and when there are answers, which are not yet said."""


def write_faults(folder: Path, *faults: Fault, fresh_page: int) -> tuple[str, ...]:
    """The command for engines that have these faults, in the order in which they are started. fresh_page: which page
    of an engine is one that no other had: with n in flight, the page after the first n."""
    folder.mkdir()
    (folder / "faults.json").write_text(json.dumps({"faults": faults, "fresh_page": fresh_page}))
    return (sys.executable, "-P", __file__, str(folder))


def num_started(folder: Path) -> int:
    """How many engines there were."""
    return sum(name.startswith("engine ") for name in os.listdir(folder))


def times_asked(folder: Path) -> Counter[str]:
    """How often each question was asked of an engine."""
    path = folder / "questions"
    return Counter(path.read_text().splitlines() if path.exists() else ())


def _take_fault(folder: Path) -> Fault | None:
    """That of this process. Engines may start at the same time."""
    faults = json.loads((folder / "faults.json").read_text())["faults"]
    number = 0
    while True:
        with suppress(FileExistsError):
            os.close(os.open(folder / f"engine {number}", os.O_CREAT | os.O_EXCL))
            return tuple(faults[number]) if number < len(faults) else None
        number += 1


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
        case "hang":  # holding the interpreter's lock
            re.match(r"(a+)+$", "a" * 64 + "b")
        case "garbage":
            os.write(descriptor, b"no frame begins like this")
        case "torn":
            os.write(descriptor, b"\xff\x00\x00\x00\x00{")
            os._exit(0)
        case "nonsense":
            text = json.dumps({"type": "answers", "task_id": 1, "completions": "many"}).encode()
            os.write(descriptor, len(text).to_bytes(4, "little") + b"\x00" + text)
        case "raise":
            raise RuntimeError("an illegal memory access was encountered")
        case "out of memory":
            import torch

            raise torch.OutOfMemoryError("no memory")
        case _:
            raise ValueError(behaviour)


def _serve(folder: Path, descriptor: int) -> None:
    fault = _take_fault(folder)
    point, behaviour = fault or ("", "")
    if point == "before hello":
        misbehave(behaviour, descriptor)

    # Loading torch takes longer than all the rest.
    from batchocr.data import Completion, Request
    from batchocr.engine import serve
    from batchocr.engine.engine import Engine
    from batchocr.engine.model.language import LanguageModel
    from batchocr.engine.model.vision import VisionModel
    from batchocr.processes.channel import Channel
    from batchocr.processes.engine_messages import Answers, DeviceFound

    fresh_page = json.loads((folder / "faults.json").read_text())["fresh_page"]
    num_pages = 0
    submit = Engine.submit

    def note(engine: Engine, request_id: int, request: Request) -> Completion | None:
        nonlocal num_pages
        if request_id == 0:  # about a blank image, before the engine is ready
            return submit(engine, request_id, request)
        num_pages += request.round == 0 and request_id > 0  # 0 is not of a page: it tries the engine
        with open(folder / "questions", "ab", buffering=0) as file:
            file.write(f"{zlib.crc32(request.pixels.data):08x} {request.prompt!r}\n".encode())
        return submit(engine, request_id, request)

    def fail_at(here: str) -> None:
        if point == here and num_pages >= fresh_page:
            misbehave(behaviour, descriptor)

    def fail_before_saying(channel: object, message: object, *_: object) -> None:
        if point == "hello" and isinstance(message, DeviceFound):
            misbehave(behaviour, descriptor)
        if isinstance(message, Answers):
            fail_at("answers")

    Engine.submit = note  # type: ignore[method-assign]
    _before(VisionModel, "layers", lambda *_: fail_at("encoding"))
    _before(Channel, "send", fail_before_saying)
    if point == "loading":
        _before(serve, "load_engine", lambda *_: misbehave(behaviour, descriptor))
    if behaviour == "not finite":
        _spoil(LanguageModel, "decode", when=lambda: num_pages >= fresh_page)
    else:
        _before(LanguageModel, "decode", lambda *_: fail_at("decoding"))
    serve.serve(descriptor)


def _before(owner: object, name: str, act: Callable[..., None]) -> None:
    """Have a function do something first."""
    function: Callable[..., Any] = getattr(owner, name)

    def act_and_go_on(*arguments: Any, **named: Any) -> Any:
        act(*arguments)
        return function(*arguments, **named)

    setattr(owner, name, act_and_go_on)


def _spoil(owner: object, name: str, *, when: Callable[[], bool]) -> None:
    """Have a function return nothing but NaN."""
    function: Callable[..., Any] = getattr(owner, name)

    def spoilt(*arguments: Any, **named: Any) -> Any:
        result = function(*arguments, **named)
        return result.fill_(float("nan")) if when() else result

    setattr(owner, name, spoilt)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), int(sys.argv[2]))
