"""What a decode step asks of the host: counted, as seconds would depend on the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from batchocr.data import Pixels, Request, Sampling
from batchocr.engine.backend.device import Device, Result
from batchocr.engine.engine import Engine
from batchocr.engine.graphs import DecodeGraphs
from batchocr.engine.model.checkpoint import load_model
from batchocr.processes.engine_messages import EngineLimits
from batchocr.processes.meter import Meter
from tests.support.checkpoints import make_checkpoint
from tests.support.late_device import CapturableOps, LateDevice

CALLS_A_ROW = 5
"""Whether it can go on, twice how many tokens it has, and two for the token that is read."""
STEPS = 8
SIDE = 56
SAMPLING = Sampling(500, presence_penalty=1.0, frequency_penalty=0.05, no_repeat_ngram_size=100, loop_check="at_limit")
"""MinerU2.5's, but for the length."""
CPU = torch.device("cpu")


class InstantDevice(Device):
    """Its graphs compute nothing: each answers with what its function did when it was captured, and is done at once."""

    def capture(self, functions: Sequence[Callable[[], Result]]) -> list[Callable[[], Result]]:
        return [self._capture(function()) for function in functions]

    def _capture(self, result: Result) -> Callable[[], Result]:
        return lambda: result


def within_a_block(folder: Path, num_rows: int) -> Callable[[], object]:
    """A decode step of so many sequences, all begun, none of which needs another KV block soon."""
    model = load_model(folder, device=InstantDevice(CPU), dtype=torch.float32, ops=CapturableOps(CPU))
    limits = EngineLimits(
        vit_batch_size=num_rows,
        vit_max_patches=16 * num_rows,
        llm_batch_size=num_rows,
        prefill_max_tokens=64 * num_rows,
        embedding_queue_tokens=4 * num_rows,
        num_kv_tokens=600 * num_rows,
        max_new_tokens=500,
    )
    engine = Engine(model, limits)
    pixels = Pixels(SIDE, SIDE, memoryview(bytearray(3 * SIDE * SIDE)))
    for request_id in range(num_rows):
        assert engine.submit(request_id, Request(pixels, "", SAMPLING, round=1)) is None
    meter = Meter()
    while meter.stages["prefill"].items < num_rows:
        assert not engine.step(meter)
    engine.step(meter)  # takes each its next block, of 16 tokens
    return lambda: engine.step(meter)


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
def steps(tmp_path_factory: pytest.TempPathFactory) -> tuple[Callable[[], object], Callable[[], object]]:
    """Of 64 and of 128 sequences."""
    folder = make_checkpoint(tmp_path_factory.mktemp("model"))
    return within_a_block(folder, 64), within_a_block(folder, 128)


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
