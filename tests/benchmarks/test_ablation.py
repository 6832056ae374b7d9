"""Each variant of the ablation is what its name says, and one that fails takes no other with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from batchocr.engine.model.checkpoint import Model
from batchocr.errors import UsageError
from benchmarks.gpu import ablation
from benchmarks.gpu.ablation import Variant


def measured(tmp_path: Path, *names: str) -> dict[str, Any]:
    """What the ablation of these variants writes."""
    out = tmp_path / "ablation.json"
    try:
        ablation.main(["--smoke", "--device", "cpu", "--only", ",".join(names), "--out", str(out)])
    finally:
        values: dict[str, Any] = json.loads(out.read_text())
    return values


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


def test_a_variant_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(UsageError, match=r"no nonsense; there is as_it_is, .*coupled_8"):
        ablation.main(["--smoke", "--device", "cpu", "--only", "as_it_is,nonsense"])
