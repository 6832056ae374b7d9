"""What the engine's work costs on four GPUs, by calculation: bytes and FLOP over the rates that kernels reach.

No figure here was measured with batchocr on a GPU. When a trace of one comes, these constants are fitted to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final, Literal

from batchocr.planning.architecture import Architecture
from batchocr.planning.cost import decode_flop, prefill_flop, vision_flop
from benchmarks.gpu.virtual_device import Kernels

GpuName = Literal["h200", "h100", "a100", "rtx4090"]

_GIB: Final = 1 << 30
_BFLOAT16: Final = 2

# Of the ViT. Launches were counted by torch's dispatcher, views left out.
_VIT_LAYER_KERNELS = 9
"""Two norms with the sum before them, rotary, attention (one more for torch's), four products, the activation."""
_VIT_LONG_KERNELS = 5
"""Of these: the products and attention. They fill every SM, and last as long as the batch is large."""
_VIT_PASSES = 20
"""Times that a layer reads or writes a patch's width outside of products and attention: sums and norms 8, rotary 4, the
activation 8."""

# Of PP-DocLayoutV2, by the same count, in transformers' code.
DETECTOR_KERNELS = 1_418
DETECTOR_FLOP = 0.183e12
"""Of a page."""
_DETECTOR_SLOWER = 16.0
"""Than the ViT's products in bfloat16: an eighth for float32 in TF32, and half of that for layers of few channels."""

# Of the language model, by the same count.
_PREFILL_LAYER_KERNELS = 9
_PREFILL_LAYER_BYTES = 1.1e6 / 24
"""Of a token outside of products and attention: norms and residuals 8 widths, rotary 3, silu · up 16, in bfloat16."""
_PREFILL_EFFICIENCY = 0.78
"""Of the rate of the ViT's products: K is 896, not 1280, so a product spends more on its beginning and end."""
_PREFILL_KERNELS = 38
"""Of a prefill, besides: uploads, embeddings, the sampler's rows, the first tokens and where they are kept."""
_STEP_KERNELS = 276
"""Of a decode step: the nodes in its graph, ten a layer; the copies around it."""
_STEP_EFFICIENCY = 0.6
"""Of the same rate in products of 64 to 512 rows: few tiles, so the last wave is seldom full."""
_KV_EFFICIENCY = 0.65
"""Of the memory's rate in paged attention: a block of 64 tokens at a time, few bytes in flight for short sequences."""
_LOGIT_BYTES = 8
"""Of a row's logit: written, read by the sampler together with its count, read again for its probability."""
_STEP_SHARE = 0.15
"""Of the GPU, that small kernels take from the ViT even if they read nothing."""
_MOST_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Speed:
    """Of a GPU and its host. Rates a second: linear, attention in FLOP, memory, upload, staging in bytes. The rest are
    seconds.

    kernel_s: what a kernel takes besides its work, launched one by one; node_s: within a graph. opening_s: how long a
    kernel waits beside short ones of another stream. vit_layer_host_s, prefill_layer_host_s: the host's, for launching
    a layer; vit_host_s, prefill_host_s, step_host_s: for the rest of a batch or step; row_host_s: for each row of a
    step; begin_host_s: for each sequence that begins.
    """

    linear: float
    attention: float
    memory: float
    upload: float
    # One core into pinned memory.
    staging: float = 6e9
    # Launch to launch on one stream without a graph, with small kernels: 2.5 to 4 µs by published measurements.
    kernel_s: float = 3.0e-6
    # 1.3 to 2 µs between the nodes of a graph.
    node_s: float = 1.75e-6
    # A wave of a short kernel's blocks has to end.
    opening_s: float = 7e-6
    # Launches through a driver that does nothing, on one core of an AMD EPYC: our kernels 7 to 11 µs each; attention
    # about 50 and a product 8 by published measurements.
    vit_layer_host_s: float = 0.12e-3
    prefill_layer_host_s: float = 0.12e-3
    vit_host_s: float = 1.5e-3
    prefill_host_s: float = 0.7e-3
    # The engine over a device that does nothing: 0.06 ms at 64 rows, 0.2 at 256, nearly twice that on a slower core.
    # 0.2 more for launching a graph and the copies of a step.
    step_host_s: float = 0.22e-3
    row_host_s: float = 1.3e-6
    begin_host_s: float = 0.06e-3

    def times(self, factor: float) -> Speed:
        """Everything so many times as fast."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return Speed(**{name: x / factor if name.endswith("_s") else x * factor for name, x in values.items()})


@dataclass(frozen=True, slots=True)
class Gpu:
    """memory_bytes: free before the model is loaded. attention: the library that it has for the ViT's."""

    name: GpuName
    memory_bytes: int
    attention: str
    speed: Speed


def _gpu(name: GpuName, gib: float, attention: str, speed: Speed) -> Gpu:
    return Gpu(name, int(gib * _GIB), attention, speed)


# Rates that kernels reach, not peaks: FLOP/s in bfloat16, useful ones only. Uploads from pinned memory: four fifths of
# PCIe 5.0 x16 (64 GB/s) and 4.0 (32 GB/s).
VIRTUAL_GPUS: dict[GpuName, Gpu] = {
    # FlashAttention 3 from sglang-kernel. 640 and 430: what large products and it (head size 80 padded to 96) reach by
    # published figures; 4.3 TB/s were measured on one.
    "h200": _gpu("h200", 139.0, "FA3", Speed(640e12, 430e12, 4.3e12, upload=50e9)),
    # The same chip if sglang-kernel does not load: torch's varlen_attn, which is FlashAttention 2; with slower memory
    # (3.35 TB/s by its data sheet, nine tenths of it).
    "h100": _gpu("h100", 79.0, "FA2", Speed(640e12, 270e12, 3.0e12, upload=50e9)),
    # 80 GB. FlashAttention 3 needs sm_90. Of 312 TFLOP/s and 2.0 TB/s by its data sheet: four fifths in products, half
    # in FlashAttention 2.
    "a100": _gpu("a100", 79.0, "FA2", Speed(250e12, 150e12, 1.75e12, upload=25e9)),
    # Of 165 TFLOP/s (float32 accumulation) and 1.0 TB/s by its data sheet: nine tenths, two thirds.
    "rtx4090": _gpu("rtx4090", 23.5, "FA2", Speed(150e12, 110e12, 0.92e12, upload=25e9)),
}


@dataclass(frozen=True, slots=True)
class Costs:
    """The kernels of the engine's work on a GPU of this speed."""

    architecture: Architecture
    speed: Speed

    def patches(self, pixel_bytes: int) -> Kernels:
        """Of bringing images to the GPU and cutting them into patches, which reads and writes each a few times."""
        speed = self.speed
        seconds = pixel_bytes / speed.upload + 6 * pixel_bytes / speed.memory
        return Kernels("preprocess", seconds, num=3, gaps=3 + seconds / speed.opening_s)

    def layouts(self, flop: float) -> Kernels:
        """Of a detector's batch, in float32: convolutions of few channels, in many kernels that do little."""
        seconds = max(flop * _DETECTOR_SLOWER / self.speed.linear, DETECTOR_KERNELS * self.speed.kernel_s)
        return Kernels("vit", seconds, num=DETECTOR_KERNELS, gaps=DETECTOR_KERNELS)

    def vision_layer(self, num_patches: Sequence[int]) -> Kernels:
        """Of one layer of the ViT; the embedding and the merger count as parts of all layers."""
        shape, speed = self.architecture.vision, self.speed
        attention = 4.0 * shape.width * sum(count**2 for count in num_patches)
        linear = vision_flop(shape, num_patches) / shape.depth - attention
        short_s = _VIT_PASSES * shape.width * _BFLOAT16 * sum(num_patches) / speed.memory
        seconds = linear / speed.linear + attention / speed.attention + short_s
        return Kernels(
            "vit",
            max(seconds, _VIT_LAYER_KERNELS * speed.kernel_s),
            _VIT_LAYER_KERNELS,
            gaps=_VIT_LONG_KERNELS + short_s / speed.opening_s,
        )

    def vision_seconds(self, num_patches: Sequence[int]) -> float:
        """Of all layers, alone."""
        return self.architecture.vision.depth * self.vision_layer(num_patches).alone_s

    def prefill_layer(self, lengths: Sequence[int]) -> Kernels:
        """Of one layer of a prefill; the logits count as parts of all layers."""
        shape, speed = self.architecture.language, self.speed
        products_s = prefill_flop(shape, lengths) / shape.num_layers / (speed.linear * _PREFILL_EFFICIENCY)
        seconds = products_s + sum(lengths) * _PREFILL_LAYER_BYTES / speed.memory
        return Kernels("prefill", max(seconds, _PREFILL_LAYER_KERNELS * speed.kernel_s), _PREFILL_LAYER_KERNELS)

    def begin(self) -> Kernels:
        """Of what a prefill needs besides its layers."""
        return Kernels("prefill", _PREFILL_KERNELS * self.speed.kernel_s, _PREFILL_KERNELS, share=_STEP_SHARE)

    def decode_step(self, num_rows: int, num_tokens: int) -> Kernels:
        """num_rows: of the graph, its padding included. num_tokens: in the KV cache, of all its rows."""
        shape, speed = self.architecture.language, self.speed
        row_flop = decode_flop(shape, [0])
        weight_bytes = row_flop / 2 * _BFLOAT16
        kv_bytes = num_tokens * 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim * _BFLOAT16
        products_s = max(weight_bytes / speed.memory, num_rows * row_flop / (speed.linear * _STEP_EFFICIENCY))
        reading_s = (kv_bytes / _KV_EFFICIENCY + num_rows * shape.vocab_size * _LOGIT_BYTES) / speed.memory
        seconds = _STEP_KERNELS * speed.node_s + products_s + reading_s
        share = _STEP_SHARE + (weight_bytes + kv_bytes) / speed.memory / seconds
        return Kernels("decode", seconds, _STEP_KERNELS, share=min(_MOST_SHARE, share))
