"""Logits for a given answer, token by token, from batchocr's model and from transformers'."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from batchocr.data import Pixels
from batchocr.engine.backend.base import PagedContext, Segments
from batchocr.engine.model.checkpoint import Model
from batchocr.engine.model.prompt import PromptFormat, PromptTokens
from batchocr.engine.model.rope import mrope_positions
from batchocr.planning.architecture import read_architecture
from benchmarks.loading import free_memory

QUESTION = "\nText Recognition:"


@torch.inference_mode()
def our_logits(model: Model, pixels: Pixels, tokens: Sequence[int]) -> Tensor:
    """float32 [tokens, vocabulary] on the host: the logits for each position before its token is seen. The first row
    comes from prefill, the others from decode steps."""
    device, language = model.device.torch_device, model.language
    with model.device.main():
        grid = model.preprocessor.patch_grid(pixels.height, pixels.width, None)
        embeddings = model.vision.encode(model.preprocessor.patches([(pixels, None)]), [grid])
        prompt = model.prompts.encode(QUESTION, len(embeddings))
        merge_size = model.architecture.vision.merge_size
        length = len(prompt.token_ids)
        positions = mrope_positions(length, prompt.image_start, grid[0] // merge_size, grid[1] // merge_size)
        x = language.embed(torch.tensor(prompt.token_ids, device=device))
        x[prompt.image_start : prompt.image_start + len(embeddings)] = embeddings
        block_size = model.ops.kv_block_size
        num_blocks = -(-(length + len(tokens)) // block_size)
        # Block 0 is never handed out.
        tables = torch.arange(1, num_blocks + 1, dtype=torch.int32, device=device).unsqueeze(0)
        slots = block_size + torch.arange(num_blocks * block_size, device=device)
        cache = language.new_cache(num_blocks + 1)
        segments = Segments.of([length], lambda ends: ends.to(device))
        logits = [language.prefill(x, positions.to(device), slots[:length], segments, cache).float()]
        for step, token in enumerate(tokens[:-1]):
            now = length + step
            position = torch.full((3, 1), int(positions[0, -1]) + 1 + step, device=device)
            context = PagedContext(tables, torch.tensor([now + 1], dtype=torch.int32, device=device), [now + 1])
            newest = torch.tensor([token], device=device)
            logits.append(language.decode(newest, position, slots[now : now + 1], context, cache).float())
        return torch.cat(logits).cpu()


@torch.inference_mode()
def transformers_logits(
    folder: Path, device: torch.device, dtype: torch.dtype, images: Sequence[Pixels], tokens: Sequence[int]
) -> list[Tensor]:
    """The same from transformers' model, for each image."""
    from transformers import Qwen2VLForConditionalGeneration, Qwen2VLImageProcessorPil

    processor = Qwen2VLImageProcessorPil.from_pretrained(folder, local_files_only=True)
    model: Any = Qwen2VLForConditionalGeneration.from_pretrained(folder, local_files_only=True, dtype=dtype)
    model = model.to(device).eval()
    prompts = PromptFormat(folder, read_architecture(folder))
    results = []
    for pixels in images:
        image = Image.frombuffer("RGB", (pixels.width, pixels.height), pixels.data, "raw", "RGB", 0, 1)
        values = processor(image, return_tensors="pt")
        num_image_tokens = int(values["image_grid_thw"].prod()) // processor.merge_size**2
        prompt: PromptTokens = prompts.encode(QUESTION, num_image_tokens)
        token_ids = torch.tensor([[*prompt.token_ids, *tokens[:-1]]], device=device)
        output = model(
            input_ids=token_ids,
            attention_mask=torch.ones_like(token_ids),
            pixel_values=values["pixel_values"].to(device, dtype),
            image_grid_thw=values["image_grid_thw"].to(device),
            mm_token_type_ids=(token_ids == model.config.image_token_id).int(),
        )
        results.append(output.logits[0, -len(tokens) :].float().cpu())
    del model
    free_memory()
    return results
