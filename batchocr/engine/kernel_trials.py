"""What a run would compute with on a device, and where that comes from: asked by `batchocr doctor`."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import torch

from batchocr.config import BackendName, DType
from batchocr.engine import backend
from batchocr.engine.backend.base import Ops
from batchocr.engine.backend.dtype import select_dtype
from batchocr.errors import EngineError, UsageError
from batchocr.processes.engine_messages import KernelChoice, KernelsTried

_LIBRARIES: Final = {"triton": "triton", "sgl_kernel": "sglang-kernel"}
_DTYPES: Final[dict[torch.dtype, DType]] = {torch.float32: "float32", torch.bfloat16: "bfloat16"}


def try_kernels(device: torch.device, name: BackendName, dtype_name: DType) -> KernelsTried:
    """The kernels that a run would take. name: the backend."""
    dtype = select_dtype(dtype_name, device)
    choices: Sequence[KernelChoice] = ()
    problem = ""
    try:
        choices = _choices(backend.make_ops(name, device, dtype), dtype)
    except (EngineError, UsageError) as error:
        problem = str(error)
    libraries = {"torch": f"{torch.__version__}, built {_cuda_build()}"}
    libraries |= {module: _library(module, package) for module, package in _LIBRARIES.items()}
    return KernelsTried(_DTYPES[dtype], tuple(choices), libraries, problem)


def _choices(ops: Ops, dtype: torch.dtype) -> Sequence[KernelChoice]:
    match ops.name:
        case "cuda":
            from batchocr.engine.backend.cuda import CudaOps

            assert isinstance(ops, CudaOps)
            return ops.choices
        case "cpu":
            from batchocr.engine.backend.cpu_trials import measure_all

            return measure_all(dtype)
        case _:
            return [KernelChoice("all", "reference")]


def _cuda_build() -> str:
    return f"for CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"


def _library(module: str, package: str) -> str:
    try:
        importlib.import_module(module)
        return version(package)
    except PackageNotFoundError:
        return "found"
    except Exception as error:  # noqa: BLE001 (boundary: a backend's trial run; wheels fail at import in many ways)
        if isinstance(error, ModuleNotFoundError) and error.name == module:
            return "not installed (for NVIDIA GPUs: pip install '.[cuda]' in a clone of batchocr)"
        return f"not usable: {error}".splitlines()[0][:150]
