"""The first stage: turns pixels into embeddings, with its own batch size."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from itertools import count

import torch
from torch import Tensor

from batchocr.engine.backend.device import DeviceClock, Mark
from batchocr.engine.batch_limit import BatchLimit
from batchocr.engine.embedding_queue import EmbeddingQueue
from batchocr.engine.model.checkpoint import Model
from batchocr.engine.sequence import Announce, Sequence
from batchocr.planning.cost import vision_flop
from batchocr.processes.engine_messages import EngineLimits
from batchocr.processes.meter import Meter

_MAX_LAUNCHED = 2
"""How many slices are on the device at once: the second is queued there, so that no gap opens after the first."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """A batch on its way through the ViT."""

    sequences: list[Sequence]
    flop: float
    begun: Mark
    preprocessed: Mark
    layers: Generator[None, None, Tensor]
    """The layers that are still to run, see `VisionModel.layers`."""


@dataclass(frozen=True, slots=True)
class _Slice:
    """Some layers of a batch, with the marks around them."""

    batch: _Batch
    is_last: bool
    """Whether these are the batch's last layers."""
    begun: Mark
    ended: Mark


class VisionStage:
    """Owns the sequences whose images are not yet encoded, later page rounds first.

    Batches are launched in slices of a few layers. Each step of the engine launches a slice, or waits for the end of
    one, so that there is one decode step for each slice.
    """

    def __init__(
        self, model: Model, queue: EmbeddingQueue, clock: DeviceClock, announce: Announce, limits: EngineLimits
    ) -> None:
        self._model = model
        self._device = model.device
        self._queue = queue
        self._clock = clock
        self._announce = announce
        self._batch_size = limits.vit_batch_size
        self._max_patches = BatchLimit("vit", limits.vit_max_patches, "patches (--vit-max-patches)")
        # Rounded to whole layers, at least one. inf: never slice (CPU).
        self._slice_flop = model.device.vit_slice_flop_per_sequence * limits.llm_batch_size
        self._waiting: list[tuple[int, int, Sequence]] = []
        self._batch: _Batch | None = None
        self._launched: deque[_Slice] = deque()
        self._arrivals = count()

    @property
    def has_work(self) -> bool:
        return bool(self._waiting or self._launched or self._batch)

    @property
    def is_launched(self) -> bool:
        """Whether the device has work of this stage."""
        return bool(self._launched)

    def add(self, sequence: Sequence, *, page_round: int) -> None:
        heapq.heappush(self._waiting, (-page_round, next(self._arrivals), sequence))

    def run(self, meter: Meter, *, alone: bool) -> None:
        """Launch slices while images wait and the queue has room, and hand on the images that are encoded.

        alone: whether there is no other work meanwhile, so that the oldest slice on the device is worth waiting for.
        """
        self._take_done(meter)
        has_slice = is_free = math.isinf(self._slice_flop)
        if len(self._launched) == _MAX_LAUNCHED and not is_free:
            self._launched[0].ended.wait()
            self._take_done(meter)
            has_slice = True
        while len(self._launched) < _MAX_LAUNCHED and self._launch(meter):
            has_slice = True
        if self._launched and (alone or not has_slice):
            self._launched[0].ended.wait()
        self._take_done(meter)

    def clear(self) -> None:
        """Forget all waiting sequences, and wait for the work on the device."""
        self._waiting.clear()
        self._batch = None
        while self._launched:
            self._launched.popleft().ended.wait()

    def _launch(self, meter: Meter) -> bool:
        """Launch the next slice. Returns False if there is none, or if its batch does not fit in device memory."""
        batch = self._batch
        sequences = batch.sequences if batch else self._next_batch()
        if not sequences:
            return False
        try:
            with self._device.beside():
                batch = batch or self._begin(sequences)
                done = self._launch_layers(batch)
        except torch.OutOfMemoryError:
            self._batch = None
            if len(sequences) == 1:
                raise
            for sequence in sequences:  # at the front, where they were taken from
                heapq.heappush(self._waiting, (-(1 << 30), next(self._arrivals), sequence))
            self._max_patches.halve(sum(sequence.num_patches for sequence in sequences), meter)
            return False
        self._launched.append(done)
        self._batch = None if done.is_last else batch
        if done.is_last:
            self._max_patches.count_good()
            for sequence in sequences:
                self._queue.reserve(sequence)
        return True

    def _begin(self, sequences: list[Sequence]) -> _Batch:
        """Upload the images and cut them into patches."""
        flop = vision_flop(self._model.architecture.vision, [sequence.num_patches for sequence in sequences])
        self._announce(flop, [sequence.request_id for sequence in sequences])
        begun = self._device.mark()
        images = [(sequence.pixels, sequence.resize_to) for sequence in sequences]
        patches = self._model.preprocessor.patches(images)
        layers = self._model.vision.layers(patches, [sequence.grid for sequence in sequences])
        return _Batch(sequences, flop, begun, self._device.mark(), layers)

    def _launch_layers(self, batch: _Batch) -> _Slice:
        num_slices = max(1, round(batch.flop / self._slice_flop))
        begun = self._device.mark()
        try:
            for _ in range(math.ceil(self._model.architecture.vision.depth / num_slices)):
                next(batch.layers)
        except StopIteration as end:
            return _Slice(batch, True, begun, self._keep(batch.sequences, end.value))
        return _Slice(batch, False, begun, self._device.mark())

    def _keep(self, sequences: list[Sequence], embeddings: Tensor) -> Mark:
        """Give each sequence its embeddings."""
        # Copies, because views would keep the whole batch's memory until its last sequence ends.
        parts = [part.clone() for part in torch.split(embeddings, [each.prompt.num_image_tokens for each in sequences])]
        encoded = self._device.mark()
        for sequence, part in zip(sequences, parts, strict=True):
            sequence.embeddings, sequence.encoded = part, encoded
        return encoded

    def _take_done(self, meter: Meter) -> None:
        """Count the slices that are done, and hand on the images of each batch that ended."""
        while self._launched and self._launched[0].ended.is_done():
            done = self._launched.popleft()
            begun_s, ended_s = self._clock.at(done.begun), self._clock.at(done.ended)
            if done.is_last:
                self._hand_on(done.batch, begun_s, ended_s, meter)
            else:
                meter.add_on_device("vit", begun_s, ended_s, items=0, limit=0.0, batches=0)

    def _hand_on(self, batch: _Batch, begun_s: float, encoded_s: float, meter: Meter) -> None:
        """Hand on the embeddings of a batch that is encoded. begun_s, encoded_s: the times of its last slice."""
        images, limit = len(batch.sequences), self._fillable(batch.sequences)
        patches_s = self._clock.at(batch.begun), self._clock.at(batch.preprocessed)
        meter.add_on_device("preprocess", *patches_s, items=images, limit=limit)
        meter.add_on_device("vit", begun_s, encoded_s, items=images, limit=limit)
        meter.patches += sum(sequence.num_patches for sequence in batch.sequences)
        meter.model_flop += batch.flop
        for sequence in batch.sequences:
            self._queue.put(sequence)

    def _fillable(self, batch: list[Sequence]) -> float:
        """How many images of this mean size a batch could have held, in full, under the tighter of the two limits."""
        mean_patches = sum(sequence.num_patches for sequence in batch) / len(batch)
        return max(len(batch), min(self._batch_size, self._max_patches.size // mean_patches))

    def _next_batch(self) -> list[Sequence]:
        batch: list[Sequence] = []
        patches = tokens = 0
        while self._waiting and len(batch) < self._batch_size:
            sequence = self._waiting[0][-1]
            patches += sequence.num_patches
            tokens += sequence.prompt.num_image_tokens
            fits_queue = self._queue.has_room(tokens) or not (batch or self._queue.num_tokens)
            if not fits_queue or (batch and patches > self._max_patches.size):
                break
            heapq.heappop(self._waiting)
            batch.append(sequence)
        return batch
