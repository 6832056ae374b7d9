"""What one stream may do to the other: device and engine run on a GPU that is not there, and torch's CUDA sanitizer is
told what they launch and wait for: see `support/watched_cuda.py` and `support/stream_sanitizer.py`. What the host may
read, and when, is in `test_device_order.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from batchocr.data import Pixels, Request, Sampling
from batchocr.engine.backend.cuda import CudaOps
from batchocr.engine.backend.cuda_device import CudaDevice, CudaMark
from batchocr.engine.backend.device import DeviceClock, Mark
from batchocr.engine.engine import Engine
from batchocr.planning.limits import EngineLimits
from batchocr.processes.engine_messages import KernelChoice
from batchocr.processes.meter import Meter
from tests.engine.test_cuda_path import CUDA, OPS, Indexing, attention, build_engine, cut
from tests.support.kernel_compilation import without_launches
from tests.support.stream_sanitizer import Gpu
from tests.support.watched_cuda import watched

pytestmark = pytest.mark.slow

LIMITS = EngineLimits(
    vit_batch_size=3,
    vit_max_patches=2_000,
    embedding_queue_tokens=400,
    llm_batch_size=4,
    prefill_max_tokens=500,
    max_new_tokens=12,
    num_kv_tokens=64,  # so few that sequences are preempted
)
SIZES = [(84, 84), (84, 112)] * 4
MOST_STEPS = 300

Program = Callable[[Gpu, CudaDevice], None]


def weights_are_read_in_the_main_stream(gpu: Gpu, device: CudaDevice) -> None:
    weights = torch.ones(8, device=CUDA)
    with device.main():
        weights.mul(2)
    torch.cuda.synchronize()


def weights_are_read_beside_it(gpu: Gpu, device: CudaDevice) -> None:
    weights = torch.ones(8, device=CUDA)
    DeviceClock(device)  # as the engine's is made once all is loaded
    with device.main(), device.beside():
        weights.mul(2)
    torch.cuda.synchronize()


def embeddings_are_taken_over_and_freed(gpu: Gpu, device: CudaDevice) -> None:
    with device.main():
        with device.beside():
            embeddings = torch.ones(8, device=CUDA)
            made = device.mark()
        device.take_over(embeddings, made)
        embeddings.mul(2)


def steps_are_captured_and_replayed(gpu: Gpu, device: CudaDevice) -> None:
    state = torch.ones(8, device=CUDA)
    with device.main():
        for replay in device.capture([lambda: state.mul(2).add_(1), lambda: state.mul_(2).add(1)]):
            replay()
            _, copied = device.read_back(replay())
            copied.wait()


PROMISES: list[Program] = [
    weights_are_read_in_the_main_stream,
    weights_are_read_beside_it,
    embeddings_are_taken_over_and_freed,
    steps_are_captured_and_replayed,
]


def pages_are_read(gpu: Gpu, device: CudaDevice) -> None:
    finish(submitted(gpu, device))


def pages_are_read_without_graphs(gpu: Gpu, device: CudaDevice) -> None:
    finish(submitted(gpu, device, graphs=False))


def pages_are_forgotten(gpu: Gpu, device: CudaDevice) -> None:
    engine = submitted(gpu, device)
    for _ in range(2):
        engine.step(Meter())
    assert engine.has_work
    engine.clear()
    submit(engine)
    finish(engine)


def submitted(gpu: Gpu, device: CudaDevice, *, graphs: bool = True) -> Engine:
    """An engine with requests."""
    ops = replace(OPS, attention=gpu.kernel("attention", attention), patches=gpu.kernel("patches", cut))
    if not graphs:
        ops = replace(ops, choices=(KernelChoice("sample", "reference"),))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(CudaOps, "kv_block_size", 4)  # so small that sequences grow by some
        engine = build_engine(device, LIMITS, ops)
    submit(engine)
    return engine


def submit(engine: Engine) -> None:
    sampling = Sampling(12, presence_penalty=1.0, frequency_penalty=0.05, no_repeat_ngram_size=100)
    for number, (height, width) in enumerate(SIZES):
        pixels = Pixels(height, width, bytearray(height * width * 3))
        assert engine.submit(number, Request(pixels, "", sampling)) is None


def finish(engine: Engine) -> None:
    meter = Meter()
    finished: set[int] = set()
    for _ in range(MOST_STEPS):
        finished |= {number for number, _ in engine.step(meter)}
        if not engine.has_work:
            break
    assert finished == set(range(len(SIZES)))
    assert meter.preemptions > 0


def answers(host: Tensor) -> list[Any]:
    """What the host reads: tokens that end no sequence, and a value that is not finite, so that a cache is wiped."""
    number = host.shape[-1]
    return [[5] * number, [math.nan if number == 1 else 0.0, *[0.0] * (number - 1)]]


@contextmanager
def fake_gpu() -> Iterator[Gpu]:
    gpu = Gpu()

    def launch(name: str, tensors: tuple[Tensor, ...]) -> None:
        gpu.launch(name, (), tensors)

    with FakeTensorMode(allow_non_fake_inputs=True), Indexing(), watched(gpu, answers), without_launches(launch):
        yield gpu


@pytest.mark.parametrize("one_stream", [False, True], ids=["two streams", "one stream"])
@pytest.mark.parametrize("promise", PROMISES)
def test_what_a_device_promises_needs_no_further_wait(promise: Program, one_stream: bool) -> None:
    with fake_gpu() as gpu:
        promise(gpu, CudaDevice(CUDA, one_stream=one_stream))
    assert gpu.reports == []
    assert gpu.launches.total() >= 2


def test_what_is_read_back_is_marked_after_its_copy() -> None:
    with fake_gpu() as gpu:
        _, copied = CudaDevice(CUDA).read_back(torch.ones(2, 4, device=CUDA))
        assert isinstance(copied, CudaMark)
        assert copied._event.place == gpu.launches.total() == 2


class OneLayerASlice(CudaDevice):
    """The ViT here is a millionth of a real one."""

    vit_slice_flop_per_sequence = 1.0


class LazyGraphs(OneLayerASlice):
    def __init__(self, device: torch.device) -> None:
        super().__init__(device, lazy_graphs=True)


@pytest.mark.parametrize(
    ("program", "device_type"),
    [
        (pages_are_read, OneLayerASlice),
        (pages_are_read_without_graphs, CudaDevice),
        pytest.param(pages_are_read, LazyGraphs, marks=pytest.mark.long),
        pytest.param(pages_are_forgotten, CudaDevice, marks=pytest.mark.long),
        pytest.param(pages_are_read_without_graphs, OneLayerASlice, marks=pytest.mark.long),
        pytest.param(pages_are_forgotten, OneLayerASlice, marks=pytest.mark.long),
    ],
)
def test_the_engine_waits_for_all_that_it_reads_and_overwrites(program: Program, device_type: type[CudaDevice]) -> None:
    with fake_gpu() as gpu:
        program(gpu, device_type(CUDA))
    assert gpu.reports == []
    by_stream = gpu.launches_by_stream
    assert len(by_stream) == 3
    assert min(by_stream.values()) > 60
    names = {name for _, name in gpu.launches}
    assert names >= {"copy", "patches", "attention"}
    assert ("replay" in names) == (program is not pages_are_read_without_graphs)


class MainDoesNotWait(CudaDevice):
    @contextmanager
    def main(self) -> Iterator[None]:
        with torch.cuda.stream(self._main):
            yield


class ClockDoesNotWait(CudaDevice):
    def mark(self) -> Mark:
        mark = CudaMark()
        mark.wait = mark.is_done  # type: ignore[method-assign, assignment]
        return mark


class TakesOverAtOnce(CudaDevice):
    def take_over(self, value: Tensor, made: Mark) -> None:
        value.record_stream(torch.cuda.current_stream())


class KeepsNoMemory(CudaDevice):
    def take_over(self, value: Tensor, made: Mark) -> None:
        assert isinstance(made, CudaMark)
        made.wait_on_stream()


@pytest.mark.parametrize(
    ("device_type", "promise", "report"),
    [
        (MainDoesNotWait, weights_are_read_in_the_main_stream, "aten::mul in stream 1 reading"),
        (ClockDoesNotWait, weights_are_read_beside_it, "aten::mul in stream 2 reading"),
        (TakesOverAtOnce, embeddings_are_taken_over_and_freed, "aten::mul in stream 1 reading"),
        (KeepsNoMemory, embeddings_are_taken_over_and_freed, "was freed while stream 1 uses it"),
    ],
)
def test_a_missing_wait_would_be_noticed(device_type: type[CudaDevice], promise: Program, report: str) -> None:
    with fake_gpu() as gpu:
        promise(gpu, device_type(CUDA))
    assert any(report in found for found in gpu.reports), gpu.reports
