"""What the CUDA backend makes of layers, with the reference in place of its kernels: the same values, on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from batchocr.engine.backend.base import Activation, Affine, Linear, PagedContext, Rows, Segments
from batchocr.engine.backend.cuda import CudaOps, PlainLinear
from batchocr.engine.backend.device import Device
from batchocr.engine.backend.fp8 import Fp8Kernels, add_layer_norm_quantize_, gelu_bias_quantize, quantize_rows
from batchocr.engine.backend.reference import Ops, activate
from batchocr.engine.model.language import LanguageModel
from batchocr.engine.model.vision import VisionModel
from batchocr.engine.model.weights import WeightReader
from batchocr.planning.families.glm_ocr import SHAPES as GLM_OCR
from batchocr.planning.families.paddleocr_vl import SHAPES as PADDLEOCR_VL
from batchocr.processes.engine_messages import KernelChoice
from tests.support.mineru_shape import MINERU
from tests.support.whole_vit import encode

CPU = torch.device("cpu")
GLM_VISION, GLM_LANGUAGE = GLM_OCR
REFERENCE = Ops(CPU)
VISION = replace(MINERU.vision, depth=3, width=32, num_heads=2, mlp_width=80, merger_width=128, out_width=48)
LANGUAGE = replace(
    MINERU.language,
    num_layers=3,
    width=48,
    num_heads=6,
    num_kv_heads=2,
    head_dim=8,
    mlp_width=112,
    vocab_size=72,
    mrope_section=(1, 1, 2),
)
SHAPES = {"qwen2_vl": (VISION, LANGUAGE)}
SHAPES["glm_ocr"] = (
    replace(GLM_VISION, depth=3, width=32, num_heads=2, mlp_width=80, merger_width=96, out_width=48),
    replace(
        GLM_LANGUAGE,
        num_layers=3,
        width=40,
        num_heads=6,
        num_kv_heads=2,
        head_dim=8,
        mlp_width=112,
        vocab_size=72,
        mrope_section=(1, 1, 2),
    ),
)
SHAPES["paddleocr_vl"] = (
    replace(
        PADDLEOCR_VL[0],
        depth=3,
        width=32,
        num_heads=2,
        mlp_width=80,
        merger_width=128,
        out_width=48,
        positions_side=3,
    ),
    replace(SHAPES["glm_ocr"][1], rotates_neighbours=False, has_branch_norms=False),
)
GRIDS = [(4, 6), (2, 2)]


def add_layer_norm(
    residual: Tensor, product: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    residual.add_(product)
    return residual, REFERENCE.layer_norm(residual, weight, bias, eps)


OPS = CudaOps(
    attention=REFERENCE.attention,
    paged_attention=REFERENCE.paged_attention,
    rotary=REFERENCE.rotary,
    rotary_store=REFERENCE.rotary_store,
    rms_norm=REFERENCE.rms_norm,
    add_layer_norm=add_layer_norm,
    vit_gelu=lambda x, bias: activate(x + bias, "quick_gelu"),
    silu_mul=lambda x: activate(x, "silu_mul"),
    sample=REFERENCE.sample,
    patches=REFERENCE.patches,
    choices=(KernelChoice("paged_attention", "reference"), KernelChoice("sample", "reference")),
    fp8=Fp8Kernels(quantize_rows, add_layer_norm_quantize_, gelu_bias_quantize),
)


class RandomWeights(WeightReader):
    """The same random tensor for a name each time it is asked for."""

    def __init__(self) -> None:
        pass

    def __contains__(self, name: str) -> bool:
        return True

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:  # type: ignore[override]
        seed = sum(place * ord(letter) for place, letter in enumerate(name, start=1))
        values = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        return values if len(shape) == 1 else values / (values[0].numel() ** 0.5)


class OneAfterTheOther(CudaOps):
    """Linear layers in fp8 that quantise their own rows, whatever came before them."""

    def _bias_activation(self, following: Linear, activation: Activation) -> Callable[[Tensor, Tensor], Rows]:
        return super()._bias_activation(PlainLinear(Affine(torch.ones(8, 8))), activation)

    def then_layer_norm(self, layer: Linear, x: Rows, residual: Tensor, **options: Any) -> tuple[Tensor, Rows]:
        return super().then_layer_norm(layer, x, residual, **options | {"following": None})


class Spoiling(Ops):
    """Linear layers that leave nothing of a residual."""

    def linear(self, layer: Affine) -> Linear:
        linear = super().linear(layer)

        def apply(x: Rows, residual: Tensor | None = None) -> Tensor:
            product = linear(x, residual)
            if residual is not None:
                residual.fill_(torch.nan)
            return product

        return apply

    def mlp(self, inner: Affine, outer: Affine, activation: Activation) -> Linear:
        first, second = self.linear(inner), self.linear(outer)
        return lambda x, residual=None: second(activate(first(x), activation), residual)


def embeddings(ops: Ops, family: str = "qwen2_vl") -> Tensor:
    """What a small vision model makes of two images."""
    shape = SHAPES[family][0]
    if isinstance(ops, CudaOps) and shape.activation == "gelu_tanh":
        ops = replace(ops, vit_gelu=lambda x, bias: activate(x + bias, "gelu_tanh"))
    model = VisionModel(shape, MINERU.images, RandomWeights(), ops, Device(CPU))
    patches = torch.randint(0, 256, (28, 588), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return encode(model, patches, GRIDS)


def logits(ops: Ops, family: str = "qwen2_vl") -> Tensor:
    """What a small language model says after two prompts, and after a token more."""
    model = LanguageModel(SHAPES[family][1], RandomWeights(), ops, CPU)
    lengths = [9, 4]
    cache = model.new_cache(3)
    block_size = ops.kv_block_size
    slots = torch.cat([block_size * (1 + row) + torch.arange(length) for row, length in enumerate(lengths)])
    positions = torch.cat([torch.arange(length) for length in lengths]).expand(3, -1)
    tokens = torch.arange(13)
    segments = Segments.of(lengths, lambda ends: ends)
    prompts = model.prefill(model.embed(tokens), positions, slots, segments, cache)
    lengths = [length + 1 for length in lengths]
    context = PagedContext(torch.tensor([[1], [2]]).int(), torch.tensor(lengths).int())
    at = torch.tensor([9, 4])
    slots = block_size * torch.tensor([1, 2]) + at
    newest = model.decode(torch.tensor([1, 2]), at.expand(3, -1), slots, context, cache)
    return torch.cat([prompts, newest])


@pytest.mark.parametrize("family", SHAPES)
@pytest.mark.parametrize("run", [embeddings, logits])
def test_a_model_gives_what_it_gives_on_the_reference(run: Callable[[Ops, str], Tensor], family: str) -> None:
    with torch.inference_mode():
        torch.testing.assert_close(run(OPS, family), run(REFERENCE, family))


@pytest.mark.parametrize("family", SHAPES)
@pytest.mark.parametrize("run", [embeddings, logits])
def test_no_model_uses_a_residual_again(run: Callable[[Ops, str], Tensor], family: str) -> None:
    with torch.inference_mode():
        torch.testing.assert_close(run(Spoiling(CPU), family), run(REFERENCE, family))


@pytest.mark.parametrize("family", SHAPES)
def test_a_vit_in_fp8_gives_nearly_what_it_gives_on_the_reference(family: str) -> None:
    with torch.inference_mode():
        quantized, exact = embeddings(OPS.with_fp8(), family), embeddings(REFERENCE, family)
    assert not torch.equal(quantized, exact)
    assert float((quantized - exact).norm() / exact.norm()) < 0.1


def test_rows_that_are_quantized_where_they_are_computed_are_those_a_layer_would_quantize() -> None:
    ops = OneAfterTheOther(**{field.name: getattr(OPS.with_fp8(), field.name) for field in fields(OPS)})
    with torch.inference_mode():
        fused, apart = embeddings(OPS.with_fp8()), embeddings(ops)
    assert torch.equal(fused, apart)


def test_a_product_is_added_to_the_residual_where_it_lies() -> None:
    layer, x, residual = Affine(torch.randn(16, 24)), torch.randn(5, 24), torch.randn(5, 16)
    expected = x @ layer.weight.t() + residual
    added = PlainLinear(layer)(x, residual)
    torch.testing.assert_close(added, expected)
    assert added.data_ptr() == residual.data_ptr()


@pytest.mark.parametrize("width", [588, 587, 592])
def test_rows_of_any_width_are_multiplied_as_they_are(width: int) -> None:
    layer, x, residual = Affine(torch.randn(16, width), torch.randn(16)), torch.randn(5, width), torch.randn(5, 16)
    torch.testing.assert_close(PlainLinear(layer)(x, residual), REFERENCE.linear(layer)(x, residual))


def test_weights_with_aligned_rows_are_not_copied() -> None:
    layer = Affine(torch.randn(16, 592))
    assert PlainLinear(layer)._weight is layer.weight
