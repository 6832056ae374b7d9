"""Linear layers in fp8: how far they are from the layer they replace, and which layers they can replace."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from batchocr.engine.backend import vision_ops
from batchocr.engine.backend.base import Affine
from batchocr.engine.backend.cpu import CpuOps
from batchocr.engine.backend.fp8 import Fp8Linear, fits_fp8, quantize_rows
from batchocr.engine.backend.reference import Ops
from batchocr.errors import UsageError

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    torch.manual_seed(0)


def relative_error(values: Tensor, expected: Tensor) -> float:
    return float((values - expected).norm() / expected.norm())


def test_a_layer_of_the_vision_model_is_off_by_less_than_four_per_cent() -> None:
    layer, x = Affine(torch.randn(5120, 1280), torch.randn(5120)), torch.randn(64, 1280)
    exact = Ops(CPU).linear(layer)(x)
    assert relative_error(Fp8Linear(layer, quantize_rows)(x), exact) < 0.04


def test_rows_and_outputs_of_very_different_size_are_as_exact() -> None:
    sizes = torch.logspace(-4, 4, 64).unsqueeze(1)
    weight, x = torch.randn(64, 256), torch.randn(64, 256)
    values = Fp8Linear(Affine(weight * sizes), quantize_rows)(x * sizes)
    assert relative_error(values / sizes / sizes.t(), x @ weight.t()) < 0.04


def test_a_residual_is_added_and_left_as_it_was() -> None:
    layer, x, residual = Affine(torch.randn(32, 64), torch.randn(32)), torch.randn(5, 64), torch.randn(5, 32)
    kept, linear = residual.clone(), Fp8Linear(layer, quantize_rows)
    torch.testing.assert_close(linear(x, residual=residual), linear(x) + residual)
    assert torch.equal(residual, kept)


def test_the_model_dtype_goes_in_and_comes_out() -> None:
    layer = Affine(torch.randn(32, 64, dtype=torch.bfloat16), torch.randn(32, dtype=torch.bfloat16))
    assert Fp8Linear(layer, quantize_rows)(torch.randn(3, 64, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_a_quantized_row_times_its_scale_is_the_row_again() -> None:
    x = torch.randn(7, 500) * torch.logspace(-6, 6, 7).unsqueeze(1)
    x[3] = 0
    quantized, scale = quantize_rows(x)
    assert (quantized.dtype, scale.shape) == (torch.float8_e4m3fn, (7, 1))
    # Half a step of the three-bit mantissa, or half of the smallest step there is.
    assert ((quantized.float() * scale - x).abs() <= x.abs() * 2**-4 + scale * 2**-10).all()


@pytest.mark.parametrize(
    ("out", "inner", "fits"), [(5120, 1280, True), (896, 5120, True), (1280, 588, False), (1000, 1280, False)]
)
def test_only_sizes_that_are_multiples_of_16_fit(out: int, inner: int, fits: bool) -> None:
    assert fits_fp8(Affine(torch.empty(out, inner))) is fits


@pytest.mark.parametrize("ops", [Ops(CPU), CpuOps()], ids=lambda ops: ops.name)
def test_fp8_is_refused_where_there_is_no_gpu(ops: Ops) -> None:
    assert vision_ops(ops, "auto") is ops
    with pytest.raises(UsageError, match="--vit-dtype fp8 needs an NVIDIA GPU"):
        vision_ops(ops, "fp8")
