"""Attention from several libraries, behind the two signatures that `Ops` needs.

Each loader imports its library when called, and raises if the library is missing or does not fit.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module

import torch
from torch import Tensor

from batchocr.engine.backend.base import PagedContext, Segments
from batchocr.engine.backend.trial import Candidate, triton_kernel

Attention = Callable[[Tensor, Tensor, Tensor, Segments, bool], Tensor]
"""A function of attention: (q, k, v, segments, causal) → the shape of q."""

PagedAttention = Callable[[Tensor, Tensor, PagedContext], Tensor]
"""A function of paged attention: (q, one layer's cache, context) → the shape of q."""


def _require_sm_90() -> None:
    """Raises NotImplementedError where FA3 is not worth its risk: it ends the process where it fails, as users of L20
    and RTX 4080 have seen, and on an A100 it gains little. Beyond sm_90 both packages have no code."""
    major, minor = torch.cuda.get_device_capability()
    if (major, minor) != (9, 0):
        raise NotImplementedError(f"it is tried on sm_90 only, and this GPU is sm_{major}{minor}")


def _fa3(module: str) -> Callable[[], Attention]:
    """Loads FA3 of the package that has this module."""

    def load() -> Attention:
        _require_sm_90()
        flash_attn_varlen_func = import_module(module).flash_attn_varlen_func

        def attend(q: Tensor, k: Tensor, v: Tensor, segments: Segments, causal: bool) -> Tensor:
            ends, longest = segments.cu_seqlens, segments.max_length
            out: Tensor = flash_attn_varlen_func(q, k, v, ends, ends, longest, longest, causal=causal)
            return out

        return attend

    return load


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


def _sgl_paged_attention() -> PagedAttention:
    _require_sm_90()
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


ATTENTION = (
    Candidate("sgl_kernel FA3", _fa3("sgl_kernel.flash_attn")),
    Candidate("fa3-fwd", _fa3("fa3_fwd_interface")),
    Candidate("torch varlen_attn", _torch_attention),
)
PAGED_ATTENTION = (
    Candidate("sgl_kernel FA3", _sgl_paged_attention),
    triton_kernel("paged_attention", "paged_attention"),
)
"""The candidates for paged attention. Both launch the same kernels every time, so that a decode step can be
captured."""
