"""How many CPU cores an operation is worth."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_WORTH_SHARING = 4e6
"""Multiplications. On two cores of an AMD EPYC, 2.8 million (16 rows, 128 × 1360) take 73 µs on one and 47 µs on both
if run back to back; in a decode step the second core has gone to sleep in between, and using both takes longer."""


class Cores:
    """All cores for large operations, one for small ones: to wait for others would take longer."""

    def __init__(self) -> None:
        self.all = torch.get_num_threads()

    @contextmanager
    def shared_by(self, num_multiplications: float) -> Iterator[None]:
        """Inside, torch uses as many cores as this much work is worth; afterwards, all of them."""
        if num_multiplications >= _WORTH_SHARING:
            yield
            return
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(self.all)
