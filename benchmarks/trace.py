"""The requests that pages make to an engine: a layout, and once it is ready, the page's blocks.

A trace holds sizes and lengths, but no content. Its pages are the design's dense ones, of 17,900 patches and 1,480
output tokens, the figures that others measured with; or those of documents, from their text layer (`text_layer.py`).
"""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import torch

from batchocr.data import Pixels, Request, Sampling

Kind = Literal["layout", "detected", "text", "equation"]

PROMPTS: dict[Kind, str] = {
    "layout": "\nLayout Detection:",
    "detected": "",
    "text": "\nText Recognition:",
    "equation": "\nFormula Recognition:",
}
LAYOUT_SIZE = 1036
_NOISE_BYTES = 1 << 26


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. height, width: of its image, px. resize_to: both sides in px; None leaves the image as it is.

    A layout of the kind `detected` is asked of a detector, and has no tokens.
    """

    kind: Kind
    height: int
    width: int
    output_tokens: int
    resize_to: int | None = None


@dataclass(frozen=True, slots=True)
class TracePage:
    layout: Ask
    blocks: tuple[Ask, ...]

    @property
    def asks(self) -> tuple[Ask, ...]:
        return self.layout, *self.blocks


@dataclass(frozen=True, slots=True)
class Trace:
    pages: tuple[TracePage, ...]

    def repeated(self, num_pages: int) -> Trace:
        """This many pages, starting over if there are fewer."""
        return replace(self, pages=tuple(itertools.islice(itertools.cycle(self.pages), num_pages)))

    def detected(self) -> Trace:
        """The same pages with their layouts from a detector."""
        layouts = (replace(page.layout, kind="detected", output_tokens=0, resize_to=None) for page in self.pages)
        pages = (replace(page, layout=layout) for page, layout in zip(self.pages, layouts, strict=True))
        return replace(self, pages=tuple(pages))

    def shrunk(self, factor: float) -> Trace:
        """The same pages with sides scaled by this factor and output lengths by its square, for slow machines."""
        return replace(self, pages=tuple(_shrink_page(page, factor) for page in self.pages))


def dense_trace(num_pages: int) -> Trace:
    """Pages of 1700 × 2200 px: a layout of 5,476 patches and 400 output tokens; 14 blocks of 12,424 patches and 1,080
    output tokens in all. How the tokens are spread over the blocks differs from page to page."""
    return Trace(tuple(_dense_page(random.Random(index)) for index in range(num_pages)))


def _dense_page(rng: random.Random) -> TracePage:
    grids = [(rows, 108) for rows in (2, 2, 2, 4, 4, 4, 4, 4, 6, 8, 14, 26, 34)] + [(8, 14)]
    rng.shuffle(grids)
    weights = [rows * columns * rng.uniform(0.5, 1.5) for rows, columns in grids]
    ends = [round(1080 * part / sum(weights)) for part in itertools.accumulate(weights, initial=0.0)]
    blocks = [
        Ask("equation" if columns == 14 else "text", 14 * rows, 14 * columns, max(1, end - start))
        for (rows, columns), (start, end) in zip(grids, itertools.pairwise(ends), strict=True)
    ]
    return TracePage(Ask("layout", 2200, 1700, 400, LAYOUT_SIZE), tuple(blocks))


def _shrink_page(page: TracePage, factor: float) -> TracePage:
    return TracePage(_shrink(page.layout, factor), tuple(_shrink(ask, factor) for ask in page.blocks))


def _shrink(ask: Ask, factor: float) -> Ask:
    return replace(
        ask,
        height=math.ceil(ask.height * factor),
        width=math.ceil(ask.width * factor),
        output_tokens=math.ceil(ask.output_tokens * factor**2),
        resize_to=None if ask.resize_to is None else math.ceil(ask.resize_to * factor),
    )


class Noise:
    """Images of random pixels, no two alike, all cut from one buffer: no engine's speed depends on the content."""

    def __init__(self, num_bytes: int = _NOISE_BYTES) -> None:
        self._bytes = _noise(num_bytes)
        self._starts = random.Random(0)

    def pixels(self, height: int, width: int) -> Pixels:
        """An image of this size, without a copy. It must fit into the buffer."""
        size = 3 * height * width
        start = self._starts.randrange(len(self._bytes) - size + 1)
        return Pixels(height, width, self._bytes[start : start + size])

    def request(self, ask: Ask) -> Request:
        """The request as the product makes it, penalties included, but with the number of new tokens from `ask`."""
        penalties = ask.kind != "layout"
        return Request(
            pixels=self.pixels(ask.height, ask.width),
            prompt=PROMPTS[ask.kind],
            sampling=Sampling(
                max_new_tokens=ask.output_tokens,
                presence_penalty=1.0 if penalties else 0.0,
                frequency_penalty=0.05 if penalties else 0.0,
                no_repeat_ngram_size=100 if penalties else 0,
                loop_check="never",
            ),
            resize_to=None if ask.resize_to is None else (ask.resize_to, ask.resize_to),
            round=0 if ask.kind in ("layout", "detected") else 1,
            detector="random" if ask.kind == "detected" else "",
        )


@cache
def _noise(num_bytes: int) -> memoryview:
    noise = torch.randint(0, 256, (num_bytes,), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return memoryview(bytearray(noise.numpy()))
