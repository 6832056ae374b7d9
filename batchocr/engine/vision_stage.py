"""The first stage: turns pixels into embeddings, with its own batch size."""

from __future__ import annotations

import heapq
import logging
from collections import deque
from dataclasses import dataclass
from itertools import count

import torch

from batchocr.backend.device import DeviceClock, Mark
from batchocr.engine.embedding_queue import EmbeddingQueue
from batchocr.engine.sequence import Announce, Sequence
from batchocr.model.checkpoint import Model
from batchocr.model.cost import vision_flop
from batchocr.stats.meter import Meter

logger = logging.getLogger(__name__)

_MAX_LAUNCHED = 2
"""Batches on the device at once: the second is queued there, so that no gap opens after the first."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """A batch on its way through the ViT, with the marks around its two parts."""

    sequences: list[Sequence]
    begun: Mark
    preprocessed: Mark
    encoded: Mark


class VisionStage:
    """Owns the sequences whose images are not yet encoded, later page rounds first."""

    def __init__(
        self,
        model: Model,
        queue: EmbeddingQueue,
        clock: DeviceClock,
        announce: Announce,
        *,
        batch_size: int,
        max_patches: int,
    ) -> None:
        self._model = model
        self._device = model.device
        self._queue = queue
        self._clock = clock
        self._announce = announce
        self._batch_size = batch_size
        self._max_patches = max_patches
        self._waiting: list[tuple[int, int, Sequence]] = []
        self._launched: deque[_Batch] = deque()
        self._arrivals = count()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._launched)

    def add(self, sequence: Sequence, *, page_round: int) -> None:
        heapq.heappush(self._waiting, (-page_round, next(self._arrivals), sequence))

    def run(self, meter: Meter, *, wait: bool) -> None:
        """Launch batches while images wait and the queue has room, and hand on those that are encoded.

        wait: whether there is no other work meanwhile, so that the oldest batch on the device is worth waiting for.
        """
        while len(self._launched) < _MAX_LAUNCHED and self._launch(meter):
            pass
        if self._launched and wait:
            self._launched[0].encoded.wait()
        while self._launched and self._launched[0].encoded.is_done():
            self._hand_on(self._launched.popleft(), meter)

    def clear(self) -> None:
        """Forget all waiting sequences, and wait for the batches on the device."""
        self._waiting.clear()
        while self._launched:
            self._launched.popleft().encoded.wait()

    def _launch(self, meter: Meter) -> bool:
        """Start the next batch. Returns False if there is none, or if it does not fit in device memory."""
        sequences = self._next_batch()
        if not sequences:
            return False
        self._announce(self._flop(sequences), [sequence.request_id for sequence in sequences])
        try:
            with self._device.beside():
                self._launched.append(self._encode(sequences))
        except torch.OutOfMemoryError:
            if len(sequences) == 1:
                raise
            self._shrink(sequences, meter)
            return False
        for sequence in sequences:
            self._queue.reserve(sequence)
        return True

    def _encode(self, sequences: list[Sequence]) -> _Batch:
        begun = self._device.mark()
        images = [(sequence.pixels, sequence.resize_to) for sequence in sequences]
        patches = self._model.preprocessor.patches(images)
        preprocessed = self._device.mark()
        embeddings = self._model.vision.encode(patches, [sequence.grid for sequence in sequences])
        sizes = [sequence.prompt.num_image_tokens for sequence in sequences]
        # Copies, because views would keep the whole batch's memory until its last sequence ends.
        parts = [part.clone() for part in torch.split(embeddings, sizes)]
        encoded = self._device.mark()
        for sequence, part in zip(sequences, parts, strict=True):
            sequence.embeddings, sequence.encoded = part, encoded
        return _Batch(sequences, begun, preprocessed, encoded)

    def _shrink(self, sequences: list[Sequence], meter: Meter) -> None:
        """Requeue a batch that did not fit in device memory; later ones have at most half its patches."""
        for sequence in sequences:
            # At the front, where they were taken from.
            heapq.heappush(self._waiting, (-(1 << 30), next(self._arrivals), sequence))
        self._max_patches = sum(sequence.num_patches for sequence in sequences) // 2
        meter.batches_halved["vit"] += 1
        logger.warning(
            "a ViT batch did not fit the GPU's memory; going on with at most %d patches a batch (--vit-max-patches)",
            self._max_patches,
        )

    def _hand_on(self, batch: _Batch, meter: Meter) -> None:
        for sequence in batch.sequences:
            self._queue.put(sequence)
        images, limit = len(batch.sequences), self._fillable(batch.sequences)
        begun_s, preprocessed_s, encoded_s = map(self._clock.at, (batch.begun, batch.preprocessed, batch.encoded))
        meter.add_on_device("preprocess", begun_s, preprocessed_s, items=images, limit=limit)
        meter.add_on_device("vit", preprocessed_s, encoded_s, items=images, limit=limit)
        meter.patches += sum(sequence.num_patches for sequence in batch.sequences)
        meter.model_flop += self._flop(batch.sequences)

    def _flop(self, batch: list[Sequence]) -> float:
        return vision_flop(self._model.architecture.vision, [sequence.num_patches for sequence in batch])

    def _fillable(self, batch: list[Sequence]) -> float:
        """How many images of this mean size a batch could have held, in full, under the tighter of the two limits."""
        mean_patches = sum(sequence.num_patches for sequence in batch) / len(batch)
        return max(len(batch), min(self._batch_size, self._max_patches // mean_patches))

    def _next_batch(self) -> list[Sequence]:
        batch: list[Sequence] = []
        patches = tokens = 0
        while self._waiting and len(batch) < self._batch_size:
            sequence = self._waiting[0][-1]
            patches += sequence.num_patches
            tokens += sequence.prompt.num_image_tokens
            fits_queue = self._queue.has_room(tokens) or not (batch or self._queue.num_tokens)
            if not fits_queue or (batch and patches > self._max_patches):
                break
            heapq.heappop(self._waiting)
            batch.append(sequence)
        return batch
