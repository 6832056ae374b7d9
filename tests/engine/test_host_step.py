"""What a decode step asks of the host: counted, as seconds would depend on the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from batchocr.data import Pixels, Request, Sampling
from batchocr.engine.engine import Engine
from batchocr.engine.graphs import DecodeGraphs
from batchocr.engine.model.checkpoint import Model
from batchocr.engine.model.preprocess import Preprocessor
from batchocr.processes.meter import Meter
from benchmarks.gpu.virtual_costs import VIRTUAL_GPUS, Costs
from benchmarks.gpu.virtual_device import Gate, Kernels, VirtualClock, VirtualDevice, VirtualMark, slices
from benchmarks.gpu.virtual_gpu import limits_on
from benchmarks.gpu.virtual_model import VirtualLanguage, VirtualOps, VirtualPrompts, VirtualVision
from tests.support.late_device import LateDevice
from tests.support.mineru_shape import MINERU

CALLS_A_ROW = 5
"""Whether it can go on, twice how many tokens it has, and two for the token that is read."""
STEPS = 8
SIDE = 420
SAMPLING = Sampling(4000, presence_penalty=1.0, frequency_penalty=0.05, no_repeat_ngram_size=100, loop_check="at_limit")
"""MinerU2.5's."""
KV_TOKENS_A_ROW = 4096


class InstantClock(VirtualClock):
    """What is launched is done at once; marks are a millisecond apart."""

    def __init__(self) -> None:
        super().__init__(slices)

    def work(self, seconds: float) -> None:
        return

    def launch(self, queued: Kernels | VirtualMark | Gate, *, side: bool) -> None:
        if isinstance(queued, VirtualMark):
            self.now_s += 1e-3
            queued.time_s = self.now_s


def full_engine(num_rows: int) -> Engine:
    """An engine in which so many sequences decode, all begun, with the default limits of a large GPU otherwise."""
    gpu = VIRTUAL_GPUS["h200"]
    costs = Costs(MINERU, gpu.speed)
    device = VirtualDevice(InstantClock(), lambda num_graph_rows, num_used: (0.0, Kernels("decode", 0.0, num=1)))
    ops: Any = VirtualOps(device, costs)
    language: Any = VirtualLanguage(device, costs)
    vision: Any = VirtualVision(device, costs)
    prompts: Any = VirtualPrompts()
    preprocessor = Preprocessor(MINERU.vision, MINERU.images, ops)
    model = Model(MINERU, preprocessor, vision, language, prompts, ops, device)
    limits = replace(limits_on(gpu), llm_batch_size=num_rows, num_kv_tokens=num_rows * KV_TOKENS_A_ROW)
    engine = Engine(model, limits)
    pixels = Pixels(SIDE, SIDE, memoryview(bytearray(3 * SIDE * SIDE)))
    for request_id in range(num_rows):
        refused = engine.submit(request_id, Request(pixels, "", SAMPLING, round=1))
        assert refused is None
    meter = Meter()
    while meter.stages["prefill"].items < num_rows:
        engine.step(meter)
    return engine


def within_a_block(num_rows: int) -> Callable[[], object]:
    """A decode step of so many sequences, none of which needs another KV block soon."""
    engine = full_engine(num_rows)
    meter = Meter()

    def step() -> object:
        return engine.step(meter)

    for _ in range(STEPS):
        step()
    return step


def python_calls(work: Callable[[], object]) -> int:
    count = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


class Operations(TorchDispatchMode):
    """Counts torch's operations."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return operation(*args, **(kwargs or {}))


def operations(work: Callable[[], object]) -> int:
    with Operations() as seen:
        work()
    return seen.count


@pytest.fixture(scope="module")
def steps() -> tuple[Callable[[], object], Callable[[], object]]:
    """Of 64 and of 128 sequences."""
    return within_a_block(64), within_a_block(128)


def test_a_step_calls_few_functions_for_each_row(steps: tuple[Callable[[], object], ...]) -> None:
    few, many = ([python_calls(step) for _ in range(STEPS)] for step in steps)
    assert (sum(many) - sum(few)) / (64 * STEPS) <= CALLS_A_ROW
    assert max(few) < 64 * (CALLS_A_ROW + 2)


def test_a_step_asks_no_more_of_torch_for_more_rows(steps: tuple[Callable[[], object], ...]) -> None:
    few, many = ([operations(step) for _ in range(STEPS)] for step in steps)
    assert few == many
    assert 0 < max(few) < 20


class CountingDevice(LateDevice):
    """Counts what is uploaded."""

    uploads = 0

    def upload(self, host: Tensor) -> Tensor:
        self.uploads += 1
        return super().upload(host)


def test_a_graph_is_told_its_rows_when_they_have_changed() -> None:
    device = CountingDevice()
    graphs = DecodeGraphs(device, lambda index: (10 * index, index.double()), max_rows=4, spare_row=4)
    graphs.capture()
    uploads = []
    for rows in ([2, 0], [2, 0], [3], [2, 0], [0, 2], [0, 2, 1], [0, 2, 1], [0, 2]):
        replayed = graphs.replay(rows)
        assert replayed is not None
        assert replayed[0].tolist() == [10 * row for row in rows]
        uploads.append(device.uploads)
    assert uploads == [1, 1, 2, 2, 3, 4, 4, 4]
