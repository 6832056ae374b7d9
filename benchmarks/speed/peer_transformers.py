"""Runs a trace through transformers' own `generate`, in batches, as MinerU's client does."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from batchocr.data import Request
from batchocr.engine import backend
from batchocr.engine.backend.dtype import select_dtype
from benchmarks.replay import Replayed, Work
from benchmarks.timing import synchronize
from benchmarks.trace import Noise, Trace

SYSTEM_PROMPT = "You are a helpful assistant."
"""MinerU's client begins every question with it."""


class TransformersEngine:
    """transformers' model of a checkpoint, with its image processor on the host (Pillow: there is no torchvision)."""

    def __init__(self, folder: Path, device_name: str) -> None:
        from transformers import Qwen2VLForConditionalGeneration

        from tests.support.mineru_oracle import ImageAndTextProcessor

        self._device = backend.select_device(device_name)
        dtype = select_dtype("auto", self._device)
        self._processor = ImageAndTextProcessor(folder)
        model: Any = Qwen2VLForConditionalGeneration.from_pretrained(folder, local_files_only=True, dtype=dtype)
        self._model = model.to(self._device).eval()
        self._merge_size = int(model.config.vision_config.spatial_merge_size)

    def replay(self, trace: Trace, batch_size: int) -> Replayed:
        """Replay all layouts, then all blocks, in the trace's order. A batch runs until its longest answer ends, as it
        always does in `generate`; only the requested tokens are counted."""
        noise = Noise()
        layouts = [noise.request(page.layout) for page in trace.pages]
        blocks = [noise.request(ask) for page in trace.pages for ask in page.blocks]
        self._answer(layouts[:1])
        work: list[Work] = []
        started = time.perf_counter()
        for requests in (layouts, blocks):
            for start in range(0, len(requests), batch_size):
                work += self._answer(requests[start : start + batch_size])
        return Replayed(time.perf_counter() - started, len(trace.pages), tuple(work))

    @torch.inference_mode()
    def _answer(self, requests: Sequence[Request]) -> list[Work]:
        chats = [chat_text(self._processor, request.prompt) for request in requests]
        images = [request_image(request) for request in requests]
        inputs = self._processor(text=chats, images=images, padding=True, return_tensors="pt").to(self._device)
        wanted = [request.sampling.max_new_tokens for request in requests]
        self._model.generate(
            **inputs, do_sample=False, min_new_tokens=max(wanted), max_new_tokens=max(wanted), use_cache=True
        )
        synchronize(self._device)
        patches = inputs["image_grid_thw"].prod(dim=1).tolist()
        prompts = inputs["attention_mask"].sum(dim=1).tolist()
        return [
            Work(count, count // self._merge_size**2, prompt, outputs)
            for count, prompt, outputs in zip(patches, prompts, wanted, strict=True)
        ]


def chat_text(templated: Any, prompt: str) -> str:
    """The chat with one image up to where the answer begins. templated: a tokenizer or processor."""
    messages = [
        {"role": "system", "content": SYSTEM_PROMPT},
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": prompt}]},
    ]
    return str(templated.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))


def request_image(request: Request) -> Image.Image:
    """The image as MinerU's client passes it on: resized only if it is for a layout."""
    pixels = request.pixels
    image = Image.frombuffer("RGB", (pixels.width, pixels.height), pixels.data, "raw", "RGB", 0, 1)
    if request.resize_to is None:
        return image
    height, width = request.resize_to
    return image.resize((width, height), Image.Resampling.BICUBIC)
