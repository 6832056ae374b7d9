"""Which data type a model runs in, on CPUs with and without units for bfloat16."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest
import torch

from batchocr.config import BackendName, DType
from batchocr.engine import backend
from batchocr.engine.backend import dtype as dtypes
from batchocr.engine.backend.dtype import bfloat16_speedup
from batchocr.engine.start import find_device
from batchocr.errors import OutputMismatchError, UsageError
from batchocr.machine import multiplies_bfloat16
from batchocr.planning.dtype import bfloat16_remark, choose_dtype
from batchocr.processes.engine_messages import DeviceFound, UseDevice
from tests.support.running import raising

FULL_SIZE, SMALL = 1_200_000_000, 2_500_000
choose_for_mineru = partial(choose_dtype, stored="bfloat16", num_parameters=FULL_SIZE)
T4, A100 = "cuda:0", "cuda:1"
MIXED = DeviceFound(T4, (T4, A100), "cuda", 15 << 30, name="Tesla T4, sm_75", without_bfloat16=(T4,))


def cpu(speedup: float | None) -> DeviceFound:
    """A CPU that is this many times as fast in bfloat16; None: one without units, on which nothing is tried."""
    return DeviceFound("cpu", ("cpu",), "cpu", 1 << 34, speedup)


@pytest.fixture(params=[None, 3.0])
def speedup(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> float | None:
    factor: float | None = request.param
    monkeypatch.setattr("batchocr.planning.dtype.multiplies_bfloat16", lambda: factor is not None)
    return factor


@pytest.mark.parametrize(
    ("speedup", "stored", "num_parameters", "expected", "said"),
    [
        (3.0, "bfloat16", FULL_SIZE, "bfloat16", "3.0 times as fast in bfloat16"),
        (1.0, "bfloat16", FULL_SIZE, "float32", "1.0 times as fast in bfloat16 as in float32: too little"),
        (3.0, "float32", FULL_SIZE, "float32", "stored in float32: --dtype bfloat16 would round it"),
        (3.0, "float16", FULL_SIZE, "float32", "stored in float16"),
        (1.0, "float32", FULL_SIZE, "float32", None),
        (3.0, "bfloat16", SMALL, "float32", None),
        (None, "bfloat16", FULL_SIZE, "float32", None),
    ],
)
def test_a_large_model_stored_in_bfloat16_is_read_in_it_where_a_trial_shows_that_it_is_faster(
    speedup: float | None, stored: str, num_parameters: int, expected: DType, said: str | None
) -> None:
    choice = choose_dtype("auto", cpu(speedup), ["cpu"], stored=stored, num_parameters=num_parameters)
    assert choice.dtype == expected
    assert said in choice.remark if said else choice.remark == ""


@pytest.mark.parametrize(
    ("name", "device", "expected"),
    [
        ("float32", "cpu", "float32"),
        ("bfloat16", "cpu", "bfloat16"),
        ("auto", "cuda:0", "bfloat16"),
        ("float32", "cuda:1", "float32"),
    ],
)
def test_what_the_user_says_and_gpus_are_left_alone(name: DType, device: str, expected: DType) -> None:
    found = DeviceFound(device, (device,), "cuda", 1 << 34, 3.0)
    choice = choose_for_mineru(name, found, [device])
    assert (choice.dtype, choice.remark) == (expected, "")


def test_a_gpu_without_bfloat16_reads_in_float32_and_refuses_the_other() -> None:
    choice = choose_for_mineru("auto", MIXED, [T4])
    assert (choice.dtype, "Tesla T4, sm_75 has no units for bfloat16" in choice.remark) == ("float32", True)
    assert choose_for_mineru("float32", MIXED, [T4]).dtype == "float32"
    with pytest.raises(UsageError, match="sm_75 has no units for it, as GPUs before sm_80; float32 works"):
        choose_for_mineru("bfloat16", MIXED, [T4])


@pytest.mark.parametrize("devices", [(T4, A100), (A100, T4)], ids="".join)
@pytest.mark.parametrize("name", ["auto", "bfloat16"])
def test_a_gpu_without_bfloat16_is_left_out_of_a_run_in_which_others_have_it_and_named(
    name: DType, devices: tuple[str, ...]
) -> None:
    choice = choose_for_mineru(name, MIXED, devices)
    assert (choice.dtype, choice.devices) == ("bfloat16", (A100,))
    assert choice.remark == f"reading in bfloat16, without GPUs that lack it ({T4}); --device {A100} says the same"


@pytest.mark.parametrize("begun_in", ["float32", "bfloat16"])
def test_rows_that_are_there_decide_which_gpus_go_on_with_them(begun_in: DType) -> None:
    choice = choose_for_mineru("auto", MIXED, [T4, A100], begun_in=begun_in)
    assert (choice.dtype, choice.devices) == (begun_in, (T4, A100) if begun_in == "float32" else (A100,))
    assert ("begun in float32: continuing in it" in choice.remark) == (begun_in == "float32")


def test_rows_in_bfloat16_are_not_gone_on_with_where_no_gpu_has_it() -> None:
    with pytest.raises(OutputMismatchError, match=r"begun in bfloat16, and Tesla T4, sm_75 has .*--out"):
        choose_for_mineru("auto", MIXED, [T4], begun_in="bfloat16")


def test_gpus_compute_in_bfloat16_from_sm_80(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {"cuda:0": (7, 5), "cuda:1": (8, 0), "cuda:2": (9, 0), "cuda:3": (12, 0), "cuda:4": (6, 1)}

    def properties(device: str | torch.device) -> SimpleNamespace:
        major, minor = kinds[str(device)]
        return SimpleNamespace(name="A GPU", major=major, minor=minor, total_memory=1 << 34)

    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(kinds))
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    assert backend.without_bfloat16() == ("cuda:0", "cuda:4")
    assert backend.describe(torch.device("cuda:1")) == ("A GPU, sm_80", 1 << 34)


@pytest.mark.parametrize("begun_in", ["float32", "bfloat16"])
def test_rows_that_are_there_decide_whatever_the_cpu(speedup: float | None, begun_in: DType) -> None:
    choice = choose_for_mineru("auto", cpu(speedup), ["cpu"], begun_in=begun_in)
    assert choice.dtype == begun_in
    as_usual = speedup is None and begun_in == "float32"
    assert (f"the output was begun in {begun_in}" in choice.remark) != as_usual
    assert ("more slowly" in choice.remark) == (speedup is None and begun_in == "bfloat16")


@pytest.mark.parametrize(
    ("factor", "said"), [(None, ""), (1.0, "--dtype auto stays with float32"), (2.0, "--dtype auto takes it")]
)
def test_doctor_says_what_the_units_are_good_for(factor: float | None, said: str) -> None:
    assert said in bfloat16_remark(factor)
    assert bool(bfloat16_remark(factor)) == bool(said)


@pytest.mark.parametrize(("has_units", "backend"), [(False, "cpu"), (True, "reference")])
def test_nothing_is_tried_where_bfloat16_can_gain_nothing(
    monkeypatch: pytest.MonkeyPatch, has_units: bool, backend: BackendName
) -> None:
    monkeypatch.setattr("batchocr.engine.start.multiplies_bfloat16", lambda: has_units)
    monkeypatch.setattr("batchocr.engine.start.bfloat16_speedup", raising(AssertionError("a trial takes long here")))
    found = find_device(UseDevice("cpu", backend, try_bfloat16=True))
    assert (found.device, found.backend, found.bfloat16_speedup) == ("cpu", backend, None)


def test_an_engine_computes_with_as_many_threads_as_it_may_keep_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    try:
        for allowed, num_sharing, expected in ((8, 1, 4), (3, 1, 3), (3, 2, 1), (8, 2, 2), (1, 4, 1)):
            monkeypatch.setattr("batchocr.engine.start.usable_cores", lambda allowed=allowed: allowed)
            torch.set_num_threads(4)
            find_device(UseDevice("cpu", "reference", num_sharing))
            assert torch.get_num_threads() == expected
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(not multiplies_bfloat16(), reason="this CPU has no units for bfloat16")
def test_the_trial_compares_two_times() -> None:
    assert 0.1 < bfloat16_speedup() < 50


def test_the_trial_is_as_fast_as_its_best_run(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([9.0, 9.0, 2.0, 1.5, 3.0, 1.0])  # float32 and bfloat16 in turn; the first two to warm up
    monkeypatch.setattr(dtypes, "timeit", lambda run, number: next(seconds))
    monkeypatch.setattr(dtypes, "_work", lambda dtype: lambda: None)
    assert bfloat16_speedup.__wrapped__() == 2.0  # what is kept is of this machine
