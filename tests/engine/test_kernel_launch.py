"""Kernels are launched directly: with the same arguments as by Triton itself, and never another specialisation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import triton.language as tl
from torch import Tensor
from triton.compiler import CompiledKernel
from triton.runtime import JITFunction

from batchocr.engine.backend.kernels.launch import Constants, kernel
from tests.engine import test_kernels_model, test_kernels_quantize
from tests.support.kernel_compilation import Launch, pretended_gpu

NARROW, WIDE = (Constants(WIDTH=width, num_warps=1, enable_fp_fusion=True) for width in (16, 32))
OF_THE_MODEL = pytest.mark.parametrize(
    "launch", test_kernels_model.LAUNCHES + test_kernels_quantize.LAUNCHES, ids=lambda launch: launch.name
)


@kernel(numbers=["scale", "rows"])
def scale_rows(x, out, scale, rows, stride, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * stride + tl.arange(0, WIDTH)
    tl.store(out + at, tl.load(x + at, mask=at < rows * stride, other=0.0) * scale, mask=at < rows * stride)


class Launched:
    """What was launched on a GPU that is not there."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def __call__(self, x: int, y: int, z: int, stream: int, chosen: Any, metadata: Any, *rest: Any) -> None:
        arguments = [self._described(value) for value in rest[3:]]
        self.seen.append(((x, y, z), stream, chosen.hash, metadata, arguments))

    def _described(self, value: object) -> object:
        return (value.shape, value.stride(), value.dtype) if isinstance(value, Tensor) else value

    def take(self) -> list[tuple[Any, ...]]:
        seen, self.seen = self.seen, []
        return seen


@pytest.fixture
def launched() -> Iterator[Launched]:
    launched = Launched()
    with pretended_gpu(launched):
        yield launched


@pytest.fixture
def without_triton(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the call on, Triton's own launch is an error."""

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("went through Triton's own launch")

    return lambda: monkeypatch.setattr(JITFunction, "run", refuse)


@OF_THE_MODEL
def test_a_later_launch_is_triton_s_own_without_triton(
    launch: Launch, launched: Launched, without_triton: Callable[[], None]
) -> None:
    launch.call()
    first = launched.take()

    without_triton()
    launch.call()

    assert first and launched.take() == first


def launch_rows(x: Tensor, out: Tensor, *, rows: int = 4, stride: int = 16, constants: Constants = NARROW) -> None:
    scale_rows.launch((rows, 1, 1), (x, out), (0.5, rows), (stride,), constants)


def by_triton(x: Tensor, out: Tensor, *, rows: int = 4, stride: int = 16, constants: Constants = NARROW) -> None:
    scale_rows.function[(rows, 1, 1)](x, out, 0.5, rows, stride, **constants.by_name)


def rows_of(dtype: torch.dtype, first: int = 0) -> Tensor:
    return torch.zeros(256, dtype=dtype)[first:]


CASES: dict[str, Callable[[Callable[..., None]], None]] = {
    "float32": lambda launch: launch(rows_of(torch.float32), rows_of(torch.float32)),
    "another dtype": lambda launch: launch(rows_of(torch.bfloat16), rows_of(torch.float32)),
    "the dtypes exchanged": lambda launch: launch(rows_of(torch.float32), rows_of(torch.bfloat16)),
    "not aligned": lambda launch: launch(rows_of(torch.float32, 1), rows_of(torch.float32)),
    "the other not aligned": lambda launch: launch(rows_of(torch.float32), rows_of(torch.float32, 3)),
    "an odd stride": lambda launch: launch(rows_of(torch.float32), rows_of(torch.float32), stride=17),
    "a stride of 1": lambda launch: launch(rows_of(torch.float32), rows_of(torch.float32), stride=1),
    "a stride of 64 bits": lambda launch: launch(rows_of(torch.float32), rows_of(torch.float32), stride=2**32),
    "one row": lambda launch: launch(rows_of(torch.float32), rows_of(torch.float32), rows=1),
    "other constants": lambda launch: launch(rows_of(torch.float32), rows_of(torch.float32), constants=WIDE),
}


def test_every_call_gets_the_kernel_that_triton_would_choose_for_it(launched: Launched) -> None:
    for call in CASES.values():
        call(launch_rows)
    launched.take()

    for name, call in CASES.items():
        call(launch_rows)
        call(by_triton)
        directly, own = launched.take()
        assert directly == own, name


def test_a_batch_of_another_size_is_launched_without_triton(
    launched: Launched, without_triton: Callable[[], None]
) -> None:
    x = rows_of(torch.float32)
    launch_rows(x, x, rows=16)
    without_triton()

    launch_rows(x, x, rows=1)

    assert [(grid, arguments[3]) for grid, _, _, _, arguments in launched.take()] == [((16, 1, 1), 16), ((1, 1, 1), 1)]


def test_each_gpu_has_its_own_kernels() -> None:
    x = rows_of(torch.float32)
    chosen: list[CompiledKernel] = []

    def run(x: int, y: int, z: int, stream: int, compiled: CompiledKernel, *rest: object) -> None:
        chosen.append(compiled)

    for _ in range(2):
        with pretended_gpu(run) as device:
            launch_rows(x, x)
            launch_rows(x, x)
            assert [compiled.module for compiled in chosen[-2:]] == [device, device]

    assert chosen[0] is chosen[1] is not chosen[2] is chosen[3]


def test_a_launch_goes_to_the_stream_that_is_current() -> None:
    launched, streams = Launched(), iter([7, 8, 9])
    x = rows_of(torch.float32)
    with pretended_gpu(launched, lambda: next(streams)):
        for _ in range(3):
            launch_rows(x, x)
    assert [stream for _, stream, *_ in launched.take()] == [7, 8, 9]


def test_a_number_that_needs_64_bits_is_refused(launched: Launched) -> None:
    x = rows_of(torch.float32)
    with pytest.raises(AssertionError):
        scale_rows.launch((1, 1, 1), (x, x), (0.5, 2**31), (16,), NARROW)


def test_a_number_that_triton_would_compile_for_is_refused(launched: Launched) -> None:
    x = rows_of(torch.float32)
    with pytest.raises(AssertionError):
        scale_rows.launch((1, 1, 1), (x, x), (0.5,), (4, 16), NARROW)
