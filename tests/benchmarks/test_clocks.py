"""What is said of a GPU's clock while something runs."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace

import pytest
import torch

from benchmarks import clocks

GPU = torch.device("cuda", 0)


def _nvml(reasons: list[int], millijoules: list[int] | None = None) -> SimpleNamespace:
    """A stand-in for NVIDIA's library, with a sample for each of these throttle reasons; then it no longer tells.

    millijoules: what the card's meter says, one after the other; None if the card has none.
    """
    left, meter = iter(reasons), iter(millijoules or [])

    class NVMLError(Exception):
        pass

    def next_reasons(gpu: str) -> int:
        for bits in left:
            return bits
        raise NVMLError

    def energy(gpu: str) -> int:
        if millijoules is None:
            raise NVMLError
        return next(meter)

    return SimpleNamespace(
        NVMLError=NVMLError,
        NVML_CLOCK_SM=1,
        NVML_TEMPERATURE_GPU=0,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetClockInfo=lambda gpu, clock: {("GPU-ab12", 1): 1700}[gpu, clock],
        nvmlDeviceGetTotalEnergyConsumption=energy,
        nvmlDeviceGetPowerUsage=lambda gpu: 650_500,
        nvmlDeviceGetTemperature=lambda gpu, sensor: 61,
        nvmlDeviceGetCurrentClocksThrottleReasons=next_reasons,
    )


def test_clock_power_heat_and_reasons_for_throttling_are_told_of_the_whole_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", _nvml([0x04, 0x04 | 0x20, 0, 0x01]))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="ab12"))
    monkeypatch.setattr(clocks, "_INTERVAL_S", 0.001)
    with clocks.watch(GPU) as seen:
        until_s = time.monotonic() + 10
        while len(seen.samples) < 4 and time.monotonic() < until_s:
            time.sleep(0.001)
    throttled = "power cap 50%, heat (software) 25%"
    assert seen.columns() == {"SM MHz": 1700, "W": 650.5, "max °C": 61, "throttled": throttled}


def test_the_energy_of_a_page_is_what_the_cards_own_meter_counted_from_before_the_first_to_after_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", _nvml([0, 0], [7_000_000, 7_220_500]))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="ab12"))
    with clocks.watch(GPU) as seen:
        pass
    assert seen.a_page(4)["J a page"] == pytest.approx(55.125)


def test_a_card_without_a_meter_still_tells_its_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", _nvml([0, 0]))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="ab12"))
    with clocks.watch(GPU) as seen:
        pass
    columns = seen.a_page(4)
    assert columns["J a page"] is None
    assert columns["SM MHz"] == 1700


@pytest.mark.parametrize("nvml", [None, _nvml([])], ids=["no library", "a library that does not tell"])
def test_nothing_is_told_where_nothing_is_known(nvml: SimpleNamespace | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="ab12"))
    for device in (GPU, torch.device("cpu")):
        with clocks.watch(device) as seen:
            pass
        assert seen.columns() == {"SM MHz": None, "W": None, "max °C": None, "throttled": None}
