"""The data type a model runs in: what the user said, what its output was begun in, or what is faster here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from batchocr.config import DType
from batchocr.errors import UsageError
from batchocr.machine import multiplies_bfloat16
from batchocr.processes.engine_messages import DeviceFound

VALUE_BYTES: Final[dict[DType, int]] = {"float32": 4, "bfloat16": 2}
"""Of a weight, and of a value in the KV cache."""

_WORTH_IT = 1.1
_LARGE_MODEL = 100_000_000
"""Parameters. The layers of smaller models are too small to gain: the sample model (2.5 million) took 26 s instead of
21 for four pages, on an AMD EPYC with AVX512-BF16."""


@dataclass(frozen=True, slots=True)
class DTypeChoice:
    """The data type that a run reads in."""

    dtype: DType
    """Never `auto`."""
    remark: str = ""
    """Why this one, for the log; empty if that is of no interest."""


def choose_dtype(
    name: DType, found: DeviceFound, *, stored: str, num_parameters: int, begun_in: DType | None = None
) -> DTypeChoice:
    """The data type there for a model of which most values are stored in `stored`.

    On a CPU `auto` keeps that of rows which are there already, whatever the CPU, so that a run may be continued on
    another one. begun_in: theirs; None if there are none. Raises UsageError for a type that the device does not have.
    """
    if name == "bfloat16" and not found.has_bfloat16:
        raise UsageError(
            f"--dtype bfloat16: {found.name} has no units for it, as GPUs before sm_80; float32 works there"
        )
    if name != "auto":
        return DTypeChoice(name)
    if not found.has_bfloat16:
        return DTypeChoice("float32", f"{found.name} has no units for bfloat16: reading in float32, which is slower")
    if found.device != "cpu":
        return DTypeChoice("bfloat16")
    speedup = found.bfloat16_speedup if num_parameters >= _LARGE_MODEL else None
    if begun_in is not None:
        return _as_begun(begun_in, may_gain=speedup is not None)
    if speedup is None:
        return DTypeChoice("float32")
    if stored != "bfloat16":
        remark = f"{_measured(speedup)}, but the model is stored in {stored}: --dtype bfloat16 would round it"
        return DTypeChoice("float32", remark if speedup >= _WORTH_IT else "")
    if speedup < _WORTH_IT:
        return DTypeChoice("float32", f"{_measured(speedup)}: too little; reading in float32")
    return DTypeChoice("bfloat16", f"{_measured(speedup)}, and the model is stored in it: reading in bfloat16")


def bfloat16_remark(speedup: float | None) -> str:
    """What the units of a CPU are good for, without a model to read; empty if it has none. speedup: None likewise."""
    if speedup is None:
        return ""
    if speedup < _WORTH_IT:
        return f"{_measured(speedup)}: too little, --dtype auto stays with float32"
    return f"{_measured(speedup)}: --dtype auto takes it for a full-size model that is stored in it"


def _as_begun(begun_in: DType, *, may_gain: bool) -> DTypeChoice:
    """may_gain: whether a new output might be read in bfloat16 here."""
    if begun_in == "float32":
        return DTypeChoice("float32", "the output was begun in float32: continuing in it" if may_gain else "")
    slower = "" if multiplies_bfloat16() else ", more slowly than in float32, as this CPU has no units for it"
    return DTypeChoice("bfloat16", f"the output was begun in bfloat16: continuing in it{slower}")


def _measured(speedup: float) -> str:
    return f"in a trial this CPU was {speedup:.1f} times as fast in bfloat16 as in float32"
