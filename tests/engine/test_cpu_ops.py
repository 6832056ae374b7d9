"""The CPU's own linear layers, MLPs and paged attention against the reference."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
import torch
from torch import Tensor

from batchocr.engine.backend.base import Activation, Affine, Linear, PagedContext
from batchocr.engine.backend.cpu import CpuOps
from batchocr.engine.backend.reference import Ops

CPU = torch.device("cpu")
ROWS = pytest.mark.parametrize("rows", [1, 5, 300])
BIAS = pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
RESIDUAL = pytest.mark.parametrize("residual", [True, False], ids=["residual", "no residual"])
ACTIVATIONS = pytest.mark.parametrize("activation", get_args(Activation))
DTYPES = pytest.mark.parametrize(
    ("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)], ids=["float32", "bfloat16"]
)

WIDTH, OUT = 61, 47
"""Odd, so that neither is a multiple of the processor's vector length."""


@pytest.fixture(scope="module")
def ops() -> CpuOps:
    return CpuOps()


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    torch.manual_seed(0)


def affine(out: int, width: int, *, bias: bool, dtype: torch.dtype) -> Affine:
    return Affine(torch.randn(out, width, dtype=dtype) / width**0.5, torch.randn(out, dtype=dtype) if bias else None)


def assert_agree(own: Linear, reference: Linear, x: Tensor, residual: Tensor | None, bound: float) -> None:
    """The values agree to within `bound` times the largest one, and the inputs are left as they were."""
    before = [x.clone(), None if residual is None else residual.clone()]
    with torch.inference_mode():
        values, expected = own(x, residual), reference(x, residual)
    assert values.dtype == x.dtype
    assert (values.float() - expected.float()).abs().max() <= bound * expected.float().abs().max()
    for tensor, kept in zip((x, residual), before, strict=True):
        assert tensor is None or (kept is not None and torch.equal(tensor, kept))


@ROWS
@BIAS
@RESIDUAL
@DTYPES
def test_a_linear_layer_is_that_of_the_reference(
    ops: CpuOps, rows: int, bias: bool, residual: bool, dtype: torch.dtype, bound: float
) -> None:
    layer, x = affine(OUT, WIDTH, bias=bias, dtype=dtype), torch.randn(rows, WIDTH, dtype=dtype)
    added = torch.randn(rows, OUT, dtype=dtype) if residual else None
    assert_agree(ops.linear(layer), Ops(CPU).linear(layer), x, added, bound)


@ROWS
@BIAS
@RESIDUAL
@DTYPES
@ACTIVATIONS
def test_an_mlp_is_that_of_the_reference(
    ops: CpuOps, activation: Activation, rows: int, bias: bool, residual: bool, dtype: torch.dtype, bound: float
) -> None:
    gated = activation == "silu_mul"
    inner = affine(2 * OUT if gated else OUT, WIDTH, bias=bias and not gated, dtype=dtype)
    outer = affine(WIDTH, OUT, bias=bias, dtype=dtype)
    x = 3 * torch.randn(rows, WIDTH, dtype=dtype)
    added = torch.randn(rows, WIDTH, dtype=dtype) if residual else None
    own, reference = ops.mlp(inner, outer, activation), Ops(CPU).mlp(inner, outer, activation)
    assert_agree(own, reference, x, added, bound)


def test_a_layer_that_was_loaded_as_part_of_a_larger_matrix_is_packed_right(ops: CpuOps) -> None:
    matrix = torch.randn(2 * OUT, 2 * WIDTH)
    layer = Affine(matrix[::2, WIDTH:], torch.randn(OUT))
    assert_agree(ops.linear(layer), Ops(CPU).linear(layer), torch.randn(5, WIDTH), None, 1e-5)


@pytest.mark.parametrize(
    "tables",
    [
        pytest.param([[1, 2, 3], [4, 5, 0], [6, 0, 0]], id="in one piece"),
        pytest.param([[5, 6, 2], [1, 3, 0], [4, 0, 0]], id="in pieces"),
    ],
)
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (6, 2)], ids=["own heads", "shared heads"])
@pytest.mark.parametrize("apart", [True, False], ids=["heads apart", "heads together"])
def test_decode_attention_is_that_of_the_reference(
    ops: CpuOps, tables: list[list[int]], heads: int, kv_heads: int, apart: bool
) -> None:
    """Over tokens that were stored one step at a time."""
    size, head_dim, lengths = ops.kv_block_size, 8, [2 * ops.kv_block_size + 5, 2 * ops.kv_block_size, 1]
    reference, expected_cache = Ops(CPU), torch.randn(2, 7, size, kv_heads, head_dim)
    order = (0, 3, 1, 2, 4) if apart else (0, 1, 2, 3, 4)
    cache = torch.empty_permuted(expected_cache.shape, order).copy_(expected_cache)
    for step in range(3):
        now = torch.tensor(lengths, dtype=torch.int32) + step
        context = PagedContext(torch.tensor(tables, dtype=torch.int32), now)
        newest = now.long() - 1
        slots = context.block_tables.gather(1, newest.unsqueeze(1) // size).squeeze(1) * size + newest % size
        q, k, v = torch.randn(3, heads, head_dim), *torch.randn(2, 3, kv_heads, head_dim)
        cos, sin = torch.randn(2, 3, head_dim // 2)
        turned, _ = ops.rotary_store(q, k, v, cos, sin, cache, slots)
        expected, _ = reference.rotary_store(q, k, v, cos, sin, expected_cache, slots)
        assert torch.equal(cache, expected_cache)
        torch.testing.assert_close(
            ops.paged_attention(turned, cache, context), reference.paged_attention(expected, expected_cache, context)
        )


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [2], indirect=True)
@pytest.mark.usefixtures("threads")
def test_zeros_take_memory_only_where_they_are_written_to(ops: CpuOps) -> None:
    before = resident_bytes()
    zeros = ops.zeros((4, 1 << 26), torch.ones(1, dtype=torch.bfloat16))
    zeros[3, :9] = 1
    assert resident_bytes() - before < 1 << 26
    assert zeros[:, :: 1 << 14].sum() == 1
    assert (zeros.shape, zeros.dtype) == ((4, 1 << 26), torch.bfloat16)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def test_to_resize_starts_no_threads_but_those_of_its_pool() -> None:
    """With more OpenMP threads than cores, those that wait would sleep at once."""
    ops = CpuOps()
    large = torch.rand(512, 512)
    large @ large  # starts torch's own
    before = set(os.listdir("/proc/self/task"))
    ops.patches([torch.zeros(560, 560, 3, dtype=torch.uint8)] * 4, [((1120, 1120),)] * 4, 14, 2)
    assert len(set(os.listdir("/proc/self/task")) - before) <= 2


@pytest.mark.usefixtures("threads")
def test_products_and_attention_are_the_same_on_any_number_of_cores() -> None:
    ops, reference = CpuOps(), Ops(CPU)
    layer, x = affine(OUT, WIDTH, bias=True, dtype=torch.float32), torch.randn(300, WIDTH)
    assert_agree(ops.linear(layer), reference.linear(layer), x, torch.randn(300, OUT), 1e-5)
    q, cache = torch.randn(2, 4, 8), torch.randn(2, 5, ops.kv_block_size, 4, 8)
    context = PagedContext(torch.tensor([[1, 2], [4, 3]], dtype=torch.int32), torch.tensor([20, 30]))
    torch.testing.assert_close(ops.paged_attention(q, cache, context), reference.paged_attention(q, cache, context))
