"""How large the batches are where the user left it to the machine."""

from __future__ import annotations

from dataclasses import dataclass

from batchocr.backend.base import Ops
from batchocr.config import Config
from batchocr.model.architecture import Architecture

_PROMPT_TEXT_TOKENS = 256
_KV_TOKENS_PER_SEQUENCE = 4096


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Upper limits of the two stages, of the queue between them, and of the KV cache."""

    vit_batch_size: int
    vit_max_patches: int
    embedding_queue_tokens: int
    llm_batch_size: int
    prefill_max_tokens: int
    max_new_tokens: int
    num_kv_blocks: int


def engine_limits(
    config: Config, architecture: Architecture, ops: Ops, *, on_gpu: bool, free_bytes: int, value_bytes: int
) -> EngineLimits:
    """What the user set, and for the rest what suits the device.

    free_bytes: memory for the KV cache and everything else still to come. value_bytes: of the model's dtype.
    """
    llm_batch_size = config.llm_batch_size or (128 if on_gpu else 16)
    tokens = _kv_tokens(config, architecture, llm_batch_size, free_bytes, value_bytes)
    return EngineLimits(
        vit_batch_size=config.vit_batch_size or (64 if on_gpu else 8),
        vit_max_patches=config.vit_max_patches or (65_536 if on_gpu else 8_192),
        embedding_queue_tokens=config.embedding_queue_tokens or (65_536 if on_gpu else 16_384),
        llm_batch_size=llm_batch_size,
        prefill_max_tokens=config.prefill_max_tokens or (16_384 if on_gpu else 4_096),
        max_new_tokens=config.max_new_tokens,
        num_kv_blocks=-(-tokens // ops.kv_block_size),
    )


def _kv_tokens(
    config: Config, architecture: Architecture, llm_batch_size: int, free_bytes: int, value_bytes: int
) -> int:
    """A few thousand tokens a sequence within a quarter of the memory, and never less than one longest request."""
    language, vision = architecture.language, architecture.vision
    image_tokens = architecture.images.max_pixels // (vision.patch_size * vision.merge_size) ** 2
    one_request = min(language.max_positions, image_tokens + _PROMPT_TEXT_TOKENS + config.max_new_tokens)
    token_bytes = 2 * language.num_layers * language.num_kv_heads * language.head_dim * value_bytes
    affordable = int(free_bytes * config.memory_fraction / 4) // token_bytes
    return max(one_request, min(affordable, llm_batch_size * _KV_TOKENS_PER_SEQUENCE))
