"""How fast devices read: constants with their sources for GPUs, a measurement for the CPU here.

None of the figures for GPUs comes from a run of batchocr on one: what follows from them is a forecast.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal, get_args

DeviceKind = Literal["here", "cpu", "h200", "h100", "a100", "rtx4090"]
DEVICE_KINDS: tuple[DeviceKind, ...] = get_args(DeviceKind)


@dataclass(frozen=True, slots=True)
class Gpu:
    """Rates that kernels reach, not peaks. linear, attention: FLOP/s in bfloat16, useful ones only. memory: bytes/s."""

    name: str
    linear: float
    attention: float
    memory: float


GPUS: dict[DeviceKind, Gpu] = {
    # 640 and 430: what large products and FlashAttention 3 (head size 80 padded to 96) reach by published figures;
    # 4.3 TB/s were measured on one.
    "h200": Gpu("H200", 640e12, 430e12, 4.3e12),
    # The same chip with slower memory (3.35 TB/s by its data sheet, nine tenths of it), and FlashAttention 2.
    "h100": Gpu("H100", 640e12, 270e12, 3.0e12),
    # Of 312 TFLOP/s and 2.0 TB/s by its data sheet: four fifths in products, half in FlashAttention 2.
    "a100": Gpu("A100", 250e12, 150e12, 1.75e12),
    # Of 165 TFLOP/s (float32 accumulation) and 1.0 TB/s by its data sheet: nine tenths, two thirds.
    "rtx4090": Gpu("RTX 4090", 150e12, 110e12, 0.92e12),
}

_ROWS, _INNER, _REPEATS = 2048, 1280, 9
_NVIDIA = Path("/proc/driver/nvidia/gpus")


def measured_cpu_rate() -> float:
    """FLOP/s of float32 products of a ViT's size on all cores, now: the median of a few, in a second at most."""
    import numpy as np

    rows, weights = np.ones((_ROWS, _INNER), np.float32), np.ones((_INNER, _INNER), np.float32)
    seconds = []
    for _ in range(_REPEATS):
        started_s = time.perf_counter()
        rows @ weights
        seconds.append(time.perf_counter() - started_s)
    return 2.0 * _ROWS * _INNER**2 / median(seconds)


def device_here(folder: Path = _NVIDIA) -> DeviceKind | None:
    """The kind of the first device that a run would take: an NVIDIA GPU, else the CPU. None for a GPU of another kind.
    folder: where NVIDIA's driver says what there is."""
    for information in sorted(folder.glob("*/information")):
        name = information.read_text(errors="replace").upper()
        return next((kind for kind, gpu in GPUS.items() if gpu.name in name), None)
    return "cpu"
