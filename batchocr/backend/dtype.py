"""The data type a model runs in: what the user said, what its output was begun in, or what is faster here."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from batchocr.backend.base import Affine
from batchocr.backend.cpu import CpuOps
from batchocr.config import BackendName, DType
from batchocr.machine import multiplies_bfloat16

# The layers and the layout image of MinerU2.5's ViT, where most of the time goes; of its rows and queries, as many as
# keep the trial short and its products and attention in the proportion of a dense page.
_WIDTH, _MLP, _HEAD_DIM, _IMAGE_PATCHES = 1280, 5120, 80, 5476
_ROWS, _HEADS, _QUERIES = 128, 2, 192
_TIMED_RUNS = 2

_WORTH_IT = 1.1
_LARGE_MODEL = 100_000_000
"""Parameters. The layers of smaller models are too small to gain: the sample model (2.5 million) took 26 s instead of
21 for four pages, on an AMD EPYC with AVX512-BF16."""


@dataclass(frozen=True, slots=True)
class DTypeChoice:
    """remark: why, where that is of interest; or empty."""

    dtype: torch.dtype
    remark: str = ""


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """What matters of a checkpoint. dtype: that of most of its values."""

    dtype: torch.dtype
    num_parameters: int


def select_dtype(name: DType, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 on GPUs and float32 on CPUs, for which `choose_dtype` may know better."""
    if name == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    return torch.float32 if name == "float32" else torch.bfloat16


def choose_dtype(
    name: DType, device: torch.device, backend: BackendName, weights: StoredWeights, *, begun_in: DType | None = None
) -> DTypeChoice:
    """The data type for this model here.

    On a CPU `auto` keeps that of rows which are there already, whatever the CPU, so that a run may be continued on
    another one. begun_in: theirs; None if there are none.
    """
    if name != "auto" or device.type != "cpu":
        return DTypeChoice(select_dtype(name, device))
    may_gain = backend == "cpu" and weights.num_parameters >= _LARGE_MODEL and multiplies_bfloat16()
    if begun_in is not None:
        return _as_begun(begun_in, may_gain=may_gain)
    if not may_gain:
        return DTypeChoice(torch.float32)
    speedup = bfloat16_speedup()
    if weights.dtype != torch.bfloat16:
        stored = str(weights.dtype).removeprefix("torch.")
        remark = f"{_measured(speedup)}, but the model is stored in {stored}: --dtype bfloat16 would round it"
        return DTypeChoice(torch.float32, remark if speedup >= _WORTH_IT else "")
    if speedup < _WORTH_IT:
        return DTypeChoice(torch.float32, f"{_measured(speedup)}: too little; reading in float32")
    return DTypeChoice(torch.bfloat16, f"{_measured(speedup)}, and the model is stored in it: reading in bfloat16")


def bfloat16_remark() -> str:
    """What the units of this CPU are good for, without a model to read; empty if it has none."""
    if not multiplies_bfloat16():
        return ""
    speedup = bfloat16_speedup()
    if speedup < _WORTH_IT:
        return f"{_measured(speedup)}: too little, --dtype auto stays with float32"
    return f"{_measured(speedup)}: --dtype auto takes it for a full-size model that is stored in it"


def bfloat16_speedup() -> float:
    """How many times as fast as float32 the ViT of a full-size model is in bfloat16 on this CPU, in a short trial.

    Units for it are not enough: attention may gain nothing. Without them, the trial would take many seconds.
    """
    runs = [_work(dtype) for dtype in (torch.float32, torch.bfloat16)]
    times = [[_seconds(run) for run in runs] for _ in range(1 + _TIMED_RUNS)][1:]  # in turn; the first to warm up
    float32_s, bfloat16_s = (min(measured) for measured in zip(*times, strict=True))
    return float(float32_s / bfloat16_s)


def _as_begun(begun_in: DType, *, may_gain: bool) -> DTypeChoice:
    """may_gain: whether a new output might be read in bfloat16 here."""
    if begun_in == "float32":
        remark = "the output was begun in float32: continuing in it" if may_gain else ""
        return DTypeChoice(torch.float32, remark)
    slowly = "" if multiplies_bfloat16() else ", very slowly, as this CPU has no units for it"
    return DTypeChoice(torch.bfloat16, f"the output was begun in bfloat16: continuing in it{slowly}")


def _measured(speedup: float) -> str:
    return f"in a trial this CPU was {speedup:.1f} times as fast in bfloat16 as in float32"


def _work(dtype: torch.dtype) -> Callable[[], None]:
    linear = CpuOps().linear(Affine(torch.ones(_MLP, _WIDTH, dtype=dtype)))
    x = torch.ones(_ROWS, _WIDTH, dtype=dtype)
    q = torch.ones(1, _HEADS, _QUERIES, _HEAD_DIM, dtype=dtype)
    kv = torch.ones(1, _HEADS, _IMAGE_PATCHES, _HEAD_DIM, dtype=dtype)

    def run() -> None:
        linear(x)
        F.scaled_dot_product_attention(q, kv, kv)

    return run


def _seconds(run: Callable[[], None]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun
