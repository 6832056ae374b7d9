"""What a GPU's streams do to one another's memory: torch's own CUDA sanitizer, told by `watched_cuda.py`.

It keeps vector clocks: per stream, what it has waited for. So what is reported does not depend on how fast anything is:
two accesses without a wait between them are a race even where the one always came first. To torch's we add the memory
that is freed while another stream uses it, and what the host knows to be done.

A wait is known by its site, the function that asks for it, and can be left out: then it must be missed.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Literal

from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.cuda import _sanitizer
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves

DEFAULT_STREAM: int = _sanitizer.DEFAULT_STREAM_ID

Kind = Literal["race", "memory", "host"]
Clock = dict[int, int]
"""By stream: its newest launch, counted over all streams, that something is known to come after."""


@dataclass(frozen=True, slots=True)
class Report:
    """race: two accesses without a wait between them. memory: used after it may have been given to another tensor.
    host: it read, overwrote or asked for what may not be done, waited by accident, or not when it should have."""

    kind: Kind
    what: str


@dataclass(slots=True)
class _Memory:
    """home: the stream that it was allocated in, where it is used again once it is freed. elsewhere: the newest use by
    each other stream. kept_for: streams that the allocator waits for."""

    storage: StorageWeakRef
    home: int
    elsewhere: Clock = field(default_factory=dict)
    kept_for: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _HostMemory:
    """Pinned memory, with the copies that may be under way, by stream: those that read it and those that fill it."""

    storage: StorageWeakRef
    read_by: Clock = field(default_factory=dict)
    filled_by: Clock = field(default_factory=dict)


@dataclass(slots=True)
class Capture:
    """What a graph reads and writes. pool: stands for the memory that it shares with others."""

    pool: int
    reads: set[int] = field(default_factory=set)
    writes: set[int] = field(default_factory=set)


class StreamSanitizer:
    """What is known of a device's streams and memory. One per run; see `watched`.

    patience: an event is found done when it is asked for the n-th time, if nothing told the host sooner. without: sites
    whose waits are left out. reports: what was found. sites: all waits that were asked for, left out or not. launches:
    how many there were, by stream and name.
    """

    def __init__(self, *, patience: int = 3, without: Collection[str] = ()) -> None:
        self.patience = patience
        self.without = frozenset(without)
        self.reports: list[Report] = []
        self.sites: set[str] = set()
        self.launches: Counter[tuple[int, str]] = Counter()
        self.current = DEFAULT_STREAM
        self.capture: Capture | None = None
        self.is_paused = False
        self.known_to_host: Clock = {DEFAULT_STREAM: 0}
        self.handler = _sanitizer.EventHandler()
        self._newest: Clock = {}
        self._memory: dict[int, _Memory] = {}
        self._host_memory: dict[int, _HostMemory] = {}
        self._used_elsewhere: set[int] = set()
        self._num_pools = self._num_events = 0

    def report(self, kind: Kind, what: str) -> None:
        self.reports.append(Report(kind, what))

    @property
    def unfinished(self) -> list[int]:
        """The streams with work that the host does not know to be done."""
        return [stream for stream, launch in self._newest.items() if launch > self.known_to_host[stream]]

    @property
    def launches_by_stream(self) -> Counter[int]:
        by_stream: Counter[int] = Counter()
        for (stream, _), number in self.launches.items():
            by_stream[stream] += number
        return by_stream

    @property
    def progress(self) -> tuple[int, Clock]:
        """Changes when work is launched and when the host learns that some is done."""
        return self.launches.total(), dict(self.known_to_host)

    # Streams and what is waited for

    def new_stream(self) -> int:
        stream = len(self.known_to_host)
        self.handler._handle_stream_creation(stream)
        self.known_to_host[stream] = 0
        return stream

    def new_pool(self) -> int:
        """Stands for all memory that graphs share; negative, which no tensor's key is."""
        self._num_pools -= 1
        return self._num_pools

    def new_event(self) -> int:
        self._num_events += 1
        self.handler._handle_event_creation(self._num_events)
        return self._num_events

    def clock(self, stream: int) -> Clock:
        clock: Clock = self.handler.syncs.current_sync_states[stream]
        return clock

    def asked_for(self, wait: str) -> bool:
        """Note the site of a wait. Returns False if it is left out."""
        site = _site(wait)
        if site is None:
            return True
        self.sites.add(site)
        return site not in self.without

    def host_learns(self, clock: Clock) -> None:
        for stream, launch in clock.items():
            self.known_to_host[stream] = max(self.known_to_host[stream], launch)

    def synchronize(self) -> None:
        if self.asked_for("synchronize"):
            self.notice_freed()
            self.handler._handle_device_synchronization()
            for stream in self.known_to_host:
                self.host_learns(self.clock(stream))

    # Launches

    def launch(self, name: str, reads: Iterable[Tensor], writes: Iterable[Tensor]) -> None:
        """A kernel, or a copy, in the current stream."""
        read, written = {self._key(tensor) for tensor in reads}, {self._key(tensor) for tensor in writes}
        if self.capture is None:
            self._run(name, read, written)
        else:
            self.capture.reads |= read
            self.capture.writes |= written

    def replay(self, captured: Capture) -> None:
        freed = {key for key in captured.reads | captured.writes if self._memory[key].storage.expired()}
        self._run("replay", captured.reads - freed, {captured.pool} | (captured.writes - freed))

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
        if self.asked_for("record_stream"):
            self._memory[self._key(tensor)].kept_for.add(stream)

    def notice_freed(self) -> None:
        """Check that what was freed is done with where its home stream now stands: its next owner writes there.

        Called before anything that orders streams, because the allocator does not wait for that.
        """
        for key in list(self._used_elsewhere):
            memory = self._memory[key]
            if memory.storage.expired():
                self._used_elsewhere.discard(key)
                home = self.clock(memory.home)
                for stream, launch in memory.elsewhere.items():
                    if stream not in memory.kept_for and home.get(stream, -1) < launch:
                        self.report("memory", f"of stream {memory.home} was freed while stream {stream} may use it")

    def _run(self, name: str, reads: set[int], writes: set[int]) -> None:
        stream = self.current
        self.launches[stream, name] += 1
        names: dict[int, list[str]] = {key: [] for key in reads | writes}
        for race in self.handler._handle_kernel_launch(stream, reads - writes, writes, set(), name, names):
            assert isinstance(race, _sanitizer.UnsynchronizedAccessError)
            now, before = race.current_access, race.previous_access
            what = f"{now.operator} in stream {now.stream} {now.type} what {before.operator} in stream {before.stream}"
            self.report("race", f"{what} was {before.type}")
        self._newest[stream] = self.clock(stream)[stream]
        for key in reads | writes:
            memory = self._memory.get(key)
            if memory is not None and memory.home != stream:
                memory.elsewhere[stream] = self._newest[stream]
                self._used_elsewhere.add(key)

    def _key(self, tensor: Tensor) -> int:
        storage = tensor.untyped_storage()
        key: int = storage._cdata
        if key not in self._memory:
            self._memory[key] = _Memory(StorageWeakRef(storage), self.current)
            self.handler._handle_memory_allocation(key)
        return key

    # The host's memory

    def pin(self, host: Tensor) -> Tensor:
        storage = host.untyped_storage()
        self._host_memory[storage._cdata] = _HostMemory(StorageWeakRef(storage))
        return host

    def copy_in(self, host: Tensor, target: Tensor) -> None:
        memory = self._pinned(host)
        if memory is None:
            self.report("host", "a copy from memory that is not pinned waits for all work before it")
        if self.capture is not None:
            self.report("host", "a copy from memory that is gone when the graph is replayed")
        self.launch("copy to the GPU", (), (target,))
        if memory is not None:
            memory.read_by[self.current] = self._newest[self.current]

    def copy_out(self, source: Tensor, host: Tensor) -> None:
        memory = self._pinned(host)
        if memory is None:
            self.report("host", "a copy to memory that is not pinned waits for all work before it")
        self.launch("copy to the host", (source,), ())
        if memory is not None:
            memory.filled_by[self.current] = self._newest[self.current]

    def host_reads(self, host: Tensor) -> None:
        memory = self._pinned(host)
        if memory is not None and not self._is_done(memory.filled_by):
            self.report("host", "reads what may not be copied yet")

    def host_writes(self, host: Tensor) -> None:
        memory = self._pinned(host)
        if memory is not None and not (self._is_done(memory.read_by) and self._is_done(memory.filled_by)):
            self.report("host", "overwrites what may not be copied yet")

    def _pinned(self, host: Tensor) -> _HostMemory | None:
        return self._host_memory.get(host.untyped_storage()._cdata)

    def _is_done(self, copies: Clock) -> bool:
        return all(launch <= self.known_to_host[stream] for stream, launch in copies.items())


def _site(wait: str) -> str | None:
    """Which function of the project asks for a wait; None if none does. A mark asks on behalf of its caller."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        module, function = frame.f_globals["__name__"], frame.f_code.co_qualname
        if not (module.startswith("tests.support.") or function.startswith("CudaMark.")):
            return f"{function}: {wait}" if module.startswith("batchocr.") else None
        frame = frame.f_back
    return None


def tensors_in(value: object) -> Iterator[Tensor]:
    """All tensors in it; of what is not a tensor or a collection, those in its fields."""
    for leaf in tree_leaves(value):
        if isinstance(leaf, Tensor):
            yield leaf
        elif hasattr(leaf, "__dataclass_fields__"):
            yield from tensors_in([getattr(leaf, name) for name in leaf.__dataclass_fields__])


def is_cuda(tensor: object) -> bool:
    return isinstance(tensor, FakeTensor) and tensor.fake_device.type == "cuda"  # quicker than tensor.is_cuda
