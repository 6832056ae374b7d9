"""A reader that one item takes down, for tests: in a module of its own, as the processes of actors import it."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from batchocr.data import Document
from batchocr.ray.reader import ItemRead, Reader


class DeadlyReader(Reader):
    """Is killed by the letter 1, every time."""

    def read(self, documents: Sequence[Document]) -> ItemRead:
        if any(document.source == "letter-1.pdf" for document in documents):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().read(documents)
