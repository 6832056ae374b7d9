"""Each variant of the ablation is what its name says, and one that fails takes no other with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from batchocr.engine.model.checkpoint import Model
from batchocr.errors import UsageError
from benchmarks.gpu import ablation
from benchmarks.gpu.ablation import Variant


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
