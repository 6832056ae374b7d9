"""Attention from several libraries, behind the two signatures that `Ops` needs.

Each loader imports its library when called, and raises if the library is missing or does not fit.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import groupby

import torch
from torch import Tensor

from batchocr.engine.backend.base import PagedContext, Segments
from batchocr.engine.backend.trial import Candidate

Attention = Callable[[Tensor, Tensor, Tensor, Segments, bool], Tensor]
"""(q, k, v, segments, causal) → the shape of q."""

PagedAttention = Callable[[Tensor, Tensor, PagedContext], Tensor]
"""(q, one layer's cache, context) → the shape of q."""

_LAYOUT_PATCHES = 74 * 74
"""Of the one image size that every page of MinerU2.5 has."""


def _require_fa3_cubins() -> None:
    """Raises NotImplementedError where sglang-kernel's FA3 has no code: it checks that for one of its two functions
    only, and ends the process where it fails."""
    major, minor = torch.cuda.get_device_capability()
    if major not in (8, 9):
        raise NotImplementedError(f"it is built for sm_80 to sm_90, and this GPU is sm_{major}{minor}")


def _sgl_attention() -> Attention:
    _require_fa3_cubins()
    from sgl_kernel.flash_attn import flash_attn_varlen_func

    def attend(q: Tensor, k: Tensor, v: Tensor, segments: Segments, causal: bool) -> Tensor:
        ends, longest = segments.cu_seqlens, segments.max_length
        out: Tensor = flash_attn_varlen_func(q, k, v, ends, ends, longest, longest, causal=causal)
        return out

    return attend


def _torch_attention() -> Attention:
    from torch.nn.attention.varlen import varlen_attn

    accepted = inspect.signature(varlen_attn).parameters

    def attend(q: Tensor, k: Tensor, v: Tensor, segments: Segments, causal: bool) -> Tensor:
        # torch 2.10 takes `is_causal`, later versions a window; the earliest cannot group heads.
        options: dict[str, object] = {"is_causal": causal}
        if "window_size" in accepted:
            options = {"window_size": (-1, 0) if causal else (-1, -1)}
        if q.shape[1] != k.shape[1]:
            if "enable_gqa" in accepted:
                options["enable_gqa"] = True
            else:
                k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
        ends, longest = segments.cu_seqlens, segments.max_length
        out = varlen_attn(q, k, v, ends, ends, longest, longest, **options)  # type: ignore[arg-type]
        assert isinstance(out, Tensor)
        return out

    return attend


def _cudnn_attention() -> Attention:
    """cuDNN for runs of layout images, which have half of the ViT's attention; the rest as above, and put behind them.

    cuDNN makes a plan for each shape that it is called with, so it is not asked to attend to the many other sizes. It
    takes heads where they lie in the product of queries, keys and values.
    """
    packed = _torch_attention()

    def attend(q: Tensor, k: Tensor, v: Tensor, segments: Segments, causal: bool) -> Tensor:
        if causal or _LAYOUT_PATCHES not in segments.lengths:
            return packed(q, k, v, segments, causal)
        parts, first, begin = [], 0, 0
        for is_layout, run in groupby(segments.lengths, _LAYOUT_PATCHES.__eq__):
            lengths = list(run)
            q_run, k_run, v_run = (x.narrow(0, begin, sum(lengths)) for x in (q, k, v))
            if is_layout:
                parts.append(_attend_in_layouts(q_run, k_run, v_run))
            else:
                ends = segments.cu_seqlens.narrow(0, first, len(lengths) + 1) - begin
                parts.append(packed(q_run, k_run, v_run, Segments(lengths, ends), False))
            first, begin = first + len(lengths), begin + sum(lengths)
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    return attend


def _attend_in_layouts(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention within each of a few layout images. q, k, v and result: [patches, heads, head_dim]."""
    q, k, v = (x.view(-1, _LAYOUT_PATCHES, *x.shape[1:]).transpose(1, 2) for x in (q, k, v))
    # Not `F.scaled_dot_product_attention`: it would take another library where cuDNN does not fit.
    attend = torch.ops.aten._scaled_dot_product_cudnn_attention
    attended: Tensor = attend(q, k, v, None, False, 0.0, False, False)[0]
    return attended.transpose(1, 2).flatten(0, 1)


def _sgl_paged_attention() -> PagedAttention:
    _require_fa3_cubins()
    from sgl_kernel.flash_attn import flash_attn_with_kvcache

    def attend(q: Tensor, cache: Tensor, context: PagedContext) -> Tensor:
        out: Tensor = flash_attn_with_kvcache(
            q.unsqueeze(1),
            cache[0],
            cache[1],
            cache_seqlens=context.lengths,
            page_table=context.block_tables,
            causal=True,
        )
        return out.squeeze(1)

    return attend


def _triton_paged_attention() -> PagedAttention:
    from batchocr.engine.backend.kernels.paged_attention import paged_attention

    def attend(q: Tensor, cache: Tensor, context: PagedContext) -> Tensor:
        out: Tensor = paged_attention(q, cache, context.block_tables, context.lengths)
        return out

    return attend


ATTENTION = (
    Candidate("sgl_kernel FA3", _sgl_attention),
    Candidate("torch varlen_attn", _torch_attention),
    Candidate("cuDNN and torch varlen_attn", _cudnn_attention),
)
PAGED_ATTENTION = (
    Candidate("sgl_kernel FA3", _sgl_paged_attention),
    Candidate("triton", _triton_paged_attention),
)
"""Both launch the same kernels every time, so that a decode step can be captured."""
