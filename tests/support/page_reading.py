"""A page read by the protocol, with predetermined answers in place of a model's."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from PIL import Image

from batchocr.data import Completion, FinishReason, Page, Reading, Request
from batchocr.pages.protocol.base import PageProtocol
from batchocr.pages.protocol.families.mineru import MinerUProtocol

PROTOCOL = MinerUProtocol(max_new_tokens=4096, penalties=True)
BLANK = Page(Image.new("RGB", (200, 300), "white"), 72)


def line(box: str, type: str, *, turn: str = "up", tail: str = "") -> str:
    return f"<|box_start|>{box}<|box_end|><|ref_start|>{type}<|ref_end|><|rotate_{turn}|>{tail}\n"


def completion(text: str, finish_reason: FinishReason = "stop", error: str | None = None) -> Completion:
    return Completion(text, finish_reason, 10, 3, 0.9, -0.5, error)


@dataclass
class Reader:
    """Reads a page with a fixed layout and an answer for each request after it. batches: all requests made."""

    layout: str | Completion
    answer: Callable[[int, str], str | Completion] = lambda number, prompt: f"answer {number}"
    batches: list[list[Request]] = field(default_factory=list)

    def read(self, page: Page = BLANK, protocol: PageProtocol = PROTOCOL) -> Reading:
        reader = protocol.read(page)
        requests = next(reader)
        answers: list[str | Completion] = [self.layout]
        try:
            while True:
                self.batches.append(requests)
                requests = reader.send([a if isinstance(a, Completion) else completion(a) for a in answers])
                answers = [self.answer(number, request.prompt) for number, request in enumerate(requests)]
        except StopIteration as end:
            reading: Reading = end.value
            return reading


def read(layout: str | Completion, *answers: str | Completion, page: Page = BLANK) -> Reading:
    return Reader(layout, lambda number, prompt: answers[number]).read(page)


SIGNS = (
    *("\\(", "\\[", "\\)", "\\\\", "$", "$$", "\\$", "\\t", "#", "|", ".", "- ", "\n", "a", "\x00"),
    *("<fcel>", "<ecel>", "<lcel>", "<ucel>", "<xcel>", "<nl>"),
)
"""What those look for who clean answers."""


def long_answers() -> Iterator[str]:
    """Yield answers of some 100,000 letters: one sign again and again, many in a row, tables of odd rows."""
    dice = random.Random(0)
    yield from (sign * (100_000 // len(sign)) for sign in SIGNS)
    yield from ("".join(dice.choices(SIGNS, k=40_000)) for _ in range(3))
    yield "a" + "\\t" * 50_000 + "a"
    yield "<fcel>" * 8_000 + "<nl><fcel>" * 5_000
    yield "".join("<ucel>" * at + "<fcel>" + "<lcel>" * (120 - at) + "<nl>" for at in range(120))
