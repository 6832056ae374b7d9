"""The sample model's training is what its recorded loss curve says: the same command gives the same losses."""

from __future__ import annotations

import json
import os
from pathlib import Path
from statistics import mean

import pytest
import torch

from sample_data.training.settings import SETTINGS
from sample_data.training.train import LOG_EVERY, Training
from tests.conftest import ROOT

pytestmark = pytest.mark.slow

RECORDED = ROOT / "sample_data" / "training" / "curve.jsonl"
FULL = os.environ.get("BATCHOCR_FULL") == "1"


def test_a_shortened_run_follows_the_recorded_curve(tmp_path: Path) -> None:
    """In full it takes minutes, and the losses of another machine drift from those recorded."""
    recorded = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    training = Training(SETTINGS["cpu"], tmp_path, torch.device("cpu"), seed=0)
    lessons = training.lessons()
    for line in recorded if FULL else recorded[:1]:
        losses = [training.learn(next(lessons)) for _ in range(LOG_EVERY)]
        assert training.step == line.pop("step")
        expected = {name: value for name, value in line.items() if name not in ("seconds", "samples")}
        found = {name: mean(step[name] for step in losses if name in step) for name in expected}
        assert found == pytest.approx(expected, rel=0.25 if FULL else 0.05)
