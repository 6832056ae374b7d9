"""What a GPU would compute in fp8, on a CPU: near what it stands for, and not the same."""

from __future__ import annotations

import torch
from torch import Tensor

from batchocr.engine.backend.base import Affine, Segments
from batchocr.engine.backend.reference import Ops
from benchmarks.accuracy.emulated import EmulatedOps

CPU = torch.device("cpu")


def values(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


def off(found: Tensor, right: Tensor) -> float:
    return float((found - right).norm() / right.norm())


def test_a_linear_layer_in_fp8_is_a_few_per_cent_off() -> None:
    layer, x = Affine(values(64, 128), values(64)), values(32, 128)
    right = Ops(CPU).linear(layer)(x)
    assert 0.005 < off(EmulatedOps(CPU, products=True).linear(layer)(x), right) < 0.06
    assert torch.equal(EmulatedOps(CPU, products=False).linear(layer)(x), right)


def test_the_output_weights_stay_as_they_are() -> None:
    layer, x = Affine(values(64, 128)), values(32, 128)
    assert torch.equal(EmulatedOps(CPU, products=True, largest=63).linear(layer)(x), Ops(CPU).linear(layer)(x))


def test_attention_in_fp8_is_a_few_per_cent_off_and_looks_at_its_own_image_alone() -> None:
    q, k, v = values(3, 50, 4, 32)
    images = Segments.of([20, 30], lambda ends: ends)
    right = Ops(CPU).attention(q, k, v, images, False)
    found = EmulatedOps(CPU, products=False, attends=True).attention(q, k, v, images, False)
    assert 0.005 < off(found, right) < 0.06
