"""Each variant of the ablation is what its name says, and one that fails takes no other with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from batchocr.engine.backend.device import Device
from batchocr.engine.backend.reference import Ops
from batchocr.engine.model.checkpoint import Model, load_model
from batchocr.errors import UsageError
from benchmarks.gpu import ablation, levers
from benchmarks.gpu.ablation import Variant
from tests.engine.test_cuda_layers import CPU, OPS


@pytest.mark.long
@pytest.mark.slow
def test_the_answers_of_a_lever_are_compared_and_what_cannot_be_had_has_not_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(folder: Path, device_name: str, *, tries_fp8: bool) -> Model:
        return load_model(folder, device=Device(CPU), dtype=torch.float32, ops=OPS)

    def missing(ops: Ops) -> Ops:
        raise ImportError("no such library")

    chosen = (
        Variant("as_it_is"),
        Variant("same", language=lambda ops: ops),
        Variant("missing", vision=missing),
        Variant("llm_fp8", language=levers.fp8_language),
    )
    monkeypatch.setattr(ablation, "VARIANTS", chosen)
    monkeypatch.setattr(ablation, "load", load)
    out = tmp_path / "ablation.json"
    ablation.main(["--smoke", "--device", "cpu", "--only", "as_it_is,same,missing,llm_fp8", "--out", str(out)])
    written = json.loads(out.read_text())
    as_it_is, same, fp8 = written["rows"]
    assert written["notes"]["missing"] == "ImportError: no such library"
    assert as_it_is["logits off"] is None
    assert (same["embeddings off"], same["logits off"], same["same tokens"]) == (0, 0, 1)
    assert fp8["embeddings off"] == 0
    assert 0.001 < fp8["logits off"] < 0.1


@pytest.mark.slow
def test_a_variant_that_fails_is_named_and_the_others_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(model: Model) -> Model:
        raise RuntimeError("CUDA error: invalid cluster size\nand a stack")

    monkeypatch.setattr(ablation, "VARIANTS", (Variant("broken", fail), Variant("as_it_is")))
    out = tmp_path / "ablation.json"
    with pytest.raises(SystemExit, match="failed: broken"):
        ablation.main(["--smoke", "--device", "cpu", "--only", "broken,as_it_is", "--out", str(out)])
    values = json.loads(out.read_text())
    assert values["figures"]["as_it_is"] > 0
    assert values["notes"]["broken"] == "RuntimeError: CUDA error: invalid cluster size"


def test_a_variant_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(UsageError, match=r"no nonsense; there is as_it_is, .*coupled_8"):
        ablation.main(["--smoke", "--device", "cpu", "--only", "as_it_is,nonsense"])
