"""How many cores an operation is worth on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_WORTH_SHARING = 4e6
"""Multiplications. On two cores of an AMD EPYC, 2.8 million (16 rows, 128 × 1360) take 73 µs on one and 47 µs on both
when nothing happens between; in a decode step the second core has fallen asleep meanwhile, and both take longer."""


class Cores:
    """All cores for large operations, the calling thread's own for small ones: waiting for others would take longer.

    torch remembers the last number that any thread set for threads that have not used it yet. So one of the caller's
    that does so for the first time beside a run may find itself on one core, and has to set the number that it wants.
    """

    def __init__(self) -> None:
        self.all = torch.get_num_threads()

    @contextmanager
    def shared_by(self, num_multiplications: float) -> Iterator[None]:
        """Inside, torch uses as many cores as so much work is worth; behind it, all."""
        if num_multiplications >= _WORTH_SHARING:
            yield
            return
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(self.all)
