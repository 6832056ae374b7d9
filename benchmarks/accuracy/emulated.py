"""`python -m benchmarks.accuracy.emulated PART,PART FD`: the product's engine process, parts of whose model compute as
a GPU would in 8-bit floating point, so that what that costs a reading is known without one.

PART: `vit` and `language`, the linear layers of `--vit-dtype fp8` and those of the language model but for its output
weights; `attention`, the ViT's, whose q, k, v and probabilities are e4m3 as in FA3. Products are summed in float32, and
all else is in the model's dtype. FD: as of `batchocr.engine`. Not emulated: the order of a sum.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from batchocr.config import Config
from batchocr.engine import serve, start
from batchocr.engine.backend.base import Activation, Affine, Linear, Rows, Segments
from batchocr.engine.backend.fp8 import LARGEST, fits_fp8, quantize_rows
from batchocr.engine.backend.reference import Ops, activate
from batchocr.engine.model.checkpoint import Model, load_model
from batchocr.job.output_job import read_into_table
from batchocr.job.session import Session
from batchocr.job.stop import StopSwitch
from batchocr.pages.input.sources import find_documents
from batchocr.planning.families import read_architecture
from batchocr.tables.output import Output

PARTS = ("vit", "attention", "language")
_PROBABILITY_SCALE = 256.0
"""FA3 multiplies the probabilities of a row, the largest of which is 1, before it rounds them."""


def read_emulated(folder: Path, config: Config, parts: Sequence[str], out: Path) -> None:
    """Read the folder's documents into `out` with an engine whose model computes these parts in fp8."""
    command = (sys.executable, "-m", "benchmarks.accuracy.emulated", ",".join(parts))
    with closing(Session(config, engine_command=command)) as session:
        read_into_table(session, config, find_documents([str(folder)]), Output(out), StopSwitch(), None)


class EmulatedOps(Ops):
    """The reference, with linear layers or attention as in fp8.

    products: whether linear layers are. largest: the most outputs of those. attends: whether attention is.
    """

    def __init__(self, device: torch.device, *, products: bool, largest: int = 1 << 62, attends: bool = False) -> None:
        super().__init__(device)
        self._products = products
        self._largest = largest
        self._attends = attends

    def linear(self, layer: Affine) -> Linear:
        in_fp8 = self._products and fits_fp8(layer) and len(layer.weight) <= self._largest
        return _Fp8(layer, *quantize_rows(layer.weight)) if in_fp8 else super().linear(layer)

    def mlp(self, inner: Affine, outer: Affine, activation: Activation) -> Linear:
        first, last = self.linear(inner), self.linear(outer)
        return lambda x, residual=None: last(activate(first(x), activation), residual)

    def attention(self, q: Tensor, k: Tensor, v: Tensor, segments: Segments, causal: bool, /) -> Tensor:
        if not self._attends:
            return super().attention(q, k, v, segments, causal)
        lengths = list(segments.lengths)
        images = zip(*(torch.split(_rounded(x), lengths) for x in (q, k, v)), strict=True)
        return torch.cat([_attend(*image) for image in images]).to(q.dtype)


@dataclass(frozen=True, slots=True)
class _Fp8:
    layer: Affine
    weight: Tensor
    scale: Tensor

    def __call__(self, x: Rows, residual: Tensor | None = None) -> Tensor:
        assert isinstance(x, Tensor)
        values, scales = quantize_rows(x)
        product = values.float() @ self.weight.float().t() * scales * self.scale.t()
        if self.layer.bias is not None:
            product += self.layer.bias.float()
        rounded = product.to(x.dtype)
        return rounded if residual is None else rounded.add_(residual)


def _rounded(x: Tensor) -> Tensor:
    """In float32, what e4m3 keeps of x."""
    return x.float().clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn).float()


def _attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Within one image, head by head: a page's scores of all heads would take gigabytes."""
    heads = []
    for head in range(q.shape[1]):
        scores = q[:, head] @ k[:, head].t() * q.shape[-1] ** -0.5
        weights = (scores - scores.amax(dim=-1, keepdim=True)).exp_()
        total = weights.sum(dim=-1, keepdim=True)
        heads.append(_rounded(weights.mul_(_PROBABILITY_SCALE)) / _PROBABILITY_SCALE @ v[:, head] / total)
    return torch.stack(heads, dim=1)


def load_emulated(folder: Path, *, parts: Sequence[str], device: Any, dtype: torch.dtype, **_: Any) -> Model:
    """Like `load_model`, with these parts as in fp8."""
    vocabulary = read_architecture(folder).language.vocab_size
    language = EmulatedOps(device.torch_device, products="language" in parts, largest=vocabulary - 1)
    vision = EmulatedOps(device.torch_device, products="vit" in parts, attends="attention" in parts)
    return load_model(folder, device=device, dtype=dtype, ops=language, vision_ops=vision)


if __name__ == "__main__":
    start.load_model = partial(load_emulated, parts=sys.argv[1].split(","))
    serve.serve(int(sys.argv[2]))
