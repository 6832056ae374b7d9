"""`python worker_entry.py FD`: a real worker whose protocol does what the page's first pixel says."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

from PIL import Image

from batchocr.data import Page, Pixels, Reading, Request, Sampling
from batchocr.protocol.base import Reader
from batchocr.worker.process import serve

COMMAND = (sys.executable, "-P", __file__)
BEHAVIOURS = ("read", "segfault", "exit", "hang", "hang-later", "raise", "out-of-memory", "lie", "ask-nothing", "noisy")


def draw_page(path: Path, behaviour: str, size: tuple[int, int] = (40, 30)) -> str:
    """Write an image that has the worker behave so; returns its path."""
    Image.new("RGB", size, (BEHAVIOURS.index(behaviour), 20, 30)).save(path)
    return str(path)


class ScriptedProtocol:
    """Asks about the page, then about both of its halves."""

    version = "scripted"

    def read(self, page: Page) -> Reader:
        behaviour = BEHAVIOURS[page.image.tobytes()[0]]
        if behaviour == "ask-nothing":
            yield []
            return Reading("", (), image_tokens=0, output_tokens=0)
        misbehave(behaviour)
        whole = yield [_request(page.image, "whole", 0)]
        if behaviour == "hang-later":
            hang()
        width, height = page.image.size
        halves = [page.image.crop((0, 0, width // 2, height)), page.image.crop((width // 2, 0, width, height))]
        parts = yield [_request(half, "half", 1) for half in halves]
        answers = [*whole, *parts]
        return Reading(
            markdown=" ".join(answer.text for answer in answers),
            blocks=(),
            image_tokens=sum(answer.image_tokens for answer in answers),
            output_tokens=sum(answer.output_tokens for answer in answers),
        )


def misbehave(behaviour: str) -> None:
    match behaviour:
        case "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "exit":
            os._exit(7)
        case "hang":
            hang()
        case "raise":
            raise KeyError("a bug")
        case "out-of-memory":
            raise MemoryError
        case "lie":
            os.write(int(sys.argv[1]), b"no frame begins like this")
        case "noisy":
            os.write(2, b"chatter\n" * 1000)


def hang() -> None:
    """Hold the interpreter lock for ages."""
    re.match(r"(a+)+$", "a" * 64 + "b")


def _request(image: Image.Image, prompt: str, number: int) -> Request:
    width, height = image.size
    return Request(Pixels(height, width, image.tobytes()), prompt, Sampling(8), (28, 28), number)


if __name__ == "__main__":
    serve(int(sys.argv[1]), lambda setup: ScriptedProtocol())
