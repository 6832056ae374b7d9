"""What a protocol is: the way from a page's pixels to its text, in batches of questions to the model."""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol, TypeAlias

from batchocr.data import Completion, Page, Reading, Request

Reader: TypeAlias = Generator[list[Request], list[Completion], Reading]
"""Yields a batch of requests, is sent their completions in the same order, returns the reading."""


class PageProtocol(Protocol):
    """Reads pages. Lives in a worker process; loads no torch."""

    def read(self, page: Page) -> Reader:
        """Return the generator that reads this page. Whatever text the model returns, it never makes this raise."""
        ...
