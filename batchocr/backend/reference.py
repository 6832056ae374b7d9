"""Every operation in plain torch: the definition the other backends are compared with, and what runs on a CPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from batchocr.backend.base import PagedContext, Segments
from batchocr.backend.resize import resize_bicubic

_HAS_ONEDNN = bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]


class ReferenceOps:
    """Implements `backend.base.Ops` on any device."""

    name = "reference"
    kv_block_size = 16

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if x.device.type == "cpu" and _HAS_ONEDNN:
            # oneDNN takes 40 % of the time of the BLAS behind F.linear for the few rows of a decode step, and at most
            # as long for many (measured on an AMD EPYC).
            product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
            return product
        return F.linear(x, weight, bias)

    def __init__(self) -> None:
        # Pillow lets go of the interpreter while it resizes.
        self._threads = ThreadPoolExecutor(torch.get_num_threads(), thread_name_prefix="batchocr-resize")

    def resize(self, images: Sequence[Tensor], sizes: Sequence[tuple[int, int]]) -> list[Tensor]:
        return list(self._threads.map(_resize, images, sizes))

    def attention(self, q: Tensor, k: Tensor, v: Tensor, segments: Segments, *, causal: bool) -> Tensor:
        lengths = list(segments.lengths)
        parts = [
            _sdpa(*(part.transpose(0, 1).unsqueeze(0) for part in qkv), causal=causal)
            for qkv in zip(*(torch.split(x, lengths) for x in (q, k, v)), strict=True)
        ]
        parts = [part.squeeze(0).transpose(0, 1) for part in parts]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def store_kv(self, cache: Tensor, k: Tensor, v: Tensor, slots: Tensor) -> None:
        cache[0].flatten(0, 1).index_copy_(0, slots, k)
        cache[1].flatten(0, 1).index_copy_(0, slots, v)

    def paged_attention(self, q: Tensor, cache: Tensor, context: PagedContext) -> Tensor:
        out = torch.empty_like(q)
        block_size = cache.shape[2]
        for rows in _groups_of_similar_length(context.lengths):
            index = torch.tensor(rows, device=q.device)
            longest = max(context.lengths[row] for row in rows)
            tables = context.block_tables[index, : -(-longest // block_size)].long()
            # [2, rows, tokens, kv_heads, head_dim]
            keys, values = cache[:, tables].flatten(2, 3)[:, :, :longest]
            seen = torch.arange(longest, device=q.device) < context.lengths_device[index].unsqueeze(1)
            out[index] = _sdpa(
                q[index].unsqueeze(2), keys.transpose(1, 2), values.transpose(1, 2), mask=seen[:, None, None]
            ).squeeze(2)
        return out

    def rotary(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        return _rotate(q, cos, sin), _rotate(k, cos, sin)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, eps)

    def layer_norm(self, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        return F.layer_norm(x, (x.shape[-1],), weight, bias, eps)

    def quick_gelu(self, x: Tensor) -> Tensor:
        return (1.702 * x).sigmoid_().mul_(x)

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate) * up


def _resize(image: Tensor, size: tuple[int, int]) -> Tensor:
    height, width = size
    if image.shape[:2] == size:
        return image
    # On the host Pillow is both the definition and several times as fast as the same arithmetic in torch.
    if image.device.type != "cpu":
        return resize_bicubic(image, height, width)
    source = Image.frombuffer("RGB", (image.shape[1], image.shape[0]), image.numpy(), "raw", "RGB", 0, 1)
    resized = source.resize((width, height), Image.Resampling.BICUBIC)
    return torch.frombuffer(bytearray(resized.tobytes()), dtype=torch.uint8).view(height, width, 3)


def _sdpa(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, mask: Tensor | None = None) -> Tensor:
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1]
    )


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.float().chunk(2, dim=-1)
    turned = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    half = first.shape[-1]
    torch.mul(first, cos, out=turned[..., :half]).addcmul_(second, sin, value=-1)
    torch.mul(second, cos, out=turned[..., half:]).addcmul_(first, sin)
    return turned.to(x.dtype)


def _groups_of_similar_length(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Split a batch so that padding at most doubles the work: a page's layout is ten times as long as its blocks."""
    group: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: lengths[row]):
        if group and lengths[row] > 2 * lengths[group[0]]:
            yield group
            group = []
        group.append(row)
    yield group
