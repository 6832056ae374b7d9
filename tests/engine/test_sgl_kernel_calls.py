"""Our calls to FA3 of sgl_kernel and fa3-fwd, on functions with its names and parameters: both need a GPU to run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from batchocr.engine.backend.attention_kernels import ATTENTION, PAGED_ATTENTION
from batchocr.engine.backend.base import PagedContext, Segments
from batchocr.engine.backend.reference import Ops

REFERENCE = Ops(torch.device("cpu"))
SGL = "sgl_kernel FA3"


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *,
    causal: bool,
) -> Tensor:
    lengths = cu_seqlens_q.diff().tolist()
    assert is_int32(cu_seqlens_q, len(lengths) + 1) and torch.equal(cu_seqlens_q, cu_seqlens_k)
    assert max_seqlen_q == max_seqlen_k == max(lengths)
    return REFERENCE.attention(q, k, v, Segments(lengths, cu_seqlens_q), causal)


def flash_attn_with_kvcache(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, *, cache_seqlens: Tensor, page_table: Tensor, causal: bool
) -> Tensor:
    assert causal and q.shape[1] == 1
    assert page_table.dtype == torch.int32 and is_int32(cache_seqlens, len(q))
    context = PagedContext(page_table, cache_seqlens)
    return REFERENCE.paged_attention(q[:, 0], torch.stack([k_cache, v_cache]), context).unsqueeze(1)


@pytest.fixture(autouse=True)
def sgl_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the library, on an H100."""
    for module in ("sgl_kernel", "sgl_kernel.flash_attn", "fa3_fwd_interface"):
        monkeypatch.setitem(sys.modules, module, ModuleType(module))
    setattr(sys.modules["fa3_fwd_interface"], flash_attn_varlen_func.__name__, flash_attn_varlen_func)
    for function in (flash_attn_varlen_func, flash_attn_with_kvcache):
        setattr(sys.modules["sgl_kernel.flash_attn"], function.__name__, function)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))


@pytest.mark.parametrize("of_gpu", [(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)])
def test_fa3_is_not_even_loaded_but_on_sm_90(of_gpu: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: of_gpu)
    for candidates, name in ((ATTENTION, SGL), (ATTENTION, "fa3-fwd"), (PAGED_ATTENTION, SGL)):
        if of_gpu == (9, 0):
            loaded(candidates, name)
        else:
            with pytest.raises(NotImplementedError, match=f"on sm_90 only, .* sm_{of_gpu[0]}{of_gpu[1]}"):
                loaded(candidates, name)


def test_a_package_that_is_not_installed_is_no_candidate_and_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "fa3_fwd_interface")
    with pytest.raises(ModuleNotFoundError, match="fa3_fwd_interface"):
        loaded(ATTENTION, "fa3-fwd")


def loaded(candidates: tuple[Any, ...], name: str) -> Callable[..., Tensor]:
    [candidate] = [candidate for candidate in candidates if candidate.name == name]
    operation: Callable[..., Tensor] = candidate.load()
    return operation


def is_int32(value: Tensor, *shape: int) -> bool:
    return value.dtype == torch.int32 and value.shape == shape


@pytest.mark.parametrize("name", [SGL, "fa3-fwd"])
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "not causal"])
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(14, 2, 64), (16, 16, 80)])
def test_attention_over_segments(heads: int, kv_heads: int, head_dim: int, causal: bool, name: str) -> None:
    segments = Segments([5, 1, 9], torch.tensor([0, 5, 6, 15], dtype=torch.int32))
    q, k, v = torch.randn(15, heads + 2 * kv_heads, head_dim).split([heads, kv_heads, kv_heads], dim=1)
    attended = loaded(ATTENTION, name)(q, k, v, segments, causal)
    torch.testing.assert_close(attended, REFERENCE.attention(q, k, v, segments, causal))


def test_attention_over_the_cache() -> None:
    tables = torch.tensor([[3, 0, 0], [5, 0, 0], [6, 1, 4]], dtype=torch.int32)
    context = PagedContext(tables, torch.tensor([1, 64, 130], dtype=torch.int32))
    q, cache = torch.randn(3, 14, 64), torch.randn(2, 7, 64, 2, 64)
    attended = loaded(PAGED_ATTENTION, SGL)(q, cache, context)
    torch.testing.assert_close(attended, REFERENCE.paged_attention(q, cache, context))
