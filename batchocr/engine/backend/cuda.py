"""NVIDIA GPU operations: matrix products from cuBLAS, attention from libraries, nearly all else from Triton kernels.

Attention and kernels are chosen among the candidates in cuda_trials.py, tried on the GPU when a run starts. What the
vision encoder does once in a batch, its first norm and its last activation, is left to torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor
from torch.nn import functional as F

from batchocr.engine.backend.attention_kernels import Attention, PagedAttention
from batchocr.engine.backend.base import (
    Activation,
    Affine,
    Linear,
    QuantizedRows,
    ResizePlan,
    Rows,
    SamplerRows,
)
from batchocr.engine.backend.fp8 import Fp8Kernels, Fp8Linear, fits_fp8
from batchocr.engine.backend.reference import Ops
from batchocr.errors import UsageError
from batchocr.processes.engine_messages import KernelChoice

_ALIGNED_VALUES = 8
"""How many values of bfloat16 are in 16 bytes, to which addresses are aligned."""

BiasActivation = Callable[[Tensor, Tensor], Tensor]
"""A function of an activation: (product, bias) → activation(product + bias), possibly in place."""

AddLayerNorm = Callable[[Tensor, Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]
"""A function of a sum and its LayerNorm: (residual, product, weight, bias, eps) → residual + product, possibly in place
of the residual, and its LayerNorm."""

Rotary = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
RotaryStore = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
Patches = Callable[[Sequence[Tensor], Sequence[ResizePlan], int, int], Tensor]
Sample = Callable[[Tensor, Tensor, SamplerRows, int], tuple[Tensor, Tensor]]


# By keyword, as a dataclass takes an operation that it inherits for the default of the field of that name.
@dataclass(frozen=True, slots=True, kw_only=True)
class CudaOps(Ops):
    """The operations of an NVIDIA GPU, as they were chosen there."""

    name = "cuda"
    kv_block_size = 64

    attention: Attention
    paged_attention: PagedAttention
    rotary: Rotary
    rotary_store: RotaryStore
    rms_norm: Callable[[Tensor, Tensor, float], Tensor]
    add_layer_norm: AddLayerNorm
    vit_gelu: BiasActivation
    """The activation that adds a bias, of the ViT: quick_gelu or gelu_tanh."""
    silu_mul: Callable[[Tensor], Tensor]
    sample: Sample
    patches: Patches
    choices: tuple[KernelChoice, ...] = ()
    """How the operations were chosen, one choice for each."""
    fp8: Fp8Kernels | None = None
    """The kernels for linear layers in fp8; None if there can be none."""
    in_fp8: bool = False
    """Whether linear layers are in fp8. A norm of a sum, or an activation, that comes before one then quantises its
    rows in the same pass."""

    @property
    def capturable(self) -> bool:
        # The reference needs lengths from the host.
        plain = {choice.operation for choice in self.choices if choice.taken == "reference"}
        return plain.isdisjoint(("paged_attention", "sample"))

    def with_fp8(self) -> CudaOps:
        if self.fp8 is None:
            raise UsageError(
                "--vit-dtype fp8 needs --dtype bfloat16 and a GPU of compute capability 8.9 or higher (RTX 40, L40S, "
                "H100, H200, …); the log says what was tried"
            )
        return replace(self, in_fp8=True)

    def linear(self, layer: Affine) -> Linear:
        if self.in_fp8 and self.fp8 and fits_fp8(layer):
            return Fp8Linear(layer, self.fp8.quantize_rows)
        return PlainLinear(layer)

    def mlp(self, inner: Affine, outer: Affine, activation: Activation) -> Linear:
        match activation:
            case "silu_mul":
                gate_up, down, silu_mul = self.linear(inner), self.linear(outer), self.silu_mul
                return lambda x, residual=None: down(silu_mul(gate_up(x)), residual)
            case "quick_gelu" | "gelu_tanh" | "gelu":
                assert inner.bias is not None
                last = self.linear(outer)
                activate = self._bias_activation(last, activation)
                return _CudaMlp(self.linear(Affine(inner.weight)), inner.bias, last, activate)

    def _bias_activation(self, following: Linear, activation: Activation) -> Callable[[Tensor, Tensor], Rows]:
        """The activation whose result the following layer takes; in 8 bits, if that layer is."""
        if self.fp8 and isinstance(following, Fp8Linear):
            kernel = self.fp8.gelu_bias
            return lambda x, bias: QuantizedRows(*kernel(x, bias, activation == "quick_gelu"))
        return (lambda x, bias: F.gelu(x.add_(bias))) if activation == "gelu" else self.vit_gelu

    def then_layer_norm(
        self,
        layer: Linear,
        x: Rows,
        residual: Tensor,
        *,
        norm: Affine,
        eps: float,
        following: Linear | None,
    ) -> tuple[Tensor, Rows]:
        assert norm.bias is not None
        first = following.inner if isinstance(following, _CudaMlp) else following
        if self.fp8 and isinstance(first, Fp8Linear):
            rows = self.fp8.add_layer_norm_(residual, layer(x), norm.weight, norm.bias, eps)
            return residual, QuantizedRows(*rows)
        return self.add_layer_norm(residual, layer(x), norm.weight, norm.bias, eps)


class PlainLinear:
    """A linear layer by cuBLAS. Without a bias, the product is added to the residual where it lies; `torch.addmm` would
    copy it first.

    A weight whose rows are not whole multiples of 16 bytes (588 values in the patch projection) is padded with zeros,
    because cuBLAS has only slow kernels for others; so is each input, in a pass over it.
    """

    def __init__(self, layer: Affine) -> None:
        self._padding = -layer.weight.shape[1] % _ALIGNED_VALUES
        self._weight = F.pad(layer.weight, (0, self._padding)) if self._padding else layer.weight
        self._bias = layer.bias

    def __call__(self, x: Rows, residual: Tensor | None = None) -> Tensor:
        assert isinstance(x, Tensor)
        if self._padding:
            x = F.pad(x, (0, self._padding))
        if residual is None:
            return F.linear(x, self._weight, self._bias)
        if self._bias is None:
            return residual.addmm_(x, self._weight.t())
        return F.linear(x, self._weight, self._bias).add_(residual)


@dataclass(frozen=True, slots=True)
class _CudaMlp:
    """An MLP whose inner layer runs without its bias: the activation adds it in its own pass."""

    inner: Linear
    inner_bias: Tensor
    outer: Linear
    activate: Callable[[Tensor, Tensor], Rows]

    def __call__(self, x: Rows, residual: Tensor | None = None) -> Tensor:
        return self.outer(self.activate(self.inner(x), self.inner_bias), residual)
