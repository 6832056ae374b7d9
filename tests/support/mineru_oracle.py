"""MinerU's own client on its transformers backend, with which our reading is compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from loguru import logger
from mineru_vl_utils import MinerUClient
from mineru_vl_utils.mineru_client import DEFAULT_SAMPLING_PARAMS, MinerUSamplingParams
from PIL import Image
from transformers import AutoTokenizer, BatchFeature, Qwen2VLForConditionalGeneration, Qwen2VLImageProcessorPil

from batchocr.pages.protocol.revision import MAX_LAYOUT_TOKENS

IMAGE_TOKEN = "<|image_pad|>"


class ImageAndTextProcessor:
    """A checkpoint's image processor and tokenizer, combined as in Qwen2VLProcessor.

    Qwen2VLProcessor itself needs torchvision, which its video processor imports.
    """

    def __init__(self, folder: Path) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, padding_side="left")
        self.apply_chat_template = self.tokenizer.apply_chat_template
        self.batch_decode = self.tokenizer.batch_decode
        self._image_processor = Qwen2VLImageProcessorPil.from_pretrained(folder, local_files_only=True)

    def __call__(
        self, *, text: Sequence[str], images: Sequence[Image.Image], padding: bool, return_tensors: str
    ) -> BatchFeature:
        """The model's inputs for a batch of chats, each with room for one image."""
        patches = self._image_processor(images=images, return_tensors=return_tensors)
        num_image_tokens = patches["image_grid_thw"].prod(dim=1) // self._image_processor.merge_size**2
        chats = [
            chat.replace(IMAGE_TOKEN, IMAGE_TOKEN * count)
            for chat, count in zip(text, num_image_tokens.tolist(), strict=True)
        ]
        tokens = self.tokenizer(chats, padding=padding, return_tensors=return_tensors)
        token_types = (tokens["input_ids"] == self.tokenizer.convert_tokens_to_ids(IMAGE_TOKEN)).int()
        return BatchFeature({**tokens, **patches, "mm_token_type_ids": token_types})


def make_client(
    folder: Path, *, batch_size: int, max_new_tokens: int, dtype: torch.dtype = torch.float32
) -> MinerUClient:
    """A client for the checkpoint, on the CPU, that decodes greedily and without any rule.

    batch_size: maximum chats in one call of `generate`. max_new_tokens: for every answer but the layout.
    """
    logger.disable("mineru_vl_utils")  # it logs every layout
    model = Qwen2VLForConditionalGeneration.from_pretrained(folder, local_files_only=True, dtype=dtype)
    greedy = MinerUSamplingParams(no_repeat_ngram_size=0, max_new_tokens=max_new_tokens)
    layout = MinerUSamplingParams(no_repeat_ngram_size=0, max_new_tokens=MAX_LAYOUT_TOKENS)
    return MinerUClient(
        backend="transformers",
        model=model.eval(),
        processor=ImageAndTextProcessor(folder),
        sampling_params={**dict.fromkeys(DEFAULT_SAMPLING_PARAMS, greedy), "[layout]": layout},
        batch_size=batch_size,
        use_tqdm=False,
    )
