"""`python -m benchmarks.speed.timed_engine TIMES FD`: the product's engine process, which notes how long it takes to
start.

TIMES: the file for the seconds of each phase, as JSON, which is there before the engine says that it is ready. FD: as
of `batchocr.engine`.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

BEGUN = "begun"
"""In the file: when this process ran its first line, as `time.monotonic` has it."""
_TRIALS = "cases of the trials"


class Phases:
    """The seconds of each phase, without those of the phases within it."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._running = ["the rest"]
        self._since_s = time.monotonic()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self._count()
        self._running.append(name)
        try:
            yield
        finally:
            self._count()
            self._running.pop()

    def time(self, owner: Any, name: str, phase: Callable[..., str]) -> None:
        """Time each call of a function. phase: the name of its phase, given the call's arguments."""
        function = getattr(owner, name)

        @wraps(function, updated=())
        def timed(*arguments: Any, **options: Any) -> Any:
            with self.phase(phase(*arguments)):
                return function(*arguments, **options)

        setattr(owner, name, timed)

    def _count(self) -> None:
        now_s = time.monotonic()
        self.seconds[self._running[-1]] += now_s - self._since_s
        self._since_s = now_s


def main(path: Path, descriptor: int) -> None:
    begun_s, phases = time.monotonic(), Phases()
    with phases.phase("import torch"):
        import_module("batchocr.engine.before_torch")
        import_module("torch")
    with phases.phase("import transformers"):
        from transformers import AutoTokenizer  # noqa: F401
    with phases.phase("import the rest"):
        from batchocr.engine import backend, serve, start
        from batchocr.engine.backend import cuda_trials
        from batchocr.engine.graphs import DecodeGraphs
        from batchocr.engine.model import checkpoint

    server = serve._Server
    timed: dict[str, tuple[Any, str]] = {
        "device": (serve, "find_device"),
        _TRIALS: (backend, "make_ops"),
        "weights": (start, "load_model"),
        "tokenizer": (checkpoint, "PromptFormat"),
        "detector": (start, "Detector"),
        "caches": (start, "Engine"),
        "graphs": (DecodeGraphs, "capture"),
        "speed of a product": (serve, "flop_per_s"),
        "first answer": (server, "_warm_up"),
    }
    for phase, (owner, name) in timed.items():
        phases.time(owner, name, lambda *_, phase=phase: phase)
    phases.time(cuda_trials, "choose", lambda trial, *_: f"trial of {trial.operation}")
    warm_up = server._warm_up

    def warm_up_and_tell(self: serve._Server, **options: Any) -> None:
        warm_up(self, **options)
        path.write_text(json.dumps({BEGUN: begun_s, **phases.seconds}))

    server._warm_up = warm_up_and_tell  # type: ignore[method-assign]
    serve.serve(descriptor)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
