"""What a launch of our Triton kernels costs the host, in microseconds: `python -m benchmarks.launches`.

Needs no GPU: everything runs up to where CUDA's driver would be called, which costs some 2 to 5 µs more. For each
kernel of the hot path, at MinerU2.5's widths:

- `call`: a call of the operator, as the model makes it.
- `custom_op`, `operator`: an operator of its schema that does nothing, made by `torch.library.custom_op`, and by ours.
- `Triton`, `direct`: the launch alone, through Triton's `kernel[grid](…)`, and by ours.

As in the engine, weights are ordinary tensors, all others those of inference mode, which spare `custom_op` some of its
work. The time is the thread's, the least of several rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
import torch
from torch._ops import OpOverload

from batchocr.engine.backend.kernels import activation, norm, rotary
from batchocr.engine.backend.kernels.launch import Kernel
from tests.support.kernel_compilation import pretended_gpu

CALLS, ROUNDS = 1000, 7
TOKENS = 64
_numbers = count()


@dataclass(frozen=True, slots=True)
class Case:
    """An operator, and what the model hands it."""

    operator: OpOverload
    arguments: tuple[Any, ...]


def cases() -> list[Case]:
    def bfloat16(*shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=torch.bfloat16)

    vit_q, vit_k, _ = bfloat16(TOKENS, 3, 16, 80).unbind(1)
    vit_angles, angles = torch.zeros(TOKENS, 40), torch.zeros(TOKENS, 32)
    q, k, v = bfloat16(TOKENS, 18, 64).split([14, 2, 2], dim=1)
    cache, slots = bfloat16(24, 2, 4, 64, 2, 64)[0], torch.zeros(TOKENS, dtype=torch.int64)
    with torch.inference_mode(mode=False):
        weights = {width: bfloat16(width) for width in (896, 1280, 5120)}
    return [
        Case(norm.rms_norm, (bfloat16(TOKENS, 896), weights[896], 1e-6)),
        Case(norm.layer_norm, (bfloat16(TOKENS, 1280), weights[1280], weights[1280], 1e-6)),
        Case(rotary.rotary_, (vit_q, vit_k, vit_angles, vit_angles)),
        Case(rotary.rotary_store_, (q, k, v, angles, angles, cache, slots)),
        Case(activation.quick_gelu_bias_, (bfloat16(TOKENS, 5120), weights[5120])),
        Case(activation.silu_mul, (bfloat16(TOKENS, 2 * 4864),)),
    ]


def microseconds(call: Callable[[], object]) -> float:
    for _ in range(CALLS // 10):
        call()
    rounds = []
    for _ in range(ROUNDS):
        started = time.thread_time()
        for _ in range(CALLS):
            call()
        rounds.append(time.thread_time() - started)
    return 1e6 * min(rounds) / CALLS


def empty_operators(like: OpOverload) -> tuple[Callable[..., object], Callable[..., object]]:
    """Operators that do nothing, made by torch and as ours; what has a result returns the same tensor every time."""
    schema = str(like._schema).removeprefix(like._schema.name)
    result = torch.empty(0) if like._schema.returns else None
    name = f"batchocr_launches::op{next(_numbers)}"
    written = [each.name for each in like._schema.arguments if each.alias_info]
    heavy = torch.library.custom_op(f"{name}_custom", lambda *arguments: result, mutates_args=written, schema=schema)
    torch.library.define(name, schema)
    torch.library.impl(name, "default", lambda *arguments: result)
    return heavy, getattr(torch.ops.batchocr_launches, name.partition("::")[2]).default


def launch_of(case: Case) -> tuple[Kernel, tuple[Any, ...]]:
    """The kernel that a call launches, and what it is handed."""
    launches: list[tuple[Kernel, tuple[Any, ...]]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kernel, "launch", lambda kernel, *arguments: launches.append((kernel, arguments)))
        case.operator(*case.arguments)
    [launch] = launches
    return launch


def measured(case: Case) -> tuple[float, ...]:
    heavy, light = empty_operators(case.operator)
    kernel, (grid, tensors, numbers, strides, constants) = launch_of(case)
    arguments = (*tensors, *numbers, *strides)
    return (
        microseconds(lambda: case.operator(*case.arguments)),
        microseconds(lambda: heavy(*case.arguments)),
        microseconds(lambda: light(*case.arguments)),
        microseconds(lambda: kernel.function[grid](*arguments, **constants.by_name)),
        microseconds(lambda: kernel.launch(grid, tensors, numbers, strides, constants)),
    )


def main() -> None:
    print("| operator | call | custom_op | operator | Triton | direct |")
    print("| --- | --- | --- | --- | --- | --- |")
    with torch.inference_mode(), pretended_gpu(lambda *arguments: None):
        for case in cases():
            name = case.operator._schema.name.removeprefix("batchocr::")
            print("|", " | ".join([name, *(f"{value:.1f}" for value in measured(case))]), "|")


if __name__ == "__main__":
    main()
