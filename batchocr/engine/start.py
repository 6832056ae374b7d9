"""What an engine needs before its first request: a device, and a model loaded on it."""

from __future__ import annotations

import time
from pathlib import Path

import torch

from batchocr.engine import backend
from batchocr.engine.backend.dtype import bfloat16_speedup, select_dtype
from batchocr.engine.engine import Engine
from batchocr.engine.kernel_trials import try_kernels
from batchocr.engine.model.checkpoint import load_model
from batchocr.engine.model.detector import Detector
from batchocr.engine.sequence import Announce, announce_nothing
from batchocr.errors import UsageError
from batchocr.machine import multiplies_bfloat16
from batchocr.processes.engine_messages import DeviceFound, LoadModel, Ready, UseDevice

_TRIAL_ROWS, _TRIAL_WIDTH = 256, 1024


def find_device(use: UseDevice) -> DeviceFound:
    """Look at the device, and take this engine's share of the CPU's cores. Raises UsageError if it cannot be used."""
    device = backend.select_device(use.device)
    name = backend.select_backend(use.backend, device)
    speedup = None
    if device.type == "cpu":
        torch.set_num_threads(max(1, torch.get_num_threads() // use.num_sharing))
        if use.try_bfloat16 and name == "cpu" and multiplies_bfloat16():
            speedup = bfloat16_speedup()
    gpu_name, total_bytes, has_bfloat16 = backend.describe(device)
    return DeviceFound(
        device=str(device),
        alike=backend.all_devices(),
        backend=name,
        memory_bytes=backend.memory_bytes(device),
        bfloat16_speedup=speedup,
        name=gpu_name,
        total_bytes=total_bytes,
        has_bfloat16=has_bfloat16,
        kernels=try_kernels(device, name, use.try_kernels) if use.try_kernels else None,
    )


def load_engine(found: DeviceFound, message: LoadModel, announce: Announce = announce_nothing) -> tuple[Engine, Ready]:
    """The engine on this device. announce: see Engine. Raises ModelError, and UsageError if the GPU has no room for
    it."""
    device = torch.device(found.device)
    dtype = select_dtype(message.dtype, device)
    try:
        ops = backend.make_ops(found.backend, device, dtype, vit_dtype=message.vit_dtype)
        model = load_model(
            Path(message.folder),
            device=backend.open_device(device, one_stream=found.backend == "reference"),
            dtype=dtype,
            ops=ops,
            vision_ops=backend.vision_ops(ops, message.vit_dtype),
        )
        detector = Detector(Path(message.detector), model.device) if message.detector else None
        engine = Engine(model, message.limits, announce, detector=detector)
    except torch.OutOfMemoryError as error:
        raise UsageError(
            f"the model and its KV cache do not fit into the memory of {device}: lower --memory-fraction or "
            "--llm-batch-size, or see what else uses the GPU"
        ) from error
    return engine, Ready(backend.kernels_in_use(ops), backend.peak_flop_per_s(device, dtype))


def flop_per_s(device: torch.device, dtype: torch.dtype) -> float:
    """What the device does in a product of matrices: more than it will with a model, but no tenfold more."""
    x, weight = (torch.ones(rows, _TRIAL_WIDTH, device=device, dtype=dtype) for rows in (_TRIAL_ROWS, _TRIAL_WIDTH))
    (x @ weight).sum().item()  # the first takes longer
    started_s = time.perf_counter()
    (x @ weight).sum().item()
    return 2 * _TRIAL_ROWS * _TRIAL_WIDTH**2 / (time.perf_counter() - started_s)
