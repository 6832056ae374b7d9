"""The values of options: how each kind is written, and what it may be.

Pages are written `1-10,15,r3-r1`, durations `3h55m`, sizes `4G`, shards `2/8`.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from batchocr.errors import UsageError

_DURATION = re.compile("(?=.)(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?")
_DEVICE = re.compile("cpu|cuda(:[0-9]{1,3})?")
_SHARD = re.compile("([0-9]+)/([0-9]+)")
_SIZE = re.compile("([0-9]+)([MG])")
_UNITS = {"M": 2**20, "G": 2**30}

LEAST_WORKER_BYTES = 256 << 20
"""The least memory limit of a worker: one that has not opened anything yet takes 70 MB."""
MOST_WORKER_BYTES = 4 << 30
"""The memory that a worker needs at most: the largest image that is decoded at all takes 2.3 GB."""

ZIP_ENCODING = "cp437"
"""The encoding of MS-DOS, which the zip format names. Source: APPNOTE.TXT, appendix D."""

_PAGE = "(r?)([1-9][0-9]{0,8})"
_PART = re.compile(f"{_PAGE}(?:-{_PAGE})?")


@dataclass(frozen=True, slots=True)
class PageSpec:
    """Ranges of pages, both ends included. An end is counted from 1 at the first page, or from -1 at the last."""

    ranges: tuple[tuple[int, int], ...]

    def pages(self, page_count: int) -> Sequence[int]:
        """Return the 0-based indices of the named pages, ascending, each once; pages that do not exist are left out."""
        ends = [(_index(first, page_count), _index(last, page_count) + 1) for first, last in self.ranges]
        chosen = [range(max(start, 0), min(stop, page_count)) for start, stop in ends]
        return chosen[0] if len(chosen) == 1 else sorted(set().union(*chosen))


def parse_page_spec(spec: str | None) -> PageSpec:
    """Return the pages that `spec` names; all pages if it is None. Raises UsageError, which quotes the part that cannot
    be read."""
    if spec is None:
        return PageSpec(((1, -1),))
    return PageSpec(tuple(_parse_part(part.strip()) for part in spec.split(",")))


def _parse_part(part: str) -> tuple[int, int]:
    match = _PART.fullmatch(part)
    if match is None:
        raise UsageError(
            f"--pages: {part!r} is no page or range of pages; pages count from 1, r1 is the last: 1-10,15,r3-r1"
        )
    first = _end(match[1], match[2])
    last = first if match[4] is None else _end(match[3], match[4])
    if (first < 0) == (last < 0) and first > last:
        raise UsageError(f"--pages: {part!r} runs backwards; the earlier page comes first: 1-10, r3-r1")
    return first, last


def _end(from_last: str, number: str) -> int:
    return -int(number) if from_last else int(number)


def _index(end: int, page_count: int) -> int:
    return page_count + end if end < 0 else end - 1


def as_text(value: object) -> object:
    """The text of a path; anything else is returned as it is."""
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _on_this_machine(path: str) -> str:
    if "://" in path:
        raise ValueError("should be a path on this machine, not an address")
    return os.path.expanduser(path)


def _written_as(pattern: re.Pattern[str], problem: str, read: Callable[[re.Match[str]], object]) -> BeforeValidator:
    """Reads a value from text of this pattern; anything that is not text stays as it is. problem: the message for other
    text."""

    def value_of(given: object) -> object:
        if not isinstance(given, str):
            return given
        match = pattern.fullmatch(given)
        if match is None:
            raise ValueError(problem)
        return read(match)

    return BeforeValidator(value_of)


def _seconds(match: re.Match[str]) -> float:
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds


_DURATION_TEXT = _written_as(_DURATION, "not a duration; write it as 3h55m or 90s", _seconds)
_SHARD_TEXT = _written_as(
    _SHARD,
    "not a shard; write it as I/N: the second of eight is 2/8",
    lambda match: (int(match[1]), int(match[2])),
)
_SIZE_TEXT = _written_as(_SIZE, "not a size; write it as 4G or 512M", lambda match: int(match[1]) * _UNITS[match[2]])


def _checked_shard(shard: tuple[int, int]) -> tuple[int, int]:
    index, count = shard
    if not 1 <= index <= count:
        raise ValueError("I/N needs 1 ≤ I ≤ N")
    return shard


def _enough_for_a_worker(size: int) -> int:
    if size < LEAST_WORKER_BYTES:
        raise ValueError(f"should be at least {LEAST_WORKER_BYTES >> 20}M")
    return size


def _checked_device(device: str) -> str:
    names = device.split(",")
    if device != "auto" and not all(_DEVICE.fullmatch(name) for name in names):
        raise ValueError("write it as auto, cpu, cuda:0, or several as cuda:0,cuda:1")
    gpus = [name for name in names if name != "cpu"]
    if 0 < len(gpus) < len(names):
        raise ValueError("GPUs or CPUs, not both in one run")
    if len(gpus) > 1 and len({int(name.partition(":")[2] or 0) for name in gpus}) < len(gpus):
        raise ValueError("each GPU once: two engines on one would only divide it")
    return device


def _checked_encoding(name: str) -> str:
    """The name that stands for all names of an encoding."""
    with suppress(LookupError, UnicodeError):
        if b"a/\\u0041".decode(name, "surrogateescape") == "a/\\u0041":
            return codecs.lookup(name).name
    raise ValueError("should be an encoding that Python knows, in which ASCII is ASCII: gbk, cp932, cp866")


Count = Annotated[int, Field(gt=0, lt=1 << 63)]
Seconds = Annotated[float, Field(gt=0)]
Rate = Annotated[float, Field(ge=0, le=1)]
PathText = Annotated[str, BeforeValidator(as_text)]
FolderText = Annotated[PathText, AfterValidator(os.path.expanduser)]
LocalPathText = Annotated[PathText, AfterValidator(_on_this_machine)]
DeviceText = Annotated[str, AfterValidator(_checked_device)]
PageSpecText = Annotated[str, AfterValidator(lambda spec: parse_page_spec(spec) and spec)]
EncodingText = Annotated[str, AfterValidator(_checked_encoding)]
Duration = Annotated[Seconds, _DURATION_TEXT]
Shard = Annotated[tuple[int, int], _SHARD_TEXT, AfterValidator(_checked_shard)]
WorkerBytes = Annotated[int, _SIZE_TEXT, Field(lt=1 << 63), AfterValidator(_enough_for_a_worker)]
