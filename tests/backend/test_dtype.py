"""Which data type a model runs in, on CPUs with and without units for bfloat16."""

from __future__ import annotations

import pytest
import torch

from batchocr.backend import dtype as dtypes
from batchocr.backend.dtype import StoredWeights, bfloat16_remark, bfloat16_speedup, choose_dtype
from batchocr.config import BackendName, DType
from batchocr.machine import multiplies_bfloat16

CPU = torch.device("cpu")
FULL_SIZE, SMALL = 1_200_000_000, 2_500_000


@pytest.fixture
def speedup(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> float | None:
    """A CPU that is this many times as fast in bfloat16; None: one without units, on which nothing is tried."""
    factor: float | None = request.param

    def tried() -> float:
        assert factor is not None, "a trial takes many seconds here"
        return factor

    monkeypatch.setattr(dtypes, "multiplies_bfloat16", lambda: factor is not None)
    monkeypatch.setattr(dtypes, "bfloat16_speedup", tried)
    return factor


@pytest.mark.parametrize(
    ("speedup", "stored", "num_parameters", "expected", "said"),
    [
        (3.0, torch.bfloat16, FULL_SIZE, torch.bfloat16, "3.0 times as fast in bfloat16"),
        (1.0, torch.bfloat16, FULL_SIZE, torch.float32, "1.0 times as fast in bfloat16 as in float32: too little"),
        (3.0, torch.float32, FULL_SIZE, torch.float32, "stored in float32: --dtype bfloat16 would round it"),
        (3.0, torch.float16, FULL_SIZE, torch.float32, "stored in float16"),
        (1.0, torch.float32, FULL_SIZE, torch.float32, None),
        (3.0, torch.bfloat16, SMALL, torch.float32, None),
        (None, torch.bfloat16, FULL_SIZE, torch.float32, None),
    ],
    indirect=["speedup"],
)
def test_a_large_model_stored_in_bfloat16_is_read_in_it_where_a_trial_shows_that_it_is_faster(
    speedup: float | None, stored: torch.dtype, num_parameters: int, expected: torch.dtype, said: str | None
) -> None:
    choice = choose_dtype("auto", CPU, "cpu", StoredWeights(stored, num_parameters))
    assert choice.dtype == expected
    assert said in choice.remark if said else choice.remark == ""


@pytest.mark.parametrize("speedup", [3.0], indirect=True)
@pytest.mark.parametrize(
    ("name", "device", "backend", "expected"),
    [
        ("float32", "cpu", "cpu", torch.float32),
        ("bfloat16", "cpu", "cpu", torch.bfloat16),
        ("auto", "cpu", "reference", torch.float32),
        ("auto", "cuda", "cuda", torch.bfloat16),
        ("float32", "cuda", "cuda", torch.float32),
    ],
)
def test_what_the_user_says_and_other_backends_are_left_alone(
    speedup: float, name: DType, device: str, backend: BackendName, expected: torch.dtype
) -> None:
    choice = choose_dtype(name, torch.device(device), backend, StoredWeights(torch.bfloat16, FULL_SIZE))
    assert (choice.dtype, choice.remark) == (expected, "")


@pytest.mark.parametrize("speedup", [None, 3.0], indirect=True)
@pytest.mark.parametrize(("begun_in", "expected"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)])
def test_rows_that_are_there_decide_whatever_the_cpu(
    speedup: float | None, begun_in: DType, expected: torch.dtype
) -> None:
    choice = choose_dtype("auto", CPU, "cpu", StoredWeights(torch.bfloat16, FULL_SIZE), begun_in=begun_in)
    assert choice.dtype == expected
    as_usual = speedup is None and begun_in == "float32"
    assert (f"the output was begun in {begun_in}" in choice.remark) != as_usual
    assert ("very slowly" in choice.remark) == (speedup is None and begun_in == "bfloat16")


@pytest.mark.parametrize(
    ("speedup", "said"),
    [(None, ""), (1.0, "--dtype auto stays with float32"), (2.0, "--dtype auto takes it")],
    indirect=["speedup"],
)
def test_doctor_says_what_the_units_are_good_for(speedup: float | None, said: str) -> None:
    assert said in bfloat16_remark()
    assert bool(bfloat16_remark()) == bool(said)


@pytest.mark.skipif(not multiplies_bfloat16(), reason="this CPU has no units for bfloat16")
def test_the_trial_compares_two_times() -> None:
    assert 0.1 < bfloat16_speedup() < 50


def test_the_trial_is_as_fast_as_its_best_run(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([9.0, 9.0, 2.0, 1.5, 3.0, 1.0])  # float32 and bfloat16 in turn; the first two to warm up
    monkeypatch.setattr(dtypes, "_seconds", lambda run: next(seconds))
    monkeypatch.setattr(dtypes, "_work", lambda dtype: lambda: None)
    assert bfloat16_speedup() == 2.0
