"""How many kernels a layer launches on a GPU that is not there: budgets, so that none comes back unnoticed.

Counted from the operators that are called on fake tensors, and our own kernels. What a library splits a product into is
not seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from batchocr.engine.backend.base import PagedContext, Segments
from batchocr.engine.backend.reference import Ops
from batchocr.engine.model.language import LanguageModel
from batchocr.engine.model.vision import VisionModel
from tests.engine.test_cuda_path import CUDA, FP8, FakeCudaDevice, Indexing, ShapelyWeights
from tests.engine.test_cuda_path import OPS as WITHOUT_FP8
from tests.support.kernel_compilation import without_launches
from tests.support.mineru_shape import MINERU
from tests.support.whole_vit import encode

ALLOCATIONS = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"}
OTHER_VIEWS = {"_unsafe_view", "device"}
SEVERAL = {"aten::constant_pad_nd": 2}
"""It fills before it copies."""

OPS = replace(WITHOUT_FP8, fp8=FP8)


class Launches(TorchDispatchMode):
    """Counts the kernels of the operators that are called, and our own."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[func._schema.name] += num_kernels(func, args)
        return func(*args, **(kwargs or {}))

    def note(self, name: str, tensors: tuple[Tensor, ...]) -> None:
        self.counts[name] += 1


def num_kernels(func: OpOverload, args: tuple[Any, ...]) -> int:
    schema = func._schema
    name = schema.name.partition("::")[2]
    is_view = any(argument.alias_info and not argument.alias_info.is_write for argument in schema.arguments)
    if is_view or name in ALLOCATIONS | OTHER_VIEWS:
        return 0
    if name == "addmm" and args[0].dim() == 2:
        return 2  # it copies what it adds to
    return SEVERAL.get(schema.name, 1)


@contextmanager
def fake_gpu() -> Iterator[None]:
    with FakeTensorMode(allow_non_fake_inputs=True), Indexing(), torch.inference_mode():
        yield


def of_a_layer(run: Callable[[int], Counter[str]]) -> Counter[str]:
    """The kernels by which a model of three layers exceeds one of two. run: counts those of a model of so many."""
    with fake_gpu():
        return run(3) - run(2)


def vision_layer(ops: Ops) -> Counter[str]:
    def run(depth: int) -> Counter[str]:
        shape = replace(MINERU.vision, depth=depth)
        model = VisionModel(shape, MINERU.images, ShapelyWeights(), ops, FakeCudaDevice())
        patches = torch.empty(80, 588, dtype=torch.uint8, device=CUDA)
        with Launches() as launches, without_launches(launches.note):
            encode(model, patches, [(8, 10)])
        return launches.counts

    return of_a_layer(run)


def language_layer(ops: Ops, *, decode: bool) -> Counter[str]:
    def run(num_layers: int) -> Counter[str]:
        model = LanguageModel(replace(MINERU.language, num_layers=num_layers), ShapelyWeights(), ops, CUDA)
        cache = model.new_cache(4)
        positions = torch.empty(3, 8, dtype=torch.int64, device=CUDA)
        slots = torch.empty(8, dtype=torch.int64, device=CUDA)
        with Launches() as launches, without_launches(launches.note):
            if decode:
                tables = torch.empty(8, 20, dtype=torch.int32, device=CUDA)
                context = PagedContext(tables, torch.empty(8, dtype=torch.int32, device=CUDA))
                model.decode(torch.empty(8, dtype=torch.int64, device=CUDA), positions, slots, context, cache)
            else:
                segments = Segments([5, 3], torch.empty(3, dtype=torch.int32, device=CUDA))
                x = torch.empty(8, MINERU.language.width, dtype=model.dtype, device=CUDA)
                model.prefill(x, positions, slots, segments, cache)
        return launches.counts

    return of_a_layer(run)


def test_a_layer_of_the_vision_model_launches_9_kernels() -> None:
    """Four products, attention, rotary, the activation, and two sums with their norms."""
    counts = vision_layer(OPS)
    assert counts.total() == 9, counts


def test_a_layer_of_the_vision_model_in_fp8_launches_10_kernels() -> None:
    """Those of a layer in bfloat16; and attention's result has to be quantised."""
    counts = vision_layer(OPS.with_fp8())
    assert counts["aten::_scaled_mm"] == 4
    assert counts.total() == 10, counts


def test_a_layer_of_a_decode_step_launches_10_kernels() -> None:
    """Two norms, four products to which residuals are added, rotary, attention in two parts, and the activation."""
    counts = language_layer(OPS, decode=True)
    assert counts.total() == 10, counts


def test_a_layer_of_a_prefill_launches_9_kernels() -> None:
    counts = language_layer(OPS, decode=False)
    assert counts.total() == 9, counts
