"""How large the batches are where the user left it to the machine, and how memory is divided: once, at the start."""

from __future__ import annotations

from dataclasses import dataclass, replace

from batchocr.config import Config
from batchocr.errors import UsageError
from batchocr.model.architecture import Architecture
from batchocr.model.cost import num_parameters

_PROMPT_TEXT_TOKENS = 256
_KV_TOKENS_PER_SEQUENCE = 4096
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Upper limits of the two stages, of the queue between them, and of the KV cache."""

    vit_batch_size: int
    vit_max_patches: int
    embedding_queue_tokens: int
    llm_batch_size: int
    prefill_max_tokens: int
    max_new_tokens: int
    num_kv_tokens: int


@dataclass(frozen=True, slots=True)
class _Defaults:
    """Batch limits for devices with at least this much memory to use."""

    memory_bytes: int
    vit_batch_size: int
    vit_max_patches: int
    embedding_queue_tokens: int
    llm_batch_size: int
    prefill_max_tokens: int


_CPU = _Defaults(0, 8, 8_192, 16_384, 16, 4_096)

# Computed from what a patch and a token take (see _working_bytes); none of these has been measured on a GPU yet.
_GPUS = (
    _Defaults(60 * _GIB, 64, 65_536, 65_536, 256, 16_384),
    _Defaults(20 * _GIB, 32, 32_768, 32_768, 128, 16_384),
    _Defaults(12 * _GIB, 16, 16_384, 16_384, 64, 8_192),
    _Defaults(0, 8, 8_192, 8_192, 32, 4_096),
)


def engine_limits(
    config: Config, architecture: Architecture, *, on_gpu: bool, memory_bytes: int, value_bytes: int
) -> EngineLimits:
    """What the user set, and for the rest what suits the device.

    memory_bytes: free on the device before the weights are loaded. value_bytes: of the model's dtype.
    Raises UsageError where the model and its working memory do not fit.
    """
    usable = memory_bytes * config.memory_fraction
    suitable = next(row for row in _GPUS if usable >= row.memory_bytes) if on_gpu else _CPU
    limits = EngineLimits(
        vit_batch_size=config.vit_batch_size or suitable.vit_batch_size,
        vit_max_patches=config.vit_max_patches or suitable.vit_max_patches,
        embedding_queue_tokens=config.embedding_queue_tokens or suitable.embedding_queue_tokens,
        llm_batch_size=config.llm_batch_size or suitable.llm_batch_size,
        prefill_max_tokens=config.prefill_max_tokens or suitable.prefill_max_tokens,
        max_new_tokens=config.max_new_tokens,
        num_kv_tokens=0,
    )
    return _with_kv_tokens(limits, config, architecture, on_gpu, memory_bytes, value_bytes)


def _with_kv_tokens(
    limits: EngineLimits, config: Config, architecture: Architecture, on_gpu: bool, memory_bytes: int, value_bytes: int
) -> EngineLimits:
    """Give the KV cache what is left: a few thousand tokens a sequence, and never less than one longest request."""
    language = architecture.language
    token_bytes = 2 * language.num_layers * language.num_kv_heads * language.head_dim * value_bytes
    one_request = _longest_request(limits, architecture)
    if on_gpu:
        usable = int(memory_bytes * config.memory_fraction)
        left = usable - num_parameters(architecture) * value_bytes - _working_bytes(limits, architecture, value_bytes)
        if left < one_request * token_bytes:
            raise UsageError(
                f"The model and its batches do not fit into {usable / _GIB:.1f} GiB of GPU memory (--memory-fraction "
                f"{config.memory_fraction}): lower --vit-max-patches, --prefill-max-tokens, --llm-batch-size or "
                "--max-new-tokens."
            )
    else:
        # The weights and everything else a machine does have the rest.
        left = memory_bytes // 4
    wanted = max(one_request, min(left // token_bytes, limits.llm_batch_size * _KV_TOKENS_PER_SEQUENCE))
    return replace(limits, num_kv_tokens=wanted)


def _longest_request(limits: EngineLimits, architecture: Architecture) -> int:
    """Tokens of the largest image, its prompt and the longest answer: one prefill, where a sequence was put back."""
    longest = max_image_tokens(architecture) + _PROMPT_TEXT_TOKENS + limits.max_new_tokens
    return min(architecture.language.max_positions, longest)


def max_image_tokens(architecture: Architecture) -> int:
    """Image tokens of the largest image the checkpoint allows."""
    vision = architecture.vision
    return architecture.images.max_pixels // (vision.patch_size * vision.merge_size) ** 2


def _working_bytes(limits: EngineLimits, architecture: Architecture, value_bytes: int) -> int:
    """Memory for everything but weights and KV cache, at the largest batches: counted, not measured.

    A patch in the ViT: its byte and its value form, the residual and its norm, [q, k, v], the attention's output, the
    MLP's inner row, the rotary tables, and what its image took before it was resized, up to 12 times its own bytes. A
    token in prefill: the same for the language model. Rows of the sampler; logits of a step, as they come and in
    float32.
    """
    vision, language = architecture.vision, architecture.language
    patches = max(limits.vit_max_patches, vision.merge_size**2 * max_image_tokens(architecture))
    patch = vision.patch_width * (13 + value_bytes) + (6 * vision.width + vision.mlp_width) * value_bytes
    patch += 3 * vision.head_dim * 4
    prefill_tokens = max(limits.prefill_max_tokens, _longest_request(limits, architecture))
    token = (6 * language.width + 3 * language.mlp_width) * value_bytes
    row = language.vocab_size * (3 + value_bytes + 4) + limits.max_new_tokens * 10
    # Sequences that decode keep their embeddings, for a second prefill.
    embeddings = limits.embedding_queue_tokens + limits.llm_batch_size * max_image_tokens(architecture)
    return (
        patches * patch
        + prefill_tokens * token
        + (limits.llm_batch_size + 1) * row
        + embeddings * language.width * value_bytes
    )
