"""The first stage: pixels to embeddings, in batches of its own size."""

from __future__ import annotations

import heapq
import time
from itertools import count

import torch

from batchocr.engine.embedding_queue import EmbeddingQueue
from batchocr.engine.sequence import Sequence
from batchocr.meter import Meter
from batchocr.model.checkpoint import Model


class VisionStage:
    """Owns the sequences whose images are not yet encoded, the latest rounds of pages first."""

    def __init__(self, model: Model, queue: EmbeddingQueue, *, batch_size: int, max_patches: int) -> None:
        self._model = model
        self._queue = queue
        self._batch_size = batch_size
        self._max_patches = max_patches
        self._waiting: list[tuple[int, int, Sequence]] = []
        self._arrivals = count()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, sequence: Sequence, *, page_round: int) -> None:
        heapq.heappush(self._waiting, (-page_round, next(self._arrivals), sequence))

    def run(self, meter: Meter) -> None:
        """Encode one batch, if images wait and the queue has room; their sequences go to the queue."""
        batch = self._next_batch()
        if not batch:
            return
        started = time.perf_counter()
        images = [(sequence.pixels, sequence.resize_to) for sequence in batch if sequence.pixels is not None]
        patches = self._model.preprocessor.patches(images)
        preprocessed = time.perf_counter()
        embeddings = self._model.vision.encode(patches, [sequence.grid for sequence in batch])
        sizes = [sequence.prompt.num_image_tokens for sequence in batch]
        for sequence, part in zip(batch, torch.split(embeddings, sizes), strict=True):
            sequence.pixels = None
            # A copy, so that the batch's memory is not held by its last sequence.
            sequence.embeddings = part.clone()
            self._queue.put(sequence)
        limit = self._fillable(batch)
        meter.add("preprocess", preprocessed - started, items=len(batch), limit=limit)
        meter.add("vit", time.perf_counter() - preprocessed, items=len(batch), limit=limit)
        meter.add_patches(sum(sequence.num_patches for sequence in batch))

    def clear(self) -> None:
        """Forget everything that waits."""
        self._waiting.clear()

    def _fillable(self, batch: list[Sequence]) -> float:
        """How many images like these a batch could have held under whichever of the two limits comes first."""
        mean_patches = sum(sequence.num_patches for sequence in batch) / len(batch)
        return max(len(batch), min(self._batch_size, self._max_patches / mean_patches))

    def _next_batch(self) -> list[Sequence]:
        batch: list[Sequence] = []
        patches = tokens = 0
        while self._waiting and len(batch) < self._batch_size:
            sequence = self._waiting[0][-1]
            patches += sequence.num_patches
            tokens += sequence.prompt.num_image_tokens
            fits_queue = self._queue.has_room(tokens) or not (batch or len(self._queue))
            if not fits_queue or (batch and patches > self._max_patches):
                break
            heapq.heappop(self._waiting)
            batch.append(sequence)
        return batch
