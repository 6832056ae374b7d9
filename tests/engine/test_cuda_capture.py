"""What a GPU is like after a graph that could not be captured: torch's own code around a GPU that is not there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch

from batchocr.engine import backend
from batchocr.engine.backend.cuda_device import CudaDevice
from batchocr.engine.backend.device import CaptureError
from batchocr.errors import EngineError, UsageError

GPU = torch.device("cuda:0")


class Stream:
    def __init__(self, *_: object, **__: object) -> None:
        self.captures = False

    def wait_stream(self, other: Stream) -> None:
        assert not self.captures and not other.captures


class Gpu:
    """Knows which stream is current, whether it captures, and whether torch's allocator thinks so.

    invalid: what a step did invalidates its capture. broken: after that nothing works. captured_in: the pool of each
    graph.
    """

    def __init__(self) -> None:
        self.current = Stream()
        self.pools = 0
        self.captured_in: list[str] = []
        self._num_handles = 0
        self.invalid = self.broken = False

    def use(self) -> None:
        """Any call that waits for the GPU."""
        if self.broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with")
        assert not self.current.captures

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def new_pool(self) -> str:
        self._num_handles += 1
        return f"pool {self._num_handles}"

    def end_pool(self, index: int, pool: str) -> None:
        if not self.pools:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
        self.pools -= 1

    def graph(self) -> Graph:
        return Graph(self)


class Graph:
    """Like torch's, the end of a capture that has become invalid raises before the allocator hears of it."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu

    def capture_begin(self, pool: str, **_: object) -> None:
        self._gpu.pools += 1
        self._gpu.captured_in.append(pool)
        self._gpu.current.captures = True

    def capture_end(self) -> None:
        self._gpu.current.captures = False
        if self._gpu.invalid:
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture\nCompile with")
        self._gpu.pools -= 1

    def replay(self) -> None:
        pass


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    gpu = Gpu()
    ones = torch.ones
    parts: dict[str, object] = {
        "Stream": Stream,
        "stream": gpu.stream,
        "current_stream": lambda *_: gpu.current,
        "set_device": lambda device: None,
        "synchronize": lambda *_: gpu.use(),
        "empty_cache": lambda: None,
        "graph_pool_handle": gpu.new_pool,
        "CUDAGraph": gpu.graph,
    }
    for name, part in parts.items():
        monkeypatch.setattr(torch.cuda, name, part)
    monkeypatch.setattr(torch._C, "_host_emptyCache", lambda: None, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", gpu.end_pool, raising=False)
    monkeypatch.setattr(torch, "ones", lambda *shape, device: gpu.use() or ones(*shape))
    return gpu


def step(gpu: Gpu, failure: Exception | None, *, invalid: bool = False, broken: bool = False) -> Callable[[], int]:
    """Decodes; while it is captured, it fails."""

    def run() -> int:
        if gpu.current.captures and failure is not None:
            gpu.invalid, gpu.broken = invalid, broken
            raise failure
        return 1

    return run


def test_every_step_is_captured_and_replayed(gpu: Gpu) -> None:
    replays = list(CudaDevice(GPU).capture([step(gpu, None)] * 3))
    assert [replay() for replay in replays] == [1, 1, 1]
    assert gpu.pools == 0


def test_graphs_and_the_second_stream_can_be_left_out(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    device = CudaDevice(GPU)
    assert device._side is not device._main
    monkeypatch.setenv("BATCHOCR_GRAPHS", "0")
    monkeypatch.setenv("BATCHOCR_STREAMS", "one")
    device = backend.open_device(GPU)
    assert isinstance(device, CudaDevice)
    assert list(device.capture([step(gpu, None)] * 3)) == []
    assert device._side is device._main
    monkeypatch.setenv("BATCHOCR_STREAMS", "1")
    with pytest.raises(UsageError, match="BATCHOCR_STREAMS is '1': it can be 'one', or not set"):
        backend.open_device(GPU)
    monkeypatch.delenv("BATCHOCR_STREAMS")
    monkeypatch.setenv("BATCHOCR_GRAPHS", "1")
    with pytest.raises(UsageError, match="BATCHOCR_GRAPHS is '1': it can be '0', 'lazy', or not set"):
        backend.open_device(GPU)


@pytest.mark.parametrize(
    ("setting", "pools"), [("", ["pool 1", "pool 1", "pool 2"]), ("lazy", ["pool 1"] * 3)], ids=["all at once", "lazy"]
)
def test_lazy_graphs_share_memory_whenever_they_are_captured(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, setting: str, pools: list[str]
) -> None:
    monkeypatch.setenv("BATCHOCR_GRAPHS", setting)
    device = backend.open_device(GPU)
    assert device.lazy_graphs is (setting == "lazy")
    replays = [*device.capture([step(gpu, None)] * 2), *device.capture([step(gpu, None)])]
    assert [replay() for replay in replays] == [1, 1, 1]
    assert gpu.captured_in == pools


def test_plain_pytorch_has_one_stream(gpu: Gpu) -> None:
    device = backend.open_device(GPU, one_stream=True)
    assert isinstance(device, CudaDevice)
    assert device._side is device._main


@pytest.mark.parametrize(
    ("failure", "invalid"),
    [
        (RuntimeError("CUDA error: operation not permitted when stream is capturing\nCompile with"), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried"), False),
        (ImportError("a library that loads something late"), False),
    ],
    ids=["not permitted", "out of memory", "not of CUDA"],
)
def test_after_a_failed_capture_the_gpu_is_as_before_and_the_first_error_is_the_reason(
    gpu: Gpu, failure: Exception, invalid: bool
) -> None:
    before = gpu.current
    captured = []
    with pytest.raises(CaptureError) as caught:
        for replay in CudaDevice(GPU).capture([step(gpu, None), step(gpu, None), step(gpu, failure, invalid=invalid)]):
            captured.append(replay())
    assert captured == [1, 1]
    assert str(caught.value) == f"{type(failure).__name__}: {failure}".splitlines()[0]
    assert gpu.current is before and not before.captures
    assert gpu.pools == 0


def test_a_capture_that_breaks_the_context_is_an_engine_error(gpu: Gpu) -> None:
    failure = RuntimeError("CUDA error: an illegal memory access was encountered")
    with pytest.raises(EngineError, match=r"has broken cuda:0 for this process \(RuntimeError: CUDA error: an ill"):
        list(CudaDevice(GPU).capture([step(gpu, failure, invalid=True, broken=True)]))


def test_a_step_that_fails_without_a_graph_too_is_no_matter_of_graphs(gpu: Gpu) -> None:
    def fail() -> int:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried")

    with pytest.raises(torch.OutOfMemoryError):
        list(CudaDevice(GPU).capture([fail]))
