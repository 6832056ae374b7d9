"""A model that sees what a person sees: it knows where every letter of a page is, and finds each crop on it."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from batchocr.data import Completion, Page, Pixels, Reading, Request
from batchocr.protocol.mineru import MinerUProtocol
from tests.support.drawn_text import Box, SeenBlock, joined
from tests.support.page_reading import completion, line

_TURNS = {0: "up", 90: "right", 180: "down", 270: "left"}


@dataclass
class SeeingModel:
    """Answers the layout with the true blocks, and each crop with what is seen in it.

    width, height: of the page, in the blocks' unit. error_rate: share of the letters that it misreads, by lot. habit:
    how it writes what it read. asked: what is seen in each crop that it was asked about.
    """

    page: Page
    blocks: Sequence[SeenBlock]
    width: float
    height: float
    error_rate: float = 0.0
    seed: int = 0
    habit: Callable[[str], str] = str
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._pixels = np.asarray(self.page.image)
        self._lot = random.Random(self.seed)

    def read(self, protocol: MinerUProtocol) -> Reading:
        reader = protocol.read(self.page)
        requests = next(reader)
        try:
            while True:
                requests = reader.send([self._answer(request) for request in requests])
        except StopIteration as end:
            reading: Reading = end.value
            return reading

    def layout(self) -> str:
        """Boxes in thousandths of the page, rounded outwards."""
        answer = ""
        for block in self.blocks:
            x0, y0, x1, y1 = block.box
            shares = (x0 / self.width, y0 / self.height, x1 / self.width, y1 / self.height)
            edges = [int(1000 * shares[0]), int(1000 * shares[1]), -int(-1000 * shares[2]), -int(-1000 * shares[3])]
            place = " ".join(f"{min(999, max(0, edge)):03}" for edge in edges)
            answer += line(place, block.type, turn=_TURNS[block.angle])
        return answer

    def _answer(self, request: Request) -> Completion:
        if "Layout" in request.prompt:
            return completion(self.layout())
        text = self.seen_in(_place(self._pixels, request.pixels))
        self.asked.append(text)
        return completion(self.habit("".join(map(self._misread, text))))

    def seen_of(self, bbox: Box) -> str:
        """What is seen in a block. bbox: in shares of the page."""
        high, wide, _ = self._pixels.shape
        x0, y0, x1, y1 = bbox
        return self.seen_in((round(x0 * wide), round(y0 * high), round(x1 * wide), round(y1 * high)))

    def seen_in(self, place: Box) -> str:
        """place: in px."""
        high, wide, _ = self._pixels.shape
        x0, x1 = place[0] * self.width / wide, place[2] * self.width / wide
        y0, y1 = place[1] * self.height / high, place[3] * self.height / high
        seen: list[str] = []
        for block in self.blocks:
            lines = []
            for whole in block.lines:
                letters = tuple(
                    letter
                    for letter in whole.letters
                    if x0 <= (letter.box[0] + letter.box[2]) / 2 <= x1
                    and y0 <= (letter.box[1] + letter.box[3]) / 2 <= y1
                )
                if any(letter.text.strip() for letter in letters):
                    lines.append(replace(whole, letters=letters))
            seen += [joined(lines)] if lines else []
        return " ".join(seen)

    def _misread(self, letter: str) -> str:
        if letter.isspace() or self._lot.random() >= self.error_rate:
            return letter
        return self._lot.choice([self._lot.choice(string.ascii_letters + string.digits), "", letter + letter])


def _place(page: NDArray[np.uint8], crop: Pixels) -> Box:
    """Where the crop was cut from the page, in px; it may have been turned, or have got a margin of one colour."""
    pixels = np.frombuffer(crop.data, np.uint8).reshape(crop.height, crop.width, 3)
    for turns in range(4):
        found = _find(page, np.rot90(pixels, turns))
        if found is not None:
            return found
    differs = (pixels != pixels[0, 0]).any(axis=2)
    rows, columns = np.flatnonzero(differs.any(axis=1)), np.flatnonzero(differs.any(axis=0))
    if rows.size:
        y0, y1, x0, x1 = rows[0], rows[-1] + 1, columns[0], columns[-1] + 1
        found = _find(page, pixels[y0:y1, x0:x1])
        if found is not None:
            return _widened(page, found, (x0, y0, crop.width - x1, crop.height - y1))
    raise AssertionError(f"a question about {crop.width} × {crop.height} px that are nowhere on the page")


def _widened(page: NDArray[np.uint8], box: Box, by: tuple[int, int, int, int]) -> Box:
    """The box with as much of a margin as there is on the page without any ink."""
    x0, y0, x1, y1 = map(int, box)
    for _ in range(by[1]):
        y0 -= y0 > 0 and not np.ptp(page[y0 - 1, x0:x1], axis=0).any()
    for _ in range(by[3]):
        y1 += y1 < page.shape[0] and not np.ptp(page[y1, x0:x1], axis=0).any()
    return (max(0, x0 - by[0]), y0, x1 + by[2], y1)


def _find(page: NDArray[np.uint8], crop: NDArray[np.uint8]) -> Box | None:
    height, width, _ = crop.shape
    if height > page.shape[0] or width > page.shape[1]:
        return None
    most_varied = int(np.argmax(crop.reshape(height, -1).std(axis=1)))
    wanted = np.ascontiguousarray(crop[most_varied]).tobytes()
    for y in range(page.shape[0] - height + 1):
        row = page[y + most_varied].tobytes()
        at = row.find(wanted)
        while at >= 0:
            x = at // 3
            if at % 3 == 0 and np.array_equal(page[y : y + height, x : x + width], crop):
                return (x, y, x + width, y + height)
            at = row.find(wanted, at + 1)
    return None
