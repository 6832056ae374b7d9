"""Which damage to PDFs goes unnoticed: real documents, damaged in hundreds of ways, and what is said of their pages.

    python -m benchmarks.attack.damaged_pdfs FOLDER --ways 500

Every PDF in FOLDER is opened and rendered as a run does it, sound and damaged; no model is needed. Ink is how much
darker than white the pixels are, summed over the page. Damage has cost a page the ink that is missing where it was; all
of it if the page has no row, or is of one colour. A page that may cost nothing is told to be damaged if it or its
document failed, or if it is degraded. A document that crashes or hangs its reader has failed, as in a run.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pymupdf

from batchocr.errors import PageError
from benchmarks import ROOT
from benchmarks.attack.fates import Damaged, Sound, fates, ink_gone, measure, read_sound
from benchmarks.attack.image_damage import cut
from benchmarks.record import Record, benchmark_parser

_STREAM = re.compile(rb"\bstream\r?\n(.{16,}?)\s*endstream", re.DOTALL)
_OBJECT = re.compile(rb"\b\d+ \d+ obj\b.*?\bendobj\b", re.DOTALL)
_CODECS = ("DCT", "JPX", "JBIG2", "CCITTFax", "Flate", "LZW")


# --- Damage: each takes a file and returns a damaged copy ---------------------------------------------------------


def zeros_in_stream(data: bytes, dice: random.Random) -> bytes:
    """Up to 4 KiB of a stream, zeroed."""
    start, end = _range_in_stream(data, dice, dice.randint(16, 4096))
    return data[:start] + bytes(end - start) + data[end:]


def noise_in_stream(data: bytes, dice: random.Random) -> bytes:
    """Up to 64 bytes of a stream, random."""
    start, end = _range_in_stream(data, dice, dice.randint(2, 64))
    return data[:start] + dice.randbytes(end - start) + data[end:]


def bit_in_stream(data: bytes, dice: random.Random) -> bytes:
    """One bit of a stream, flipped."""
    start, _ = _range_in_stream(data, dice, 1)
    return data[:start] + bytes([data[start] ^ 1 << dice.randrange(8)]) + data[start + 1 :]


def object_blank(data: bytes, dice: random.Random) -> bytes:
    """An object, overwritten by spaces."""
    found = dice.choice(list(_OBJECT.finditer(data)))
    return data[: found.start()] + b" " * len(found[0]) + data[found.end() :]


def object_missing(data: bytes, dice: random.Random) -> bytes:
    """A file in perfect order, but for one object that an update has taken out."""
    with pymupdf.open(stream=data, filetype="pdf") as document:
        size, root = document.xref_length(), document.pdf_catalog()
    earlier = data.rpartition(b"startxref")[2].split()[0]
    trailer = b"<</Size %d/Root %d 0 R/Prev %s>>" % (size, root, earlier)
    update = b"\nxref\n%d 1\n0000000000 65535 f \ntrailer\n%s\nstartxref\n%d\n%%%%EOF\n"
    return data + update % (dice.randrange(1, size), trailer, len(data) + 1)


def sector_zeroed(data: bytes, dice: random.Random) -> bytes:
    """512 bytes anywhere in the file, zeroed."""
    start = dice.randrange(max(1, len(data) - 512))
    return data[:start] + bytes(512) + data[start + 512 :]


DAMAGE: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    cut,
    zeros_in_stream,
    noise_in_stream,
    bit_in_stream,
    object_blank,
    object_missing,
    sector_zeroed,
)


def _range_in_stream(data: bytes, dice: random.Random, length: int) -> tuple[int, int]:
    """A range of at most `length` bytes within a stream; each stream is as likely."""
    start, end = dice.choice([found.span(1) for found in _STREAM.finditer(data)])
    start = dice.randrange(start, end)
    return start, min(end, start + length)


def codec_hit(data: bytes, damaged: bytes) -> str:
    """How the object is encoded in which two files first differ; "none" if it is no stream, or nothing is different."""
    first = next((at for at, (one, other) in enumerate(zip(data, damaged, strict=False)) if one != other), None)
    if first is None:
        return "none"
    head = data[data.rfind(b" obj", 0, first) : first].partition(b"stream")[0]
    return next((codec for codec in _CODECS if b"/%sDecode" % codec.encode() in head), "none")


# --- The command --------------------------------------------------------------------------------------------------


def damaged_copies(sounds: Sequence[Sound], ways: int, seed: int) -> Iterator[Damaged]:
    """The documents in turn, each damaged in every way in turn."""
    for number in range(ways):
        sound, damage = sounds[number % len(sounds)], DAMAGE[number // len(sounds) % len(DAMAGE)]
        damaged = damage(sound.data, random.Random(f"{seed} {number}"))
        counted_as = [{"damage": damage.__name__.replace("_", " ")}]
        if "stream" in damage.__name__ or damage is sector_zeroed:
            counted_as.append({"encoding": codec_hit(sound.data, damaged)})
        yield Damaged(sound, damaged, counted_as)


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "sample_data" / "documents", help="of PDFs")
    parser.add_argument("--ways", type=int, default=500, help="damaged copies in all")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    record = Record("damage", given)
    sounds = list(_read_folder(given))
    said = [line for sound in sounds for line in sound.said]
    record.note("sound", f"{sum(len(sound.pages) for sound in sounds)} pages of {len(sounds)} documents")
    record.note("sound, but not ok", said or "none")
    copies = damaged_copies(sounds, 14 if given.smoke else given.ways, given.seed)
    measure(record, copies, lambda sound, path: fates(sound, path, ink_gone))


def _read_folder(given: argparse.Namespace) -> Iterator[Sound]:
    for path in sorted(given.folder.glob("*.pdf")):
        try:
            yield read_sound(path, path.name)
        except PageError as error:
            print(f"{path.name} is left out: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
