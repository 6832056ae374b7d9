"""Our Triton kernels on a machine without a GPU: run by Triton's interpreter, and compiled for GPUs that are not there.

Kernels are decorated for the compiler; inside a `kernel_device` block they are interpreted, so that one test run can do
both. A module `test_kernels_*.py` lists in `LAUNCHES` what the model launches, at its true widths:

    LAUNCHES = (Launch("rms_norm", lambda: rms_norm(torch.empty(64, 896, dtype=torch.bfloat16), weight, 1e-6)),)

`compiled` compiles exactly the kernels that such a call would launch: types, alignment, constants, warps and stages are
those that the public function passes on.
"""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import triton

# Otherwise the first launch imports it, and it needs the compiler's functions, not the interpreter's.
import triton.experimental.gluon
import triton.language as tl
from torch import Tensor
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import CompiledKernel
from triton.runtime import JITFunction
from triton.runtime.interpreter import InterpretedFunction, InterpreterBuilder, TensorHandle, _patch_lang

from batchocr.engine.backend.kernels.launch import Kernel

ARCHITECTURES = (80, 86, 89, 90, 100, 120)
BEFORE_BFLOAT16 = 75
"""Kernels compile for it, but with less in registers and no tensor cores for bfloat16."""

_ACCESS = re.compile(r"\b(?:ld|st)\.global(?:\.(?!v\d)[a-z_:0-9]+)*?(?:\.v(\d))?\.[bsuf](\d+)\b")
_COPY = re.compile(r"\bcp\.async\.c[ag]\.shared\.global [^,]+, [^,]+, (\w+)")
_TENSOR_CORE = re.compile(r"\b(?:mma\.sync|wgmma\.mma_async|tcgen05\.mma)\b")
_device_numbers = itertools.count(1000)


@dataclass(frozen=True, slots=True)
class Launch:
    """A call of a public function with CPU tensors, of which only shapes, strides and types matter.

    architectures: those with the features that its kernels need.
    """

    name: str
    call: Callable[[], object]
    architectures: tuple[int, ...] = ARCHITECTURES


@dataclass(frozen=True, slots=True)
class KernelResources:
    """What a compiled kernel uses. shared_bytes: per program. spilled_bytes: thread stack.

    wide_accesses, narrow_accesses: instructions that move 16 bytes or more, and fewer, between a thread and the GPU's
    memory. tensor_core_products: instructions.
    """

    kernel: str
    architecture: int
    shared_bytes: int
    spilled_bytes: int
    wide_accesses: int
    narrow_accesses: int
    tensor_core_products: int


@contextmanager
def kernel_device(*modules: ModuleType) -> Iterator[torch.device]:
    """The device on which to test these modules' kernels: the GPU, or the CPU, where they are interpreted."""
    if torch.cuda.is_available():
        yield torch.device("cuda")
        return
    # A function called from a kernel leaves Triton's language patched, so it is patched here first and restored last.
    language = _patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    try:
        # On a GPU, infinities are numbers like any other; numpy would warn.
        with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
            for module in (tl, tl.standard, *modules):
                for name, function in list(vars(module).items()):
                    if isinstance(function, JITFunction):
                        patch.setattr(module, name, InterpretedFunction(function.fn))
                    elif isinstance(function, Kernel):
                        patch.setattr(function, "function", InterpretedFunction(function.function.fn))
            patch.setattr(InterpreterBuilder, "create_dot", _dot)
            patch.setattr(InterpreterBuilder, "create_fp_trunc", _truncated)
            yield torch.device("cpu")
    finally:
        language.restore()


def _dot(
    self: InterpreterBuilder, a: TensorHandle, b: TensorHandle, *rest: Any, dot: Any = InterpreterBuilder.create_dot
) -> TensorHandle:
    """Multiply as the GPU does: bfloat16 products are exact in float32. The interpreter would multiply their bits."""
    if a.dtype == tl.bfloat16:
        a, b = self.create_fp_ext(a, tl.float32), self.create_fp_ext(b, tl.float32)
    return dot(self, a, b, *rest)


def _truncated(
    self: InterpreterBuilder,
    values: TensorHandle,
    dtype: tl.dtype,
    truncated: Any = InterpreterBuilder.create_fp_trunc,
) -> TensorHandle:
    """Round float32 to the nearest bfloat16, as the GPU does. The interpreter would drop the bits behind it."""
    if (values.dtype.scalar, dtype.scalar) != (tl.float32, tl.bfloat16):
        return truncated(self, values, dtype)
    rounded = torch.from_numpy(values.data).to(torch.bfloat16)
    return TensorHandle(rounded.view(torch.int16).numpy().view(np.uint16), tl.bfloat16)


def compiled(launch: Launch, architecture: int) -> list[CompiledKernel]:
    """Compile what a call would launch on an NVIDIA GPU of this compute capability (90 is sm_90); nothing is run."""
    kernels: list[CompiledKernel] = []
    run = JITFunction.run

    def compile_only(self: JITFunction[Any], *args: object, grid: object, warmup: bool, **options: object) -> None:
        kernels.append(run(self, *args, grid=grid, warmup=True, **options))

    # Triton caches its kernels by device number, so each architecture gets its own.
    driver = SimpleNamespace(
        get_current_target=lambda: GPUTarget("cuda", architecture, 32),
        get_current_device=lambda: architecture,
        get_current_stream=lambda device: 0,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(triton.runtime.driver, "_active", driver)
        patch.setattr(JITFunction, "run", compile_only)
        launch.call()
    assert kernels, f"{launch.name} launches no kernel"
    return kernels


@contextmanager
def without_launches(note: Callable[[str, tuple[Tensor, ...]], object] = lambda name, tensors: None) -> Iterator[None]:
    """Inside, no kernel is launched, so that tensors need no values. note: given each one's name and its tensors."""

    def launch(kernel: Kernel, grid: object, tensors: tuple[Tensor, ...], *rest: object) -> None:
        note(kernel.function.fn.__name__, tensors)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kernel, "launch", launch)
        yield


@contextmanager
def pretended_gpu(run: Callable[..., None], stream: Callable[[], int] = lambda: 0) -> Iterator[int]:
    """An sm_90 that takes launches and does nothing: each goes to `run(x, y, z, stream, kernel, metadata, …)`.

    run gets what Triton's launcher would, but for the kernel, which is the CompiledKernel. Yields the device's number.
    """
    device = next(_device_numbers)
    loaded: list[CompiledKernel] = []

    def load(kernel: CompiledKernel) -> None:
        if kernel.module is None:
            kernel.module, kernel.function, kernel._run = device, kernel, run
            loaded.append(kernel)

    driver = SimpleNamespace(
        get_current_target=lambda: GPUTarget("cuda", 90, 32),
        get_current_device=lambda: device,
        get_current_stream=lambda device: stream(),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(triton.runtime.driver, "_active", driver)
        patch.setattr(CompiledKernel, "_init_handles", load)
        yield device
    for kernel in loaded:  # or it would unload itself from a GPU
        kernel.module = kernel.function = kernel._run = None


@cache
def resources(launch: Launch, architecture: int) -> list[KernelResources]:
    """Compile what a call would launch, and read from the machine code what each kernel uses."""
    return [_resources(kernel, architecture) for kernel in compiled(launch, architecture)]


def _resources(kernel: CompiledKernel, architecture: int) -> KernelResources:
    with TemporaryDirectory() as folder:
        cubin = Path(folder, "kernel.cubin")
        cubin.write_bytes(kernel.asm["cubin"])
        dump = subprocess.run(
            [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", cubin], check=True, capture_output=True, text=True
        )
    sizes = _access_bytes(kernel.asm["ptx"])
    [stack_bytes] = re.findall(r"\bSTACK:(\d+)", dump.stdout)
    return KernelResources(
        kernel=kernel.metadata.name,
        architecture=architecture,
        shared_bytes=kernel.metadata.shared,
        spilled_bytes=int(stack_bytes),
        wide_accesses=sum(size >= 16 for size in sizes),
        narrow_accesses=sum(size < 16 for size in sizes),
        tensor_core_products=len(_TENSOR_CORE.findall(kernel.asm["ptx"])),
    )


def _access_bytes(ptx: str) -> list[int]:
    """The size of each load and store of global memory, copies to shared memory among them."""
    direct = [int(count or 1) * int(bits) // 8 for count, bits in _ACCESS.findall(ptx)]
    return direct + [int(size, 0) for size in _COPY.findall(ptx)]
