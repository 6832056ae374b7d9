"""The sample model's training is what its recorded loss curve says: the same command gives the same losses.

BATCHOCR_FULL=1 compares with the curve; without it, a few steps that choose among fewer pages, as making those takes
longest, with the losses of the same steps when it was recorded.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest

from sample_data.training.settings import SETTINGS
from sample_data.training.train import LOG_EVERY, Training
from tests.conftest import ROOT

pytestmark = pytest.mark.slow

FEW_PAGES, FEW_STEPS, THEIR_LOSSES = 8, 8, {"characters": 5.067}
RECORDED = ROOT / "sample_data" / "training" / "curve.jsonl"
FULL = os.environ.get("BATCHOCR_FULL") == "1"


def test_the_first_steps_give_the_losses_that_they_gave(tmp_path: Path) -> None:
    few_pages = replace(SETTINGS["scratch"], plan=replace(SETTINGS["scratch"].plan, pool=FEW_PAGES))
    training = Training(few_pages, tmp_path, seed=0)
    lessons = training.lessons()
    losses = [training.learn(next(lessons)) for _ in range(FEW_STEPS)]
    assert means(losses, THEIR_LOSSES) == pytest.approx(THEIR_LOSSES, rel=0.02)


@pytest.mark.skipif(not FULL, reason="takes minutes: BATCHOCR_FULL=1")
def test_a_run_follows_the_recorded_curve(tmp_path: Path) -> None:
    """The losses of another machine drift from those recorded."""
    recorded = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    training = Training(SETTINGS["scratch"], tmp_path, seed=0)
    lessons = training.lessons()
    for line in recorded:
        losses = [training.learn(next(lessons)) for _ in range(LOG_EVERY)]
        assert training.step == line.pop("step")
        expected = {name: value for name, value in line.items() if name not in ("seconds", "samples")}
        assert means(losses, expected) == pytest.approx(expected, rel=0.25)


def means(losses: Sequence[Mapping[str, float]], names: Iterable[str]) -> dict[str, float]:
    """Of each loss, over the steps that have it."""
    return {name: mean(step[name] for step in losses if name in step) for name in names}
