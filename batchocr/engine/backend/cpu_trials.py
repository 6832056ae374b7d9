"""Errors of the CPU operations against the reference, and their times, for `batchocr doctor`.

There is nothing to choose: oneDNN is part of torch, Pillow is needed anyway, and what a run computes must not depend on
what else kept the machine busy during a trial.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from batchocr.engine.backend.base import Activation, Affine, Mlp, Ops, PagedContext, ResizePlan
from batchocr.engine.backend.cpu import CpuOps
from batchocr.engine.backend.reference import ReferenceOps
from batchocr.engine.backend.trial import relative_error
from batchocr.processes.engine_messages import KernelChoice

_ROWS, _WIDTH, _INNER = 256, 896, 1792
_TIMED_RUNS = 7


def measure_all(dtype: torch.dtype) -> list[KernelChoice]:
    """One entry for each operation that the CPU backend does in its own way. dtype: the model's."""
    own, reference = CpuOps(), ReferenceOps(torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    x, layer = random(_ROWS, _WIDTH), Affine(random(_INNER, _WIDTH), random(_INNER))
    image = torch.randint(0, 256, (2200, 1700, 3), dtype=torch.uint8, generator=generator)
    plan: ResizePlan = ((1036, 1036),)
    cases: dict[str, tuple[str, Callable[[Ops], Callable[[], Tensor]]]] = {
        "linear": ("oneDNN", lambda ops: _bind(ops.linear(layer), x)),
        "paged attention": ("views", _attention_case(random)),
        "patches": ("Pillow", lambda ops: lambda: ops.patches([image], [plan], 14, 2)),
    }
    activations: tuple[Activation, ...] = ("quick_gelu", "gelu", "silu_mul")
    for activation in activations:
        inner = Affine(random(_INNER, _WIDTH), random(_INNER))
        outer = Affine(random(_WIDTH, _INNER // 2 if activation == "silu_mul" else _INNER), random(_WIDTH))
        cases[f"{activation} MLP"] = "oneDNN", _mlp_case(inner, outer, activation, x)
    return [_measure(name, taken, case(own), case(reference)) for name, (taken, case) in cases.items()]


def _mlp_case(inner: Affine, outer: Affine, activation: Activation, x: Tensor) -> Callable[[Ops], Callable[[], Tensor]]:
    return lambda ops: _bind(ops.mlp(inner, outer, activation), x)


def _attention_case(random: Callable[..., Tensor]) -> Callable[[Ops], Callable[[], Tensor]]:
    """Sequences with MinerU2.5's heads, each in a lane of the cache."""
    block_size, blocks_each, rows = CpuOps.kv_block_size, 40, 8
    tables = torch.arange(rows * blocks_each, dtype=torch.int32).view(rows, blocks_each)
    lengths = torch.arange(rows, dtype=torch.int32) * 80 + 60
    context = PagedContext(tables, lengths, lengths.tolist())
    q = random(rows, 14, 64)
    cache = random(2, 2, rows * blocks_each, block_size, 64).permute(0, 2, 3, 1, 4)
    return lambda ops: lambda: ops.paged_attention(q, cache, context)


def _bind(layer: Mlp, x: Tensor) -> Callable[[], Tensor]:
    return lambda: layer(x)


def _measure(operation: str, taken: str, own: Callable[[], Tensor], reference: Callable[[], Tensor]) -> KernelChoice:
    error = relative_error((own(),), (reference(),))
    # In turn, so that what else the machine does at the time slows both.
    times = [(_seconds(own), _seconds(reference)) for _ in range(_TIMED_RUNS)]
    own_s, reference_s = (min(measured) for measured in zip(*times, strict=True))
    remark = "" if own_s <= reference_s else "the operations of the cpu backend are taken together"
    return KernelChoice(operation, taken, error, own_s, others={"reference": reference_s}, remark=remark)


def _seconds(call: Callable[[], Tensor]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun
