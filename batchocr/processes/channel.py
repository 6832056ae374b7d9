"""Messages, some with a file descriptor, between the run and another process of it, over a Unix stream socket.

A frame is the length of its text, whether a descriptor belongs to it, and the text: one message of `messages.py` or
`engine_messages.py` as JSON. Never pickle: a worker that a hostile document has taken over must not be able to run code
in the run's process.
"""

from __future__ import annotations

import array
import json
import os
import select
import socket
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from batchocr.errors import BatchOcrError
from batchocr.processes.engine_messages import FromEngine, ToEngine
from batchocr.processes.messages import FromWorker, ToWorker

Sent = TypeVar("Sent")
Received = TypeVar("Received")
Expected = TypeVar("Expected")

TO_WORKER: TypeAdapter[ToWorker] = TypeAdapter(Annotated[ToWorker, Field(discriminator="type")])
FROM_WORKER: TypeAdapter[FromWorker] = TypeAdapter(Annotated[FromWorker, Field(discriminator="type")])
TO_ENGINE: TypeAdapter[ToEngine] = TypeAdapter(Annotated[ToEngine, Field(discriminator="type")])
FROM_ENGINE: TypeAdapter[FromEngine] = TypeAdapter(Annotated[FromEngine, Field(discriminator="type")])

MAX_FRAME_BYTES = 256 * 2**20
_HEADER = struct.Struct("<IB")
_READ_BYTES = 2**18
_MAX_READS = 64
"""How often one `receive()` reads at most: a side that never stops sending must not keep the other from everything
else."""

_DESCRIPTOR = array.array("i", [0]).itemsize
# Not socket.send_fds and recv_fds: they drop their flags (CPython 3.11 to 3.14), and a receive that waits hangs the
# run.
_RECEIVE_FLAGS = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC


class ChannelError(BatchOcrError):
    """The other side broke the protocol, or nothing can be sent. The channel is of no further use."""


@dataclass(slots=True)
class _Frame:
    """What is left to send of a frame. The frame's descriptor goes with the first byte and is then closed."""

    rest: memoryview
    descriptor: int | None


class Channel(Generic[Sent, Received]):
    """One side's end of a socket."""

    def __init__(
        self,
        sock: socket.socket,
        sends: TypeAdapter[Sent],
        receives: TypeAdapter[Received],
        *,
        blocking: bool = False,
    ) -> None:
        """blocking: whether `send` waits until the other side has taken the message; if not, nothing here waits except
        `wait`. The run must not: a worker may have stopped reading, or be blocked itself. Nor must an engine, as its
        device would stand still."""
        sock.setblocking(blocking)
        self.closed = False
        """Whether the other side is gone, or this side was closed."""
        self._socket = sock
        self._sends = sends
        self._receives = receives
        self._outgoing: deque[_Frame] = deque()
        self._incoming = bytearray()
        self._descriptors: deque[int] = deque()

    @property
    def events(self) -> int:
        """What to poll the socket for: POLLOUT, for `flush`, only while something waits to be sent."""
        return select.POLLIN | (select.POLLOUT if self._outgoing else 0)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Sent, descriptor: int | None = None) -> None:
        """Send a message, as far as the socket takes it. The channel owns the descriptor from here on.

        Has no effect if the other side is gone: `receive` finds that out. Raises ChannelError.
        """
        try:
            text = json.dumps(self._sends.dump_python(message)).encode()  # escapes the surrogates of odd file names
            if len(text) > MAX_FRAME_BYTES:
                raise ValueError(f"a message of {len(text)} bytes is longer than a channel takes")
        except BaseException:
            _close(descriptor)
            raise
        header = _HEADER.pack(len(text), descriptor is not None)
        self._outgoing.append(_Frame(memoryview(header + text), descriptor))
        self.flush()

    def flush(self) -> None:
        """Send what is waiting, as far as the socket takes it. Raises ChannelError."""
        if self.closed:
            self._drop_outgoing()
        try:
            while self._outgoing:
                frame = self._outgoing[0]
                attached = (
                    []
                    if frame.descriptor is None
                    else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [frame.descriptor]))]
                )
                sent = self._socket.sendmsg([frame.rest], attached, socket.MSG_NOSIGNAL)
                _close(frame.descriptor)
                frame.descriptor, frame.rest = None, frame.rest[sent:]
                if not frame.rest:
                    self._outgoing.popleft()
        except BlockingIOError:
            pass
        except ConnectionError:
            self._drop_outgoing()
        except OSError as error:
            raise ChannelError(f"a message cannot be sent: {error.strerror}") from error

    def receive_one(self, kind: type[Expected]) -> Expected | None:
        """The next message, leaving further ones here; None if the other side is gone. Raises ChannelError if the
        message is of another kind."""
        while not self.closed:
            self.wait()
            for message, _ in self.receive():
                if not isinstance(message, kind):
                    raise ChannelError(f"{type(message).__name__} came out of turn")
                return message
        return None

    def wait(self) -> None:
        """Return when something has arrived, or the other side is gone; sends meanwhile what is waiting."""
        while True:
            poll = select.poll()
            poll.register(self._socket, self.events)
            [(_, events)] = poll.poll()
            if events & select.POLLOUT:
                self.flush()
            if events & ~select.POLLOUT:
                return

    def receive(self) -> Iterator[tuple[Received, int | None]]:
        """The messages that have arrived, each with its descriptor, which the caller has to close.

        Raises ChannelError; the messages before the wrong one have been handed out by then.
        """
        self._read()
        while (frame := self._next_frame()) is not None:
            yield frame
        if len(self._descriptors) > 1:  # one may belong to a frame that has not arrived in full
            raise ChannelError("there are more descriptors than messages that they belong to")

    def close(self) -> None:
        """Drop what is under way in either direction, and let the other side see the end."""
        self.closed = True
        self._drop_outgoing()
        while self._descriptors:
            os.close(self._descriptors.popleft())
        self._socket.close()

    def _read(self) -> None:
        """Read what is there, and notice if the other side is gone."""
        for _ in range(_MAX_READS):
            try:
                data, ancillary, flags, _ = self._socket.recvmsg(
                    _READ_BYTES, socket.CMSG_SPACE(_DESCRIPTOR), _RECEIVE_FLAGS
                )
            except BlockingIOError:
                return
            except OSError:
                data, ancillary, flags = b"", [], 0
            self._descriptors.extend(_descriptors_in(ancillary))
            if flags & socket.MSG_CTRUNC:
                raise ChannelError("there are more descriptors than a message may have, or than can be open at once")
            if not data:
                self.closed = True
                return
            self._incoming += data

    def _next_frame(self) -> tuple[Received, int | None] | None:
        """Remove and return the oldest message received; None if it is not yet complete."""
        if len(self._incoming) < _HEADER.size:
            return None
        length, num_descriptors = _HEADER.unpack_from(self._incoming)
        if length > MAX_FRAME_BYTES or num_descriptors > 1:
            raise ChannelError(f"no message begins with {bytes(self._incoming[: _HEADER.size])!r}")
        end = _HEADER.size + length
        if len(self._incoming) < end:
            return None
        message = self._parse(bytes(self._incoming[_HEADER.size : end]))
        del self._incoming[:end]
        if not num_descriptors:
            return message, None
        if not self._descriptors:
            raise ChannelError("a message came without its descriptor")
        return message, self._descriptors.popleft()

    def _parse(self, text: bytes) -> Received:
        try:
            return self._receives.validate_python(json.loads(text))
        except (ValueError, RecursionError) as error:  # those from json, and ValidationError
            reason = error.errors(include_url=False)[0] if isinstance(error, ValidationError) else error
            raise ChannelError(f"a message cannot be understood: {reason}") from error

    def _drop_outgoing(self) -> None:
        while self._outgoing:
            _close(self._outgoing.popleft().descriptor)


def wait_for(channels: Iterable[Channel[Any, Any]], timeout_s: float) -> set[int]:
    """The file numbers of channels that have something to read, or can send what is waiting, as soon as there are any;
    none after the timeout."""
    poll = select.poll()
    for channel in channels:
        if not channel.closed:
            poll.register(channel, channel.events)
    return {descriptor for descriptor, _ in poll.poll(timeout_s * 1000)}


def _descriptors_in(ancillary: list[tuple[int, int, bytes]]) -> Iterator[int]:
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            yield from array.array("i", data[: len(data) // _DESCRIPTOR * _DESCRIPTOR])


def _close(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)
