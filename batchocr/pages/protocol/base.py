"""What a protocol is: the way from a page's pixels to its text, in batches of questions to the model."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Protocol, TypeAlias

from PIL import Image

from batchocr.data import Completion, Page, Pixels, Reading, Request

Reader: TypeAlias = Generator[list[Request], list[Completion], Reading]
"""A page being read: yields a batch of requests, is sent their completions in the same order, returns the reading."""


class ReadBlock(Protocol):
    """A block while a protocol reads it, whatever it keeps it in."""

    @property
    def type(self) -> str: ...
    @property
    def bbox(self) -> Sequence[float]: ...
    @property
    def angle(self) -> int | None: ...
    @property
    def content(self) -> str | None: ...


class PageProtocol(Protocol):
    """Reads pages. Lives in a worker process; loads no torch."""

    def read(self, page: Page) -> Reader:
        """Return the generator that reads this page. Whatever text the model returns, it never makes this raise."""
        ...


def pixels_of(image: Image.Image) -> Pixels:
    """The image as a question holds it."""
    return Pixels(image.height, image.width, image.tobytes())
