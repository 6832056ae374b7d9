"""What an engine needs before its first request: a device, and a model loaded on it."""

from __future__ import annotations

import importlib
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import torch

from batchocr.config import BackendName, DType
from batchocr.engine import backend
from batchocr.engine.backend.dtype import bfloat16_speedup, select_dtype
from batchocr.engine.engine import Engine
from batchocr.engine.model.checkpoint import load_model
from batchocr.engine.model.detector import Detector
from batchocr.engine.sequence import Announce, announce_nothing
from batchocr.errors import EngineError, UsageError
from batchocr.machine import multiplies_bfloat16, usable_cores
from batchocr.planning.families import read_architecture, shapes_of
from batchocr.processes.engine_messages import DeviceFound, KernelsTried, LoadModel, Ready, UseDevice

_TRIAL_ROWS, _TRIAL_WIDTH = 256, 1024
_LIBRARIES: Final = {"triton": "triton", "sgl_kernel": "sglang-kernel"}
_DTYPES: Final[dict[torch.dtype, DType]] = {torch.float32: "float32", torch.bfloat16: "bfloat16"}


def find_device(use: UseDevice) -> DeviceFound:
    """Look at the device, and take this engine's share of the CPU's cores. Raises UsageError if it cannot be used."""
    device = backend.select_device(use.device)
    name = backend.select_backend(use.backend, device)
    speedup = None
    if device.type == "cpu":
        torch.set_num_threads(max(1, min(torch.get_num_threads(), usable_cores()) // use.num_sharing))
        if use.try_bfloat16 and name == "cpu" and multiplies_bfloat16():
            speedup = bfloat16_speedup()
    gpu_name, total_bytes = backend.describe(device)
    lacking, try_in = backend.without_bfloat16(), use.try_kernels
    if try_in == "auto" and str(device) in lacking:
        try_in = "float32"
    return DeviceFound(
        device=str(device),
        alike=backend.all_devices(),
        backend=name,
        memory_bytes=backend.memory_bytes(device),
        bfloat16_speedup=speedup,
        name=gpu_name,
        total_bytes=total_bytes,
        without_bfloat16=lacking,
        kernels=try_kernels(device, name, try_in) if try_in else None,
    )


def try_kernels(device: torch.device, name: BackendName, dtype_name: DType) -> KernelsTried:
    """The kernels that a run would take, and where they come from, for `batchocr doctor`. name: the backend."""
    dtype = select_dtype(dtype_name, device)
    ops, problem = None, ""
    try:
        ops = backend.make_ops(name, device, dtype)
    except (EngineError, UsageError) as error:
        problem = str(error)
    except torch.OutOfMemoryError:
        problem = f"{device} has no memory left to try kernels in: see what else uses it"
    build = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"
    libraries = {"torch": f"{torch.__version__}, built {build}"}
    libraries |= {module: _library(module, package) for module, package in _LIBRARIES.items()}
    return KernelsTried(_DTYPES[dtype], ops.choices if ops else (), libraries, problem)


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


def load_engine(found: DeviceFound, message: LoadModel, announce: Announce = announce_nothing) -> tuple[Engine, Ready]:
    """The engine on this device. announce: see Engine. Raises ModelError, and UsageError if the GPU has no room for
    it."""
    device = torch.device(found.device)
    dtype = select_dtype(message.dtype, device)
    try:
        architecture = read_architecture(Path(message.folder))
        shapes, kept = shapes_of(architecture), message.kept_choices
        ops = backend.make_ops(found.backend, device, dtype, vit_dtype=message.vit_dtype, shapes=shapes, kept=kept)
        model = load_model(
            Path(message.folder),
            device=backend.open_device(device, one_stream=found.backend == "reference"),
            dtype=dtype,
            ops=ops,
            vision_ops=backend.vision_ops(ops, message.vit_dtype),
        )
        detector = None
        if message.detector:
            detector = Detector(Path(message.detector), model.device, architecture.detectors)
        engine = Engine(model, message.limits, announce, detector=detector)
    except torch.OutOfMemoryError as error:
        raise UsageError(
            f"the model and its KV cache do not fit into the memory of {device}: lower --memory-fraction or "
            "--llm-batch-size, or see what else uses the GPU"
        ) from error
    return engine, Ready(ops.choices)


def flop_per_s(device: torch.device, dtype: torch.dtype) -> float:
    """What the device does in a product of matrices: more than it will with a model, but no tenfold more."""
    x, weight = (torch.ones(rows, _TRIAL_WIDTH, device=device, dtype=dtype) for rows in (_TRIAL_ROWS, _TRIAL_WIDTH))
    (x @ weight).sum().item()  # the first takes longer
    started_s = time.perf_counter()
    (x @ weight).sum().item()
    return 2 * _TRIAL_ROWS * _TRIAL_WIDTH**2 / (time.perf_counter() - started_s)
