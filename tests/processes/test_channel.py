"""Messages, descriptors and pixels between processes: what arrives, what is refused, what is left open."""

from __future__ import annotations

import json
import math
import mmap
import os
import resource
import select
import socket
import struct
from collections.abc import Iterator
from typing import TypeAlias

import pytest

from batchocr.data import Completion, Failure, Pixels, Request, Sampling
from batchocr.errors import TooLargeError
from batchocr.processes import pixels
from batchocr.processes.channel import FROM_WORKER, TO_WORKER, Channel, ChannelError
from batchocr.processes.messages import (
    Began,
    Completions,
    Failed,
    FromWorker,
    OpenDocument,
    Question,
    RequestBatch,
    ToWorker,
)
from batchocr.processes.pixels import SharedBatch, share_batch

BEGAN = Began(1, "open")
RunChannel: TypeAlias = Channel[ToWorker, FromWorker]
WorkerChannel: TypeAlias = Channel[FromWorker, ToWorker]


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, its = socket.socketpair()
    with ours, its:
        yield ours, its


@pytest.fixture
def run(sockets: tuple[socket.socket, socket.socket]) -> RunChannel:
    return Channel(sockets[0], TO_WORKER, FROM_WORKER)


@pytest.fixture
def worker(sockets: tuple[socket.socket, socket.socket]) -> WorkerChannel:
    return Channel(sockets[1], FROM_WORKER, TO_WORKER, blocking=True)


@pytest.fixture
def raw(sockets: tuple[socket.socket, socket.socket]) -> socket.socket:
    """The worker's end as a bare socket, for a peer that writes anything it likes."""
    return sockets[1]


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def frame(text: bytes, num_descriptors: int = 0) -> bytes:
    return struct.pack("<IB", len(text), num_descriptors) + text


def began_frame(num_descriptors: int = 0) -> bytes:
    return frame(b'{"type": "began", "task_id": 1, "activity": "open"}', num_descriptors)


def test_messages_arrive_in_order_and_unchanged(run: RunChannel, worker: WorkerChannel) -> None:
    sent: list[ToWorker] = [
        OpenDocument(1, os.fsdecode(b"a name that is not UTF-8, caf\xe9.pdf")),
        Completions(2, (Completion("größer\n", "stop", 3, 4, 0.5, -math.inf),)),
    ]
    for message in sent:
        run.send(message)
    assert list(worker.receive()) == [(message, None) for message in sent]


def test_a_message_in_pieces_arrives_when_it_is_whole(run: RunChannel, raw: socket.socket) -> None:
    arrived = []
    for byte in began_frame():
        arrived += list(run.receive())
        raw.send(bytes([byte]))
    assert arrived == []
    assert list(run.receive()) == [(BEGAN, None)]


def test_a_descriptor_arrives_with_its_message_and_is_closed_where_it_came_from(
    run: RunChannel, worker: WorkerChannel
) -> None:
    reading, writing = os.pipe()
    worker.send(BEGAN)
    worker.send(RequestBatch(1, 0, (Question(0, 1, 1, "?", Sampling(1), None, "0" * 64),)), reading)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(reading)
    (_, none), (_, descriptor) = run.receive()
    assert none is None
    assert descriptor is not None
    os.write(writing, b"x")
    assert os.read(descriptor, 1) == b"x"
    assert not os.get_inheritable(descriptor)
    os.close(descriptor)
    os.close(writing)


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(struct.pack("<IB", 2**30, 0), id="absurd length"),
        pytest.param(struct.pack("<IB", 10, 9), id="many descriptors"),
        pytest.param(frame(b"{"), id="not JSON"),
        pytest.param(frame(b"\xff\xff\xff"), id="not text"),
        pytest.param(frame(b"[" * 100_000), id="deep JSON"),
        pytest.param(frame(b"1" * 10_000), id="long number"),
        pytest.param(frame(b"{}"), id="no type"),
        pytest.param(frame(b'{"type": "request batch", "task_id": 1, "round": 0, "questions": []}'), id="no question"),
        pytest.param(frame(b'{"type": "setup"}'), id="unknown type"),
        pytest.param(frame(b'{"type": "began", "task_id": 1, "activity": "dance"}'), id="wrong field"),
        pytest.param(frame(b'{"type": "open", "task_id": 1, "path": "a"}'), id="wrong direction"),
        pytest.param(began_frame(num_descriptors=1), id="descriptor missing"),
    ],
)
def test_what_is_no_message_is_refused(run: RunChannel, raw: socket.socket, sent: bytes) -> None:
    raw.sendall(began_frame() + sent)
    messages = run.receive()
    assert next(messages) == (BEGAN, None)
    with pytest.raises(ChannelError):
        next(messages)


READING = {"markdown": "", "blocks": [], "image_tokens": 0, "output_tokens": 0}
BLOCK = {"type": "text", "bbox": [0, 0, 1, 1], "angle": 0, "content": ""}
OPENED = {"type": "opened", "page_count": 1, "doc_id": "", "size": 1, "mtime_ns": 1}
FINISHED = {"type": "finished", "reading": READING}


@pytest.mark.parametrize(
    "message",
    [
        OPENED | {"page_count": 10**30},
        OPENED | {"page_count": -1},
        OPENED | {"size": 10**30},
        OPENED | {"mtime_ns": 10**30},
        {"type": "ended", "activity": "open", "seconds": math.nan},
        {"type": "ended", "activity": "open", "seconds": -1.0},
        {"type": "ended", "activity": "open", "seconds": math.inf},
        FINISHED | {"reading": READING | {"width": 10**30}},
        FINISHED | {"reading": READING | {"height": -1}},
        FINISHED | {"reading": READING | {"dpi": math.nan}},
        FINISHED | {"reading": READING | {"output_tokens": 10**30}},
        FINISHED | {"reading": READING | {"ink_outside": 1.1}},
        FINISHED | {"reading": READING | {"layout_confidence": 1.1}},
        FINISHED | {"reading": READING | {"text_layer_agreement": math.nan}},
        FINISHED | {"reading": READING | {"blocks": [BLOCK | {"angle": 10**30}]}},
        FINISHED | {"reading": READING | {"blocks": [BLOCK | {"bbox": [0, 0, 1, math.nan]}]}},
        {"type": "outline", "entries": [{"level": 2**31, "title": "", "page_index": 0}]},
        {"type": "outline", "entries": [{"level": 1, "title": "", "page_index": 2**63}]},
        {"type": "outline", "entries": [{"level": 1, "title": "", "page_index": 0, "y": 1e300}]},
    ],
)
def test_numbers_that_no_page_and_no_table_can_have_are_refused(
    run: RunChannel, raw: socket.socket, message: dict[str, object]
) -> None:
    raw.send(frame(json.dumps({"task_id": 1} | message).encode()))
    with pytest.raises(ChannelError, match="a message cannot be understood"):
        list(run.receive())


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([(began_frame(), 1), (began_frame(), 1)], id="that belong to no message"),
        pytest.param([(began_frame(1), 200)], id="a heap at once"),
    ],
)
def test_descriptors_that_no_message_announced_are_refused_and_closed(
    run: RunChannel, raw: socket.socket, frames: list[tuple[bytes, int]]
) -> None:
    before = open_descriptors()
    for sent, num_descriptors in frames:
        socket.send_fds(raw, [sent], [0] * num_descriptors)
    with pytest.raises(ChannelError, match="more descriptors"):
        list(run.receive())
    run.close()
    assert open_descriptors() < before


def test_a_worker_that_does_not_read_blocks_nobody_and_loses_nothing(run: RunChannel, worker: WorkerChannel) -> None:
    sent = [Completions(number, (Completion("x" * 100_000, "stop", 1, 1, 1.0, 0.0),)) for number in range(50)]
    for message in sent:
        run.send(message)
    assert run.events & select.POLLOUT
    arrived: list[ToWorker] = []
    while run.events & select.POLLOUT:
        arrived += [message for message, _ in worker.receive()]
        run.flush()
    arrived += [message for message, _ in worker.receive()]
    assert arrived == sent


def test_what_was_said_before_the_end_still_arrives(run: RunChannel, worker: WorkerChannel) -> None:
    run.send(OpenDocument(1, "a.pdf"))
    worker.send(Failed(1, Failure("damaged", "no page")))
    worker.close()
    run.send(OpenDocument(2, "b.pdf"))
    assert [message for message, _ in run.receive()] == [Failed(1, Failure("damaged", "no page"))]
    assert run.closed
    assert run.events == select.POLLIN


def ask(*sizes: tuple[int, int]) -> list[Request]:
    """Requests for images of these (height, width); every byte of an image is the image's number."""
    return [
        Request(Pixels(height, width, bytes([number]) * (height * width * 3)), f"p{number}", Sampling(5), (28, 56), 1)
        for number, (height, width) in enumerate(sizes)
    ]


def test_requests_are_the_same_on_the_other_side() -> None:
    requests = ask((2, 3), (50, 70), (1, 1))
    message, descriptor = share_batch(7, requests)
    mapped = SharedBatch(message, descriptor).requests()
    assert (message.task_id, message.round) == (7, 1)
    assert [(r.prompt, r.sampling, r.resize_to, r.round) for r in mapped] == [
        (r.prompt, r.sampling, r.resize_to, r.round) for r in requests
    ]
    assert [bytes(r.pixels.data) for r in mapped] == [r.pixels.data for r in requests]
    assert [(r.pixels.height, r.pixels.width) for r in mapped] == [(2, 3), (50, 70), (1, 1)]


def test_shared_pixels_can_no_longer_be_changed_by_whoever_shared_them() -> None:
    message, descriptor = share_batch(1, ask((2, 2)))
    with pytest.raises(PermissionError):
        os.ftruncate(descriptor, 0)
    with pytest.raises(PermissionError):
        os.pwrite(descriptor, b"x", 0)
    with pytest.raises(PermissionError):
        mmap.mmap(descriptor, 12)
    [request] = SharedBatch(message, descriptor).requests()
    assert len(request.pixels.data) == 12


@pytest.mark.parametrize(
    ("offset", "height", "width"), [(-1, 2, 2), (1, 2, 2), (0, 3, 2), (0, 0, 2), (0, -2, -2), (10**30, 2, 2)]
)
def test_pixels_outside_of_what_was_shared_are_refused(offset: int, height: int, width: int) -> None:
    _, descriptor = share_batch(1, ask((2, 2)))
    question = Question(offset, height, width, "", Sampling(1), None, "0" * 64)
    with pytest.raises(ChannelError, match="do not lie"):
        SharedBatch(RequestBatch(1, 0, (question,)), descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_what_holds_no_pixels_is_refused() -> None:
    message, descriptor = share_batch(1, ask((2, 2)))
    os.close(descriptor)
    reading, writing = os.pipe()
    for descriptor in (reading, writing, os.open("/dev/zero", os.O_RDONLY), os.memfd_create("empty")):
        with pytest.raises(ChannelError):
            SharedBatch(message, descriptor)


def test_pixels_that_could_still_be_taken_away_are_refused() -> None:
    message, descriptor = share_batch(1, ask((2, 2)))
    os.close(descriptor)
    unsealed = os.memfd_create("unsealed", os.MFD_ALLOW_SEALING)
    os.write(unsealed, bytes(12))
    with pytest.raises(ChannelError, match="not sealed"):
        SharedBatch(message, unsealed)


def test_a_batch_of_too_many_pixels_is_a_page_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pixels, "MAX_BATCH_BYTES", 100)
    with pytest.raises(TooLargeError):
        share_batch(1, ask((5, 5), (4, 4)))


def test_thousands_of_rounds_leave_no_descriptor_and_no_memory_behind(run: RunChannel, worker: WorkerChannel) -> None:
    requests = ask((300, 400), (100, 100))

    def pass_rounds(count: int) -> None:
        for number in range(count):
            worker.send(*share_batch(number, requests))
            [(message, descriptor)] = run.receive()
            assert isinstance(message, RequestBatch)
            assert descriptor is not None
            assert SharedBatch(message, descriptor).requests()[1].pixels.data[0] == 1

    pass_rounds(200)
    descriptors, peak_kb = open_descriptors(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pass_rounds(2000)
    assert open_descriptors() <= descriptors
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak_kb < 4096
