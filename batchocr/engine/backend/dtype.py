"""The data types a model may run in, and how much faster this CPU is in the shorter one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from timeit import timeit

import torch
from torch.nn import functional as F

from batchocr.config import DType
from batchocr.engine.backend.base import Affine
from batchocr.engine.backend.cpu import CpuOps

# The layers and the layout image of MinerU2.5's ViT, where most of the time goes; of its rows and queries, as many as
# keep the trial short and its products and attention in the proportion of a dense page.
_WIDTH, _MLP, _HEAD_DIM, _IMAGE_PATCHES = 1280, 5120, 80, 5476
_ROWS, _HEADS, _QUERIES = 128, 2, 192
_TIMED_RUNS = 2


def select_dtype(name: DType, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 on GPUs and float32 on CPUs, for which `planning/dtype.py` may know better."""
    if name == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    return torch.float32 if name == "float32" else torch.bfloat16


@functools.cache
def bfloat16_speedup() -> float:
    """How many times as fast as float32 the ViT of a full-size model is in bfloat16 on this CPU, in a short trial.

    Units for it are not enough: attention may gain nothing. Without them, the trial would take many seconds.
    """
    runs = [_work(dtype) for dtype in (torch.float32, torch.bfloat16)]
    times = [[timeit(run, number=1) for run in runs] for _ in range(1 + _TIMED_RUNS)][1:]  # the first to warm up
    float32_s, bfloat16_s = (min(measured) for measured in zip(*times, strict=True))
    return float(float32_s / bfloat16_s)


def _work(dtype: torch.dtype) -> Callable[[], None]:
    linear = CpuOps().linear(Affine(torch.ones(_MLP, _WIDTH, dtype=dtype)))
    x = torch.ones(_ROWS, _WIDTH, dtype=dtype)
    q = torch.ones(1, _HEADS, _QUERIES, _HEAD_DIM, dtype=dtype)
    kv = torch.ones(1, _HEADS, _IMAGE_PATCHES, _HEAD_DIM, dtype=dtype)

    def run() -> None:
        linear(x)
        F.scaled_dot_product_attention(q, kv, kv)

    return run
