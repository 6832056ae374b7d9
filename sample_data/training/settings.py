"""The two settings: hours on two CPU cores, minutes on a GPU."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

from sample_data.training.lessons import Plan, Stage
from sample_data.training.train import Setting

SettingName: TypeAlias = Literal["cpu", "gpu"]

SETTINGS: dict[SettingName, Setting] = {
    "cpu": Setting(
        plan=Plan(
            patches=2400,
            samples=96,
            text_parts=2,
            layout_every=1,
            layout_pages=1,
            quartered=0.85,
            pool=120,
            pages_per_lesson=0.25,
            stages=(
                Stage(300, 0.7, 0.3, layouts=False, eyes_only=True),
                Stage(2500, 0.45, 0.45, layouts=False),
                Stage(5000, 0.25, 0.35),
                Stage(math.inf, 0.05, 0.15),
            ),
        ),
        steps=8_000,
        muon_lr=0.015,
        adam_lr=0.0015,
        rehearsed=6,
        num_workers=1,
        num_threads=2,
        exam_every=2000,
    ),
    "gpu": Setting(
        plan=Plan(
            patches=24_000,
            samples=800,
            text_parts=1,
            layout_every=1,
            layout_pages=12,
            quartered=0.2,
            pool=60,
            pages_per_lesson=6.0,
            stages=(
                Stage(300, 0.7, 0.3, layouts=False, eyes_only=True),
                Stage(1200, 0.45, 0.45, layouts=False),
                Stage(2400, 0.45, 0.25),
                Stage(math.inf, 0.25, 0.2),
            ),
        ),
        steps=5_000,
        muon_lr=0.02,
        adam_lr=0.002,
        rehearsed=0,
        num_workers=14,
        num_threads=1,
        exam_every=3000,
    ),
}
