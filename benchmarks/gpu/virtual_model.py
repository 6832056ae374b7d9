"""MinerU2.5 without weights on a virtual device: each call costs what it would, and computes nothing."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from batchocr.data import Completion, Pixels
from batchocr.engine.backend.base import PagedContext, ResizePlan, SamplerRows, SamplingHints, Segments
from batchocr.engine.backend.cuda import CudaOps
from batchocr.engine.engine import Engine
from batchocr.engine.model.checkpoint import Model
from batchocr.engine.model.preprocess import PatchGrid, Preprocessor
from batchocr.engine.model.prompt import PromptTokens
from batchocr.planning.architecture import Architecture
from batchocr.planning.cost import decode_flop
from batchocr.processes.engine_messages import EngineLimits
from benchmarks.gpu.virtual_costs import DETECTOR_FLOP, DETECTOR_KERNELS, Costs, Speed
from benchmarks.gpu.virtual_device import ANSWER, CONTENTION, ContentionName, Kernels, VirtualClock, VirtualDevice

_BEFORE_IMAGE, _AFTER_IMAGE = 16, 14
"""Tokens of MinerU2.5's prompts around the image."""
_LAUNCH_S = 8e-6
"""The host's, for launching one of a detector's kernels."""


class VirtualOps:
    """Implements what the engine itself needs of `backend.base.Ops`."""

    name = "virtual"
    kv_block_size = CudaOps.kv_block_size
    kv_heads_apart = CudaOps.kv_heads_apart
    capturable = True

    def __init__(self, device: VirtualDevice, costs: Costs) -> None:
        self._device = device
        self._costs = costs

    def patches(
        self, images: Sequence[Tensor], plans: Sequence[ResizePlan], patch_size: int, merge_size: int
    ) -> Tensor:
        pixel_bytes = sum(image.numel() for image in images)
        speed = self._costs.speed
        self._device.clock.work(speed.vit_host_s + pixel_bytes / speed.staging)
        self._device.launch(self._costs.patches(pixel_bytes))
        return torch.empty(0)

    def sample(self, logits: Tensor, index: Tensor, rows: SamplerRows, hints: SamplingHints) -> tuple[Tensor, Tensor]:
        return torch.full((len(index),), ANSWER), torch.zeros(len(index))


class VirtualVision:
    def __init__(self, device: VirtualDevice, costs: Costs) -> None:
        self._device = device
        self._costs = costs

    def layers(self, patches: Tensor, grids: Sequence[PatchGrid]) -> Generator[None, None, Tensor]:
        counts = [rows * columns for rows, columns in grids]
        shape = self._costs.architecture.vision
        for number in range(shape.depth):
            if number:
                yield
            self._device.clock.work(self._costs.speed.vit_layer_host_s)
            self._device.launch(self._costs.vision_layer(counts))
        return torch.empty(sum(counts) // shape.merge_size**2, 1)


class VirtualLanguage:
    """prefills: the tokens of each prefill so far."""

    dtype = torch.bfloat16

    def __init__(self, device: VirtualDevice, costs: Costs) -> None:
        self.prefills: list[int] = []
        self._device = device
        self._costs = costs

    def new_cache(self, num_blocks: int) -> Tensor:
        shape = self._costs.architecture.language
        sizes = (shape.num_layers, 2, num_blocks, VirtualOps.kv_block_size, shape.num_kv_heads, shape.head_dim)
        return torch.zeros(1, dtype=self.dtype).expand(sizes)

    def embed(self, token_ids: Tensor) -> Tensor:
        return torch.empty(len(token_ids), 1)

    def prefill(self, x: Tensor, positions: Tensor, slots: Tensor, segments: Segments, cache: Tensor) -> Tensor:
        lengths, speed = segments.lengths, self._costs.speed
        self.prefills.append(len(x))
        self._device.clock.work(speed.prefill_host_s + len(lengths) * speed.begin_host_s)
        self._device.launch(self._costs.begin())
        for _ in range(self._costs.architecture.language.num_layers):
            self._device.clock.work(speed.prefill_layer_host_s)
            self._device.launch(self._costs.prefill_layer(lengths))
        return torch.empty(len(lengths), 1)

    def decode(
        self, token_ids: Tensor, positions: Tensor, slots: Tensor, context: PagedContext, cache: Tensor
    ) -> Tensor:
        raise NotImplementedError("decode steps are graphs")


class VirtualPrompts:
    """Implements what the engine needs of `PromptFormat`: prompts of the right length, answers that never end early."""

    stop_token_ids: frozenset[int] = frozenset()

    def encode(self, prompt: str, num_image_tokens: int) -> PromptTokens:
        return PromptTokens(
            (ANSWER,) * (_BEFORE_IMAGE + num_image_tokens + _AFTER_IMAGE), _BEFORE_IMAGE, num_image_tokens
        )

    def decode(self, token_ids: Sequence[int]) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class VirtualEngine:
    """prefills: the tokens of each so far."""

    engine: Engine
    clock: VirtualClock
    costs: Costs
    prefills: list[int]

    def count_anew(self) -> None:
        """Forget what was counted so far; the clock goes on."""
        self.clock.count_anew()
        self.prefills.clear()


class DecodeGraph:
    """What a decode step costs when its graph is replayed.

    `announce` is told beforehand how much there is to compute; that and the number of rows say how many tokens are
    attended to, which the graph itself reads from the device.
    """

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._flop = 0.0
        language = costs.architecture.language
        self._row_flop = decode_flop(language, [0])
        self._token_flop = decode_flop(language, [1]) - self._row_flop

    def announce(self, flop: float, begun_requests: list[int]) -> None:
        """See Engine."""
        self._flop = flop

    def step(self, num_rows: int, num_used: int) -> tuple[float, Kernels]:
        """The host's seconds, and the kernels. num_rows: of the graph; num_used: those that are not padding."""
        speed = self._costs.speed
        num_tokens = round((self._flop - num_used * self._row_flop) / self._token_flop)
        host_s = speed.step_host_s + num_used * speed.row_host_s
        return host_s, self._costs.decode_step(num_rows, num_tokens)


class VirtualDetector:
    """Implements what the layout stage needs of a `Detector`; finds nothing."""

    flop_an_image = DETECTOR_FLOP

    def __init__(self, device: VirtualDevice, costs: Costs) -> None:
        self._device = device
        self._costs = costs

    def detect(self, images: Sequence[Pixels]) -> Tensor:
        pixel_bytes, speed = sum(len(image.data) for image in images), self._costs.speed
        self._device.clock.work(pixel_bytes / speed.staging)
        self._device.launch(self._costs.patches(pixel_bytes))
        self._device.clock.work(DETECTOR_KERNELS * _LAUNCH_S)
        self._device.launch(self._costs.layouts(self.flop_an_image * len(images)))
        self._device.mark().wait()  # transformers' code waits a few times; here for all of its work
        return torch.zeros(len(images), 1, 7)

    def answer(self, found: Tensor) -> Completion:
        return Completion("", "stop", 0, 0, 1.0, 0.0)


def virtual_engine(
    speed: Speed,
    architecture: Architecture,
    limits: EngineLimits,
    contention: ContentionName,
    *,
    detects: bool = False,
) -> VirtualEngine:
    """The product's engine on a virtual device that has just been switched on. detects: with a layout detector."""
    costs = Costs(architecture, speed)
    graph = DecodeGraph(costs)
    device = VirtualDevice(VirtualClock(CONTENTION[contention]), graph.step)
    ops: Any = VirtualOps(device, costs)
    language: Any = VirtualLanguage(device, costs)
    vision: Any = VirtualVision(device, costs)
    prompts: Any = VirtualPrompts()
    preprocessor = Preprocessor(architecture.vision, architecture.images, ops)
    model = Model(architecture, preprocessor, vision, language, prompts, ops, device)
    detector: Any = VirtualDetector(device, costs) if detects else None
    engine = Engine(model, limits, graph.announce, detector=detector)
    return VirtualEngine(engine, device.clock, costs, language.prefills)
