"""The engine: requests in, completions out, one step at a time. It owns everything on the device."""

from __future__ import annotations

from dataclasses import replace

import torch

from batchocr.data import Completion, Request, failed_completion
from batchocr.engine.backend.device import DeviceClock
from batchocr.engine.decode_stage import DecodeStage
from batchocr.engine.embedding_queue import EmbeddingQueue
from batchocr.engine.layout_stage import LayoutStage
from batchocr.engine.model.checkpoint import Model
from batchocr.engine.model.detector import Detector
from batchocr.engine.model.rope import mrope_positions
from batchocr.engine.sequence import Announce, Sequence, announce_nothing
from batchocr.engine.vision_stage import VisionStage
from batchocr.processes.engine_messages import EngineLimits
from batchocr.processes.meter import Meter


class Engine:
    """Two stages joined by a queue of embeddings that never leave the device.

    announce: called before every batch of the ViT, every prefill and every decode step. detector: for the layout stage,
    which there is only with one; its answers need neither of the two others.
    """

    def __init__(
        self,
        model: Model,
        limits: EngineLimits,
        announce: Announce = announce_nothing,
        *,
        detector: Detector | None = None,
    ) -> None:
        self._model = model
        self._queue = EmbeddingQueue(limits.embedding_queue_tokens)
        clock = DeviceClock(model.device)
        self._layout: LayoutStage | None = None
        if detector is not None:
            size = limits.layout_batch_size
            self._layout = LayoutStage(detector, model.device, clock, announce, batch_size=size)
        self._vision = VisionStage(model, self._queue, clock, announce, limits)
        with torch.inference_mode(), model.device.main():
            self._decode = DecodeStage(model, self._queue, clock, announce, limits)

    @property
    def example(self) -> str:
        """A prompt that the model knows."""
        return self._model.architecture.chat.example

    @property
    def has_work(self) -> bool:
        return self._reads or (self._layout is not None and self._layout.has_work)

    @property
    def _reads(self) -> bool:
        return self._vision.has_work or self._decode.has_work

    def submit(self, request_id: int, request: Request) -> Completion | None:
        """Accept a request. If it can never run, returns a completion with its `error` at once."""
        if request.detector:
            if self._layout is None:
                return failed_completion("this engine has no layout detector")
            self._layout.add(request_id, request.pixels)
            return None
        try:
            sequence = self._sequence(request_id, request)
        except ValueError as error:
            return failed_completion(str(error))
        self._vision.add(sequence, page_round=request.round)
        return None

    @torch.inference_mode()
    def step(self, meter: Meter) -> list[tuple[int, Completion]]:
        """Detect layouts, encode images if the queue has room, prefill what fits, and decode one token of every running
        sequence.

        Returns the requests that ended: (request_id, completion).
        """
        with self._model.device.main():
            found = self._layout.run(meter, alone=not self._reads) if self._layout else []
            self._vision.run(meter, alone=not self._decode.has_work)
            meter.queue_depth(self._queue.num_tokens)
            return found + self._decode.run(meter, beside_vision=self._vision.is_launched)

    def clear(self) -> None:
        """Forget every request."""
        if self._layout is not None:
            self._layout.clear()
        self._vision.clear()
        self._decode.clear()

    def _sequence(self, request_id: int, request: Request) -> Sequence:
        pixels = request.pixels
        grid = self._model.preprocessor.patch_grid(pixels.height, pixels.width, request.resize_to)
        merge_size = self._model.architecture.vision.merge_size
        merged_h, merged_w = grid[0] // merge_size, grid[1] // merge_size
        prompt = self._model.prompts.encode(request.prompt, merged_h * merged_w)
        max_positions = self._model.architecture.language.max_positions
        longest = min(max_positions, len(prompt.token_ids) + request.sampling.max_new_tokens)
        if longest > self._decode.cache.num_tokens:
            raise ValueError(
                f"a prompt of {len(prompt.token_ids)} tokens with up to {request.sampling.max_new_tokens} new ones "
                f"does not fit the KV cache of {self._decode.cache.num_tokens} tokens: lower --max-new-tokens"
            )
        if len(prompt.token_ids) >= max_positions:
            raise ValueError(f"a prompt of {len(prompt.token_ids)} tokens is longer than the model allows")
        return Sequence(
            request_id=request_id,
            prompt=prompt,
            positions=mrope_positions(len(prompt.token_ids), prompt.image_start, merged_h, merged_w),
            position_shift=max(merged_h, merged_w) - merged_h * merged_w,
            grid=grid,
            resize_to=request.resize_to,
            sampling=replace(request.sampling, max_new_tokens=longest - len(prompt.token_ids)),
            pixels=pixels,
        )
