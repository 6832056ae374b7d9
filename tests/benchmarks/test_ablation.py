"""Each variant of the ablation is what its name says, and one that cannot be had takes no other with it."""

from __future__ import annotations

import json
import math
import os
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from batchocr.backend.device import HostDevice
from batchocr.backend.trial import REJECT, Candidate, Trial, choose
from batchocr.engine.engine import Engine
from batchocr.errors import UsageError
from batchocr.model.checkpoint import Model
from benchmarks.gpu import ablation
from benchmarks.gpu.ablation import VARIANTS, Variant
from benchmarks.gpu.variants import Paced, with_candidate
from benchmarks.loading import free_memory, make_engine

SECONDS = {"reference": 9.0, "fast": 1.0, "other": 2.0, "slow": 10.0}


def measured(tmp_path: Path, *names: str) -> dict[str, Any]:
    """What the ablation of these variants writes."""
    out = tmp_path / "ablation.json"
    try:
        ablation.main(["--smoke", "--device", "cpu", "--only", ",".join(names), "--out", str(out)])
    finally:
        values: dict[str, Any] = json.loads(out.read_text())
    return values


def test_how_decoding_keeps_pace_is_measured_first() -> None:
    names = [variant.name for variant in VARIANTS]
    assert names[:2] == ["as_it_is", "vit_in_whole_batches"]
    assert {name for name in names[:6] if name.startswith("vit")} == {name for name in names if name.startswith("vit")}
    assert len(set(names)) == len(names)


@pytest.mark.slow
def test_what_this_device_cannot_have_is_noted_and_left_out(tmp_path: Path) -> None:
    values = measured(tmp_path, "as_it_is", "paged_attention_triton", "80_in_flight_256_rows")
    assert values["figures"].keys() == {"as_it_is", "80_in_flight_256_rows"}
    assert "no candidates" in values["notes"]["paged_attention_triton"]
    assert all(row["rows a step"] >= 1 and row["ms a step"] > 0 for row in values["rows"])
    assert values["rows"][0]["of as_it_is"] == 1


@pytest.mark.slow
def test_a_variant_that_fails_is_named_and_the_others_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(model: Model) -> Model:
        raise RuntimeError("CUDA error: invalid cluster size\nand a stack")

    monkeypatch.setattr(ablation, "VARIANTS", (Variant("broken", fail), Variant("as_it_is")))
    with pytest.raises(SystemExit, match="failed: broken"):
        measured(tmp_path, "broken", "as_it_is")
    values = json.loads((tmp_path / "ablation.json").read_text())
    assert values["figures"]["as_it_is"] > 0
    assert values["notes"]["broken"] == "RuntimeError: CUDA error: invalid cluster size"


@pytest.mark.slow
def test_an_engine_is_gone_when_the_next_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    earlier: list[weakref.ref[Engine]] = []

    def make(model: Model, **options: Any) -> Engine:
        free_memory()
        assert all(engine() is None for engine in earlier)
        engine = make_engine(model, **options)
        earlier.append(weakref.ref(engine))
        return engine

    monkeypatch.setattr(ablation, "make_engine", make)
    measured(tmp_path, "as_it_is", "coupled_8", "vit_4_gflop_a_row", "as_it_is_again")
    assert len(earlier) == 4


def test_a_variant_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(UsageError, match=r"no nonsense; there is as_it_is, .*coupled_8"):
        ablation.main(["--smoke", "--device", "cpu", "--only", "as_it_is,nonsense"])


def test_another_pace_is_all_that_a_paced_device_changes() -> None:
    device = HostDevice(torch.device("cpu"))
    assert device.vit_flop_a_row == math.inf
    paced = Paced(device, 4e9)
    assert paced.vit_flop_a_row == 4e9
    assert paced.capture([]) == [] and paced.torch_device == device.torch_device


def model_with_choice() -> Any:
    """A model whose attention was chosen among candidates, as the backend chooses, by the times above."""
    ran: list[str] = []

    def run(operation: str) -> tuple[torch.Tensor, ...]:
        ran.append(operation)
        return (torch.ones(1),)

    def timer(call: Callable[[], object]) -> float:
        call()
        return SECONDS[ran[-1]]

    def missing() -> str:
        raise ImportError("no such library")

    candidates = [Candidate(name, partial(str, name)) for name in SECONDS if name != "reference"]
    trial = Trial("attention", [*candidates, Candidate("missing", missing)], "reference", run, 0.1)
    _, choice = choose(trial, timer)
    return SimpleNamespace(ops=SimpleNamespace(choices=(choice,)))


def test_a_candidate_is_taken_when_all_others_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REJECT, raising=False)
    model = model_with_choice()
    assert model.ops.choices[0].taken == "fast"
    changed: Any = with_candidate(model, "attention", "other", model_with_choice)
    assert changed.ops.choices[0].taken == "other"
    assert REJECT not in os.environ


def test_what_the_user_rejects_stays_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REJECT, "attention:fast")
    seen: list[str] = []

    def load_again() -> Any:
        seen.append(os.environ[REJECT])
        return model_with_choice()

    model = model_with_choice()
    assert model.ops.choices[0].taken == "other"
    with pytest.raises(UsageError, match="rejected by"):
        with_candidate(model, "attention", "fast", load_again)
    with pytest.raises(UsageError, match="slower than reference"):
        with_candidate(model, "attention", "slow", load_again)
    assert seen[0].startswith("attention:fast,attention:other")
    assert os.environ[REJECT] == "attention:fast"


@pytest.mark.parametrize(
    ("operation", "name", "reason"),
    [
        ("attention", "fast", "the same as as_it_is"),
        ("attention", "missing", "ImportError: no such library"),
        ("attention", "unheard of", "not tried"),
        ("paged_attention", "fast", "no candidates for paged_attention"),
    ],
)
def test_a_candidate_that_cannot_be_compared_says_why(operation: str, name: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        with_candidate(model_with_choice(), operation, name, lambda: pytest.fail("the model was loaded again"))
