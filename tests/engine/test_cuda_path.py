"""The whole path of a request on a GPU that is not there: shapes, dtypes and devices, and nothing asked of the host.

Under FakeTensorMode a tensor claims to be on `cuda` and has no values: code that reads one in the middle of a step
raises. The model has its family's real widths and two layers of each kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode

from batchocr.data import Pixels, Request, Sampling
from batchocr.engine.backend.base import ResizePlan, Segments
from batchocr.engine.backend.cuda import CudaOps
from batchocr.engine.backend.device import Device, Mark
from batchocr.engine.backend.fp8 import Fp8Kernels
from batchocr.engine.backend.kernels import activation, norm, paged_attention, quantize, rotary, sampling
from batchocr.engine.engine import Engine
from batchocr.engine.model.checkpoint import Model
from batchocr.engine.model.language import LanguageModel
from batchocr.engine.model.preprocess import Preprocessor
from batchocr.engine.model.prompt import PromptTokens
from batchocr.engine.model.vision import VisionModel
from batchocr.engine.model.weights import WeightReader
from batchocr.planning.architecture import Architecture
from batchocr.planning.families import FAMILIES
from batchocr.planning.limits import EngineLimits
from batchocr.processes.meter import Meter
from tests.support.kernel_compilation import without_launches
from tests.support.late_device import LateDevice, LateMark
from tests.support.mineru_shape import MINERU

CUDA = torch.device("cuda:0")
END = 7
LIMITS = EngineLimits(
    vit_batch_size=8,
    vit_max_patches=20_000,
    embedding_queue_tokens=16_384,
    llm_batch_size=12,
    prefill_max_tokens=4_096,
    max_new_tokens=64,
    num_kv_tokens=40_000,
)


def architecture_of(family: str) -> Architecture:
    vision, language = FAMILIES[family].shapes
    return replace(
        MINERU,
        vision=replace(vision, depth=2),
        language=replace(language, num_layers=2, tied_embeddings=True),
        chat=replace(MINERU.chat, image_token_id=3),
    )


ARCHITECTURE = architecture_of("qwen2_vl")


class Indexing(TorchFunctionMode):
    """Does indexing and `copy_` in other ways: a torch built without CUDA refuses them on `cuda`.

    Once the model is loaded, it also checks that tensors reach the GPU only through the device's upload.
    """

    model_is_loaded = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not (args and isinstance(args[0], Tensor) and args[0].device == CUDA):
            result = func(*args, **(kwargs or {}))
            if self.model_is_loaded and func in (Tensor.to, Tensor.cuda, torch.tensor, torch.as_tensor):
                assert result.device != CUDA, "a copy from ordinary memory waits for all work before it"
            return result
        if func is Tensor.__getitem__:
            return part(*args)
        if func is Tensor.__setitem__:
            tensor, key, value = args
            if self.model_is_loaded and not isinstance(value, Tensor):
                assert part(tensor, key).dim(), "assigning a number to a single element copies it, and waits"
            return store(tensor, key, value)
        if func is Tensor.copy_:
            target, source = args
            assert target.shape == source.shape and target.device == source.device
            return target
        return func(*args, **(kwargs or {}))


def part(tensor: Tensor, key: Any) -> Tensor:
    dim = 0
    for item in key if isinstance(key, tuple) else (key,):
        if isinstance(item, int):
            tensor = tensor.select(dim, item)
        elif isinstance(item, slice):
            start, stop, step = item.indices(tensor.shape[dim])
            assert step == 1
            tensor, dim = tensor.narrow(dim, start, max(0, stop - start)), dim + 1
        else:
            tensor, dim = tensor.index_select(dim, item), dim + 1
    return tensor


def store(tensor: Tensor, key: Any, value: Any) -> None:
    *before, last = key if isinstance(key, tuple) else (key,)
    if isinstance(last, Tensor):
        tensor = part(tensor, tuple(before)) if before else tensor
        if not isinstance(value, Tensor):
            value = tensor.new_full((), value)
        tensor.index_put_((last,), value)
    elif isinstance(value, Tensor):
        part(tensor, key).zero_().add_(value)
    else:
        part(tensor, key).fill_(value)


class ShapelyWeights(WeightReader):
    """A tensor without values for any name and shape."""

    def __init__(self) -> None:
        pass

    def __contains__(self, name: str) -> bool:
        return name != "lm_head.weight"  # tied, as in MinerU2.5

    def take(self, name: str, shape: Sequence[int]) -> Tensor:
        return torch.zeros(tuple(shape), dtype=torch.bfloat16, device=CUDA)


class MadeUp:
    """What the host reads: the end token for every third sequence."""

    def __init__(self, number: int) -> None:
        self._number = number

    def tolist(self) -> list[list[float]]:
        return [[END - place % 3 for place in range(self._number)], [0.0] * self._number]


class FakeCudaDevice(LateDevice):
    """Tensors on a GPU that is not there; what is read back is made up."""

    def __init__(self) -> None:
        super().__init__()
        self.torch_device = CUDA

    def upload(self, host: Tensor) -> Tensor:
        assert host.device.type == "cpu"
        return torch.empty(host.shape, dtype=host.dtype, device=CUDA)

    def read_back(self, value: Tensor) -> tuple[Tensor, Mark]:
        assert isinstance(value, FakeTensor) and value.device == CUDA and value.dtype == torch.float64
        self.events.append("read back")
        return MadeUp(value.shape[1]), LateMark(self._current, lambda: None)  # type: ignore[return-value]


class Prompts:
    """A few token ids around the image's."""

    stop_token_ids = frozenset({END})

    def encode(self, prompt: str, num_image_tokens: int) -> PromptTokens:
        image = (ARCHITECTURE.chat.image_token_id,) * num_image_tokens
        return PromptTokens((1, 2, *image, 4, 5), 2, num_image_tokens)

    def decode(self, token_ids: Sequence[int]) -> str:
        return " ".join(map(str, token_ids))


def attention(q: Tensor, k: Tensor, v: Tensor, segments: Segments, causal: bool) -> Tensor:
    """Stands in for a library's attention, and checks its arguments."""
    assert q.shape[0] == k.shape[0] == v.shape[0] == sum(segments.lengths)
    assert segments.cu_seqlens.dtype == torch.int32 and segments.cu_seqlens.device == CUDA
    assert {x.dtype for x in (q, k, v)} == {torch.bfloat16}
    assert all(x.stride(-1) == 1 for x in (q, k, v))
    return torch.zeros_like(q, memory_format=torch.contiguous_format)  # one launch, as in a library


def cut(images: Sequence[Tensor], plans: Sequence[ResizePlan], patch_size: int, merge_size: int) -> Tensor:
    areas = [plan[-1][0] * plan[-1][1] for plan in plans]
    return torch.empty(sum(areas) // patch_size**2, 3 * patch_size**2, dtype=torch.uint8, device=CUDA)


OPS = CudaOps(
    attention=attention,
    paged_attention=paged_attention.paged_attention,
    rotary=rotary.rotary_,
    rotary_store=rotary.rotary_store_,
    rms_norm=norm.rms_norm,
    add_layer_norm=norm.add_layer_norm_,
    vit_gelu=activation.quick_gelu_bias_,
    silu_mul=activation.silu_mul,
    sample=sampling.sample,
    patches=cut,
)

FP8 = Fp8Kernels(quantize.quantize_rows, quantize.add_layer_norm_quantize_, quantize.gelu_bias_quantize)


@contextmanager
def fake_engine(
    ops: CudaOps = OPS, architecture: Architecture = ARCHITECTURE
) -> Iterator[tuple[Engine, FakeCudaDevice]]:
    with FakeTensorMode(allow_non_fake_inputs=True), Indexing() as indexing, without_launches():
        device = FakeCudaDevice()
        engine = build_engine(device, LIMITS, ops, architecture)
        indexing.model_is_loaded = True
        yield engine, device


def build_engine(
    device: Device, limits: EngineLimits, ops: CudaOps, architecture: Architecture = ARCHITECTURE
) -> Engine:
    """To be called under FakeTensorMode and Indexing."""
    vision_ops = ops.with_fp8() if ops.fp8 else ops
    weights = ShapelyWeights()
    model = Model(
        architecture=architecture,
        preprocessor=Preprocessor(architecture.vision, architecture.images, ops),
        vision=VisionModel(architecture.vision, architecture.images, weights, vision_ops, device),
        language=LanguageModel(architecture.language, weights, ops, CUDA),
        prompts=Prompts(),  # type: ignore[arg-type]
        ops=ops,
        device=device,
    )
    return Engine(model, limits)


def submit_pages(engine: Engine, repetition_penalty: float = 1.0) -> int:
    sizes = [(2200, 1700, (1036, 1036)), (90, 700, None), (300, 800, None), (61, 61, None)] * 5
    sampling = Sampling(64, 1.0, 0.05, 100, repetition_penalty=repetition_penalty)
    for request_id, (height, width, resize_to) in enumerate(sizes):
        pixels = Pixels(height, width, bytearray(height * width * 3))
        assert engine.submit(request_id, Request(pixels, "", sampling, resize_to=resize_to)) is None
    return len(sizes)


def run(engine: Engine) -> set[int]:
    finished: set[int] = set()
    for _ in range(500):
        finished |= {request_id for request_id, _ in engine.step(Meter())}
        if not engine.has_work:
            return finished
    raise AssertionError("the engine never came to an end")


@pytest.mark.slow
@pytest.mark.parametrize(("family", "repetition_penalty"), [("qwen2_vl", 1.0), ("glm_ocr", 1.1), ("paddleocr_vl", 1.0)])
def test_pages_go_all_the_way_without_a_value_being_read_in_between(family: str, repetition_penalty: float) -> None:
    with fake_engine(architecture=architecture_of(family)) as (engine, device):
        number = submit_pages(engine, repetition_penalty)
        assert run(engine) == set(range(number))
    assert device.events.count("replay") > 3


def test_fp8_takes_the_vision_models_matrices() -> None:
    quantized: list[tuple[int, ...]] = []

    def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
        quantized.append(tuple(x.shape))
        return quantize.quantize_rows(x)

    with fake_engine(replace(OPS, fp8=replace(FP8, quantize_rows=quantize_rows))) as (engine, _):
        number = submit_pages(engine)
        assert run(engine) == set(range(number))
    # A norm and an activation hand on what is quantised: only attention's result, the first norm's and the merger's
    # folded rows are left.
    depth = ARCHITECTURE.vision.depth
    widths = [width for _, width in quantized]
    assert len(widths) % (depth + 2) == 0
    assert widths[: depth + 2] == [1280] * (depth + 1) + [5120]
