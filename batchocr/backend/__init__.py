"""Where the model runs and with which operations: chosen once, when a run starts."""

from __future__ import annotations

import torch

from batchocr.backend.base import Ops
from batchocr.backend.reference import ReferenceOps
from batchocr.config import BackendName, DType
from batchocr.errors import UsageError
from batchocr.machine import usable_memory_bytes

_DEVICE_TYPES = ("cpu", "cuda", "xpu", "mps")


def select_device(name: str) -> torch.device:
    """The device of this name; `auto` takes the first GPU, else the CPU. Raises UsageError where there is none."""
    if name == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        if device.type not in _DEVICE_TYPES:
            raise UsageError(f"--device {name} cannot be used: choose auto, or one of {', '.join(_DEVICE_TYPES)}")
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0].partition(". ")[0]
        raise UsageError(f"--device {name} cannot be used here: {reason}") from error
    return device


def select_dtype(name: DType, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 on GPUs and float32 on CPUs, where bfloat16 products are hundreds of times slower."""
    if name == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    return torch.float32 if name == "float32" else torch.bfloat16


def select_ops(name: BackendName) -> Ops:
    """The operations to run with. Raises UsageError for a backend that is not there."""
    if name == "cuda":
        raise UsageError("--backend cuda is not part of this version; --backend reference runs on any device.")
    return ReferenceOps()


def memory_bytes(device: torch.device) -> int:
    """Memory free on a GPU now; on a CPU, what of the machine's memory this process may hold."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return usable_memory_bytes()


def peak_device_bytes(device: torch.device) -> int:
    """The most memory this process held on a GPU; 0 on a CPU."""
    return int(torch.cuda.max_memory_allocated(device)) if device.type == "cuda" else 0
