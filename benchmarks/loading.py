"""A model and an engine as the product makes them, from a checkpoint's folder."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from pathlib import Path

import torch

from batchocr.config import Config, DType, VitDType
from batchocr.engine import backend
from batchocr.engine.backend.dtype import select_dtype
from batchocr.engine.engine import Engine
from batchocr.engine.model.checkpoint import Model, load_model
from batchocr.engine.model.detector import Detector
from batchocr.machine import usable_cores
from batchocr.planning.cost import num_parameters
from batchocr.planning.limits import EngineLimits, engine_limits
from benchmarks.record import Record


def load(
    folder: Path,
    device_name: str,
    dtype: DType = "auto",
    vit_dtype: VitDType = "auto",
    *,
    tries_fp8: bool = False,
) -> Model:
    """The checkpoint's model on the device, with the operations that the product uses there.

    tries_fp8: also choose among what fp8 needs, without using it.
    """
    device = backend.select_device(device_name)
    torch_dtype = select_dtype(dtype, device)
    kind = backend.select_backend("auto", device)
    ops = backend.make_ops(kind, device, torch_dtype, vit_dtype="fp8" if tries_fp8 else vit_dtype)
    vision_ops = backend.vision_ops(ops, vit_dtype)
    return load_model(folder, device=backend.open_device(device), dtype=torch_dtype, ops=ops, vision_ops=vision_ops)


def limits_for(model: Model, options: Mapping[str, int | float | None], *, detector_bytes: int = 0) -> EngineLimits:
    """The engine limits of a run with these options (fields of Config) on this machine now."""
    device, value_bytes = model.device.torch_device, model.language.dtype.itemsize
    weight_bytes = num_parameters(model.architecture) * value_bytes
    return engine_limits(
        Config(**options),
        model.architecture,
        on_gpu=device.type != "cpu",
        memory_bytes=backend.memory_bytes(device) + weight_bytes,
        value_bytes=value_bytes,
        cores=usable_cores(),
        detector_bytes=detector_bytes,
    )


def make_engine(model: Model, *, layouts: Path | None = None, **options: int | float | None) -> Engine:
    """An engine with these options and otherwise the product's defaults. Memory of earlier engines that are no longer
    in use is freed first.

    layouts: the folder of a detector that finds them.
    """
    free_memory()
    if layouts is None:
        return Engine(model, limits_for(model, options))
    limits = limits_for(model, options, detector_bytes=(layouts / "model.safetensors").stat().st_size)
    return Engine(model, limits, detector=Detector(layouts, model.device))


def free_memory() -> None:
    """Return the memory of deleted models and engines to the device."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def note_kernels(record: Record, model: Model) -> None:
    """Record which implementation each operation uses."""
    record.note("backend", model.ops.name)
    record.note("dtype", str(model.language.dtype).removeprefix("torch."))
    record.note("kernels", [str(choice) for choice in model.ops.choices])
    if model.device.torch_device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
