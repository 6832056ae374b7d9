"""The candidates for the operations on an NVIDIA GPU, and the cases on which they are compared.

Attention and sampling are tried at the sizes of a run, since which candidate is the fastest depends on them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from batchocr.engine.backend import fp8
from batchocr.engine.backend.attention_kernels import ATTENTION, PAGED_ATTENTION, Attention, PagedAttention
from batchocr.engine.backend.base import Activation, Affine, Linear, PagedContext, ResizePlan, SamplerRows, Segments
from batchocr.engine.backend.cuda import (
    AddLayerNorm,
    BiasActivation,
    CudaOps,
    Patches,
    PlainLinear,
    Rotary,
    RotaryStore,
    Sample,
)
from batchocr.engine.backend.reference import Ops, activate
from batchocr.engine.backend.trial import Candidate, Trial, choose, triton_kernel
from batchocr.planning.families import USUAL, Shapes
from batchocr.processes.engine_messages import KernelChoice

Operation = TypeVar("Operation")
Timer = Callable[[Callable[[], object]], float]

_EPS = 1e-6
_MAX_OUTPUT = 64
ROWS = 4000
_GRAPHS = "decoding in a CUDA graph"
_TABLE_COLUMNS = 512
"""The columns of a run's block tables, for sequences of 32,768 tokens: kernels divide their work by this, however few
blocks are in use."""
_PATCHES = [5476, 216, 1512, 864, 432, 2808, 216, 432, 432, 648, 432, 216, 3672, 432, 112]
"""The number of patches of each image in a ViT batch: a dense page's, its layout first."""
_DECODED_ROWS = [128, 256]
"""The numbers of sequences in the decode steps whose times are added up."""
_SAMPLED_ROWS = 256
FP8_OPERATIONS = ("fp8 linear", "fp8 add_layer_norm", "fp8 gelu")
_FP8_STEP = 0.08
"""How far fp8 values may differ, relative to the largest value: one step of fp8 there. A value between two may be
rounded to either."""


class CudaTrials:
    """Compares the candidates for each operation, one operation after the other, and records each choice in
    `choices`."""

    def __init__(
        self,
        device: torch.device,
        dtype: torch.dtype,
        timer: Timer,
        shapes: Shapes = USUAL.shapes,
        kept: Sequence[KernelChoice] = (),
    ) -> None:
        """kept: choices of an earlier start, which are only checked."""
        self.choices: list[KernelChoice] = []
        self._kept = {choice.operation: choice for choice in kept}
        self._vision, self._language = shapes
        self._split = [self._language.num_heads, *[self._language.num_kv_heads] * 2]
        self._device = device
        self._dtype = dtype
        self._timer = timer
        self._reference = Ops(device)
        self._generator = torch.Generator(device).manual_seed(0)
        # The error of rounding the result alone, with a margin for a different order of summation.
        self._max_error = 1e-4 if dtype == torch.float32 else 2e-2

    def ops(self, *, with_fp8: bool) -> CudaOps:
        """The choice for every operation; with_fp8: also for linear layers in fp8."""
        return CudaOps(
            attention=self.attention(),
            paged_attention=self.paged_attention(),
            rotary=self.rotary(),
            rotary_store=self.rotary_store(),
            rms_norm=self.rms_norm(),
            add_layer_norm=self.add_layer_norm(),
            vit_gelu=self.vit_gelu(),
            silu_mul=self.silu_mul(),
            sample=self.sample(),
            patches=self.patches(),
            fp8=self.fp8_kernels() if with_fp8 else None,
            choices=tuple(self.choices),
        )

    def attention(self) -> Attention:
        prompts = [number // 4 + 30 for number in _PATCHES]
        images, texts = (Segments.of(lengths, lambda ends: ends.to(self._device)) for lengths in (_PATCHES, prompts))
        vision = self._random(sum(_PATCHES), 3 * self._vision.num_heads, self._vision.head_dim).chunk(3, dim=1)
        language = self._random(sum(prompts), sum(self._split), self._language.head_dim).split(self._split, dim=1)

        def run(attend: Attention) -> tuple[Tensor, ...]:
            (vision_q, vision_k, vision_v), (q, k, v) = vision, language
            return attend(vision_q, vision_k, vision_v, images, False), attend(q, k, v, texts, True)

        return self._choose("attention", ATTENTION, self._reference.attention, run)

    def paged_attention(self) -> PagedAttention:
        steps = [self._decode_step(_decoded_lengths(rows)) for rows in _DECODED_ROWS]
        return self._choose(
            "paged_attention",
            PAGED_ATTENTION,
            self._reference.paged_attention,
            lambda attend: tuple(attend(*step) for step in steps),
            needed_for=_GRAPHS,
        )

    def _decode_step(self, lengths: list[int]) -> tuple[Tensor, Tensor, PagedContext]:
        """Queries, a layer's cache, and where in it sequences of these lengths are, their blocks scattered."""
        block_size = CudaOps.kv_block_size
        needed = [-(-length // block_size) for length in lengths]
        scattered = 1 + torch.randperm(sum(needed), generator=self._generator, device=self._device, dtype=torch.int32)
        tables = [F.pad(blocks, (0, _TABLE_COLUMNS - len(blocks))) for blocks in scattered.split(needed)]
        q = self._random(len(lengths), self._language.num_heads, self._language.head_dim)
        cache = self._random(2, 1 + sum(needed), block_size, self._language.num_kv_heads, self._language.head_dim)
        lengths_there = torch.tensor(lengths, dtype=torch.int32, device=self._device)
        return q, cache, PagedContext(torch.stack(tables), lengths_there)

    def rotary(self) -> Rotary:
        qkv = self._random(ROWS, 3, self._vision.num_heads, self._vision.head_dim)
        cos, sin = self._random(2, ROWS, self._vision.head_dim // 2, dtype=torch.float32)

        def run(turn: Rotary) -> tuple[Tensor, ...]:
            q, k, _ = qkv.clone().unbind(1)
            return turn(q, k, cos, sin)

        return self._choose("rotary", [triton_kernel("rotary", "rotary_")], self._reference.rotary, run)

    def rotary_store(self) -> RotaryStore:
        tokens = ROWS // 2
        qkv = self._random(tokens, sum(self._split), self._language.head_dim)
        cos, sin = self._random(2, tokens, self._language.head_dim // 2, dtype=torch.float32)
        slots = torch.randperm(64 * 40, generator=self._generator, device=self._device)[:tokens]

        def run(turn_and_store: RotaryStore) -> tuple[Tensor, ...]:
            cache = torch.zeros(
                2, 40, 64, self._language.num_kv_heads, self._language.head_dim, dtype=self._dtype, device=self._device
            )
            q, k, v = qkv.clone().split(self._split, dim=1)
            return (*turn_and_store(q, k, v, cos, sin, cache, slots), cache)

        candidates = [triton_kernel("rotary", "rotary_store_")]
        return self._choose("rotary_store", candidates, self._reference.rotary_store, run)

    def rms_norm(self) -> Callable[[Tensor, Tensor, float], Tensor]:
        widths = [self._language.width]
        widths += [self._vision.width] * self._vision.has_rms_norms
        widths += [self._vision.head_dim] * self._vision.has_qk_norms
        cases = [(self._random(ROWS, width), self._random(width)) for width in widths]

        def run(norm: Callable[[Tensor, Tensor, float], Tensor]) -> tuple[Tensor, ...]:
            return tuple(norm(x, weight, _EPS) for x, weight in cases)

        return self._choose("rms_norm", [triton_kernel("norm", "rms_norm")], self._reference.rms_norm, run)

    def add_layer_norm(self) -> AddLayerNorm:
        def reference(
            residual: Tensor, product: Tensor, weight: Tensor, bias: Tensor, eps: float
        ) -> tuple[Tensor, Tensor]:
            total = product.add_(residual)
            return total, self._reference.layer_norm(total, weight, bias, eps)

        x, residual, weight, bias = self._norm_case()
        return self._choose(
            "add_layer_norm",
            [triton_kernel("norm", "add_layer_norm_")],
            reference,
            lambda add: add(residual.clone(), x.clone(), weight, bias, _EPS),
        )

    def vit_gelu(self) -> BiasActivation:
        name: Activation = "gelu_tanh" if self._vision.activation == "gelu_tanh" else "quick_gelu"

        def reference(x: Tensor, bias: Tensor) -> Tensor:
            return activate(x + bias, name)

        x, bias = self._random(ROWS, self._vision.mlp_width), self._random(self._vision.mlp_width)
        candidates = [triton_kernel("activation", f"{name}_bias_")]
        return self._choose(name, candidates, reference, lambda apply: (apply(x.clone(), bias),))

    def silu_mul(self) -> Callable[[Tensor], Tensor]:
        widths = [self._language.mlp_width]
        widths += [self._vision.mlp_width] * (self._vision.activation == "silu_mul")
        cases = [self._random(ROWS, 2 * width) for width in widths]
        candidates = [triton_kernel("activation", "silu_mul")]
        return self._choose("silu_mul", candidates, lambda x: activate(x, "silu_mul"), lambda op: tuple(map(op, cases)))

    def sample(self) -> Sample:
        count = _SAMPLED_ROWS
        # float32, so that no two scores are equal and the choice is unique; in the run's own type, one stands out.
        logits = self._random(count, self._language.vocab_size, dtype=torch.float32)
        rounded = self._random(count, self._language.vocab_size)
        rounded.diagonal().fill_(8.0)
        index = torch.arange(count, device=self._device)

        def run(sample: Sample) -> tuple[Tensor, ...]:
            rows = _sampler_rows(count + 1, self._language.vocab_size, self._device)
            steps = [sample(logits.clone(), index, rows, _MAX_OUTPUT) for _ in range(3)]
            steps.append(
                sample(
                    rounded.clone(),
                    index,
                    _sampler_rows(count + 1, self._language.vocab_size, self._device),
                    _MAX_OUTPUT,
                )
            )
            return (*(value for step in steps for value in step), rows.length[:count])

        candidates = [triton_kernel("sampling", "sample")]
        return self._choose("sample", candidates, self._reference.sample, run, max_error=1e-5, needed_for=_GRAPHS)

    def patches(self) -> Patches:
        sizes = [(2200, 1700), (90, 700), (61, 61)]
        images = [torch.randint(0, 256, (*size, 3), dtype=torch.uint8) for size in sizes]
        plans: list[ResizePlan] = [((1036, 1036),), ((84, 700),), ((112, 112), (56, 56))]
        return self._choose(
            "patches",
            [Candidate("triton", lambda: partial(triton_kernel("preprocess", "patches").load(), device=self._device))],
            self._reference.patches,
            lambda cut: (cut(images, plans, self._vision.patch_size, self._vision.merge_size),),
            max_error=0.0,
        )

    def fp8_kernels(self) -> fp8.Fp8Kernels | None:
        """What linear layers in fp8 need; None if the GPU cannot run them."""
        quantize = self._fp8_linear()
        return None if quantize is None else fp8.Fp8Kernels(quantize, self._fp8_add_layer_norm(), self._fp8_gelu())

    def _fp8_linear(self) -> fp8.QuantizeRows | None:
        """Quantises the rows that go into a linear layer in fp8; None if the GPU has no such layers."""
        x = self._random(ROWS, self._vision.width)
        layer = Affine(self._random(self._vision.mlp_width, self._vision.width), self._random(self._vision.mlp_width))
        linears: dict[fp8.QuantizeRows | None, Linear] = {None: PlainLinear(layer)}

        def run(quantize: fp8.QuantizeRows | None) -> tuple[Tensor, ...]:
            if quantize is not None and quantize not in linears:  # the weights are quantised once
                linears[quantize] = fp8.Fp8Linear(layer, quantize)
            return (linears[quantize](x),)

        # Three mantissa bits in both operands: errors of a few per cent, averaged over a row.
        candidate: Candidate[Any] = Candidate("triton and torch", triton_kernel("quantize", "quantize_rows").load)
        return self._choose(FP8_OPERATIONS[0], [candidate], None, run, max_error=0.05, needed_for="--vit-dtype fp8")

    def _fp8_add_layer_norm(self) -> fp8.AddLayerNormQuantize:
        x, residual, weight, bias = self._norm_case()

        def run(add: fp8.AddLayerNormQuantize) -> tuple[Tensor, ...]:
            total = residual.clone()
            values, scales = add(total, x, weight, bias, _EPS)
            return total, values.float() * scales

        candidates = [triton_kernel("quantize", "add_layer_norm_quantize_")]
        return self._choose(FP8_OPERATIONS[1], candidates, fp8.add_layer_norm_quantize_, run, max_error=_FP8_STEP)

    def _fp8_gelu(self) -> fp8.GeluBiasQuantize:
        x, bias = self._random(ROWS, self._vision.mlp_width), self._random(self._vision.mlp_width)

        def run(gelu: fp8.GeluBiasQuantize) -> tuple[Tensor, ...]:
            quantized = [gelu(x.clone(), bias, quick) for quick in (True, False)]
            return tuple(values.float() * scales for values, scales in quantized)

        candidates = [triton_kernel("quantize", "gelu_bias_quantize")]
        return self._choose(FP8_OPERATIONS[2], candidates, fp8.gelu_bias_quantize, run, max_error=_FP8_STEP)

    def _norm_case(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Rows of a product, those of a residual, and a norm's weight and bias, at the ViT's width."""
        x, residual = self._random(ROWS, self._vision.width), self._random(ROWS, self._vision.width)
        return x, residual, self._random(self._vision.width), self._random(self._vision.width)

    def _choose(
        self,
        operation: str,
        candidates: Sequence[Candidate[Any]],
        reference: Operation,
        run: Callable[[Operation], tuple[Tensor, ...]],
        max_error: float | None = None,
        needed_for: str = "",
    ) -> Operation:
        """The fastest right candidate; see Trial. max_error: None for that of this dtype."""
        bound = self._max_error if max_error is None else max_error
        trial = Trial(operation, candidates, reference, run, bound, needed_for)
        chosen, choice = choose(trial, self._timer, self._kept.get(operation))
        self.choices.append(choice)
        return chosen

    def _random(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Values of a normal distribution, on the device."""
        return torch.randn(shape, generator=self._generator, device=self._device, dtype=dtype or self._dtype)


def _decoded_lengths(rows: int) -> list[int]:
    """Tokens of sequences that are decoded together: blocks', one in eight a layout's or a table's, and a few at the
    edges of KV blocks."""
    lengths = [1400 + 2600 * row // rows if row % 8 == 0 else 200 + 37 * row % 700 for row in range(rows)]
    return [4000, 1, 64, 65, *lengths[4:]]


def _sampler_rows(num_rows: int, vocab_size: int, device: torch.device) -> SamplerRows:
    """Rows of sequences with every rule set and no output yet."""
    rows = SamplerRows.empty(num_rows, vocab_size, _MAX_OUTPUT, device)
    settings = (rows.presence, 1.0), (rows.frequency, 0.05), (rows.ngram_size, 2), (rows.repetition, 1.1)
    for setting, value in settings:
        setting.fill_(value)
    return rows
