"""What runs in tests have in common."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def _quick(quick_processes: None) -> None:
    """Nearly all tests here start workers or engines."""
