"""Mutated and cut documents, opened and rendered by a real worker: none crashes or hangs it, none is a bug's doing."""

from __future__ import annotations

import random
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pymupdf

from batchocr.config import make_config
from batchocr.data import Completion
from batchocr.processes.messages import Completions, Failed, Finished, OpenDocument, Opened, ReadPage, Setup
from batchocr.processes.pool import WorkerPool
from batchocr.processes.worker import Asked
from benchmarks.attack.sound_images import ENCODINGS, PAGES
from benchmarks.attack.tally import Tally

MAX_PAGES = 3
"""Read of each document: the first ones."""
MAX_BYTES = 300_000
"""Larger documents are left out: they take long, and few of their bytes are hit."""
TIMEOUT_S = 20.0
_MEMORY_BYTES = 1 << 30
_LOOK_S = 1.0
_FAULTS = ("internal", "crashed", "timeout")

_TOKENS = [
    *(b"0", b"-1", b"4294967295", b"2147483647", b"999999999999", b"1e38", b"nan", b"<<", b">>", b"[", b"]", b"/Type"),
    *(b" 0 R", b"obj", b"endobj", b"stream", b"endstream", b"/Parent 3 0 R", b"/Kids", b"/Length 0", b"/Count 9999999"),
    *(
        b"/Filter/ASCIIHexDecode",
        b"/W[9 9 9]",
        b"/Rotate 45",
        b"/UserUnit 0",
        b"\xff" * 4,
        b"\0" * 4,
        b"\x7f\xff\xff\xff",
    ),
]
_NUMBERS = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 65535, 65536, 100_000)


def mutated(dice: random.Random, count: int, tally: Tally, folder: Path | None) -> None:
    """Bytes flipped, replaced, removed, repeated; numbers and words of PDF put in."""
    sound = list(_sound_documents(folder))
    _read_all(((name, _mutate(dice, data)) for name, data in dice.choices(sound, k=count)), tally)


def cut(dice: random.Random, count: int, tally: Tally, folder: Path | None) -> None:
    """Documents that end too early."""
    sound = list(_sound_documents(folder))
    _read_all(((name, data[: dice.randrange(len(data))]) for name, data in dice.choices(sound, k=count)), tally)


def _read_all(documents: Iterator[tuple[str, bytes]], tally: Tally) -> None:
    config = make_config({"dpi": 72})
    with tempfile.TemporaryDirectory() as folder, WorkerPool(1, Setup.of(config, _MEMORY_BYTES)) as pool:
        for number, (name, data) in enumerate(documents):
            path = Path(folder) / f"{number}-{name}"
            path.write_bytes(data)
            outcomes = _read(pool, str(path))
            path.unlink()
            for outcome in outcomes:
                tally.add(outcome)
                if outcome in _FAULTS:
                    tally.fault(outcome, data, f"-{name}")
            pool.recycle_workers()


def _read(pool: WorkerPool, path: str) -> list[str]:
    """What becomes of the document and of its first pages: an error kind, or "read"."""
    opened = _outcome(pool, OpenDocument(0, path))
    if not isinstance(opened, Opened):
        return [opened]
    outcomes = []
    for page_index in range(min(opened.page_count, MAX_PAGES)):
        outcome = _outcome(pool, ReadPage(page_index + 1, path, page_index))
        outcomes.append("read" if isinstance(outcome, Finished | Opened) else outcome)
    return outcomes or ["no pages"]


def _outcome(pool: WorkerPool, task: OpenDocument | ReadPage) -> Opened | Finished | str:
    """What a worker makes of the task, the model having answered nothing; an error kind if it fails."""
    worker = pool.workers[0]
    worker.send(task)
    while not (losses := pool.replace_lost(TIMEOUT_S)):
        for _, message in pool.wait(_LOOK_S):
            if isinstance(message, Asked):
                nothing = Completion("", "stop", 1, 1, 1.0, 0.0)
                worker.send(Completions(task.task_id, (nothing,) * len(message.batch.message.questions)))
            elif isinstance(message, Failed):
                return message.failure.kind
            elif isinstance(message, Opened | Finished):
                return message
    return losses[0].failure.kind


def _mutate(dice: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(dice.choice([1, 1, 2, 4, 16])):
        size = len(changed)
        if size < 8:
            break
        place = dice.randrange(size if dice.random() < 0.6 else min(size, 200))
        match dice.randrange(7):
            case 0:
                changed[place] ^= 1 << dice.randrange(8)
            case 1:
                changed[place] = dice.choice([0, 255, 127, 128, dice.randrange(256)])
            case 2:
                del changed[place : place + dice.randrange(1, 40)]
            case 3:
                changed[place:place] = dice.choice(_TOKENS)
            case 4:
                token = dice.choice(_TOKENS)
                changed[place : place + len(token)] = token
            case 5:
                changed[place:place] = changed[place : place + dice.randrange(1, 200)] * dice.choice([1, 2, 50])
            case 6 if place + 4 <= size:
                struct.pack_into(dice.choice(["<I", ">I"]), changed, place, dice.choice(_NUMBERS))
    return bytes(changed)


def _sound_documents(folder: Path | None) -> Iterator[tuple[str, bytes]]:
    """Generated ones of every format, and those in the folder."""
    yield from _pdfs()
    for name, write in ENCODINGS.items():
        if len(data := write(PAGES["letter"])) <= MAX_BYTES:
            yield f"{name.replace(' ', '-')}.image", data
    for path in sorted(folder.rglob("*")) if folder else ():
        if path.is_file() and 0 < path.stat().st_size <= MAX_BYTES:
            yield path.name[-80:], path.read_bytes()


def _pdfs() -> Iterator[tuple[str, bytes]]:
    with pymupdf.open() as document:
        for number in range(2):
            page = document.new_page(width=200, height=200)
            page.insert_text((20, 50), f"Page {number}")
            page.draw_rect((10, 60, 90, 90))
        page.insert_image((50, 100, 150, 180), stream=ENCODINGS["JPEG"](PAGES["photo"]))
        page.add_text_annot((9, 9), "note")
        yield "plain.pdf", document.tobytes()
        yield "packed.pdf", document.tobytes(garbage=3, deflate=True, use_objstms=1)
        yield "encrypted.pdf", document.tobytes(encryption=pymupdf.PDF_ENCRYPT_AES_256, owner_pw="o", user_pw="")
