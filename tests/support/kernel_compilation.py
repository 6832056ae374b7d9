"""Our Triton kernels on a machine without a GPU: run by Triton's interpreter, and compiled for GPUs that are not there.

Kernels are decorated for the compiler; inside a `kernel_device` block they are interpreted, so that one test run can do
both. A module `test_kernels_*.py` lists in `LAUNCHES` what the model launches, at its true widths:

    LAUNCHES = (Launch("rms_norm", lambda: rms_norm(torch.empty(64, 896, dtype=torch.bfloat16), weight, 1e-6)),)

`compiled` compiles exactly the kernels that such a call would launch: types, alignment, constants, warps and stages are
those that the public function passes on. `benchmarks/kernel_resources.py` prints what they use, for every such module.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import CompiledKernel
from triton.runtime import JITFunction
from triton.runtime.interpreter import InterpretedFunction, InterpreterBuilder, TensorHandle, _patch_lang

from batchocr.backend.kernels.launch import Kernel

ARCHITECTURES = (80, 86, 89, 90, 100)


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
    """What a compiled kernel uses. registers: per thread. shared_bytes: per program. spilled_bytes: thread stack."""

    kernel: str
    architecture: int
    warps: int
    registers: int
    shared_bytes: int
    spilled_bytes: int


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
    usage = dict(re.findall(r"\b(REG|STACK):(\d+)", dump.stdout))
    return KernelResources(
        kernel=kernel.metadata.name,
        architecture=architecture,
        warps=kernel.metadata.num_warps,
        registers=int(usage["REG"]),
        shared_bytes=kernel.metadata.shared,
        spilled_bytes=int(usage["STACK"]),
    )
