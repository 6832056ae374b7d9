"""What a run with faults must not leave."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.running import children


@pytest.fixture(scope="module", autouse=True)
def _quick(quick_processes: None) -> None:
    """Nearly all tests here start workers or engines."""


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """No process, no descriptor and no shared memory outlives a run."""
    num_open, mapped = len(os.listdir("/proc/self/fd")), mapped_pixels()
    yield
    assert children() == []
    assert len(os.listdir("/proc/self/fd")) == num_open
    assert mapped_pixels() <= mapped


def mapped_pixels() -> set[str]:
    """The pieces of shared memory with pixels that this process has mapped, by their addresses."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split()[0] for line in lines if "batchocr-pixels" in line}
