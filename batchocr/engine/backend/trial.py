"""Chooses among implementations of an operation: the fastest correct one, tried where it will run.

Before a candidate is tried, a line of the log says so: if the candidate ends the process, the run knows which it was.
`BATCHOCR_REJECT=op:candidate,op:candidate` then names those that are not to be tried.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from batchocr.errors import EngineError
from batchocr.processes.engine_messages import REJECT, TRYING, KernelChoice

logger = logging.getLogger(__name__)

Operation = TypeVar("Operation")
Outputs = tuple[Tensor, ...]

_TIMED_RUNS = 5
_MUCH_FASTER = 0.9
"""The reference is taken only if it needs less than this share of the candidate's time: it launches more kernels, and
the host's time for that is not measured."""


@dataclass(frozen=True, slots=True)
class Candidate(Generic[Operation]):
    """One implementation of an operation."""

    name: str
    load: Callable[[], Operation]
    """A function that imports what the candidate needs; what it raises is why the candidate is rejected."""


def triton_kernel(module: str, name: str) -> Candidate[Any]:
    """A candidate that is a kernel of ours, which is imported when it is tried."""
    return Candidate("triton", lambda: getattr(import_module(f"batchocr.engine.backend.kernels.{module}"), name))


@dataclass(frozen=True, slots=True)
class Trial(Generic[Operation]):
    """How the candidates for an operation are compared."""

    operation: str
    candidates: Sequence[Candidate[Operation]]
    reference: Operation
    run: Callable[[Operation], Outputs]
    """A function that runs the operation on a small case, with equal inputs each time."""
    max_error: float
    """The largest acceptable difference from the reference, relative to the reference's largest value."""
    needed_for: str = ""
    """What only the candidates can do, so that a right one is taken even where the reference is faster; empty if time
    alone decides."""


def choose(
    trial: Trial[Operation], timer: Callable[[Callable[[], object]], float], kept: KernelChoice | None = None
) -> tuple[Operation, KernelChoice]:
    """Try every candidate. Returns the fastest correct one, or the reference if there is none or if it is much faster.

    timer: returns the seconds that a call takes on the device. kept: what was chosen here before; if that is correct,
    nothing else is tried, and nothing timed. Raises EngineError if a candidate has broken the device for this process.
    """

    def seconds_of(operation: Operation, num_runs: int = _TIMED_RUNS) -> float:
        return min(timer(lambda: trial.run(operation)) for _ in range(num_runs))

    if kept is not None and kept.taken == "reference":
        return trial.reference, kept
    if kept is not None:
        known = [candidate for candidate in trial.candidates if candidate.name == kept.taken]
        still_right, _ = _try(replace(trial, candidates=known), lambda _: kept.seconds)
        for _, error, operation in still_right.values():
            return operation, replace(kept, error=error)
    best, choice = _fastest(trial, *_try(trial, seconds_of), seconds_of)
    logger.info("%s", choice)
    return best, choice


def unwanted() -> list[str]:
    """The entries of BATCHOCR_REJECT, each of the form operation:candidate if it can be meant."""
    return [entry.strip() for entry in os.environ.get(REJECT, "").split(",") if entry.strip()]


def _try(
    trial: Trial[Operation], seconds_of: Callable[[Operation], float]
) -> tuple[dict[str, tuple[float, float, Operation]], dict[str, str]]:
    """Seconds, error and operation of each candidate that is right, and why each wrong one is not. Raises EngineError
    if a candidate has broken the device for this process."""
    left_out = unwanted()
    expected = trial.run(trial.reference)
    right: dict[str, tuple[float, float, Operation]] = {}
    rejected: dict[str, str] = {}
    for candidate in trial.candidates:
        tried = f"{trial.operation}:{candidate.name}"
        if tried in left_out:
            rejected[candidate.name] = f"rejected by {REJECT}"
            continue
        logger.info("%s%s", TRYING, tried)
        try:
            operation = candidate.load()
            error = relative_error(trial.run(operation), expected)
            if not error <= trial.max_error:
                raise ArithmeticError(f"differs from the reference by {error:.1e}, more than {trial.max_error:.0e}")
            right[candidate.name] = seconds_of(operation), error, operation
        except Exception as failure:  # noqa: BLE001 (boundary: a backend's trial run)
            rejected[candidate.name] = f"{type(failure).__name__}: {failure}".splitlines()[0][:200]
            if isinstance(failure, RuntimeError):
                _require_sound(trial, tried, rejected[candidate.name])
    return right, rejected


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
    seconds_of: Callable[[Operation, int], float],
) -> tuple[Operation, KernelChoice]:
    """The fastest of the candidates that are right and the reference. right: seconds, error and operation by name."""
    if not right:
        return trial.reference, KernelChoice(trial.operation, "reference", rejected=rejected)
    name, (seconds, error, operation) = min(right.items(), key=lambda item: item[1][0])
    others = {other: measured for other, (measured, _, _) in right.items()}
    # Where its time decides nothing it is only reported: for paged attention, a run is thousands of launches.
    reference_s = seconds_of(trial.reference, 1 if trial.needed_for else _TIMED_RUNS)
    if reference_s < _MUCH_FASTER * seconds and not trial.needed_for:
        return trial.reference, KernelChoice(trial.operation, "reference", 0.0, reference_s, rejected, others)
    del others[name]
    remark = f"{trial.needed_for} needs a kernel" if trial.needed_for else "not a tenth faster"
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
