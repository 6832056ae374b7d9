"""`python harmful_kernels.py FD`: a real engine that tries kernels, of which two end their process each in its way."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

COMMAND = (sys.executable, "-P", __file__)
HARMFUL = ("attention:exits", "attention:breaks the device")

_is_broken = False


def _exits() -> Any:
    os._exit(1)


def _breaks() -> Callable[[Any], Any]:
    global _is_broken
    _is_broken = True
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


def _double(x: Any) -> Any:
    if _is_broken:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    return 2 * x


def main(descriptor: int) -> None:
    import time

    import torch

    from batchocr.engine import backend
    from batchocr.engine.backend.trial import Candidate, Trial, choose
    from batchocr.engine.serve import serve

    make_ops = backend.make_ops

    def try_and_make(*arguments: Any, **options: Any) -> Any:
        names = {"exits": _exits, "breaks the device": _breaks, "good": lambda: _double}
        candidates = [Candidate(name, load) for name, load in names.items()]
        trial = Trial("attention", candidates, _double, lambda double: (double(torch.ones(2)),), 1e-3)
        choose(trial, lambda call: (call(), time.perf_counter())[1])
        return make_ops(*arguments, **options)

    backend.make_ops = try_and_make
    serve(descriptor)


if __name__ == "__main__":
    main(int(sys.argv[1]))
