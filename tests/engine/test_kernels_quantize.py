"""The kernels that quantize: their results against plain torch, and what they use once compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import triton.language as tl
from torch import Tensor
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from batchocr.engine.backend import cuda_trials, fp8
from batchocr.engine.backend.cuda_trials import CudaTrials
from batchocr.engine.backend.kernels import norm, quantize
from tests.support.kernel_compilation import Launch, compiled, kernel_device

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
ARCHITECTURES_WITH_FP8 = (89, 90, 100, 120)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    monkeypatch.setattr(InterpreterBuilder, "create_fp_to_fp", _rounded)
    with kernel_device(norm, quantize) as device, device:
        torch.manual_seed(0)
        yield device


def _rounded(
    self: InterpreterBuilder,
    values: TensorHandle,
    dtype: tl.dtype,
    rounding: object,
    otherwise: Any = InterpreterBuilder.create_fp_to_fp,
) -> TensorHandle:
    """Round to fp8 as the GPU does; the interpreter loses the carry, so it turns 127 into 64."""
    if dtype.scalar != tl.float8e4nv:
        converted: TensorHandle = otherwise(self, values, dtype, rounding)
        return converted
    rounded = torch.from_numpy(values.data).to(torch.float8_e4m3fn)
    return TensorHandle(rounded.view(torch.uint8).numpy(), dtype.scalar)


@DTYPES
@pytest.mark.parametrize(("rows", "width"), [(5, 1280), (3, 5120), (1, 48), (2, 8192)])
def test_rows_are_quantized_as_plain_torch_does(
    device: torch.device, dtype: torch.dtype, rows: int, width: int
) -> None:
    x = torch.randn(rows, width, dtype=dtype) * torch.logspace(-3, 3, rows).unsqueeze(1).to(dtype)

    quantized, scale = quantize.quantize_rows(x)

    expected, expected_scale = fp8.quantize_rows(x)
    torch.testing.assert_close(scale, expected_scale)
    # A value halfway between two fp8 values may be rounded to either.
    torch.testing.assert_close(quantized.float(), expected.float(), rtol=0.13, atol=2.0**-9)
    assert (quantized.float() == expected.float()).float().mean() > 0.99


def test_the_largest_value_of_a_row_becomes_the_largest_there_is(device: torch.device) -> None:
    quantized, scale = quantize.quantize_rows(torch.tensor([[0.5, -3.0, 1.0], [1e-20, 0.0, 0.0], [7e30, 1.0, 0.0]]))
    assert quantized.float()[[0, 2], [1, 0]].tolist() == [-fp8.LARGEST, fp8.LARGEST]
    assert scale.flatten()[[0, 2]].mul(fp8.LARGEST).tolist() == pytest.approx([3.0, 7e30])


def test_a_row_of_zeros_stays_one(device: torch.device) -> None:
    quantized, scale = quantize.quantize_rows(torch.zeros(2, 64))
    assert quantized.float().eq(0).all()
    assert scale.isfinite().all()


@DTYPES
@pytest.mark.parametrize(("rows", "width"), [(5, 1280), (1, 48), (2, 8192)])
def test_a_sum_is_normed_and_quantized_as_if_one_after_the_other(
    device: torch.device, dtype: torch.dtype, rows: int, width: int
) -> None:
    residual, product = 3 * torch.randn(rows, width, dtype=dtype) + 1, torch.randn(rows, width, dtype=dtype)
    weight, bias = torch.randn(width, dtype=dtype), torch.randn(width, dtype=dtype)
    total = residual.clone()
    expected = fp8.quantize_rows(norm.add_layer_norm_(total, product, weight, bias, 1e-6)[1])

    quantized = quantize.add_layer_norm_quantize_(residual, product, weight, bias, 1e-6)

    assert torch.equal(residual, total)
    assert_as_quantized(quantized, expected)


@DTYPES
@pytest.mark.parametrize("quick", [True, False], ids=["quick_gelu", "gelu"])
@pytest.mark.parametrize(("rows", "width"), [(3, 5120), (1, 48)])
def test_an_activation_is_quantized_as_plain_torch_does(
    device: torch.device, dtype: torch.dtype, quick: bool, rows: int, width: int
) -> None:
    x, bias = 3 * torch.randn(rows, width, dtype=dtype), torch.randn(width, dtype=dtype)
    x[0] = -bias  # a row of zeros
    assert_as_quantized(quantize.gelu_bias_quantize(x, bias, quick), fp8.gelu_bias_quantize(x, bias, quick))


def test_the_kernels_are_right_on_the_cases_they_are_tried_on(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_trials, "ROWS", 16)
    trials = CudaTrials(device, torch.bfloat16, lambda call: 1.0)
    assert trials.fp8_kernels() is not None
    assert {choice.operation: choice.taken for choice in trials.choices} == {
        "fp8 linear": "triton and torch",
        "fp8 add_layer_norm": "triton",
        "fp8 gelu": "triton",
    }


def assert_as_quantized(quantized: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> None:
    """The scales agree, and most of the values are the same: one in between may be rounded to either neighbour."""
    (values, scale), (wanted, wanted_scale) = quantized, expected
    # bfloat16 rows that differ in their last bit have scales that do.
    torch.testing.assert_close(scale, wanted_scale, rtol=2**-7, atol=0.0)
    torch.testing.assert_close(values.float(), wanted.float(), rtol=0.13, atol=2.0**-9)
    assert (values.float() == wanted.float()).float().mean() > 0.95


def bfloat16(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.bfloat16)


def launches(rows: int) -> tuple[Launch, ...]:
    def add_layer_norm_quantize_() -> None:
        vision = bfloat16(1280)
        quantize.add_layer_norm_quantize_(bfloat16(rows, 1280), bfloat16(rows, 1280), vision, vision, 1e-6)

    calls: dict[str, Callable[[], object]] = {
        "quantize_rows, 1280 values": lambda: quantize.quantize_rows(bfloat16(rows, 1280)),
        "quantize_rows, 5120 values": lambda: quantize.quantize_rows(bfloat16(rows, 5120)),
        "add_layer_norm_quantize_": add_layer_norm_quantize_,
        "quick_gelu, quantized": lambda: quantize.gelu_bias_quantize(bfloat16(rows, 5120), bfloat16(5120), True),
        "gelu, quantized": lambda: quantize.gelu_bias_quantize(bfloat16(rows, 5120), bfloat16(5120), False),
    }
    return tuple(Launch(name, call, ARCHITECTURES_WITH_FP8) for name, call in calls.items())


LAUNCHES = launches(64)


def test_a_batch_of_another_size_needs_no_other_kernel() -> None:
    for usual, other in zip(LAUNCHES, launches(1), strict=True):
        assert compiled(other, 90) == compiled(usual, 90), usual.name
