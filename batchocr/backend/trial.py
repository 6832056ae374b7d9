"""Chooses among implementations of an operation: the fastest correct one, tried where it will run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch
from torch import Tensor

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
    from the reference, relative to the reference's largest value.
    """

    operation: str
    candidates: Sequence[Candidate[Operation]]
    reference: Operation
    run: Callable[[Operation], Outputs]
    max_error: float


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen for an operation, and why the others were not.

    error: relative to the reference. seconds: for one run on the small case. Both are 0 for the reference itself.
    """

    operation: str
    taken: str
    error: float = 0.0
    seconds: float = 0.0
    rejected: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        reasons = "".join(f"; not {name}: {reason}" for name, reason in self.rejected.items())
        return f"{self.operation}: {self.taken} (error {self.error:.1e}, {1e6 * self.seconds:.0f} µs){reasons}"


def choose(trial: Trial[Operation], timer: Callable[[Callable[[], object]], float]) -> tuple[Operation, Choice]:
    """Try every candidate. Returns the fastest correct one, or the reference if there is none.

    timer: returns the seconds that a call takes on the device.
    """
    expected = trial.run(trial.reference)
    best, best_choice = trial.reference, Choice(trial.operation, "reference")
    rejected: dict[str, str] = {}
    for candidate in trial.candidates:
        try:
            operation = candidate.load()
            error = relative_error(trial.run(operation), expected)
            if not error <= trial.max_error:
                raise ArithmeticError(f"differs from the reference by {error:.1e}, more than {trial.max_error:.0e}")
            seconds = min(timer(lambda operation=operation: trial.run(operation)) for _ in range(_TIMED_RUNS))  # type: ignore[misc]
        except Exception as failure:  # noqa: BLE001 (boundary: a backend's trial run)
            rejected[candidate.name] = f"{type(failure).__name__}: {failure}".splitlines()[0][:200]
            continue
        if best_choice.taken == "reference" or seconds < best_choice.seconds:
            if best_choice.taken != "reference":
                rejected[best_choice.taken] = f"{1e6 * best_choice.seconds:.0f} µs"
            best, best_choice = operation, Choice(trial.operation, candidate.name, error, seconds)
        else:
            rejected[candidate.name] = f"{1e6 * seconds:.0f} µs"
    choice = Choice(trial.operation, best_choice.taken, best_choice.error, best_choice.seconds, rejected)
    logger.info("%s", choice)
    return best, choice


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
