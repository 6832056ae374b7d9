"""The candidates for linear layers in fp8 and what goes with them, compared as in cuda_trials.py."""

from __future__ import annotations

from torch import Tensor

from batchocr.engine.backend import fp8
from batchocr.engine.backend.base import Affine, Linear
from batchocr.engine.backend.cuda import PlainLinear
from batchocr.engine.backend.cuda_trials import ROWS, VIT_MLP, VIT_WIDTH, CudaTrials, kernel
from batchocr.engine.backend.fp8 import AddLayerNormQuantize, Fp8Kernels, Fp8Linear, GeluBiasQuantize, QuantizeRows
from batchocr.engine.backend.trial import Candidate

OPERATIONS = _LINEAR, _NORM, _GELU = ("fp8 linear", "fp8 add_layer_norm", "fp8 gelu")
_STEP = 0.08
"""Relative to the largest value: one step of fp8 there. A value between two may be rounded to either."""


def try_all(trials: CudaTrials) -> Fp8Kernels | None:
    """What linear layers in fp8 need; None if the GPU cannot run them."""
    quantize = quantize_rows(trials)
    if quantize is None:
        return None
    return Fp8Kernels(quantize, add_layer_norm_quantize(trials), gelu_bias_quantize(trials))


def quantize_rows(trials: CudaTrials) -> QuantizeRows | None:
    """Quantises the rows that go into a linear layer in fp8; None if the GPU has no such layers."""
    x = trials.random(ROWS, VIT_WIDTH)
    layer = Affine(trials.random(VIT_MLP, VIT_WIDTH), trials.random(VIT_MLP))
    linears: dict[QuantizeRows | None, Linear] = {None: PlainLinear(layer)}

    def run(quantize: QuantizeRows | None) -> tuple[Tensor, ...]:
        if quantize is not None and quantize not in linears:  # the weights are quantised once
            linears[quantize] = Fp8Linear(layer, quantize)
        return (linears[quantize](x),)

    # Three mantissa bits in both operands: errors of a few per cent, averaged over 1,280 values.
    candidate: Candidate[QuantizeRows | None] = Candidate("triton and torch", kernel("quantize", "quantize_rows").load)
    return trials.choose(_LINEAR, [candidate], None, run, max_error=0.05, needed_for="--vit-dtype fp8")


def add_layer_norm_quantize(trials: CudaTrials) -> AddLayerNormQuantize:
    x, residual, weight, bias = trials.norm_case()

    def run(add: AddLayerNormQuantize) -> tuple[Tensor, ...]:
        total = residual.clone()
        values, scales = add(total, x, weight, bias, 1e-6)
        return total, values.float() * scales

    candidate: Candidate[AddLayerNormQuantize] = kernel("quantize", "add_layer_norm_quantize_")
    return trials.choose(_NORM, [candidate], fp8.add_layer_norm_quantize_, run, max_error=_STEP)


def gelu_bias_quantize(trials: CudaTrials) -> GeluBiasQuantize:
    x, bias = trials.random(ROWS, VIT_MLP), trials.random(VIT_MLP)

    def run(gelu: GeluBiasQuantize) -> tuple[Tensor, ...]:
        quantized = [gelu(x.clone(), bias, quick) for quick in (True, False)]
        return tuple(values.float() * scales for values, scales in quantized)

    candidate: Candidate[GeluBiasQuantize] = kernel("quantize", "gelu_bias_quantize")
    return trials.choose(_GELU, [candidate], fp8.gelu_bias_quantize, run, max_error=_STEP)
