"""Inputs for every operation of a backend, at the widths of MinerU2.5 and at odd ones, for `ops_check`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from batchocr.data import Sampling
from batchocr.engine import backend
from batchocr.engine.backend.base import Activation, Affine, PagedContext, SamplerRows, Segments
from batchocr.engine.backend.reference import Ops

Copy = Callable[[Tensor], Tensor]
"""Copies an input, because operations overwrite theirs, and changes its dtype if the operations need another."""

Case = Callable[[Ops, Copy], tuple[Tensor, ...]]
"""Runs an operation on one set of inputs. Returns its outputs, and the tensors that it wrote to."""

_EPS = 1e-6


@dataclass(frozen=True, slots=True)
class Bench:
    """What cases are made with. most_rows: limit on rows, tokens or sequences. most_columns: of matrices."""

    ops: Ops
    device: torch.device
    dtype: torch.dtype
    most_rows: int
    most_columns: int

    def random(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        return torch.randn(shape, device=self.device, dtype=dtype or self.dtype)

    def rows(self, count: int) -> int:
        return min(count, self.most_rows)

    def columns(self, *counts: int) -> list[int]:
        return [min(count, self.most_columns) for count in counts]

    def layer(self, out: int, width: int, *, bias: bool) -> Affine:
        return Affine(width**-0.5 * self.random(out, width), self.random(out) if bias else None)


def _copied(layer: Affine, copy: Copy) -> Affine:
    return Affine(copy(layer.weight), None if layer.bias is None else copy(layer.bias))


def norms(bench: Bench, rows: int, width: int) -> Case:
    x, weight, bias = 1 + 2 * bench.random(bench.rows(rows), width), bench.random(width), bench.random(width)
    return lambda ops, copy: (
        ops.rms_norm(copy(x), copy(weight), _EPS),
        ops.layer_norm(copy(x), copy(weight), copy(bias), _EPS),
    )


def then_layer_norm(bench: Bench, rows: int, width: int, out: int, fp8: bool = False) -> Case:
    """A layer, the norm of its sum with a residual, and the layer that takes that."""
    width, out = bench.columns(width, out)
    layer, following = bench.layer(out, width, bias=True), bench.layer(width, out, bias=True)
    norm = Affine(1 + bench.random(out) / 4, bench.random(out) / 4)
    x, residual = bench.random(bench.rows(rows), width), 1 + 2 * bench.random(bench.rows(rows), out)

    def run(ops: Ops, copy: Copy) -> tuple[Tensor, ...]:
        make = backend.vision_ops(ops, "fp8") if fp8 and ops is bench.ops else ops
        first, last = make.linear(_copied(layer, copy)), make.linear(_copied(following, copy))
        copied = _copied(norm, copy)
        total, rows = make.then_layer_norm(first, copy(x), copy(residual), norm=copied, eps=_EPS, following=last)
        _, normed = make.then_layer_norm(first, copy(x), copy(residual), norm=copied, eps=_EPS, following=None)
        assert isinstance(normed, Tensor)
        return total, last(rows), normed

    return run


def linear(bench: Bench, rows: int, width: int, out: int, fp8: bool = False) -> Case:
    width, out = bench.columns(width, out)
    biased = bench.layer(out, width, bias=True)
    x, residual = bench.random(bench.rows(rows), width), bench.random(bench.rows(rows), out)

    def run(ops: Ops, copy: Copy) -> tuple[Tensor, ...]:
        make = backend.vision_ops(ops, "fp8") if fp8 and ops is bench.ops else ops
        plain, full = make.linear(Affine(copy(biased.weight))), make.linear(_copied(biased, copy))
        return plain(copy(x)), full(copy(x)), full(copy(x), residual=copy(residual))

    return run


def mlp(bench: Bench, rows: int, activation: Activation, width: int, inner: int, out: int, fp8: bool = False) -> Case:
    width, inner, out = bench.columns(width, inner, out)
    gated = activation == "silu_mul"
    first = bench.layer(2 * inner if gated else inner, width, bias=not gated)
    second = bench.layer(out, inner, bias=not gated)
    x, residual = bench.random(bench.rows(rows), width), bench.random(bench.rows(rows), out)

    def run(ops: Ops, copy: Copy) -> tuple[Tensor, ...]:
        make = backend.vision_ops(ops, "fp8") if fp8 and ops is bench.ops else ops
        layers = make.mlp(_copied(first, copy), _copied(second, copy), activation)
        return layers(copy(x)), layers(copy(x), residual=copy(residual))

    return run


def rotary(bench: Bench, tokens: int, heads: int, head_dim: int) -> Case:
    product = bench.random(bench.rows(tokens), 3, heads, head_dim)
    angles = 10 * bench.random(bench.rows(tokens), head_dim // 2, dtype=torch.float32)

    def run(ops: Ops, copy: Copy) -> tuple[Tensor, ...]:
        q, k, _ = copy(product).unbind(1)
        return ops.rotary(q, k, angles.cos(), angles.sin())

    return run


def rotary_store(bench: Bench, tokens: int, heads: int, kv_heads: int, head_dim: int) -> Case:
    tokens, block_size = bench.rows(tokens), bench.ops.kv_block_size
    blocks = 2 * tokens // block_size + 2
    product = bench.random(tokens, heads + 2 * kv_heads, head_dim)
    cache = bench.random(2, blocks, block_size, kv_heads, head_dim)
    angles = 10 * bench.random(tokens, head_dim // 2, dtype=torch.float32)
    slots = torch.randperm(blocks * block_size, device=bench.device)[:tokens]

    def run(ops: Ops, copy: Copy) -> tuple[Tensor, ...]:
        written = copy(cache)
        q, k, v = copy(product).split([heads, kv_heads, kv_heads], dim=1)
        return (*ops.rotary_store(q, k, v, angles.cos(), angles.sin(), written, slots), written)

    return run


def attention(
    bench: Bench, lengths: Sequence[int], heads: int, kv_heads: int, head_dim: int, causal: bool = False
) -> Case:
    lengths = [bench.rows(length) for length in lengths]
    product = bench.random(sum(lengths), heads + 2 * kv_heads, head_dim)
    segments = Segments.of(lengths, lambda ends: ends.to(bench.device))

    def run(ops: Ops, copy: Copy) -> tuple[Tensor, ...]:
        q, k, v = copy(product).split([heads, kv_heads, kv_heads], dim=1)
        return (ops.attention(q, k, v, segments, causal),)

    return run


def paged_attention(bench: Bench, lengths: Sequence[int], heads: int, kv_heads: int, head_dim: int) -> Case:
    lengths = [bench.rows(length) for length in lengths[: bench.most_rows]]
    columns = -(-max(lengths) // bench.ops.kv_block_size)
    blocks = 1 + torch.randperm(len(lengths) * columns, device=bench.device)
    q = bench.random(len(lengths), heads, head_dim)
    cache = bench.random(2, len(blocks) + 1, bench.ops.kv_block_size, kv_heads, head_dim)
    context = PagedContext(
        blocks.view(len(lengths), columns).int(),
        torch.tensor(lengths, dtype=torch.int32, device=bench.device),
    )
    return lambda ops, copy: (ops.paged_attention(copy(q), copy(cache), context),)


def sample(bench: Bench, sequences: int, vocabulary: int, steps: int) -> Case:
    """All rules are set, and a few tokens are so likely that they occur again and again."""
    settings = [Sampling(steps, 1.0, 0.05, 2 + row % 3) for row in range(bench.rows(sequences))]
    [vocabulary] = bench.columns(vocabulary)
    index = torch.randperm(len(settings), device=bench.device)
    logits = bench.random(steps, len(settings), vocabulary, dtype=torch.float32)
    logits[:, :, :12] += 5

    def run(ops: Ops, copy: Copy) -> tuple[Tensor, ...]:
        rows = SamplerRows.empty(len(settings) + 1, vocabulary, steps, bench.device)
        rows.presence[:-1], rows.frequency[:-1] = 1.0, 0.05
        rows.repetition[:-1:2] = 1.1
        rows.prompt[:] = torch.arange(rows.prompt.shape[1], device=bench.device) % vocabulary
        rows.ngram_size[:-1] = torch.tensor([one.no_repeat_ngram_size for one in settings], device=bench.device)
        chosen = [ops.sample(copy(logits[step]), index, rows, steps) for step in range(steps)]
        # Relative to ids of 150,000, an id that is off by one would be a negligible error.
        return *(tokens % 97 for tokens, _ in chosen), *(logprobs for _, logprobs in chosen)

    return run


def patches(bench: Bench, height: int, width: int, *sizes: tuple[int, int]) -> Case:
    images = [torch.randint(0, 256, (height, width, 3), dtype=torch.uint8) for _ in range(2)]
    return lambda ops, copy: (ops.patches(images, [sizes, sizes], 14, 2),)


CASES: dict[str, tuple[Callable[..., Case], list[tuple[Any, ...]]]] = {
    "norms": (norms, [(1, 896), (7, 1280), (65_536, 1280), (16_384, 896), (3, 24), (2, 1000)]),
    "then_layer_norm": (then_layer_norm, [(1, 1280, 1280), (17, 5120, 1280), (65_536, 1280, 1280), (3, 40, 24)]),
    "linear": (linear, [(1, 896, 1152), (17, 896, 896), (5476, 588, 1280), (5476, 1280, 3840), (256, 896, 151_936)]),
    "mlp": (
        mlp,
        [(rows, "quick_gelu", 1280, 5120, 1280) for rows in (1, 17, 5476)]
        + [(rows, "silu_mul", 896, 4864, 896) for rows in (1, 17, 5476)]
        + [(1369, "gelu", 5120, 5120, 896)],
    ),
    "rotary": (rotary, [(1, 16, 80), (17_900, 16, 80), (5, 3, 20)]),
    "rotary_store": (rotary_store, [(1, 14, 2, 64), (4096, 14, 2, 64), (9, 5, 5, 48)]),
    "attention": (
        attention,
        [([5476, 888, 4, 112], 16, 16, 80), ([7956], 16, 16, 80), ([1400, 250, 33, 1], 14, 2, 64, True)],
    ),
    "paged_attention": (
        paged_attention,
        [
            (lengths, 14, 2, 64)
            for lengths in ([1400], [1, 64, 65, 300, 1400, 700], list(range(200, 968, 3)), [9000, 2])
        ],
    ),
    "sample": (sample, [(64, 151_936, 30), (3, 1000, 8)]),
    "patches": (
        patches,
        [
            (2160, 3840, (924, 1652)),
            (2200, 1700, (1036, 1036)),
            (61, 61, (112, 112), (56, 56)),
            (56, 84, (56, 84)),
            (33, 1400, (28, 1400)),
        ],
    ),
    "fp8_linear": (linear, [(17, 1280, 3840, True), (5476, 5120, 1280, True), (5476, 588, 1280, True)]),
    "fp8_then_layer_norm": (then_layer_norm, [(17, 1280, 1280, True), (5476, 5120, 1280, True), (7, 40, 24, True)]),
    "fp8_mlp": (
        mlp,
        [
            (17, "quick_gelu", 1280, 5120, 1280, True),
            (5476, "quick_gelu", 1280, 5120, 1280, True),
            (1369, "gelu", 5120, 5120, 896, True),
        ],
    ),
}
"""For each check, the function that makes a case, and the sizes of its cases."""
