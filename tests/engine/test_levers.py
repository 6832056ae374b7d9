"""The levers compute what the model does, with the reference, the interpreter and stand-ins in place of a GPU."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from triton.runtime.interpreter import InterpreterBuilder

from batchocr.engine.backend.base import PagedContext, Segments
from batchocr.engine.backend.cpu import CpuOps
from batchocr.engine.backend.device import Device
from batchocr.engine.backend.fp8 import quantize_rows
from batchocr.engine.backend.kernels import norm, quantize, rotary
from batchocr.engine.backend.reference import Ops
from batchocr.engine.model.language import LanguageModel
from batchocr.engine.model.vision import VisionModel
from batchocr.errors import UsageError
from benchmarks.gpu import lever_kernels, levers
from benchmarks.gpu.attention import FA3_PAGED
from tests.engine.test_cuda_layers import CPU, GRIDS, LANGUAGE, OPS, REFERENCE, VISION, RandomWeights
from tests.engine.test_kernels_quantize import _rounded
from tests.support.kernel_compilation import ARCHITECTURES, Launch, compiled, kernel_device
from tests.support.mineru_shape import MINERU
from tests.support.whole_vit import encode

E4M3 = torch.float8_e4m3fn
BFLOAT16 = torch.bfloat16
SHAPE = replace(LANGUAGE, vocab_size=512)


class RoundedWeights(RandomWeights):
    """In bfloat16, or what they are there in float32."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:  # type: ignore[override]
        return super().take(name, shape).bfloat16().to(self._dtype)


def embeddings(ops: Ops, dtype: torch.dtype = BFLOAT16) -> Tensor:
    """What a small vision model makes of two images."""
    model = VisionModel(VISION, MINERU.images, RoundedWeights(dtype), ops, Device(CPU))
    patches = torch.randint(0, 256, (28, 588), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        return encode(model, patches, GRIDS).float()


def logits(ops: Ops, dtype: torch.dtype = BFLOAT16) -> Tensor:
    """What a small language model says after a prompt, and after a token more."""
    model = LanguageModel(SHAPE, RoundedWeights(dtype), ops, CPU)
    cache, at, tokens = model.new_cache(2), torch.arange(10), torch.arange(9)
    slots = ops.kv_block_size + at
    with torch.inference_mode():
        segments = Segments.of([9], lambda ends: ends)
        prompt = model.prefill(model.embed(tokens), at[:9].expand(3, -1), slots[:9], segments, cache)
        context = PagedContext(torch.tensor([[1]]).int(), torch.tensor([10]).int())
        newest = model.decode(torch.tensor([1]), at[9:].expand(3, -1), slots[9:], context, cache)
    return torch.cat([prompt, newest]).float()


def off(values: Tensor, expected: Tensor) -> float:
    return float((values - expected).norm() / expected.norm())


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Inside, kernels are interpreted."""
    monkeypatch.setattr(InterpreterBuilder, "create_fp_to_fp", _rounded)
    with kernel_device(lever_kernels, norm, quantize, rotary):
        torch.manual_seed(0)
        yield


@pytest.fixture
def fa3(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """In place of sgl_kernel: demands what it demands. The options of the last call."""
    options: dict[str, object] = {}

    def attend(
        q: Tensor, k: Tensor, v: Tensor, ends: Tensor, k_ends: Tensor, longest: int, k_longest: int, **given: object
    ) -> Tensor:
        options.clear()
        options.update(given)
        lengths = ends.diff().tolist()
        assert longest == k_longest == max(lengths) and torch.equal(ends, k_ends)
        assert q.dtype == k.dtype == v.dtype
        alignment = 16 // q.element_size()
        for x in (q, k, v):
            assert x.stride(-1) == 1 and x.shape[-1] % alignment == 0
            assert all(stride % alignment == 0 for stride in (*x.stride()[:-1], x.storage_offset()))
        parts = [x.float() for x in (q, k, v)]
        for name, x in zip(("q_descale", "k_descale", "v_descale"), parts, strict=True):
            if isinstance(scale := given.get(name), Tensor):
                assert (scale.shape, scale.dtype) == ((len(lengths), x.shape[1]), torch.float32)
                x *= scale[0].unsqueeze(1)
        return REFERENCE.attention(*parts, Segments(lengths, ends), bool(given["causal"])).to(BFLOAT16)

    for module in ("sgl_kernel", "sgl_kernel.flash_attn"):
        monkeypatch.setitem(sys.modules, module, ModuleType(module))
    sys.modules["sgl_kernel.flash_attn"].flash_attn_varlen_func = attend  # type: ignore[attr-defined]
    return options


def test_fa3_leaves_multiprocessors_and_attends_as_ever(fa3: dict[str, object]) -> None:
    assert off(embeddings(levers.sm_margin(16)(OPS)), embeddings(OPS)) < 0.01
    assert fa3 == {"causal": False, "sm_margin": 16}


@pytest.mark.usefixtures("fa3")
def test_products_that_leave_multiprocessors_are_those_there_were(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int | None] = []
    monkeypatch.setattr(torch._C, "_set_sm_carveout_experimental", left.append)
    ops = levers.free_sms(16)(OPS)
    assert off(embeddings(ops), embeddings(OPS)) < 0.01
    assert left == [16, None] * (len(left) // 2)
    assert len(left) == 2 * (4 * VISION.depth + 3)  # and the patches' projection and the merger
    in_fp8 = levers.free_sms(16)(OPS.with_fp8())
    assert off(embeddings(in_fp8), embeddings(OPS.with_fp8())) < 0.05


@pytest.mark.usefixtures("kernels", "fa3")
def test_attention_in_8_bits_is_off_by_a_few_per_cent_and_not_by_none() -> None:
    exact = embeddings(REFERENCE, torch.float32)
    rounded = off(embeddings(OPS), exact)
    for lever in (levers.fp8_attention, levers.scaled_fp8_attention):
        error = off(embeddings(lever(OPS)), exact)
        assert rounded < error < 0.1


@pytest.mark.usefixtures("kernels")
def test_biases_that_are_carried_to_the_norms_change_nothing() -> None:
    carried = embeddings(levers.residual_in_products(OPS), torch.float32)
    torch.testing.assert_close(carried, embeddings(REFERENCE, torch.float32))


@pytest.mark.usefixtures("kernels")
def test_a_language_model_in_8_bits_is_off_by_a_few_per_cent_and_its_output_weights_are_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(levers, "_MOST_OUTPUTS_IN_FP8", 300)
    exact = logits(REFERENCE, torch.float32)
    apart, fused = (logits(lever(OPS)) for lever in (levers.fp8_language, levers.fused_fp8_language))
    assert 0.01 < off(apart, exact) < 0.1
    assert 0.01 < off(fused, exact) < 0.1
    assert off(fused, apart) < 0.03
    assert off(apart, exact) < off(logits(OPS.with_fp8()), exact)


def test_prefill_can_be_in_8_bits_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levers, "_MOST_DECODED_ROWS", 5)
    monkeypatch.setattr(levers, "_MOST_OUTPUTS_IN_FP8", 300)
    exact, apart = logits(REFERENCE, torch.float32), logits(levers.fp8_language(OPS))
    prefill = logits(levers.fp8_prefill(OPS))
    assert 0.01 < off(prefill[0], exact[0]) < 0.1
    assert off(prefill[1], exact[1]) < off(apart[1], exact[1])
    monkeypatch.setattr(levers, "_MOST_DECODED_ROWS", 9)
    assert torch.equal(logits(levers.fp8_prefill(OPS)), logits(OPS))


def test_no_lever_is_there_without_a_gpu(fa3: dict[str, object]) -> None:
    for lever in (levers.sm_margin(8), levers.fp8_attention, levers.fp8_language, levers.residual_in_products):
        with pytest.raises(UsageError, match="needs an NVIDIA GPU"):
            lever(CpuOps())


def test_fa3_over_the_cache_is_called_as_it_wants_to_be_and_plans_once_for_all_layers(
    fa3: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[Tensor] = []

    def attend(
        q: Tensor, keys: Tensor, values: Tensor, *, cache_seqlens: Tensor, page_table: Tensor, **given: object
    ) -> Tensor:
        assert given in ({"causal": True, "scheduler_metadata": plans[0]}, {"causal": True, "pack_gqa": True})
        context = PagedContext(page_table, cache_seqlens)
        return REFERENCE.paged_attention(q.squeeze(1), torch.stack([keys, values]), context).unsqueeze(1)

    def plan(*sizes: object, **options: object) -> Tensor:
        assert sizes[:6] == (2, 1, 6 * 64, 14, 2, 64)
        plans.append(torch.zeros(1))
        return plans[-1]

    module = sys.modules["sgl_kernel.flash_attn"]
    monkeypatch.setattr(module, "flash_attn_with_kvcache", attend, raising=False)
    monkeypatch.setattr(module, "get_scheduler_metadata", plan, raising=False)
    context = PagedContext(torch.arange(1, 13).view(2, 6).int(), torch.tensor([5, 130]).int())
    q, cache = torch.randn(2, 14, 64), torch.randn(2, 13, 64, 2, 64)
    loaded = {candidate.name: candidate.load() for candidate in FA3_PAGED}
    for name in (*["FA3 planned once"] * 2, "FA3 with packed heads"):
        torch.testing.assert_close(loaded[name](q, cache, context), REFERENCE.paged_attention(q, cache, context))
    assert len(plans) == 1


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("dtype", [torch.float32, BFLOAT16], ids=["float32", "bfloat16"])
def test_the_kernels_of_levers_do_what_torch_does(dtype: torch.dtype) -> None:
    x, weight, bias = 2 * torch.randn(5, 1280, dtype=dtype) + 1, *torch.randn(2, 1280, dtype=dtype)
    carried, kept = torch.randn(1280), x.clone()
    normed = lever_kernels.carried_layer_norm(x, carried, weight, bias, 1e-6)
    expected = F.layer_norm(x.float() + carried, (1280,), weight.float(), bias.float(), 1e-6).to(dtype)
    torch.testing.assert_close(normed, expected)
    assert torch.equal(x, kept)

    same_rows(lever_kernels.rms_norm_quantize(x, weight, 1e-6), quantize_rows(REFERENCE.rms_norm(x, weight, 1e-6)))

    gate_up = 3 * torch.randn(3, 2 * 1000, dtype=dtype)
    gate, up = gate_up.float().chunk(2, dim=1)
    same_rows(lever_kernels.silu_mul_quantize(gate_up), quantize_rows((F.silu(gate) * up).to(dtype)))

    qkv = 30 * torch.randn(3, 3, 16, 80, dtype=dtype)
    qkv[0, 2, 0, 0] = 1000
    angles = 10 * torch.randn(3, 40)
    q, k, v = qkv.float().unbind(1)
    turned = torch.stack([*REFERENCE.rotary(q, k, angles.cos(), angles.sin()), v], dim=1).clamp(-448, 448)
    quantized = lever_kernels.rotary_quantize(qkv, angles.cos(), angles.sin())
    assert quantized.dtype == E4M3
    torch.testing.assert_close(quantized.float(), turned.to(E4M3).float(), rtol=0.13, atol=2.0**-9)
    assert (quantized.float() == turned.to(E4M3).float()).float().mean() > 0.99


def same_rows(quantized: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> None:
    (values, scales), (wanted, wanted_scales) = quantized, expected
    torch.testing.assert_close(scales, wanted_scales, rtol=0.01, atol=0)
    torch.testing.assert_close(values.float() * scales, wanted.float() * wanted_scales, rtol=0.13, atol=0.01)
    assert (values.float() == wanted.float()).float().mean() > 0.98


LAUNCHES: tuple[tuple[str, Callable[[], object]], ...] = (
    (
        "carried_layer_norm",
        lambda: lever_kernels.carried_layer_norm(bf16(64, 1280), torch.empty(1280), bf16(1280), bf16(1280), 1e-6),
    ),
    (
        "rotary_quantize",
        lambda: lever_kernels.rotary_quantize(bf16(64, 3, 16, 80), torch.empty(64, 40), torch.empty(64, 40)),
    ),
    ("rms_norm_quantize", lambda: lever_kernels.rms_norm_quantize(bf16(64, 896), bf16(896), 1e-6)),
    ("silu_mul_quantize", lambda: lever_kernels.silu_mul_quantize(bf16(64, 2 * 4864))),
)


def bf16(*shape: int) -> Tensor:
    return torch.empty(shape, dtype=BFLOAT16)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "call"), LAUNCHES, ids=[name for name, _ in LAUNCHES])
def test_the_kernels_of_levers_compile_for_an_h100(name: str, call: Callable[[], object]) -> None:
    assert 90 in ARCHITECTURES
    [kernel] = compiled(Launch(name, call), 90)
    assert kernel.metadata.name == f"_{name}_kernel"
