"""A GPU that is not there: torch.cuda's streams, events, graphs and copies, each telling the sanitizer.

Under FakeTensorMode and inside `watched(gpu, …)`, code that drives torch.cuda runs as it is. Nothing is computed. Where
CUDA promises more than should be relied on, the stand-ins promise less: that an event is found done orders no streams,
and entering `torch.cuda.graph` waits for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.cuda import _sanitizer
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.support.stream_sanitizer import Capture, Gpu, is_cuda, tensors_in

_MS_PER_EVENT = 0.01
"""Between two events, when they are asked for their times: made up, and the same in every run."""
_QUESTIONS = 3
"""An event is found done when it is asked for this time."""
_ONLY_ALLOCATE = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "empty_permuted")


@contextmanager
def watched(gpu: Gpu, answer: Callable[[Tensor], list[Any]]) -> Iterator[None]:
    """Inside, torch.cuda is this GPU's. To be entered inside FakeTensorMode.

    answer: the values that the host finds in a tensor that was copied from the GPU.
    """
    stand_ins = {
        "Stream": partial(Stream, gpu),
        "Event": partial(Event, gpu),
        "CUDAGraph": partial(_Graph, gpu),
        "graph": partial(_capture, gpu),
        "graph_pool_handle": gpu.new_pool,
        "stream": partial(_current_stream, gpu),
        "current_stream": lambda *device: Stream(gpu, number=gpu.current),
        "synchronize": lambda *device: gpu.synchronize(),
        "set_device": lambda device: None,
    }
    no_traces = SimpleNamespace(
        StackSummary=SimpleNamespace(extract=lambda *stack, **options: []), walk_stack=lambda frame: ()
    )  # a stack for every launch is most of the time
    with ExitStack() as patches:
        for name, stand_in in stand_ins.items():
            patches.enter_context(mock.patch.object(torch.cuda, name, stand_in))
        patches.enter_context(mock.patch.object(_sanitizer, "traceback", no_traces))
        keep: Callable[[Tensor, Stream], None] = lambda tensor, stream: gpu.keep_for(tensor, stream.number)  # noqa: E731
        patches.enter_context(mock.patch.object(Tensor, "record_stream", keep))
        patches.enter_context(mock.patch.object(FakeTensor, "tolist", answer))
        patches.enter_context(_Copies(gpu))
        patches.enter_context(_Launches(gpu))
        yield
        gpu.notice_freed()


class Stream:
    def __init__(self, gpu: Gpu, *device: object, number: int | None = None, **priority: int) -> None:
        self._gpu = gpu
        self.number = gpu.new_stream() if number is None else number

    def wait_stream(self, other: Stream) -> None:
        event = Event(self._gpu)
        event.record(other)
        event.wait(self)


class Event:
    """place: how many launches there were when it was recorded."""

    def __init__(self, gpu: Gpu, **flags: bool) -> None:
        self._gpu = gpu
        self._number = gpu.new_event()
        self._questions = 0
        self.place = -1

    def record(self, stream: Stream | None = None) -> None:
        self.place = self._gpu.launches.total()
        self._gpu.handler._handle_event_record(self._number, stream.number if stream else self._gpu.current)

    def wait(self, stream: Stream | None = None) -> None:
        self._gpu.notice_freed()
        self._gpu.handler._handle_event_wait(self._number, stream.number if stream else self._gpu.current)

    def synchronize(self) -> None:
        self._gpu.notice_freed()
        self._gpu.handler._handle_event_synchronization(self._number)

    def query(self) -> bool:
        self._questions += 1
        return self._questions >= _QUESTIONS

    def elapsed_time(self, later: Event) -> float:
        return _MS_PER_EVENT * (later._number - self._number)


class _Graph:
    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self.captured: Capture | None = None

    def replay(self) -> None:
        assert self.captured is not None
        self._gpu.replay(self.captured)


@contextmanager
def _current_stream(gpu: Gpu, stream: Stream) -> Iterator[None]:
    before, gpu.current = gpu.current, stream.number
    try:
        yield
    finally:
        gpu.current = before


@contextmanager
def _capture(gpu: Gpu, graph: _Graph, pool: int, stream: Stream, **mode: str) -> Iterator[None]:
    with _current_stream(gpu, stream):
        gpu.capture = graph.captured = Capture(pool)
        try:
            yield
        finally:
            gpu.capture = None


class _Copies(TorchFunctionMode):
    """Pinned memory, and copies between host and GPU."""

    def __init__(self, gpu: Gpu) -> None:
        super().__init__()
        self._gpu = gpu

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.pin_memory:
            return args[0].clone()
        if func is Tensor.to and kwargs.get("non_blocking") and not is_cuda(args[0]):
            host, target = args
            return self._copy(torch.empty(host.shape, dtype=host.dtype, device=target), host)
        if func is Tensor.copy_ and any(map(is_cuda, args)):
            return self._copy(*args)
        return func(*args, **{name: value for name, value in kwargs.items() if name != "pin_memory"})

    def _copy(self, target: Tensor, source: Tensor) -> Tensor:
        assert target.shape == source.shape
        if self._gpu.capture is not None and not is_cuda(source):
            self._gpu.reports.append("a graph copies from the host, whose memory is gone when it is replayed")
        self._gpu.launch("copy", filter(is_cuda, [source]), filter(is_cuda, [target]))
        return target


class _Launches(TorchDispatchMode):
    """Every operation on the GPU is a launch, but for views and for memory that is only allocated."""

    def __init__(self, gpu: Gpu) -> None:
        super().__init__()
        self._gpu = gpu

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if self._gpu.is_paused:
            return result
        made = list(filter(is_cuda, tensors_in(result)))
        if func._schema.name.removeprefix("aten::") in _ONLY_ALLOCATE:
            self._gpu.allocate(made)
            return result
        read, written = _arguments(func._schema, args, kwargs or {})
        known = {tensor.untyped_storage()._cdata for tensor in (*read, *written)}
        new = [tensor for tensor in made if tensor.untyped_storage()._cdata not in known]
        if written or new:
            self._gpu.launch(func._schema.name, read, [*written, *new])
        return result


def _arguments(schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Tensor], list[Tensor]]:
    """The tensors on the GPU that an operation reads, and those that it writes."""
    read: list[Tensor] = []
    written: list[Tensor] = []
    for position, argument in enumerate(schema.arguments):
        value = args[position] if position < len(args) else kwargs.get(argument.name)
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        (written if is_written else read).extend(filter(is_cuda, tensors_in(value)))
    return read, written
