"""A reader that one item takes down, for tests: in a module of its own, as the processes of actors import it."""

from __future__ import annotations

import os
import signal

from batchocr.ray.items import Item
from batchocr.ray.reader import ItemRead, Reader


class DeadlyReader(Reader):
    """Is killed by the letter 1, every time."""

    def read(self, item: Item, *, again: bool) -> ItemRead:
        if any(document.source == "letter-1.pdf" for document in item.documents):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().read(item, again=again)
