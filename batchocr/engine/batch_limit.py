"""The most that a stage puts into a batch, as device memory turns out to have room for."""

from __future__ import annotations

import logging

from batchocr.processes.counts import Stage
from batchocr.processes.meter import Meter

logger = logging.getLogger(__name__)

_FIRST_WAIT = 10
"""The first wait, in good batches. It is doubled before it is used, so a size that does not fit is not tried more than
once in 20."""


class BatchLimit:
    """The size of batches: halved by a batch that does not fit, and doubled again, up to what it was, after a number of
    good ones: another process may have had the memory for a moment.

    As the next size may never fit, each failure doubles that number, until full batches have been good for as long.
    """

    def __init__(self, stage: Stage, largest: int, unit: str) -> None:
        """unit: what the limit counts, with its option."""
        self.size = self._largest = largest
        self._stage = stage
        self._unit = unit
        self._wait = _FIRST_WAIT
        self._num_good = 0

    def halve(self, size: int, meter: Meter) -> None:
        """Later batches have at most half the size of this one, which did not fit."""
        self.size = size // 2
        self._wait *= 2
        self._num_good = 0
        meter.batches_halved[self._stage] += 1
        logger.warning(
            "a %s batch did not fit the GPU's memory; the next %d have at most %d %s",
            self._stage,
            self._wait,
            self.size,
            self._unit,
        )

    def count_good(self) -> None:
        """Count a batch that fitted."""
        self._num_good += 1
        if self._num_good == self._wait:
            self._num_good = 0
            if self.size == self._largest:
                self._wait = _FIRST_WAIT
            self.size = min(self._largest, 2 * self.size)
