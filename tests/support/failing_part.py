"""A part of `benchmarks.gpu.check` that ends badly, with the product's and the benchmarks' own code around the fault.

python -m tests.support.failing_part FAULT [options of the part]
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import NoReturn

import torch
from torch import Tensor

from batchocr.engine.backend.trial import Candidate, Trial, choose
from benchmarks.gpu import ops_check
from benchmarks.gpu.ops_cases import Bench
from benchmarks.record import Record, benchmark_parser

FAULT_AT = "attention"
_is_broken = False


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError


def hang() -> NoReturn:
    time.sleep(600)
    raise AssertionError


def break_context() -> NoReturn:
    global _is_broken
    _is_broken = True
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


FAULTS: dict[str, Callable[[], NoReturn]] = {"die": die, "hang": hang, "break": break_context}


def double(x: Tensor) -> Tensor:
    if _is_broken:
        break_context()
    return 2 * x


def in_a_trial(fault: Callable[[], NoReturn], arguments: list[str]) -> None:
    """Writes a figure before its trial and one behind it; the candidate `bad one` has the fault."""
    record = Record("failing", benchmark_parser(None).parse_args(arguments))
    record.figure("before", 1.0)
    candidates = [Candidate("good", lambda: double), Candidate("bad one", lambda: lambda x: fault())]
    trial = Trial("double", candidates, double, lambda operation: (operation(torch.ones(3)),), 1e-3)
    _, choice = choose(trial, lambda call: 1.0)
    record.note("kernels", [str(choice)])
    record.figure("behind", 2.0)


def in_a_check(fault: Callable[[], NoReturn], arguments: list[str]) -> None:
    """The checks of all operations; that of attention has the fault."""
    whole = ops_check.largest_error

    def largest_error(name: str, bench: Bench) -> float:
        return fault() if name == FAULT_AT else whole(name, bench)

    ops_check.largest_error = largest_error
    ops_check.main([*arguments, "--smoke"])


PLACES = {"trial": in_a_trial, "check": in_a_check}

if __name__ == "__main__":
    place, name, *rest = sys.argv[1:]
    PLACES[place](FAULTS[name], rest)
