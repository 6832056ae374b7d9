"""Chooses among implementations of an operation: the fastest correct one, tried where it will run.

Two environment variables are for a GPU on which a candidate does harm. `BATCHOCR_REJECT=op:candidate,op:candidate`
names those that are not to be tried; upper and lower case, spaces, `-` and `_` make no difference. With
`BATCHOCR_TRYING=FILE` the candidate that is being tried is written into this file, so that it is known if it ends the
process: the run leaves it out of the next engine (`processes/engines.py`).
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import torch
from torch import Tensor

from batchocr.errors import EngineError, UsageError
from batchocr.processes.engine_messages import REJECT, TRYING, KernelChoice

logger = logging.getLogger(__name__)

Operation = TypeVar("Operation")
Outputs = tuple[Tensor, ...]

_TIMED_RUNS = 5


@dataclass(frozen=True, slots=True)
class Candidate(Generic[Operation]):
    """One implementation. load: imports what it needs; what it raises is why the candidate is rejected."""

    name: str
    load: Callable[[], Operation]


@dataclass(frozen=True, slots=True)
class Trial(Generic[Operation]):
    """How the candidates for an operation are compared.

    run: runs the operation on a small case, with equal inputs each time. max_error: the largest acceptable difference
    from the reference, relative to the reference's largest value. needed_for: what only the candidates can do, so that
    a right one is taken even where the reference is faster; empty if time alone decides.
    """

    operation: str
    candidates: Sequence[Candidate[Operation]]
    reference: Operation
    run: Callable[[Operation], Outputs]
    max_error: float
    needed_for: str = ""


def choose(trial: Trial[Operation], timer: Callable[[Callable[[], object]], float]) -> tuple[Operation, KernelChoice]:
    """Try every candidate. Returns the fastest correct one, or the reference if there is none or if it is faster.

    timer: returns the seconds that a call takes on the device. Raises EngineError if a candidate has broken the device
    for this process; UsageError if BATCHOCR_REJECT names a candidate that there is not.
    """
    unwanted = _rejected(trial)
    expected = trial.run(trial.reference)

    def seconds_of(operation: Operation) -> float:
        return min(timer(lambda: trial.run(operation)) for _ in range(_TIMED_RUNS))

    right: dict[str, tuple[float, float, Operation]] = {}
    rejected: dict[str, str] = {}
    for candidate in trial.candidates:
        if candidate.name in unwanted:
            rejected[candidate.name] = f"rejected by {REJECT}"
            continue
        _say_trying(f"{trial.operation}:{candidate.name}")
        try:
            operation = candidate.load()
            error = relative_error(trial.run(operation), expected)
            if not error <= trial.max_error:
                raise ArithmeticError(f"differs from the reference by {error:.1e}, more than {trial.max_error:.0e}")
            right[candidate.name] = seconds_of(operation), error, operation
        except Exception as failure:  # noqa: BLE001 (boundary: a backend's trial run)
            rejected[candidate.name] = f"{type(failure).__name__}: {failure}".splitlines()[0][:200]
            if isinstance(failure, RuntimeError):
                _require_sound(trial, f"{trial.operation}:{candidate.name}", rejected[candidate.name])
    _say_trying("")
    best, choice = _fastest(trial, right, rejected, seconds_of)
    logger.info("%s", choice)
    return best, choice


def unknown_operations(known: Iterable[str]) -> list[str]:
    """The operations that BATCHOCR_REJECT names and that are not among these."""
    names = {_plain(name) for name in known}
    return [operation for operation, _ in _unwanted() if _plain(operation) not in names]


def _unwanted() -> list[tuple[str, str]]:
    """Operation and candidate of each entry of BATCHOCR_REJECT. Raises UsageError if one is not of that form."""
    entries = [entry.strip() for entry in os.environ.get(REJECT, "").split(",") if entry.strip()]
    for entry in entries:
        if not all(part.strip() for part in entry.partition(":")):
            raise UsageError(f"{REJECT}: {entry!r} is not of the form operation:candidate")
    return [(operation, candidate) for operation, _, candidate in (entry.partition(":") for entry in entries)]


def _rejected(trial: Trial[Operation]) -> set[str]:
    """The names of the candidates for this operation that are not to be tried."""
    names = {_plain(candidate.name): candidate.name for candidate in trial.candidates}
    found = set()
    for operation, candidate in _unwanted():
        if _plain(operation) == _plain(trial.operation):
            if _plain(candidate) not in names:
                known = ", ".join(names.values())
                raise UsageError(f"{REJECT}: no candidate {candidate!r} for {trial.operation}; there is {known}")
            found.add(names[_plain(candidate)])
    return found


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]", "", name).lower()


def _say_trying(what: str) -> None:
    """Write into the file that BATCHOCR_TRYING names, if it does, what is tried now; empty if nothing is."""
    path = os.environ.get(TRYING)
    if path:
        Path(path).write_text(what, encoding="utf-8")


def _require_sound(trial: Trial[Operation], tried: str, failure: str) -> None:
    """Raises EngineError if the device can no longer do what it did before; OutOfMemoryError if it lacks the room."""
    try:
        outputs = trial.run(trial.reference)
        relative_error(outputs, outputs)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise EngineError(
            f"{tried} has broken the device for this process ({failure}): leave it out with {REJECT}={tried!r}"
        ) from error


def _fastest(
    trial: Trial[Operation],
    right: dict[str, tuple[float, float, Operation]],
    rejected: dict[str, str],
    seconds_of: Callable[[Operation], float],
) -> tuple[Operation, KernelChoice]:
    """The fastest of the candidates that are right and the reference. right: seconds, error and operation by name."""
    if not right:
        return trial.reference, KernelChoice(trial.operation, "reference", rejected=rejected)
    name, (seconds, error, operation) = min(right.items(), key=lambda item: item[1][0])
    others = {other: measured for other, (measured, _, _) in right.items()}
    reference_s = seconds_of(trial.reference)
    if reference_s < seconds and not trial.needed_for:
        return trial.reference, KernelChoice(trial.operation, "reference", 0.0, reference_s, rejected, others)
    del others[name]
    remark = f"{trial.needed_for} needs a kernel" if reference_s < seconds else ""
    others["reference"] = reference_s
    return operation, KernelChoice(trial.operation, name, error, seconds, rejected, others, remark)


def relative_error(values: Outputs, expected: Outputs) -> float:
    """The largest difference divided by the largest expected value, of the worst output; NaN if any value is NaN.

    Raises ArithmeticError if the shapes differ.
    """
    shapes, wanted_shapes = ([tuple(value.shape) for value in outputs] for outputs in (values, expected))
    if shapes != wanted_shapes:
        raise ArithmeticError(f"gives {shapes}, the reference {wanted_shapes}")
    errors = [
        (value.double() - wanted.double()).abs().max() / wanted.double().abs().max().clamp(min=1e-12)
        for value, wanted in zip(values, expected, strict=True)
    ]
    return float(torch.stack([error.cpu() for error in errors]).max())
