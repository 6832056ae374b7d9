"""The model's Triton kernels: results against the reference, and what they use once compiled."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from batchocr.engine.backend.base import PagedContext
from batchocr.engine.backend.kernels import activation, norm, paged_attention, rotary
from batchocr.engine.backend.reference import Ops
from batchocr.planning.architecture import LanguageShape, VisionShape
from batchocr.planning.families import FAMILIES, USUAL, Shapes
from tests.support.kernel_compilation import Launch, compiled, kernel_device, resources

REFERENCE = Ops(torch.device("cpu"))
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])


@pytest.fixture
def device() -> Iterator[torch.device]:
    with kernel_device(activation, norm, paged_attention, rotary) as device, device:
        torch.manual_seed(0)
        yield device


@DTYPES
@pytest.mark.parametrize(("rows", "width"), [(1, 5120), (9, 1024), (6, 1000), (3, 24)])
def test_the_activations_are_those_of_the_reference(
    device: torch.device, dtype: torch.dtype, rows: int, width: int
) -> None:
    x, bias = 3 * torch.randn(rows, width, dtype=dtype), torch.randn(width, dtype=dtype)
    biased = x.float() + bias.float()

    quick, tanh = x.clone(), x.clone()
    activation.quick_gelu_bias_(quick, bias)
    activation.gelu_tanh_bias_(tanh, bias)

    torch.testing.assert_close(quick, (biased * torch.sigmoid(1.702 * biased)).to(dtype))
    torch.testing.assert_close(tanh, F.gelu(biased, approximate="tanh").to(dtype))
    gate, up = x.float().chunk(2, dim=-1)
    torch.testing.assert_close(activation.silu_mul(x), (F.silu(gate) * up).to(dtype))


@DTYPES
@pytest.mark.parametrize(("rows", "width"), [(5, 896), (3, 1280), (1, 40), (2, 8192)])
def test_the_norm_is_that_of_the_reference(device: torch.device, dtype: torch.dtype, rows: int, width: int) -> None:
    x = 2 * torch.randn(rows, width, dtype=dtype) + 1
    weight = torch.randn(width, dtype=dtype)

    torch.testing.assert_close(norm.rms_norm(x, weight, 1e-6), REFERENCE.rms_norm(x, weight, 1e-6))


@DTYPES
@pytest.mark.parametrize(("rows", "width"), [(5, 896), (3, 1280), (1, 40), (2, 8192)])
def test_a_sum_and_its_norm_are_those_of_the_reference(
    device: torch.device, dtype: torch.dtype, rows: int, width: int
) -> None:
    product, residual = torch.randn(rows, width, dtype=dtype), 2 * torch.randn(rows, width, dtype=dtype) + 1
    weight, bias = torch.randn(width, dtype=dtype), torch.randn(width, dtype=dtype)
    total = product + residual

    summed, normed = norm.add_layer_norm_(residual, product, weight, bias, 1e-6)

    assert summed is residual
    torch.testing.assert_close(residual, total)
    expected = F.layer_norm(total.float(), (width,), weight.float(), bias.float(), 1e-6)
    torch.testing.assert_close(normed, expected.to(dtype))
    # The norm is of the sum as it was rounded.
    assert torch.equal(normed, norm.add_layer_norm_(residual, torch.zeros_like(product), weight, bias, 1e-6)[1])


@DTYPES
@pytest.mark.parametrize(("tokens", "heads", "head_dim"), [(7, 16, 80), (1, 2, 8), (5, 3, 48)])
def test_heads_are_turned_where_they_lie_in_the_product(
    device: torch.device, dtype: torch.dtype, tokens: int, heads: int, head_dim: int
) -> None:
    product = torch.randn(tokens, 3, heads, head_dim, dtype=dtype)
    cos, sin = angles(tokens, head_dim)
    q, k, v = product.clone().unbind(1)
    expected = torch.stack([*REFERENCE.rotary(q, k, cos, sin), v], dim=1)

    q, k, _ = product.unbind(1)
    rotary.rotary_(q, k, cos, sin)

    torch.testing.assert_close(product, expected)


@DTYPES
@pytest.mark.parametrize(
    ("tokens", "heads", "kv_heads", "head_dim", "block_size"),
    [(6, 14, 2, 64, 256), (3, 16, 8, 128, 64), (1, 4, 2, 16, 16), (9, 5, 5, 48, 64)],
)
def test_turned_keys_and_values_reach_their_slots_and_no_others(
    device: torch.device,
    dtype: torch.dtype,
    tokens: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    block_size: int,
) -> None:
    product = torch.randn(tokens, heads + 2 * kv_heads, head_dim, dtype=dtype)
    pool = torch.randn(2, 3, 3, block_size, kv_heads, head_dim, dtype=dtype)
    slots = torch.randperm(3 * block_size)[:tokens]
    cos, sin = angles(tokens, head_dim)
    parts = [heads, kv_heads, kv_heads]
    q, k, v = product.clone().split(parts, dim=1)
    expected_pool = pool.clone()
    turned = REFERENCE.rotary_store(q, k, v, cos, sin, expected_pool[:, 1], slots)

    rotary.rotary_store_(*product.split(parts, dim=1), cos, sin, pool[:, 1], slots)

    torch.testing.assert_close(product, torch.cat([*turned, v], dim=1))
    torch.testing.assert_close(pool, expected_pool)


@pytest.mark.slow
@DTYPES
@pytest.mark.parametrize(
    ("block_size", "heads", "kv_heads", "head_dim"),
    [
        pytest.param(16, 14, 2, 64, marks=pytest.mark.long),
        (64, 14, 2, 64),
        (256, 14, 2, 64),
        (64, 16, 8, 128),
        (16, 3, 1, 80),
        (64, 20, 1, 16),
    ],
)
def test_decode_attention_is_that_of_the_reference(
    device: torch.device, dtype: torch.dtype, block_size: int, heads: int, kv_heads: int, head_dim: int
) -> None:
    lengths = [1, 65, 20, 530, 256]
    q = torch.randn(len(lengths), heads + 2 * kv_heads, head_dim, dtype=dtype)[:, :heads]
    cache, context = paged(lengths, block_size, kv_heads, head_dim, dtype)

    attended = paged_attention.paged_attention(q, cache, context)

    torch.testing.assert_close(attended, REFERENCE.paged_attention(q, cache, context), **tolerance(dtype))


def test_a_long_sequence_is_attended_to_in_as_many_parts_as_there_are(device: torch.device) -> None:
    lengths = [7_900, 3]
    q = torch.randn(len(lengths), 2, 16)
    cache, context = paged(lengths, 256, 1, 16, torch.float32)

    attended = paged_attention.paged_attention(q, cache, context)

    torch.testing.assert_close(attended, REFERENCE.paged_attention(q, cache, context))


def test_what_lies_beyond_a_sequence_does_not_reach_its_attention(device: torch.device) -> None:
    lengths = [5, 290]
    q = torch.randn(len(lengths), 14, 64)
    cache, context = paged(lengths, 16, 2, 64, torch.float32)
    expected = REFERENCE.paged_attention(q, cache, context)
    used = torch.zeros(cache.shape[1:3], dtype=torch.bool)
    for table, length in zip(context.block_tables, lengths, strict=True):
        for token in range(length):
            used[table[token // 16], token % 16] = True
    cache[:, ~used] = torch.nan

    attended = paged_attention.paged_attention(q, cache, context)

    torch.testing.assert_close(attended, expected)


def test_a_sequence_without_tokens_gets_zeros(device: torch.device) -> None:
    cache, context = paged([300, 300], 64, 2, 64, torch.float32)
    context.lengths[1] = 0

    attended = paged_attention.paged_attention(torch.randn(2, 14, 64), cache, context)

    assert attended[1].eq(0).all() and attended[0].ne(0).all()


def angles(tokens: int, head_dim: int) -> tuple[Tensor, Tensor]:
    turns = 10 * torch.randn(tokens, head_dim // 2)
    return turns.cos(), turns.sin()


def paged(
    lengths: list[int], block_size: int, kv_heads: int, head_dim: int, dtype: torch.dtype
) -> tuple[Tensor, PagedContext]:
    """A layer's cache, strided as in a pool of layers, and sequences whose blocks are scattered over it."""
    most_blocks = -(-max(lengths) // block_size)
    order = torch.randperm(len(lengths) * most_blocks + 1)
    tables = order[: len(lengths) * most_blocks].view(len(lengths), most_blocks).int()
    tables[torch.arange(most_blocks) * block_size >= torch.tensor(lengths).unsqueeze(1)] = 0
    cache = torch.randn(2, 3, len(order), block_size, kv_heads, head_dim, dtype=dtype)[:, 1]
    return cache, PagedContext(tables, torch.tensor(lengths, dtype=torch.int32))


def tolerance(dtype: torch.dtype) -> dict[str, float]:
    """The tolerance: attention weights are rounded to the dtype of the values."""
    return {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 8e-3}


def bfloat16(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.bfloat16)


def turn_heads_of_vision(tokens: int, shape: VisionShape) -> None:
    q, k, _ = bfloat16(tokens, 3, shape.num_heads, shape.head_dim).unbind(1)
    angles = torch.zeros(tokens, shape.head_dim // 2)
    rotary.rotary_(q, k, angles, angles)


def queries_and_cache(tokens: int, shape: LanguageShape) -> tuple[list[Tensor], Tensor]:
    heads = [shape.num_heads, shape.num_kv_heads, shape.num_kv_heads]
    cache = bfloat16(shape.num_layers, 2, 4, 256, shape.num_kv_heads, shape.head_dim)[0]
    return list(bfloat16(tokens, sum(heads), shape.head_dim).split(heads, dim=1)), cache


def store_heads_of_language(tokens: int, shape: LanguageShape) -> None:
    (q, k, v), cache = queries_and_cache(tokens, shape)
    angles, slots = torch.zeros(tokens, shape.head_dim // 2), torch.zeros(tokens, dtype=torch.int64)
    rotary.rotary_store_(q, k, v, angles, angles, cache, slots)


def attend_in_decode(sequences: int, shape: LanguageShape = USUAL.shapes[1]) -> None:
    (q, *_), cache = queries_and_cache(sequences, shape)
    tables, lengths = torch.zeros(sequences, 31 + sequences, dtype=torch.int32), torch.zeros(sequences).int()
    paged_attention.paged_attention(q, cache, PagedContext(tables, lengths))


def launches(rows: int, shapes: Shapes) -> tuple[Launch, ...]:
    vision, language = shapes
    inner, outer = bfloat16(vision.mlp_width), bfloat16(vision.width)
    is_tanh = vision.activation == "gelu_tanh"
    gelu_ = activation.gelu_tanh_bias_ if is_tanh else activation.quick_gelu_bias_
    return (
        Launch(gelu_.__name__, lambda: gelu_(bfloat16(rows, vision.mlp_width), inner)),
        Launch("silu_mul", lambda: activation.silu_mul(bfloat16(rows, 2 * language.mlp_width))),
        Launch("rms_norm", lambda: norm.rms_norm(bfloat16(rows, language.width), bfloat16(language.width), 1e-6)),
        Launch(
            "add_layer_norm_",
            lambda: norm.add_layer_norm_(
                bfloat16(rows, vision.width), bfloat16(rows, vision.width), outer, outer, 1e-6
            ),
        ),
        Launch("rotary_", lambda: turn_heads_of_vision(rows, vision)),
        Launch("rotary_store_", lambda: store_heads_of_language(rows, language)),
        Launch("paged_attention", lambda: attend_in_decode(rows, language)),
    )


LAUNCHES = launches(64, USUAL.shapes)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("rows", [1, 63])
def test_a_batch_of_another_size_needs_no_other_kernel(rows: int, family: str) -> None:
    shapes = FAMILIES[family].shapes
    for usual, other in zip(launches(64, shapes), launches(rows, shapes), strict=True):
        assert compiled(other, 90) == compiled(usual, 90), usual.name


def test_decode_attention_loads_a_tile_while_it_works_on_another() -> None:
    keys_and_values = 2 * 64 * 64 * 2

    attend, _ = resources(Launch("paged_attention", lambda: attend_in_decode(64)), 90)

    assert attend.shared_bytes >= 2 * keys_and_values
