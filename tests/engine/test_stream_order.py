"""No access to the GPU's memory, nor to the host's, comes without a wait for what it depends on.

The real `CudaDevice` and the real engine run on a GPU that is not there, and torch's CUDA sanitizer is told what they
launch and wait for: see `support/watched_cuda.py` and `support/stream_sanitizer.py`. Every wait in the code is left out
once, and must be missed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from batchocr.data import Pixels, Request, Sampling
from batchocr.engine.backend.cuda import CudaOps
from batchocr.engine.backend.cuda_device import CudaDevice, device_seconds
from batchocr.engine.backend.device import Device
from batchocr.engine.backend.kernels import preprocess
from batchocr.engine.backend.kernels.resize_plan import plan_batch
from batchocr.engine.engine import Engine
from batchocr.planning.limits import EngineLimits
from batchocr.processes.engine_messages import KernelChoice
from batchocr.processes.meter import Meter
from tests.engine.test_cuda_path import CUDA, OPS, Indexing, attention, build_engine, cut
from tests.support.stream_sanitizer import Kind, StreamSanitizer
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

MakeDevice = Callable[[torch.device], Device]
Program = Callable[[StreamSanitizer, Device], None]


class OneStream(CudaDevice):
    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._side = self._main


class CopiesApart(CudaDevice):
    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._copies = torch.cuda.Stream(device)

    def upload(self, host: Tensor) -> Tensor:
        user = torch.cuda.current_stream()
        with torch.cuda.stream(self._copies):
            value = super().upload(host)
        user.wait_stream(self._copies)
        value.record_stream(user)
        return value


DEVICES: list[MakeDevice] = [CudaDevice, OneStream, CopiesApart]
"""The ways that a device may divide its time, or itself, between the two stages."""


# What a device promises, one promise each


def weights_are_read_in_the_main_stream(gpu: StreamSanitizer, device: Device) -> None:
    weights = torch.ones(8, device=CUDA)
    with device.main():
        weights.mul(2)
    torch.cuda.synchronize()


def embeddings_are_taken_over_and_freed(gpu: StreamSanitizer, device: Device) -> None:
    with device.main():
        with device.beside():
            embeddings = torch.ones(8, device=CUDA)
            made = device.mark()
        device.take_over(embeddings, made)
        embeddings.mul(2)


def tensors_are_uploaded(gpu: StreamSanitizer, device: Device) -> None:
    with device.main():
        for _ in range(3):
            device.upload(torch.tensor([1, 2, 3])).mul(2)


def images_are_uploaded(gpu: StreamSanitizer, device: Device) -> None:
    images = [torch.zeros(height, width, 3, dtype=torch.uint8) for height, width in SIZES[:3]]
    plan = plan_batch([(image.shape[0], image.shape[1]) for image in images], [((56, 84),)] * 3, preprocess.TILE)
    with device.beside():
        pixels, table, launches = preprocess._upload(images, plan, CUDA)
        gpu.launch("resize", [pixels, table, *(tensor for launch in launches for tensor in launch)], ())


def values_are_read_back(gpu: StreamSanitizer, device: Device) -> None:
    with device.main():
        for _ in range(3):
            host, copied = device.read_back(torch.ones(2, 4, device=CUDA))
            copied.wait()
            host.tolist()


def steps_are_captured_and_replayed(gpu: StreamSanitizer, device: Device) -> None:
    state = torch.ones(8, device=CUDA)
    with device.main():
        for replay in device.capture([lambda: state.mul(2).add_(1), lambda: state.mul_(2).add(1)]):
            replay()
            host, copied = device.read_back(replay())
            copied.wait()
            host.tolist()


def a_kernel_is_timed(gpu: StreamSanitizer, device: Device) -> None:
    assert device_seconds(lambda: torch.ones(8, device=CUDA)) > 0


PROMISES: list[Program] = [
    weights_are_read_in_the_main_stream,
    embeddings_are_taken_over_and_freed,
    tensors_are_uploaded,
    images_are_uploaded,
    values_are_read_back,
    steps_are_captured_and_replayed,
    a_kernel_is_timed,
]


# What the engine does


def pages_are_read(gpu: StreamSanitizer, device: Device) -> None:
    finish(gpu, submitted(gpu, device))


def pages_are_read_without_graphs(gpu: StreamSanitizer, device: Device) -> None:
    finish(gpu, submitted(gpu, device, graphs=False))


def pages_are_forgotten(gpu: StreamSanitizer, device: Device) -> None:
    engine = submitted(gpu, device)
    for _ in range(2):
        engine.step(Meter())
    assert engine.has_work
    engine.clear()
    for stream in gpu.unfinished:
        gpu.report("host", f"the engine was cleared while stream {stream} still works")
    submit(engine)
    finish(gpu, engine)


RUNS: list[Program] = [pages_are_read, pages_are_read_without_graphs, pages_are_forgotten]


def submitted(gpu: StreamSanitizer, device: Device, *, graphs: bool = True) -> Engine:
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


def finish(gpu: StreamSanitizer, engine: Engine) -> None:
    meter = Meter()
    finished: set[int] = set()
    for _ in range(MOST_STEPS):
        before = gpu.progress
        finished |= {number for number, _ in engine.step(meter)}
        if not engine.has_work:
            break
        if gpu.progress == before:
            gpu.report("host", "a step did nothing: the host asks again and again")
    assert finished == set(range(len(SIZES)))
    assert meter.preemptions > 0


def answers(host: Tensor) -> list[Any]:
    """What the host reads: tokens that end no sequence, and a value that is not finite, so that a cache is wiped."""
    number = host.shape[-1]
    return [[5] * number, [math.nan if number == 1 else 0.0, *[0.0] * (number - 1)]]


def run(
    program: Program, make_device: MakeDevice, *, patience: int = 3, without: Collection[str] = ()
) -> StreamSanitizer:
    gpu = StreamSanitizer(patience=patience, without=without)
    with FakeTensorMode(allow_non_fake_inputs=True), Indexing(), watched(gpu, answers):
        program(gpu, make_device(CUDA))
    return gpu


sound_run = cache(run)
"""Of programs that are run as they are, more than one test looks at the outcome."""


@dataclass(frozen=True)
class Mutant:
    """Waits that are left out, and what is reported of that in a program."""

    program: Program
    kind: Kind
    what: str
    without: tuple[str, ...]

    def __str__(self) -> str:
        return " + ".join(self.without)


MAIN = "CudaDevice.main: stream waits"
TAKE_OVER = "CudaDevice.take_over: stream waits"
KEEP = "CudaDevice.take_over: record_stream"
CAPTURE = "CudaDevice.capture: synchronize"
TIMED = "device_seconds: host waits"
CLOCK = "DeviceClock.__init__: host waits"
READ = "DecodeStage._read: host waits"
READ_EARLY = "DecodeStage._read: is it done"
FORGET_STEPS = "DecodeStage.clear: host waits"
FORGET_BATCHES = "VisionStage.clear: host waits"
ENCODED = "VisionStage._take_done: is it done"
NOTHING_ELSE = "VisionStage.run: host waits"

MUTANTS = [
    Mutant(weights_are_read_in_the_main_stream, "race", "aten::mul in stream 1 reading", (MAIN,)),
    Mutant(embeddings_are_taken_over_and_freed, "race", "aten::mul in stream 1 reading", (TAKE_OVER,)),
    Mutant(embeddings_are_taken_over_and_freed, "memory", "freed while stream 1 may use it", (KEEP,)),
    Mutant(a_kernel_is_timed, "host", "asks for the time", (TIMED,)),
    Mutant(pages_are_read, "host", "reads what may not be copied yet", (READ,)),
    Mutant(pages_are_read, "host", "reads what may not be copied yet", (READ, READ_EARLY)),
    Mutant(pages_are_read, "host", "asks for the time", (ENCODED,)),
    Mutant(pages_are_read, "host", "a step did nothing", (NOTHING_ELSE,)),
    Mutant(pages_are_forgotten, "host", "while stream 1 still works", (FORGET_STEPS,)),
    Mutant(pages_are_forgotten, "host", "while stream 2 still works", (FORGET_BATCHES,)),
    # The ViT's weights are loaded in the default stream, for which its own stream does not wait.
    Mutant(pages_are_read_without_graphs, "race", "in stream 2 reading from what", (CLOCK,)),
    Mutant(pages_are_read, "race", "in stream 2 reading from what", (CLOCK, CAPTURE)),
]


@pytest.mark.parametrize("make_device", DEVICES)
@pytest.mark.parametrize("promise", PROMISES)
def test_what_a_device_promises_needs_no_further_wait(promise: Program, make_device: MakeDevice) -> None:
    gpu = sound_run(promise, make_device)
    assert gpu.reports == []
    assert gpu.launches.total() >= 2


class OneLayerASlice(CudaDevice):
    """The ViT here is a millionth of a real one."""

    vit_flop_a_row = 1.0


@pytest.mark.parametrize("make_device", [CudaDevice, pytest.param(OneLayerASlice, marks=pytest.mark.long)])
@pytest.mark.parametrize("program", RUNS)
def test_the_engine_waits_for_all_that_it_reads_and_overwrites(program: Program, make_device: MakeDevice) -> None:
    gpu = sound_run(program, make_device)
    assert gpu.reports == []
    by_stream = gpu.launches_by_stream
    assert len(by_stream) == 3
    assert min(by_stream.values()) > 60
    names = {name for _, name in gpu.launches}
    assert names >= {"copy to the GPU", "copy to the host", "patches", "attention"}
    assert ("replay" in names) == (program is not pages_are_read_without_graphs)


@pytest.mark.parametrize("make_device", [*DEVICES, OneLayerASlice])
def test_the_engine_needs_no_wait_that_only_some_devices_make(make_device: MakeDevice) -> None:
    gpu = sound_run(pages_are_read, make_device)
    assert gpu.reports == []
    assert min(gpu.launches_by_stream.values()) > 20


@pytest.mark.parametrize("patience", [1, pytest.param(9, marks=pytest.mark.long)])
def test_it_does_not_matter_when_the_host_finds_work_done(patience: int) -> None:
    gpu = run(pages_are_read, CudaDevice, patience=patience)
    assert gpu.reports == []
    assert min(gpu.launches_by_stream.values()) > 60


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(each, marks=[pytest.mark.long] if each.program in RUNS else [], id=str(each)) for each in MUTANTS],
)
def test_a_missing_wait_would_be_noticed(mutant: Mutant) -> None:
    gpu = run(mutant.program, CudaDevice, patience=9, without=mutant.without)
    assert gpu.sites >= set(mutant.without)
    assert any(report.kind == mutant.kind and mutant.what in report.what for report in gpu.reports), gpu.reports


def test_every_wait_in_the_code_is_left_out_by_a_mutant() -> None:
    sites = {site for program in (*PROMISES, *RUNS) for site in sound_run(program, CudaDevice).sites}
    assert sites == {site for mutant in MUTANTS for site in mutant.without}
