"""A clock that stands still while the process is suspended."""

from __future__ import annotations

import time

import pytest

from batchocr.processes.running_clock import RunningClock


def test_a_long_time_in_which_nobody_looked_hardly_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    real_s = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: real_s)
    clock = RunningClock()
    began_s = clock.now()
    for _ in range(40):
        real_s += 0.5
        now_s = clock.now()
    assert now_s - began_s == pytest.approx(20)
    real_s += 3600
    assert clock.now() - now_s == pytest.approx(5)
