"""The phases of an engine's start add up to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.speed import engine_start
from benchmarks.speed.timed_engine import Phases


def test_a_phase_is_timed_without_those_within_it(monkeypatch: pytest.MonkeyPatch) -> None:
    moments_s = iter([0.0, 1.0, 3.0, 6.0, 10.0])
    monkeypatch.setattr("time.monotonic", lambda: next(moments_s))
    phases = Phases()
    with phases.phase("outer"), phases.phase("inner"):
        pass
    assert phases.seconds == {"the rest": 1, "outer": 2 + 4, "inner": 3}


@pytest.mark.long
def test_the_phases_of_a_start_are_all_of_it_and_the_imports_are_told_apart(tmp_path: Path) -> None:
    out = tmp_path / "engine_start.json"
    engine_start.main(["--smoke", "--device", "cpu", "--out", str(out)])
    found = json.loads(out.read_text())
    in_all, *phases = (row["seconds"] for row in found["rows"] if "phase" in row)
    assert found["figures"]["seconds"] == in_all
    assert 0.7 * in_all < sum(phases) <= in_all
    assert {row["imports of"] for row in found["rows"] if "imports of" in row} >= {"torch", "transformers", "batchocr"}
