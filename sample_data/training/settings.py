"""The settings, for two CPU cores: from nothing, in hours; and going on from weights that read already."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

from sample_data.training.lessons import Plan, Stage
from sample_data.training.train import Setting

SettingName: TypeAlias = Literal["scratch", "refine"]

SETTINGS: dict[SettingName, Setting] = {
    "scratch": Setting(
        plan=Plan(
            patches=2400,
            samples=96,
            text_parts=2,
            layout_every=1,
            layout_pages=1,
            quartered=0.85,
            pool=120,
            pages_per_lesson=0.25,
            familiar=0.0,
            plain=0.0,
            texts=0.7,
            stages=(
                Stage(300, 0.7, 0.3, layouts=False, eyes_only=True),
                Stage(2500, 0.45, 0.45, layouts=False),
                Stage(5000, 0.25, 0.35),
                Stage(math.inf, 0.05, 0.15),
            ),
        ),
        steps=3_000,
        muon_lr=0.015,
        adam_lr=0.0015,
        rehearsed=6,
        num_workers=1,
        num_threads=2,
        exam_every=2000,
    ),
    "refine": Setting(
        plan=Plan(
            patches=4000,
            samples=64,
            text_parts=1,
            layout_every=2,
            layout_pages=1,
            quartered=0.5,
            pool=60,
            pages_per_lesson=0.5,
            familiar=0.5,
            plain=0.25,
            texts=0.85,
            stages=(Stage(2500, 0.05, 0.1, eyes_rest=True), Stage(math.inf, 0.05, 0.1)),
        ),
        steps=3_000,
        muon_lr=0.006,
        adam_lr=0.0006,
        rehearsed=2,
        num_workers=1,
        num_threads=2,
        exam_every=100_000,
        with_heads=False,
        fork_weight=8.0,
        texts_again=2,
        average_over=300,
    ),
}
