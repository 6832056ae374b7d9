"""The quantize kernel: its results against plain torch, and what it uses once compiled."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import triton.language as tl
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from batchocr.backend import fp8
from batchocr.backend.kernels import quantize
from tests.support.kernel_compilation import Launch, compiled, kernel_device, resources

ARCHITECTURES_WITH_FP8 = (89, 90, 100)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    monkeypatch.setattr(InterpreterBuilder, "create_fp_to_fp", _to_fp8)
    with kernel_device(quantize) as device, device:
        torch.manual_seed(0)
        yield device


def _to_fp8(self: InterpreterBuilder, values: TensorHandle, dtype: tl.dtype, rounding: object) -> TensorHandle:
    """Round as the GPU does; the interpreter loses the carry, so it turns 127 into 64."""
    assert dtype.scalar == tl.float8e4nv
    rounded = torch.from_numpy(values.data).to(torch.float8_e4m3fn)
    return TensorHandle(rounded.view(torch.uint8).numpy(), dtype.scalar)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
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


def test_the_operator_is_declared_as_it_behaves(device: torch.device) -> None:
    torch.library.opcheck(quantize.quantize_rows, (torch.randn(2, 16),), test_utils=("test_schema", "test_faketensor"))


def test_fake_tensors_of_a_gpu_pass_through() -> None:
    with FakeTensorMode(), torch.device("cuda"):
        quantized, scale = quantize.quantize_rows(torch.empty(5, 1280, dtype=torch.bfloat16))
    assert (quantized.shape, quantized.dtype, quantized.device.type) == ((5, 1280), torch.float8_e4m3fn, "cuda")
    assert (scale.shape, scale.dtype) == ((5, 1), torch.float32)


def bfloat16(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.bfloat16)


def launches(rows: int) -> tuple[Launch, ...]:
    return tuple(
        Launch(
            f"quantize_rows, {width} values",
            lambda width=width: quantize.quantize_rows(bfloat16(rows, width)),  # type: ignore[misc]
            ARCHITECTURES_WITH_FP8,
        )
        for width in (1280, 5120)
    )


LAUNCHES = launches(64)


@pytest.mark.parametrize("architecture", ARCHITECTURES_WITH_FP8)
@pytest.mark.parametrize("launch", LAUNCHES, ids=lambda launch: launch.name)
def test_the_kernel_compiles_where_there_is_fp8_and_spills_nothing(launch: Launch, architecture: int) -> None:
    [kernel] = resources(launch, architecture)
    assert kernel.spilled_bytes == 0


def test_a_batch_of_another_size_needs_no_other_kernel() -> None:
    for usual, other in zip(LAUNCHES, launches(1), strict=True):
        assert compiled(other, 90) == compiled(usual, 90), usual.name
