"""What becomes of the pages of a damaged file, and the count of what is lost and of what is told. No model is needed.

Ink is how much darker than white the pixels are, summed over the page.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchocr.errors import PageError
from batchocr.pages.input.render import open_document
from benchmarks.record import Record

DPI = 72
DEADLINE_S = 60.0
NOTABLE = 0.01
"""A page that lost more than this share of its ink must not be ok."""

_LEAST_INK = 0.001
"""Of a black page: what a page without a word is taken to have."""

Darkness: TypeAlias = NDArray[Any]
"""255 less the grey of each pixel, uint8 [height, width]."""

Cost: TypeAlias = Callable[[Darkness, Darkness], float]
"""What damage has cost a page, 0 to 1, of how it was drawn before and after."""


@dataclass(frozen=True, slots=True)
class Sound:
    """A document as it is. pages: None where one cannot be rendered. said: of pages that should be ok."""

    name: str
    data: bytes
    pages: Sequence[Darkness | None]
    said: Sequence[str]


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a page. cost: the share of its ink. told: whether its row, or its document's, says so."""

    cost: float
    told: bool


def read_sound(path: Path, name: str) -> Sound:
    """The document as it is. Raises PageError if it cannot be opened."""
    pages: list[Darkness | None] = []
    said = []
    with closing(open_document(str(path), password=None, dpi=DPI)) as document:
        for index in range(document.page_count):
            try:
                page = document.render(index)
            except PageError as error:
                pages.append(None)
                said.append(f"{name}, page {index + 1} failed: {error}")
                continue
            pages.append(darkness(page.image.convert("L")))
            if page.lost is not None:
                said.append(f"{name}, page {index + 1}: {page.lost}")
    return Sound(name, path.read_bytes(), pages, said)


def apart(find: Callable[[], Iterator[Any]]) -> list[Any] | None:
    """What `find` yields, in a process of its own; None if that ends before, or is silent for too long."""
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    child = context.Process(target=_send, args=(sending, find))
    child.start()
    sending.close()
    try:
        found: list[Any] | None = receiving.recv() if receiving.poll(DEADLINE_S) else None
    except EOFError:
        found = None
    child.kill()
    child.join()
    receiving.close()
    return found


def _send(sending: Connection, find: Callable[[], Iterator[Any]]) -> None:
    sending.send(list(find()))


def fates_apart(sound: Sound, find: Callable[[], Iterator[Fate]]) -> list[Fate]:
    """What `find` returns for each page of a document: in a process of its own, whose end or silence is a failure."""
    found = apart(find)
    return [Fate(1.0, True)] * len(sound.pages) if found is None else found


def fates(sound: Sound, path: Path, cost: Cost, *, missing_told: bool = False) -> Iterator[Fate]:
    """What became of each page of a document, of which `path` is a damaged copy.

    missing_told: pages that are not there are told if the last one that is there failed.
    """
    try:
        document = open_document(str(path), password=None, dpi=DPI)
    except PageError:
        yield from [Fate(1.0, True)] * len(sound.pages)
        return
    failed = False
    for index, before in enumerate(sound.pages):
        if before is None:
            continue
        if index >= document.page_count:
            yield Fate(1.0, missing_told and failed)
            continue
        try:
            page = document.render(index)
        except PageError:
            failed = True
            yield Fate(1.0, True)
            continue
        failed = False
        yield Fate(cost(before, darkness(page.image.convert("L"))), page.lost is not None)


def darkness(grey: Any) -> Darkness:
    """How much darker than white each pixel of a grey image is."""
    return 255 - np.asarray(grey, dtype=np.uint8)


def ink_gone(before: Darkness, after: Darkness) -> float:
    """The share of the ink that is missing where it was; all of it if the page is of one colour, or of another size."""
    if before.shape != after.shape or after.min() == after.max() != before.max():
        return 1.0
    ink = max(float(before.sum(dtype=np.int64)), before.size * 255 * _LEAST_INK)
    return float((before.astype(np.int16) - after).clip(0).sum(dtype=np.int64)) / ink


class Tally:
    """Counts the pages that one kind of damage costs something, and those of them that are told."""

    def __init__(self) -> None:
        self.ways = self.pages = self.touched = self.notable = self.untold = self.untold_notable = 0
        self.worst = 0.0

    def add(self, fates: Sequence[Fate]) -> None:
        self.ways += 1
        for fate in fates:
            self.pages += 1
            self.touched += fate.cost > 0
            self.notable += fate.cost > NOTABLE
            if not fate.told:
                self.untold += fate.cost > 0
                self.untold_notable += fate.cost > NOTABLE
                self.worst = max(self.worst, fate.cost)

    def row(self, **names: str) -> dict[str, str | int | float]:
        return {
            **names,
            "ways": self.ways,
            "pages": self.pages,
            "lost ink": self.touched,
            "lost > 1 %": self.notable,
            "ok, lost ink": self.untold,
            "ok, lost > 1 %": self.untold_notable,
            "worst that is ok": self.worst,
        }


@dataclass(frozen=True, slots=True)
class Damaged:
    """A damaged copy of a document. counted_as: the rows of tables that it counts for, each by its columns' values."""

    sound: Sound
    data: bytes
    counted_as: Sequence[Mapping[str, str]]


def measure(
    record: Record, copies: Iterable[Damaged], find: Callable[[Sound, Path], Iterator[Fate]], keep: Path | None = None
) -> None:
    """Record what `find` says became of the copies: rows by one column, then those by two that have untold losses.

    keep: a folder for the copies whose loss is not told.
    """
    tallies: defaultdict[tuple[tuple[str, str], ...], Tally] = defaultdict(Tally)
    with tempfile.TemporaryDirectory() as folder:
        for number, copy in enumerate(copies):
            path = Path(folder) / f"damaged{Path(copy.sound.name).suffix}"
            path.write_bytes(copy.data)
            found = fates_apart(copy.sound, partial(find, copy.sound, path))
            for names in copy.counted_as:
                tallies[tuple(names.items())].add(found)
            if keep is not None and any(fate.cost > NOTABLE and not fate.told for fate in found):
                keep.mkdir(parents=True, exist_ok=True)
                name = "_".join([*copy.counted_as[0].values(), str(number)]).replace(" ", "_")
                (keep / f"{name}.sound").write_bytes(copy.sound.data)
                (keep / name).write_bytes(copy.data)
            print(f"\r{number + 1}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    for names, tally in sorted(tallies.items(), key=lambda item: (len(item[0]), item[0])):
        if len(names) == 1 or tally.untold_notable:
            record.add(tally.row(**dict(names)))
    every = (tally for names, tally in tallies.items() if [column for column, _ in names] == ["damage"])
    record.figure("untold", sum(tally.untold_notable for tally in every))
