"""A GPU's clock, power, temperature and throttling while something runs, read once a second; and the energy it took.

NVIDIA's library tells them (`pip install nvidia-ml-py`); without it, or without a GPU, nothing is known.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import torch

from benchmarks.record import Value

_INTERVAL_S = 1.0
_REASONS = {
    0x02: "clocks set",
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "power brake",
    0x100: "display clocks",
}
"""The bits of `nvmlClocksThrottleReason*`, without that of an idle GPU."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What a GPU says at one moment."""

    sm_mhz: int
    watts: float
    celsius: int
    throttle_bits: int
    joules: float | None
    """What the card's own meter says; None for a card that has none."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """What a GPU said while it was watched."""

    samples: list[Sample] = field(default_factory=list)

    def a_page(self, pages: int) -> dict[str, Value]:
        """Table columns: the energy that each of these pages took, and `columns`."""
        meter = [sample.joules for sample in self.samples if sample.joules is not None]
        return {"J a page": (meter[-1] - meter[0]) / pages if meter else None, **self.columns()}

    def columns(self) -> dict[str, Value]:
        """Table columns: mean clock and power, highest temperature, and each reason for throttling with its share of
        the time. All None if nothing is known."""
        names = ("SM MHz", "W", "max °C", "throttled")
        if not self.samples:
            return dict.fromkeys(names)
        shares = {
            name: sum(bool(sample.throttle_bits & bit) for sample in self.samples) / len(self.samples)
            for bit, name in _REASONS.items()
        }
        throttled = ", ".join(f"{name} {share:.0%}" for name, share in shares.items() if share)
        mhz, watts = fmean(sample.sm_mhz for sample in self.samples), fmean(sample.watts for sample in self.samples)
        values = (mhz, watts, max(sample.celsius for sample in self.samples), throttled or "no")
        return dict(zip(names, values, strict=True))


@contextmanager
def watch(device: torch.device) -> Iterator[Clocks]:
    """Watch the device from a thread until the block ends."""
    clocks, ended = Clocks(), threading.Event()
    thread = threading.Thread(target=_sample, args=(device, clocks.samples, ended), daemon=True)
    thread.start()
    try:
        yield clocks
    finally:
        ended.set()
        thread.join()


def _sample(device: torch.device, samples: list[Sample], ended: threading.Event) -> None:
    """Add a sample at once, one a second, and one at the end."""
    try:
        import pynvml
    except ModuleNotFoundError:
        return
    if device.type != "cuda":
        return
    try:
        pynvml.nvmlInit()
        # NVML's numbers are not those of CUDA_VISIBLE_DEVICES.
        gpu = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
        samples.append(_read(pynvml, gpu))
        while not ended.wait(_INTERVAL_S):
            samples.append(_read(pynvml, gpu))
        samples.append(_read(pynvml, gpu))
    except pynvml.NVMLError:  # a driver, a container or a slice of a GPU that does not tell
        return


def _read(pynvml: Any, gpu: object) -> Sample:
    joules = None
    with suppress(pynvml.NVMLError):  # a card before Volta, a virtual one
        joules = pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1000
    return Sample(
        pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM),
        pynvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
        pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU),
        pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu),
        joules,
    )
