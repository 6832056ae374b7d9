"""Whole runs as users have them: real files, a real model, workers and engines that are started anew.

A test here patches no code of batchocr. It may set variables of the environment, and the folder that it is in.
"""

from __future__ import annotations

import subprocess

import pytest

from batchocr.processes import child


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_patched() -> None:
    """No `quick_processes` of another test is left."""
    assert child.subprocess is subprocess
