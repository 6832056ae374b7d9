"""The pixels of a batch of questions, from a worker by way of the run to an engine, as one anonymous piece of shared
memory.

It has no name and lives only in descriptors and mappings: whichever process is killed, nothing is left behind. It is
written with `write` and never through a mapping, so that a lack of room is an error and not a SIGBUS.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import mmap
import os
from collections.abc import Sequence
from dataclasses import astuple
from typing import Final

from batchocr.data import Pixels, Request
from batchocr.errors import PageOutOfMemoryError, TooLargeError
from batchocr.processes.channel import ChannelError
from batchocr.processes.messages import Question, RequestBatch

MAX_BATCH_BYTES: Final = 2**30
"""The most bytes of a batch: far more than a page's own pixels, which its questions hold at most a few times over."""

_CHANNELS: Final = 3

_SEALS: Final = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
"""The seals of a batch's memory. Without them a worker could truncate the file while it is mapped: reading on would
then be a SIGBUS."""


def share_batch(task_id: int, requests: Sequence[Request]) -> tuple[RequestBatch, int]:
    """Return the batch as a message, and the descriptor of the memory that holds its pixels.

    Raises TooLargeError, PageOutOfMemoryError.
    """
    num_bytes = sum(_num_bytes(request.pixels) for request in requests)
    if num_bytes > MAX_BATCH_BYTES:
        raise TooLargeError(f"the page's {len(requests)} questions hold {num_bytes >> 20} MiB of pixels together")
    descriptor = os.memfd_create("batchocr-pixels", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        questions = []
        offset = 0
        for request in requests:
            _write(descriptor, request.pixels)
            questions.append(_question(request, offset))
            offset += _num_bytes(request.pixels)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except OSError as error:
        os.close(descriptor)
        raise PageOutOfMemoryError(f"no room for {num_bytes >> 20} MiB of pixels: {error.strerror}") from error
    return RequestBatch(task_id, requests[0].round, tuple(questions)), descriptor


class SharedBatch:
    """A batch that has arrived, with the memory that holds its pixels: to be passed on, or to be read.

    The descriptor is closed when this is dropped, and the memory freed once nobody has it mapped either.
    """

    def __init__(self, message: RequestBatch, descriptor: int) -> None:
        """Owns the descriptor. Raises ChannelError if the memory is not what `share_batch` makes for this message."""
        self.message = message
        self._descriptor = descriptor
        try:
            self._num_bytes = _sealed_bytes(descriptor)
        except OSError as error:
            raise ChannelError(f"a batch's pixels cannot be read: {error.strerror}") from error
        for question in message.questions:
            inside = 0 <= question.offset <= self._num_bytes - _num_bytes(question)
            if not (inside and question.height > 0 and question.width > 0):
                raise ChannelError(f"the pixels of a question do not lie in the {self._num_bytes} bytes that came")

    def __del__(self) -> None:
        os.close(self._descriptor)

    def duplicate(self) -> int:
        """Another descriptor of the batch's memory, to be sent. Raises ChannelError if no more can be open."""
        try:
            return os.dup(self._descriptor)
        except OSError as error:
            raise ChannelError(f"a batch's pixels cannot be passed on: {error.strerror}") from error

    def requests(self) -> tuple[Request, ...]:
        """The questions with their pixels, which are in the shared memory. Raises ChannelError."""
        # Private, because Linux before 6.7 refuses a shared mapping of a file sealed against writing; this also lets it
        # be writable, as torch wants buffers to be, though nobody writes to it.
        try:
            memory = memoryview(mmap.mmap(self._descriptor, self._num_bytes, access=mmap.ACCESS_COPY))
        except OSError as error:
            raise ChannelError(f"a batch's pixels cannot be read: {error.strerror}") from error
        return tuple(_request(self.message, question, memory) for question in self.message.questions)


def _num_bytes(pixels: Pixels | Question) -> int:
    return pixels.height * pixels.width * _CHANNELS


def _write(descriptor: int, pixels: Pixels) -> None:
    rest = memoryview(pixels.data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def digest_of(request: Request) -> str:
    """SHA-256, hex, of all that the answer of a model depends on: the image, and what is asked about it how.

    The hash must be collision-resistant, because an answer is given to every question with the same digest. SHA-256 is
    the fastest such hash in Python where the CPU has instructions for it: 1.7 GB/s, blake2b 1.2.
    """
    pixels = request.pixels
    rules = astuple(request.sampling)
    if request.sampling.repetition_penalty == 1:
        rules = rules[:-1]  # so the answers that caches have from before there was this penalty are found
    asked = (pixels.height, pixels.width, request.prompt, rules, request.resize_to)
    digest = hashlib.sha256(json.dumps(asked).encode() + request.detector.encode() + b"\n")
    digest.update(pixels.data)
    return digest.hexdigest()


def _question(request: Request, offset: int) -> Question:
    return Question(
        offset=offset,
        height=request.pixels.height,
        width=request.pixels.width,
        prompt=request.prompt,
        sampling=request.sampling,
        resize_to=request.resize_to,
        digest=digest_of(request),
        detector=request.detector,
    )


def _request(message: RequestBatch, question: Question, memory: memoryview) -> Request:
    end = question.offset + _num_bytes(question)
    pixels = Pixels(question.height, question.width, memory[question.offset : end])
    asked = (question.prompt, question.sampling, question.resize_to)
    return Request(pixels, *asked, round=message.round, detector=question.detector)


def _sealed_bytes(descriptor: int) -> int:
    """The size of the file. Raises OSError, ChannelError."""
    seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)  # first, so that what is learnt after it stays true
    size = os.fstat(descriptor).st_size
    if seals & _SEALS != _SEALS or not 0 < size <= MAX_BATCH_BYTES:
        raise ChannelError(f"what came for a batch's pixels is not sealed, or holds {size} bytes")
    return size
