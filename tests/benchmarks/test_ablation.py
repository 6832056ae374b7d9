"""Each variant of the ablation is what its name says, and one that fails takes no other with it."""

from __future__ import annotations

import json
import math
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from batchocr.engine.backend.device import HostDevice
from batchocr.engine.engine import Engine
from batchocr.engine.model.checkpoint import Model
from batchocr.errors import UsageError
from benchmarks.gpu import ablation
from benchmarks.gpu.ablation import VARIANTS, Variant
from benchmarks.gpu.variants import Paced
from benchmarks.loading import free_memory, make_engine


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


@pytest.mark.long
@pytest.mark.slow
def test_each_variant_is_compared_with_the_engine_as_it_is(tmp_path: Path) -> None:
    values = measured(tmp_path, "as_it_is", "80_in_flight_256_rows")
    assert values["figures"].keys() == {"as_it_is", "80_in_flight_256_rows"}
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
