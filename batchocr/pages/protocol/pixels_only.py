"""No reading at all: a page's pixels, for those who show them or cut figures out of them."""

from __future__ import annotations

from batchocr.data import Page, Pixels, Reading, Request, Sampling
from batchocr.pages.protocol.base import Reader


class PixelsOnly:
    """Asks one question, which is the page; whatever the answer, there is nothing to read."""

    def read(self, page: Page) -> Reader:
        """Return the generator that asks it."""
        yield [Request(Pixels(page.image.height, page.image.width, page.image.tobytes()), "", Sampling(1))]
        return Reading("", (), 0, 0)
