"""The data type a model runs in: what the user said, what its output was begun in, or what is faster here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from batchocr.config import DType
from batchocr.errors import OutputMismatchError, UsageError
from batchocr.machine import multiplies_bfloat16
from batchocr.processes.engine_messages import DeviceFound

VALUE_BYTES: Final[dict[DType, int]] = {"float32": 4, "bfloat16": 2}
"""The bytes of a weight, and of a value in the KV cache, by the data type."""

_WORTH_IT = 1.1
_LARGE_MODEL = 100_000_000
"""The fewest parameters of a model that gains from bfloat16. The layers of smaller models are too small: the sample
model (2.5 million) took 26 s instead of 21 for four pages, on an AMD EPYC with AVX512-BF16."""


@dataclass(frozen=True, slots=True)
class DTypeChoice:
    """The data type that a run reads in."""

    dtype: DType
    """The data type that was chosen, never `auto`."""
    devices: tuple[str, ...]
    """The devices of the run that have this data type."""
    remark: str = ""
    """Why this data type was chosen, for the log; empty if that is of no interest."""


def choose_dtype(
    name: DType,
    found: DeviceFound,
    devices: Sequence[str],
    *,
    stored: str,
    num_parameters: int,
    begun_in: DType | None = None,
) -> DTypeChoice:
    """The data type for a model of which most values are stored in `stored`, and the devices of a run that have it.

    `auto` keeps that of rows which are there already, whatever the device, so that a run may be continued on another
    one; else it is the best that any of the devices has. found: the first of these. begun_in: the type of the rows;
    None if there are none. Raises UsageError if no device has the type that was asked for, OutputMismatchError if none
    has that of the rows.
    """
    wanted = begun_in if name == "auto" else name
    able = tuple(device for device in devices if device not in found.without_bfloat16)
    if not able and wanted == "bfloat16":
        raise _refusal(name, found)
    if found.device == "cpu":
        speedup = found.bfloat16_speedup if num_parameters >= _LARGE_MODEL else None
        dtype, remark = _on_cpu(name, begun_in, speedup, stored)
    else:
        dtype, remark = _on_gpus(name, begun_in, found, has_bfloat16=bool(able))
    if dtype == "float32" or len(able) == len(devices):
        return DTypeChoice(dtype, tuple(devices), remark)
    lacking = ", ".join(device for device in devices if device not in able)
    remark = f"reading in bfloat16, without GPUs that lack it ({lacking}); --device {','.join(able)} says the same"
    return DTypeChoice(dtype, able, remark)


def _refusal(name: DType, found: DeviceFound) -> UsageError | OutputMismatchError:
    lacks = f"{found.name} has no units for it, as GPUs before sm_80"
    if name == "auto":
        return OutputMismatchError(
            f"the output was begun in bfloat16, and {lacks}: continue it on a newer GPU, or with --device cpu, choose "
            "another --out, or start over with --overwrite"
        )
    return UsageError(f"--dtype bfloat16: {lacks}; float32 works there")


def _on_gpus(name: DType, begun_in: DType | None, found: DeviceFound, *, has_bfloat16: bool) -> tuple[DType, str]:
    """The data type for GPUs, and why this one. has_bfloat16: whether any GPU computes in bfloat16."""
    if name != "auto":
        return name, ""
    if not has_bfloat16:
        return "float32", f"{found.name} has no units for bfloat16: reading in float32, which is slower"
    if begun_in == "float32":
        return "float32", "the output was begun in float32: continuing in it, which is slower than bfloat16"
    return "bfloat16", ""


def _on_cpu(name: DType, begun_in: DType | None, speedup: float | None, stored: str) -> tuple[DType, str]:
    """The data type for CPUs, and why this one. speedup: in bfloat16; None if nothing can be gained."""
    if name != "auto":
        return name, ""
    if begun_in is not None:
        return _as_begun(begun_in, may_gain=speedup is not None)
    if speedup is None:
        return "float32", ""
    if stored != "bfloat16":
        remark = f"{_measured(speedup)}, but the model is stored in {stored}: --dtype bfloat16 would round it"
        return "float32", remark if speedup >= _WORTH_IT else ""
    if speedup < _WORTH_IT:
        return "float32", f"{_measured(speedup)}: too little; reading in float32"
    return "bfloat16", f"{_measured(speedup)}, and the model is stored in it: reading in bfloat16"


def bfloat16_remark(speedup: float | None) -> str:
    """What bfloat16 on a CPU is good for, without a model to read; empty if the CPU has no units for it. speedup: of
    those units; None if there are none."""
    if speedup is None:
        return ""
    if speedup < _WORTH_IT:
        return f"{_measured(speedup)}: too little, --dtype auto stays with float32"
    return f"{_measured(speedup)}: --dtype auto takes it for a full-size model that is stored in it"


def _as_begun(begun_in: DType, *, may_gain: bool) -> tuple[DType, str]:
    """The data type in which the output was begun, and why it stays. may_gain: whether a new output might be read in
    bfloat16 here."""
    if begun_in == "float32":
        return "float32", "the output was begun in float32: continuing in it" if may_gain else ""
    slower = "" if multiplies_bfloat16() else ", more slowly than in float32, as this CPU has no units for it"
    return "bfloat16", f"the output was begun in bfloat16: continuing in it{slower}"


def _measured(speedup: float) -> str:
    return f"in a trial this CPU was {speedup:.1f} times as fast in bfloat16 as in float32"
