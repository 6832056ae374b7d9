"""A GPU that is not there: torch.cuda's streams, events, graphs, pinned memory and copies, each telling the sanitizer.

Under FakeTensorMode and inside `watched(sanitizer, …)`, code that drives torch.cuda runs as it is. Nothing is computed.
Where CUDA promises more than should be relied on, the stand-ins promise less: that an event is found done tells the
host so, but orders no streams, and entering `torch.cuda.graph` waits for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import filterfalse
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.cuda import _sanitizer
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.support.stream_sanitizer import DEFAULT_STREAM, Capture, Clock, StreamSanitizer, is_cuda, tensors_in

_MS_PER_LAUNCH = 0.01
"""Between two events, when they are asked for their times: made up, and the same in every run."""
_ONLY_ALLOCATE = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "empty_permuted")


@contextmanager
def watched(sanitizer: StreamSanitizer, answer: Callable[[Tensor], list[Any]]) -> Iterator[None]:
    """Inside, torch.cuda is the sanitizer's. To be entered inside FakeTensorMode.

    answer: the values that the host finds in a tensor that was copied from the GPU.
    """
    stream_of = partial(Stream, sanitizer)
    stand_ins = {
        "Stream": stream_of,
        "Event": partial(Event, sanitizer),
        "CUDAGraph": partial(Graph, sanitizer),
        "graph": partial(_capture, sanitizer),
        "graph_pool_handle": sanitizer.new_pool,
        "stream": partial(_current_stream, sanitizer),
        "current_stream": lambda *device: stream_of(stream=sanitizer.current),
        "default_stream": lambda *device: stream_of(stream=DEFAULT_STREAM),
        "synchronize": lambda *device: sanitizer.synchronize(),
        "set_device": lambda device: None,
        "_sleep": lambda cycles: sanitizer.launch("sleep", (), ()),
    }

    def keep(tensor: Tensor, stream: Stream) -> None:
        sanitizer.keep_for(tensor, stream.id)

    def read(host: Tensor) -> list[Any]:
        sanitizer.host_reads(host)
        return answer(host)

    no_traces = SimpleNamespace(
        StackSummary=SimpleNamespace(extract=lambda *stack, **options: []), walk_stack=lambda frame: ()
    )  # a stack for every launch is most of the time
    with ExitStack() as patches:
        for name, stand_in in stand_ins.items():
            patches.enter_context(mock.patch.object(torch.cuda, name, stand_in))
        patches.enter_context(mock.patch.object(_sanitizer, "traceback", no_traces))
        patches.enter_context(mock.patch.object(Tensor, "record_stream", keep))
        patches.enter_context(mock.patch.object(FakeTensor, "tolist", read))
        patches.enter_context(_Copies(sanitizer))
        patches.enter_context(_Launches(sanitizer))
        yield
        sanitizer.notice_freed()


class Stream:
    def __init__(self, sanitizer: StreamSanitizer, *device: object, stream: int | None = None, **priority: int) -> None:
        self._sanitizer = sanitizer
        self.id = sanitizer.new_stream() if stream is None else stream

    def wait_stream(self, other: Stream) -> None:
        event = Event(self._sanitizer)
        event.record(other)
        event.wait(self)


class Event:
    """Its place in the stream is a launch of its own: that the work before it is done does not say that it is."""

    def __init__(self, sanitizer: StreamSanitizer, **flags: bool) -> None:
        self._sanitizer = sanitizer
        self._event = sanitizer.new_event()
        self._stream = DEFAULT_STREAM
        self._questions = 0

    def record(self, stream: Stream | None = None) -> None:
        sanitizer = self._sanitizer
        self._stream = sanitizer.current if stream is None else stream.id
        self._questions = 0
        sanitizer.handler._handle_kernel_launch(self._stream, set(), set(), set(), "event", {})
        sanitizer.handler._handle_event_record(self._event, self._stream)

    def wait(self, stream: Stream | None = None) -> None:
        sanitizer = self._sanitizer
        if sanitizer.asked_for("stream waits"):
            sanitizer.notice_freed()
            sanitizer.handler._handle_event_wait(self._event, sanitizer.current if stream is None else stream.id)

    def synchronize(self) -> None:
        sanitizer = self._sanitizer
        if sanitizer.asked_for("host waits"):
            sanitizer.notice_freed()
            sanitizer.handler._handle_event_synchronization(self._event)
            sanitizer.host_learns(self._clock)

    def query(self) -> bool:
        sanitizer = self._sanitizer
        if not sanitizer.asked_for("is it done"):
            return True
        self._questions += 1
        if self._questions >= sanitizer.patience:
            sanitizer.host_learns(self._clock)
        return self._is_known_done

    def elapsed_time(self, later: Event) -> float:
        if not (self._is_known_done and later._is_known_done):
            self._sanitizer.report("host", "asks for the time of an event that may not be done")
        return _MS_PER_LAUNCH * (later._place - self._place)

    @property
    def _clock(self) -> Clock:
        clock: Clock = self._sanitizer.handler.syncs.recorded_sync_states[self._event]
        return clock

    @property
    def _place(self) -> int:
        return self._clock.get(self._stream, 0)

    @property
    def _is_known_done(self) -> bool:
        return self._place <= self._sanitizer.known_to_host[self._stream]


class Graph:
    def __init__(self, sanitizer: StreamSanitizer) -> None:
        self._sanitizer = sanitizer
        self.captured: Capture | None = None

    def replay(self) -> None:
        assert self.captured is not None
        self._sanitizer.replay(self.captured)


@contextmanager
def _current_stream(sanitizer: StreamSanitizer, stream: Stream | None) -> Iterator[None]:
    before = sanitizer.current
    sanitizer.current = before if stream is None else stream.id
    try:
        yield
    finally:
        sanitizer.current = before


@contextmanager
def _capture(
    sanitizer: StreamSanitizer, graph: Graph, pool: int | None = None, stream: Stream | None = None, **mode: str
) -> Iterator[None]:
    with _current_stream(sanitizer, stream or Stream(sanitizer)):
        sanitizer.capture = graph.captured = Capture(sanitizer.new_pool() if pool is None else pool)
        try:
            yield
        finally:
            sanitizer.capture = None


class _Copies(TorchFunctionMode):
    """What Python code asks of pinned memory, and copies between host and GPU."""

    def __init__(self, sanitizer: StreamSanitizer) -> None:
        super().__init__()
        self._sanitizer = sanitizer

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        sanitizer = self._sanitizer
        if kwargs.get("pin_memory"):
            return sanitizer.pin(func(*args, **{**kwargs, "pin_memory": False}))
        if func is Tensor.pin_memory:
            sanitizer.host_reads(args[0])
            return sanitizer.pin(args[0].clone())
        if func is Tensor.to and kwargs.get("non_blocking") and not is_cuda(args[0]):
            host, target = args
            result = torch.empty(host.shape, dtype=host.dtype, device=target)
            sanitizer.copy_in(host, result)
            return result
        if func is Tensor.copy_ and any(map(is_cuda, args)):
            return self._copy(*args)
        return func(*args, **kwargs)

    def _copy(self, target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
        assert target.shape == source.shape
        if not is_cuda(target):
            self._sanitizer.copy_out(source, target)
        elif is_cuda(source):
            self._sanitizer.launch("copy", (source,), (target,))
        else:
            self._sanitizer.copy_in(source, target)
        return target


class _Launches(TorchDispatchMode):
    """Every operation on the GPU is a launch, but for views and for memory that is only allocated."""

    def __init__(self, sanitizer: StreamSanitizer) -> None:
        super().__init__()
        self._sanitizer = sanitizer

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        sanitizer = self._sanitizer
        if sanitizer.is_paused:
            return func(*args, **kwargs)
        read, written = _arguments(func._schema, args, kwargs)
        result = func(*args, **kwargs)
        made = list(filter(is_cuda, tensors_in(result)))
        if func._schema.name.removeprefix("aten::") in _ONLY_ALLOCATE:
            sanitizer.allocate(made)
            return result
        known = {tensor.untyped_storage()._cdata for tensor in (*read, *written)}
        new = [tensor for tensor in made if tensor.untyped_storage()._cdata not in known]
        changed = [*filter(is_cuda, written), *new]
        if changed:
            sanitizer.launch(func._schema.name, filter(is_cuda, read), changed)
        for tensor in filterfalse(is_cuda, read):
            sanitizer.host_reads(tensor)
        for tensor in filterfalse(is_cuda, written):
            sanitizer.host_writes(tensor)
        return result


def _arguments(schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Tensor], list[Tensor]]:
    """The tensors that an operation reads, and those that it writes."""
    read: list[Tensor] = []
    written: list[Tensor] = []
    for position, argument in enumerate(schema.arguments):
        value = args[position] if position < len(args) else kwargs.get(argument.name)
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        (written if is_written else read).extend(tensors_in(value))
    return read, written
