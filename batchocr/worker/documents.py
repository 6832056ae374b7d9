"""The documents that a worker has open: the last few, so that a file is opened once for all of its pages."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from batchocr.input.render import RenderableDocument

_MAX_OPEN = 4


class DocumentCache:
    """Opens documents on request, and closes the least recently requested one."""

    def __init__(self, open_document: Callable[[str], RenderableDocument]) -> None:
        self._open_document = open_document
        self._by_path: OrderedDict[str, RenderableDocument] = OrderedDict()

    def get(self, path: str) -> RenderableDocument:
        """The document at `path`, open. Raises PageError."""
        if path not in self._by_path:
            while len(self._by_path) >= _MAX_OPEN:
                _, oldest = self._by_path.popitem(last=False)
                oldest.close()
            self._by_path[path] = self._open_document(path)
        self._by_path.move_to_end(path)
        return self._by_path[path]
