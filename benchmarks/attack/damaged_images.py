"""Which damage to image files goes unnoticed: pages in all encodings, damaged in many ways, and what is said of them.

    python -m benchmarks.attack.damaged_images --ways 2000 --keep FOLDER

Each file is opened and rendered as a run does it, sound and damaged; no model is needed. Damage has cost a page the ink
that is missing, or the cells that are drawn as something else, white ones too, as a share of those that have something
on them, whichever is more; all of it if the page has no row, is of one colour, or has another size. It is told if the
page or its file failed, or if it is degraded. A page that is missing is told by a failure of the last one that is
there. No sound page may be said to be damaged.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path

import numpy as np

from batchocr.errors import PageError
from benchmarks.attack.fates import Damaged, Darkness, Fate, Sound, darkness, fates, ink_gone, measure, read_sound
from benchmarks.attack.image_damage import DAMAGE
from benchmarks.attack.sound_images import ENCODINGS, PAGES, Writer
from benchmarks.record import Record, benchmark_parser

_CELL = (20, 50)
"""Rows and columns of a cell, px: about a word."""

_INKED = 8
"""A cell that is darker than this on average has something on it, out of 255."""

_OTHER = 15
"""A cell that differs by more than this on average is drawn as something else."""

_SMOKE_ENCODINGS = ("TIFF Group 4", "TIFF raw", "TIFF deflate, pages", "PNG", "JPEG", "WebP lossless", "GIF frames")


def cost(before: Darkness, after: Darkness) -> float:
    """The share of the page that is gone, or that is garbage now; 1 if there is as much garbage as there was ink."""
    gone = ink_gone(before, after)
    if before.shape != after.shape:
        return gone
    inked = int((_cells(before) > _INKED).sum())
    changed = int((_cells(np.abs(before.astype(np.int16) - after)) > _OTHER).sum())
    return max(gone, min(1.0, changed / max(1, inked)))


def _cells(pixels: Darkness) -> Darkness:
    """The mean of each cell; what is left at the right and at the bottom counts for none."""
    rows, columns = pixels.shape[0] // _CELL[0], pixels.shape[1] // _CELL[1]
    whole = pixels[: rows * _CELL[0], : columns * _CELL[1]]
    means: Darkness = whole.reshape(rows, _CELL[0], columns, _CELL[1]).mean(axis=(1, 3), dtype=np.float32)
    return means


def read_sounds(folder: Path, encodings: Mapping[str, Writer]) -> Iterator[Sound]:
    """Each page in each encoding, as it is read; their names are those of the encodings.

    Said of them is also that they are not drawn as they are; a page of another size is not compared.
    """
    for encoding, write in encodings.items():
        for content, page in PAGES.items():
            path = folder / "sound"
            path.write_bytes(write(page))
            name = f"{encoding} ({content})"
            try:
                sound = read_sound(path, name)
            except PageError as error:
                sound = Sound(name, path.read_bytes(), [], [f"{name} failed: {error}"])
            said = list(sound.said)
            drawn = sound.pages[0] if sound.pages else None
            if drawn is not None and drawn.shape == page.size[::-1] and not _alike(darkness(page), drawn):
                said.append(f"{name} is drawn as something else")
            yield Sound(encoding, sound.data, sound.pages, said)


def _alike(meant: Darkness, drawn: Darkness) -> bool:
    """Whether most cells are about as dark as they should be; of two levels only a page has other greys."""
    two_levels = len(np.unique(drawn)) == 2
    off = np.abs(_cells(meant) - _cells(drawn)) > (4 * _OTHER if two_levels else _OTHER)
    return float(off.mean()) < (0.5 if two_levels else 0.02)


def damaged_copies(sounds: Sequence[Sound], ways: int, seed: int) -> Iterator[Damaged]:
    """Each file with each kind of damage that it can have, in any order, again and again."""
    known = [
        (sound, name)
        for sound in sounds
        for name, damage in DAMAGE.items()
        if damage(sound.data, random.Random(seed)) is not None
    ]
    random.Random(seed).shuffle(known)
    for number, (sound, name) in enumerate(islice(cycle(known), ways)):
        damaged = DAMAGE[name](sound.data, random.Random(f"{seed} {number}"))
        assert damaged is not None
        both = {"encoding": sound.name, "damage": name}
        yield Damaged(sound, damaged, [both, {"damage": name}, {"encoding": sound.name}])


def _silent_fates(sound: Sound, path: Path) -> Iterator[Fate]:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # where libtiff says what it finds
    yield from fates(sound, path, cost, missing_told=True)


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("--ways", type=int, default=400, help="damaged copies in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="for the files whose loss is not told")
    given = parser.parse_args(arguments)
    record = Record("damaged_images", given)
    with tempfile.TemporaryDirectory() as folder:
        encodings = {name: ENCODINGS[name] for name in _SMOKE_ENCODINGS} if given.smoke else ENCODINGS
        sounds = list(read_sounds(Path(folder), encodings))
        said = [line for sound in sounds for line in sound.said]
        record.note("sound", f"{sum(len(sound.pages) for sound in sounds)} pages of {len(sounds)} files")
        record.note("sound, but not ok", said or "none")
        record.figure("sound_but_not_ok", len(said))
    copies = damaged_copies(sounds, 60 if given.smoke else given.ways, given.seed)
    measure(record, copies, _silent_fates, given.keep)


if __name__ == "__main__":
    main()
