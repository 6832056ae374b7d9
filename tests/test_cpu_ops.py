"""The CPU's own linear layers and MLPs against the reference."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from torch import Tensor

from batchocr.backend.base import Activation, Affine, Linear, Mlp
from batchocr.backend.cpu import CpuOps
from batchocr.backend.reference import ReferenceOps

CPU = torch.device("cpu")
ROWS = pytest.mark.parametrize("rows", [1, 5, 300])
BIAS = pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
RESIDUAL = pytest.mark.parametrize("residual", [True, False], ids=["residual", "no residual"])
ACTIVATIONS = pytest.mark.parametrize("activation", get_args(Activation))
BFLOAT16 = pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="this CPU multiplies no bfloat16"
)
DTYPES = pytest.mark.parametrize(
    ("dtype", "bound"),
    [(torch.float32, 1e-5), pytest.param(torch.bfloat16, 2e-2, marks=BFLOAT16)],
    ids=["float32", "bfloat16"],
)

WIDTH, OUT = 61, 47
"""Odd, so that no vector of the processor is full."""


@pytest.fixture(scope="module")
def ops() -> CpuOps:
    return CpuOps()


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    torch.manual_seed(0)


def affine(out: int, width: int, *, bias: bool, dtype: torch.dtype) -> Affine:
    return Affine(torch.randn(out, width, dtype=dtype) / width**0.5, torch.randn(out, dtype=dtype) if bias else None)


def assert_agree(own: Linear | Mlp, reference: Linear | Mlp, x: Tensor, residual: Tensor | None, bound: float) -> None:
    """Within `bound` of the largest value, and the inputs are left as they were."""
    before = [x.clone(), None if residual is None else residual.clone()]
    with torch.inference_mode():
        values, expected = own(x, residual), reference(x, residual)
    assert values.dtype == x.dtype
    assert (values.float() - expected.float()).abs().max() <= bound * expected.float().abs().max()
    for tensor, kept in zip((x, residual), before, strict=True):
        assert tensor is None or (kept is not None and torch.equal(tensor, kept))


@ROWS
@BIAS
@RESIDUAL
@DTYPES
def test_a_linear_layer_is_that_of_the_reference(
    ops: CpuOps, rows: int, bias: bool, residual: bool, dtype: torch.dtype, bound: float
) -> None:
    layer, x = affine(OUT, WIDTH, bias=bias, dtype=dtype), torch.randn(rows, WIDTH, dtype=dtype)
    added = torch.randn(rows, OUT, dtype=dtype) if residual else None
    assert_agree(ops.linear(layer), ReferenceOps(CPU).linear(layer), x, added, bound)


@ROWS
@BIAS
@RESIDUAL
@DTYPES
@ACTIVATIONS
def test_an_mlp_is_that_of_the_reference(
    ops: CpuOps, activation: Activation, rows: int, bias: bool, residual: bool, dtype: torch.dtype, bound: float
) -> None:
    inner_width = 2 * OUT if activation == "silu_mul" else OUT
    inner = affine(inner_width, WIDTH, bias=bias, dtype=dtype)
    outer = affine(WIDTH, OUT, bias=bias, dtype=dtype)
    x = 3 * torch.randn(rows, WIDTH, dtype=dtype)
    added = torch.randn(rows, WIDTH, dtype=dtype) if residual else None
    own, reference = ops.mlp(inner, outer, activation), ReferenceOps(CPU).mlp(inner, outer, activation)
    assert_agree(own, reference, x, added, bound)


def test_a_layer_that_was_loaded_as_part_of_a_larger_matrix_is_packed_right(ops: CpuOps) -> None:
    matrix = torch.randn(2 * OUT, 2 * WIDTH)
    layer = Affine(matrix[::2, WIDTH:], torch.randn(OUT))
    assert_agree(ops.linear(layer), ReferenceOps(CPU).linear(layer), torch.randn(5, WIDTH), None, 1e-5)
