"""`python worker_entry.py FD`: a real worker that misbehaves as its documents say."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from PIL import Image

from batchocr.data import Page, Pixels, Reading, Request, Sampling, TextLayerUse
from batchocr.pages import documents, page_worker, serve
from batchocr.pages.input.render import RenderableDocument, fingerprint
from batchocr.pages.parts import cut_out
from batchocr.pages.protocol.base import Reader
from batchocr.processes.messages import Drawn, Part

COMMAND = (sys.executable, "-P", __file__)
BEHAVIOURS = (
    "read",
    "segfault",
    "abort",
    "exit",
    "hang",
    "hang-later",
    "raise",
    "out-of-memory",
    "lie",
    "ask-nothing",
    "unnamed-signal",
)
POINTS = ("opening", "rendering", "first round", "later round", "post-processing")

GROWING = "growing"
"""In the name of a scripted document: somebody writes to it whenever it is opened."""

HELD = "held"
"""In the name of a document: it is hashed only once there is a file NAME.go. NAME.begun gets a dot each time."""

Fault = tuple[str, str]
"""Where in a page's processing something goes wrong, one of POINTS, and what: a behaviour of `misbehave`."""

open_document = serve.open_document
num_rendered = 0


def draw_page(path: Path, behaviour: str) -> str:
    """Write an image that makes the worker behave like this; returns its path."""
    Image.new("RGB", (40, 30), (BEHAVIOURS.index(behaviour), 20, 30)).save(path)
    return str(path)


def write_script(path: Path, *pages: Fault | None, number: int = 0) -> str:
    """Write a document that says what goes wrong on each page; returns its path. number: its pages' green value."""
    path.write_text(json.dumps({"number": number, "pages": pages}))
    return str(path)


class ScriptedDocument:
    """A document written by `write_script`. A page's blue value is its index."""

    def __init__(self, path: str) -> None:
        text = Path(path).read_text()
        if GROWING in path:
            Path(path).write_text(f"{text} ")
        script = json.loads(text)
        self._number = script["number"]
        self._faults = script["pages"]
        self.page_count = script.get("claims", len(self._faults))
        for fault in self._faults:
            fail_at("opening", fault)

    def render(self, page_index: int, dpi: int | None = None) -> Page:
        global num_rendered
        num_rendered += 1
        fault = self._faults[page_index]
        fail_at("rendering", fault)
        image = Image.new("RGB", (40, 30), (0, self._number, page_index))
        image.info["fault"] = fault
        return Page(image, None)

    def close(self) -> None:
        pass


def open_scripted(
    path: str, *, password: str | None, dpi: int, text_layer: TextLayerUse, name: str
) -> RenderableDocument:
    if path.endswith(".script"):
        return ScriptedDocument(path)
    return open_document(path, password=password, dpi=dpi, text_layer=text_layer)


def fingerprint_held(path: str) -> tuple[str, int, int]:
    if HELD in os.path.basename(path):
        with open(f"{path}.begun", "a") as file:
            file.write(".")
        while not os.path.exists(f"{path}.go"):
            time.sleep(0.01)
    return fingerprint(path)


class ScriptedProtocol:
    """Asks about the page, then about both of its halves."""

    version = "scripted"

    def read(self, page: Page) -> Reader:
        behaviour = BEHAVIOURS[page.image.tobytes()[0]]
        usual = ("later round", "hang") if behaviour == "hang-later" else ("first round", behaviour)
        fault = page.image.info.get("fault", usual)
        if behaviour == "ask-nothing":
            yield []
            return Reading("", (), image_tokens=0, output_tokens=0)
        fail_at("first round", fault)
        whole = yield [_request(page.image, "whole", 0)]
        fail_at("later round", fault)
        width, height = page.image.size
        halves = [page.image.crop((0, 0, width // 2, height)), page.image.crop((width // 2, 0, width, height))]
        parts = yield [_request(half, "half", 1) for half in halves]
        fail_at("post-processing", fault)
        answers = [*whole, *parts]
        return Reading(
            markdown=" ".join(answer.text for answer in answers),
            blocks=(),
            image_tokens=sum(answer.image_tokens for answer in answers),
            output_tokens=sum(answer.output_tokens for answer in answers),
        )


def cut_out_scripted(image: Image.Image, part: Part) -> bytes:
    """The part of a page; shorter or longer than it is, or one byte, if the page's fault says so."""
    data = cut_out(image, part)
    _, behaviour = image.info.get("fault") or ("", "")
    return {"short": data[:-1], "long": 5 * data, "two": data[:1]}.get(behaviour, data)


def drawn_scripted(task_id: int, sizes: tuple[int, ...]) -> Drawn:
    return Drawn(task_id, 2 * sizes if sizes == (1,) else sizes)


def fail_at(point: str, fault: Fault | None) -> None:
    if fault is not None and fault[0] == point:
        misbehave(fault[1])


def misbehave(behaviour: str) -> None:
    match behaviour:
        case "segfault":
            for _ in range(12):
                threading.Thread(target=threading.Event().wait, daemon=True).start()
            _segfault(50)
        case "abort":
            os.write(2, b"free(): invalid pointer\n")
            os.abort()
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "unnamed-signal":
            os.kill(os.getpid(), signal.SIGRTMIN + 1)
        case "exit":
            os._exit(7)
        case "hang":
            # Holding the interpreter's lock, as a library that never returns; no core is lost to other tests.
            ctypes.PyDLL(None).sleep(86_400)
        case "raise":
            raise KeyError("a bug")
        case "out-of-memory":
            raise MemoryError
        case "out-of-memory-unless-fresh":
            if num_rendered > 1:
                raise MemoryError
        case "lie":
            os.write(int(sys.argv[1]), b"no frame begins like this")


def _segfault(depth: int) -> None:
    """Deep in calls and beside other threads, so that what Python says is longer than what is quoted."""
    if depth:
        _segfault(depth - 1)
    os.kill(os.getpid(), signal.SIGSEGV)


def _request(image: Image.Image, prompt: str, number: int) -> Request:
    width, height = image.size
    return Request(Pixels(height, width, image.tobytes()), prompt, Sampling(8), (28, 28), number)


def main(descriptor: int) -> None:
    serve.open_document = open_scripted
    documents.fingerprint = fingerprint_held
    page_worker.cut_out = cut_out_scripted
    page_worker.Drawn = drawn_scripted
    serve._make_protocol = lambda setup: ScriptedProtocol()
    serve.serve(descriptor)


if __name__ == "__main__":
    main(int(sys.argv[1]))
