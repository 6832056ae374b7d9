"""What a GPU's streams do to one another's memory: torch's own CUDA sanitizer, told by `watched_cuda.py`.

It keeps vector clocks: per stream, what it has waited for. So what is reported does not depend on how fast anything is:
two accesses without a wait between them are a race even where the one always came first. To its races we add memory
that is freed while another stream uses it, and graphs whose memory is gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.cuda import _sanitizer
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves

DEFAULT_STREAM: int = _sanitizer.DEFAULT_STREAM_ID


@dataclass(slots=True)
class _Memory:
    """home: the stream that it was allocated in, where it is used again once it is freed. pool: of a graph, if it is
    from one. elsewhere: the newest launch that uses it, by other streams. kept_for: streams that the allocator waits
    for."""

    storage: StorageWeakRef
    home: int
    pool: int | None
    elsewhere: dict[int, int] = field(default_factory=dict)
    kept_for: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Capture:
    """What a graph reads and writes. pool: stands for the memory that it shares with others."""

    pool: int
    reads: set[int] = field(default_factory=set)
    writes: set[int] = field(default_factory=set)


class Gpu:
    """What is known of a device's streams and memory. reports: what was found. launches: how many there were, by stream
    and name."""

    def __init__(self) -> None:
        self.reports: list[str] = []
        self.launches: Counter[tuple[int, str]] = Counter()
        self.current = DEFAULT_STREAM
        self.capture: Capture | None = None
        self.is_paused = False
        self.handler = _sanitizer.EventHandler()
        self._memory: dict[int, _Memory] = {}
        self._used_elsewhere: set[int] = set()
        self._num_streams = self._num_events = self._num_pools = 0

    @property
    def launches_by_stream(self) -> Counter[int]:
        by_stream: Counter[int] = Counter()
        for (stream, _), number in self.launches.items():
            by_stream[stream] += number
        return by_stream

    def new_stream(self) -> int:
        self._num_streams += 1
        self.handler._handle_stream_creation(self._num_streams)
        return self._num_streams

    def new_event(self) -> int:
        self._num_events += 1
        self.handler._handle_event_creation(self._num_events)
        return self._num_events

    def new_pool(self) -> int:
        """Stands for all memory that graphs share; negative, which no tensor's key is."""
        self._num_pools -= 1
        return self._num_pools

    def synchronize(self) -> None:
        self.notice_freed()
        self.handler._handle_device_synchronization()

    def launch(self, name: str, reads: Iterable[Tensor], writes: Iterable[Tensor]) -> None:
        """A kernel, or a copy, in the current stream."""
        read, written = {self._key(tensor) for tensor in reads}, {self._key(tensor) for tensor in writes}
        if self.capture is None:
            self._run(name, read, written)
        else:
            self.capture.reads |= read
            self.capture.writes |= written

    def replay(self, captured: Capture) -> None:
        reads, writes = set(captured.reads), {captured.pool, *captured.writes}
        for key in captured.reads | captured.writes:
            if self._memory[key].storage.expired():
                reads.discard(key)
                writes.discard(key)
                if self._memory[key].pool != captured.pool:
                    self.reports.append("a graph is replayed on memory that was freed")
        self._run("replay", reads, writes)

    def kernel(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function as one launch that reads all tensors it is given and writes those it returns."""

        def run(*args: Any) -> Any:
            self.is_paused = True
            try:
                result = function(*args)
            finally:
                self.is_paused = False
            self.launch(name, filter(is_cuda, tensors_in(args)), filter(is_cuda, tensors_in(result)))
            return result

        return run

    def allocate(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            self._key(tensor)

    def keep_for(self, tensor: Tensor, stream: int) -> None:
        """The allocator waits for what the stream is asked for until the tensor is freed."""
        self._memory[self._key(tensor)].kept_for.add(stream)

    def notice_freed(self) -> None:
        """Check that what was freed is done with where its home stream now stands: its next owner writes there.

        Called before anything that orders streams, because the allocator does not wait for that.
        """
        for key in list(self._used_elsewhere):
            memory = self._memory[key]
            if memory.storage.expired():
                self._used_elsewhere.discard(key)
                home = self._clock(memory.home)
                for stream, launch in memory.elsewhere.items():
                    if stream not in memory.kept_for and home.get(stream, -1) < launch:
                        self.reports.append(f"memory of stream {memory.home} was freed while stream {stream} uses it")

    def _run(self, name: str, reads: set[int], writes: set[int]) -> None:
        stream = self.current
        self.launches[stream, name] += 1
        names: dict[int, list[str]] = {key: [] for key in reads | writes}
        for race in self.handler._handle_kernel_launch(stream, reads - writes, writes, set(), name, names):
            assert isinstance(race, _sanitizer.UnsynchronizedAccessError)
            now, before = race.current_access, race.previous_access
            what = f"{now.operator} in stream {now.stream} {now.type} what {before.operator} in stream {before.stream}"
            self.reports.append(f"{what} was {before.type}")
        for key in reads | writes:
            memory = self._memory.get(key)
            if memory is not None and memory.home != stream:
                memory.elsewhere[stream] = self._clock(stream)[stream]
                self._used_elsewhere.add(key)

    def _clock(self, stream: int) -> dict[int, int]:
        """By stream: its newest launch, counted over all streams, that this one comes after."""
        clock: dict[int, int] = self.handler.syncs.current_sync_states[stream]
        return clock

    def _key(self, tensor: Tensor) -> int:
        storage = tensor.untyped_storage()
        key: int = storage._cdata
        if key not in self._memory:
            pool = self.capture.pool if self.capture else None
            self._memory[key] = _Memory(StorageWeakRef(storage), self.current, pool)
            self.handler._handle_memory_allocation(key)
        return key


def tensors_in(value: object) -> Iterator[Tensor]:
    """All tensors in it; of what is not a tensor or a collection, those in its fields."""
    for leaf in tree_leaves(value):
        if isinstance(leaf, Tensor):
            yield leaf
        elif hasattr(leaf, "__dataclass_fields__"):
            yield from tensors_in([getattr(leaf, name) for name in leaf.__dataclass_fields__])


def is_cuda(tensor: object) -> bool:
    return isinstance(tensor, FakeTensor) and tensor.fake_device.type == "cuda"  # quicker than tensor.is_cuda
