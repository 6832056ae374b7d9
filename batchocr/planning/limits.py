"""Default batch sizes for this machine and the division of its memory, decided once at the start."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from batchocr.config import Config
from batchocr.errors import UsageError
from batchocr.planning.architecture import Architecture
from batchocr.planning.cost import num_parameters
from batchocr.processes.engine_messages import EngineLimits

_LAYOUT_IMAGE_BYTES = 900 << 20
"""What a detector holds for an image in its batch: PP-DocLayoutV3 820 MB, V2 260 MB, measured on a CPU."""

_PROMPT_TEXT_TOKENS = 256
_KV_TOKENS_PER_SEQUENCE = 4096
"""How many a KV cache has at most, for each sequence in a full decode batch."""
_LEAST_KV_TOKENS_PER_SEQUENCE = 2048
"""How many tokens of the KV cache a sequence should have at least: sequences that decode dense pages have 900 on
average, with prompt and image. Half of the most, because each set of default limits has at least twice the sequences of
the next smaller one: so more memory never means a smaller cache."""
_GIB = 1 << 30

_CPU = EngineLimits(
    vit_batch_size=8,
    vit_max_patches=8_192,
    embedding_queue_tokens=16_384,
    llm_batch_size=16,
    prefill_max_tokens=4_096,
    layout_batch_size=1,
    max_new_tokens=0,  # set by `engine_limits`, as num_kv_tokens
    num_kv_tokens=0,
)
_SEQUENCES_PER_CORE = 8
_CPU_SEQUENCES = (64, 32)
"""How many sequences a CPU decodes at once if it has the cores and the memory; else 16, as measured with two cores.
More rows take more arithmetic, which grows with the cores, for the same reading of the weights. Not measured."""
_SMALL_GPU = replace(_CPU, vit_batch_size=128, embedding_queue_tokens=8_192, llm_batch_size=32)
_MEDIUM_GPU = replace(
    _CPU,
    vit_batch_size=256,
    vit_max_patches=16_384,
    embedding_queue_tokens=16_384,
    llm_batch_size=128,
    prefill_max_tokens=8_192,
    layout_batch_size=2,
)
_LARGE_GPU = replace(
    _CPU,
    vit_batch_size=512,
    vit_max_patches=32_768,
    embedding_queue_tokens=32_768,
    llm_batch_size=256,
    prefill_max_tokens=16_384,
    layout_batch_size=4,
)
_LARGEST_GPU = replace(_LARGE_GPU, embedding_queue_tokens=65_536, llm_batch_size=512, layout_batch_size=8)
_GPUS = (_LARGEST_GPU, _LARGE_GPU, _MEDIUM_GPU, _SMALL_GPU)
"""The default limits of GPUs, the largest first. A GPU gets the first for which it has the memory, by calculation (see
`_bytes_beside_kv`); or the last. Measured on an H100 and an H200 only."""


def engine_limits(
    config: Config,
    architecture: Architecture,
    *,
    on_gpu: bool,
    memory_bytes: int,
    value_bytes: int,
    cores: int = 1,
    layout_tokens: int = 0,
    detector_bytes: int = 0,
) -> EngineLimits:
    """The limits that the user set, and the device's defaults for the others.

    memory_bytes: free on the device before the weights are loaded. value_bytes: size of a value in the model's dtype.
    cores: those of an engine on a CPU. layout_tokens: how long a layout may be, whatever the user allows for a block.
    detector_bytes: the weights of the layout detector; 0 if there is none.
    Raises UsageError if the model and its working memory do not fit; the defaults of a CPU are taken to fit anywhere.
    """
    usable = (int(memory_bytes * config.memory_fraction) if on_gpu else memory_bytes) - detector_bytes
    token_bytes = _kv_token_bytes(architecture, value_bytes)

    def needed(limits: EngineLimits, tokens_per_sequence: int = 0) -> int:
        kv_tokens = max(_longest_request(limits, architecture), limits.llm_batch_size * tokens_per_sequence)
        return _bytes_beside_kv(limits, architecture, value_bytes) + kv_tokens * token_bytes

    fixed = {"max_new_tokens": max(config.max_new_tokens, layout_tokens)}
    if not detector_bytes:
        fixed["layout_batch_size"] = 0
    *larger, smallest = (replace(limits, **fixed) for limits in (_GPUS if on_gpu else _cpu_limits(cores)))
    share = usable if on_gpu else usable // 2  # workers may have the other half of a host's memory
    fitting = (limits for limits in larger if needed(limits, _LEAST_KV_TOKENS_PER_SEQUENCE) <= share)
    defaults = next(fitting, smallest)
    # Limits are called like their options.
    given = {field.name: size for field in fields(EngineLimits) if (size := getattr(config, field.name, None))}
    limits = replace(defaults, **given | fixed)
    room = usable if on_gpu else max(usable, needed(defaults))
    if needed(limits) > room:
        where = f"of GPU memory (--memory-fraction {config.memory_fraction})" if on_gpu else "of memory"
        raise UsageError(
            f"the model and its batches need {needed(limits) / _GIB:.1f} GiB and do not fit into {room / _GIB:.1f} GiB "
            f"{where}: lower --vit-max-patches, --prefill-max-tokens, --llm-batch-size, or what else you have raised"
        )
    # On a CPU, the rest is for the weights and for everything else on the machine.
    left = room - _bytes_beside_kv(limits, architecture, value_bytes) if on_gpu else memory_bytes // 4
    # A few thousand tokens per sequence, and at least one longest request.
    affordable = min(left // token_bytes, limits.llm_batch_size * _KV_TOKENS_PER_SEQUENCE)
    return replace(limits, num_kv_tokens=max(_longest_request(limits, architecture), affordable))


def _cpu_limits(cores: int) -> list[EngineLimits]:
    """The defaults of a CPU with so many cores, the largest first."""
    sizes = (size for size in _CPU_SEQUENCES if size <= _SEQUENCES_PER_CORE * cores)
    return [*(replace(_CPU, llm_batch_size=size) for size in sizes), _CPU]


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """What an engine holds on its device when all its batches are full, in bytes."""

    weights: int
    kv_cache: int
    batches: int

    @property
    def total(self) -> int:
        return self.weights + self.kv_cache + self.batches


def memory_need(limits: EngineLimits, architecture: Architecture, value_bytes: int) -> MemoryNeed:
    """The memory that a model needs, by calculation. value_bytes: size of a value in the model's dtype."""
    weights = num_parameters(architecture) * value_bytes
    return MemoryNeed(
        weights=weights,
        kv_cache=limits.num_kv_tokens * _kv_token_bytes(architecture, value_bytes),
        batches=_bytes_beside_kv(limits, architecture, value_bytes) - weights,
    )


def _kv_token_bytes(architecture: Architecture, value_bytes: int) -> int:
    language = architecture.language
    return 2 * language.num_layers * language.num_kv_heads * language.head_dim * value_bytes


def _longest_request(limits: EngineLimits, architecture: Architecture) -> int:
    """Tokens of the largest image, its prompt and the longest answer."""
    longest = max_image_tokens(architecture) + _PROMPT_TEXT_TOKENS + limits.max_new_tokens
    return min(architecture.language.max_positions, longest)


def max_output_tokens(max_new_tokens: int, architecture: Architecture) -> int:
    """The longest answer there can be: the model has only so many positions."""
    return min(max_new_tokens, architecture.language.max_positions)


def max_image_tokens(architecture: Architecture) -> int:
    """Image tokens of the largest image the checkpoint allows."""
    vision, images = architecture.vision, architecture.images
    return images.max_pixels // (images.num_frames * (vision.patch_size * vision.merge_size) ** 2)


def _bytes_beside_kv(limits: EngineLimits, architecture: Architecture, value_bytes: int) -> int:
    """Memory for everything but the KV cache with the largest batches: calculated, not measured.

    The weights. Per patch in the ViT: its values as bytes and in the model's dtype, the residual and its norm, [q, k,
    v], the attention output, the MLP's inner row, the rotary tables, and its share of the image before the resize, up
    to 12 times the patch's own bytes. Per token in prefill: the same for the language model. Also the sampler's rows,
    and a step's logits in the model's dtype and in float32.
    """
    vision, language = architecture.vision, architecture.language
    patches = max(limits.vit_max_patches, vision.merge_size**2 * max_image_tokens(architecture))
    inner = (vision.num_mlp_matrices - 1) * vision.mlp_width
    patch = vision.patch_width * (13 + value_bytes) + (6 * vision.width + inner) * value_bytes
    patch += 3 * vision.head_dim * 4
    prefill_tokens = max(limits.prefill_max_tokens, max_image_tokens(architecture) + _PROMPT_TEXT_TOKENS)
    token = (2 * language.width + 4 * language.q_width + 3 * language.mlp_width) * value_bytes
    row = language.vocab_size * (2 + value_bytes + 4) + max_output_tokens(limits.max_new_tokens, architecture) * 10
    # Decoding sequences keep their embeddings in case they are preempted.
    embeddings = limits.embedding_queue_tokens + limits.llm_batch_size * max_image_tokens(architecture)
    return (
        num_parameters(architecture) * value_bytes
        + patches * patch
        + prefill_tokens * token
        + (limits.llm_batch_size + 1) * row
        + embeddings * language.width * value_bytes
        + limits.layout_batch_size * _LAYOUT_IMAGE_BYTES
    )


def useful_pages_in_flight(workers: int, llm_batch_size: int, num_engines: int = 1, *, on_gpu: bool) -> int:
    """How many pages fill each engine's decode batch while others are rendered and laid out. A run's default, where the
    host's memory is no limit."""
    in_engines = num_engines * (max(12, 3 * llm_batch_size // 8) if on_gpu else max(3, llm_batch_size // 8))
    return in_engines + (2 * workers if on_gpu else workers)
