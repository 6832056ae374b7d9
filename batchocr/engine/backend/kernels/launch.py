"""What stands between a call in Python and a kernel on the GPU: a launch of few steps.

A ViT batch launches four kernels in each of 32 layers, and while the host does so no decode step begins. What Triton's
own launch adds for generality is half of its time (benchmarks/RESULTS.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import triton
from torch import Tensor
from triton.compiler import CompiledKernel
from triton.runtime import JITFunction

_ALIGNMENT = 16
"""The alignment of pointers, in bytes, for which Triton compiles; it compiles again for pointers without it."""


class Constants:
    """What a kernel is compiled for beside its arguments: its constants and Triton's options, num_warps for one.

    Two with the same values are different keys of the compiled kernels: keep those that you make.
    """

    __slots__ = ("by_name",)

    def __init__(self, **by_name: int) -> None:
        self.by_name = by_name


class Kernel:
    """A Triton kernel whose parameters are tensors, numbers, strides and constants, in this order.

    The first launch of each specialisation is Triton's own, which compiles; later ones go straight to what that one
    returned. A specialisation is all that Triton compiles for: the device, each tensor's dtype and whether it is
    aligned, the values of strides, the constants.
    """

    def __init__(self, function: JITFunction, numbers: Sequence[str]) -> None:
        self.function = function
        self._numbers = list(numbers)
        self._compiled: dict[object, tuple[CompiledKernel, tuple[int, ...]]] = {}

    def launch(
        self,
        grid: tuple[int, int, int],
        tensors: tuple[Tensor, ...],
        numbers: tuple[float, ...],
        strides: tuple[int, ...],
        constants: Constants,
    ) -> None:
        """Launch on the current stream of the current device. numbers: floats, and integers of 32 bits.

        strides: also sizes. Each new value compiles anew, so they must not vary from batch to batch.
        """
        arguments = (*tensors, *numbers, *strides)
        if not isinstance(self.function, JITFunction):  # but interpreted
            self.function[grid](*arguments, **constants.by_name)
            return
        assert max(numbers, default=0) < 2**31
        driver = triton.runtime.driver.active
        device = driver.get_current_device()
        key = (
            device,
            constants,
            strides,
            *[tensor.dtype for tensor in tensors],
            *[tensor.data_ptr() % _ALIGNMENT == 0 for tensor in tensors],
        )
        if key in self._compiled:
            compiled, values = self._compiled[key]
            compiled[grid](*arguments, *values, stream=driver.get_current_stream(device))
            return
        names = self.function.arg_names
        assert names[len(tensors) : len(tensors) + len(numbers)] == self._numbers
        compiled = self.function[grid](*arguments, **constants.by_name)
        if isinstance(compiled, CompiledKernel):  # None where a test only compiles
            self._compiled[key] = compiled, tuple(constants.by_name[name] for name in names[len(arguments) :])


def kernel(*, numbers: Sequence[str] = ()) -> Callable[[Callable[..., None]], Kernel]:
    """Make a function a kernel. numbers: those of its parameters that Triton must not compile for, floats included."""

    def jit(function: Callable[..., None]) -> Kernel:
        return Kernel(triton.jit(function, do_not_specialize=list(numbers)), numbers)

    return jit
