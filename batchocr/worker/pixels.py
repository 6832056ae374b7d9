"""The pixels of a round of questions, from a worker to the run, as one anonymous piece of shared memory.

It has no name and lives only in descriptors and mappings: whichever process is killed, nothing is left behind. It is
written with `write` and never through a mapping, so that a lack of room is an error and not a SIGBUS.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import stat
import tempfile
from collections.abc import Sequence
from typing import Final

from batchocr.data import Pixels, Request
from batchocr.errors import PageOutOfMemoryError, TooLargeError
from batchocr.worker.channel import ChannelError
from batchocr.worker.messages import Question, Round

MAX_ROUND_BYTES: Final = 2**30
"""Far more than a page's own pixels, which its questions hold at most a few times over."""

_CHANNELS: Final = 3

# Without seals a worker could truncate the file while it is mapped: reading on would then be a SIGBUS.
_HAS_SEALS: Final = hasattr(os, "memfd_create") and hasattr(fcntl, "F_ADD_SEALS")
_SEALS: Final = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW if _HAS_SEALS else 0


def share_round(task_id: int, requests: Sequence[Request]) -> tuple[Round, int]:
    """Return the round as a message, and the descriptor of the memory that holds its pixels.

    Raises TooLargeError, PageOutOfMemoryError.
    """
    num_bytes = sum(_num_bytes(request.pixels) for request in requests)
    if num_bytes > MAX_ROUND_BYTES:
        raise TooLargeError(f"the page's {len(requests)} questions hold {num_bytes >> 20} MiB of pixels together")
    descriptor = _anonymous_file()
    try:
        questions = []
        offset = 0
        for request in requests:
            _write(descriptor, request.pixels)
            questions.append(_question(request, offset))
            offset += _num_bytes(request.pixels)
        if _HAS_SEALS:
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except OSError as error:
        os.close(descriptor)
        raise PageOutOfMemoryError(f"no room for {num_bytes >> 20} MiB of pixels: {error.strerror}") from error
    return Round(task_id, requests[0].round, tuple(questions)), descriptor


def map_round(message: Round, descriptor: int) -> tuple[Request, ...]:
    """Return the round's requests. Their pixels are in the shared memory, which lives as long as any of them does.

    Closes the descriptor. Raises ChannelError if it is not what `share_round` makes.
    """
    try:
        memory = _memory_of(descriptor)
    except OSError as error:
        raise ChannelError(f"a round's pixels cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)
    return tuple(_request(message, question, memory) for question in message.questions)


def _num_bytes(pixels: Pixels) -> int:
    return pixels.height * pixels.width * _CHANNELS


def _anonymous_file() -> int:
    if _HAS_SEALS:
        return os.memfd_create("batchocr-pixels", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _write(descriptor: int, pixels: Pixels) -> None:
    rest = memoryview(pixels.data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _question(request: Request, offset: int) -> Question:
    return Question(
        offset=offset,
        height=request.pixels.height,
        width=request.pixels.width,
        prompt=request.prompt,
        sampling=request.sampling,
        resize_to=request.resize_to,
    )


def _request(message: Round, question: Question, memory: memoryview) -> Request:
    size = question.height * question.width * _CHANNELS
    inside = 0 <= question.offset <= len(memory) - size
    if not (inside and question.height > 0 and question.width > 0):
        raise ChannelError(f"the pixels of a question do not lie in the {len(memory)} bytes that were shared")
    pixels = Pixels(question.height, question.width, memory[question.offset : question.offset + size])
    return Request(pixels, question.prompt, question.sampling, question.resize_to, message.round)


def _memory_of(descriptor: int) -> memoryview:
    """What is in the file: mapped if it is sealed, copied otherwise. Raises OSError, ChannelError."""
    sealed = _is_sealed(descriptor)  # first, so that what is learnt after it stays true
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or not 0 < status.st_size <= MAX_ROUND_BYTES:
        raise ChannelError(f"what came for a round's pixels is no file, or one of {status.st_size} bytes")
    if sealed:
        # Private, because Linux before 6.7 refuses a shared mapping of a file sealed against writing; this also lets
        # it be writable, as torch wants buffers to be, though nobody writes to it.
        return memoryview(mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_COPY))
    copy = bytearray(status.st_size)
    os.preadv(descriptor, [copy], 0)
    return memoryview(copy)


def _is_sealed(descriptor: int) -> bool:
    if not _HAS_SEALS:
        return False
    try:
        seals: int = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError:  # the file system has no seals
        return False
    return seals & _SEALS == _SEALS
