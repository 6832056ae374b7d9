"""Lists put together of their items, nested as these are indented."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from batchocr.documents.assembly.item_marks import item_mark
from batchocr.documents.assembly.joining import Draft
from batchocr.pages.kinds import LIST
from batchocr.pages.protocol.markdown import DEEPEST, NESTED
from batchocr.pages.searchable.letters import runs_leftwards

_INDENT: Final = 0.015
"""How much further in an item begins that is part of the one above, as a share of the page."""


@dataclass(slots=True)
class OpenList:
    """A list of a page while items are added to it, from above to below."""

    draft: Draft
    _levels: list[float] = field(default_factory=list)
    """How far in the items begin that the next one may be part of."""
    _bottom: float = 0.0

    @classmethod
    def begin(cls, item: Draft) -> OpenList:
        """The list of which this is the first item."""
        item.become(LIST)
        made = cls(item)
        made._indent(item)
        return made

    def add(self, item: Draft) -> None:
        """Add the next item."""
        self._indent(item)
        self.draft.add_items(item)

    def _indent(self, item: Draft) -> None:
        """Write the item on one line, indented as it stands below others."""
        x0, y0, x1, y1 = item.boxes[0]
        text = " ".join(item.texts[0].split())
        begin = 1 - x1 if runs_leftwards(text) else x0
        levels = self._levels
        if y0 < self._bottom - _INDENT:
            levels.clear()  # another column
        while levels and begin < levels[-1] - _INDENT:
            levels.pop()
        if not levels or (begin > levels[-1] + _INDENT and item_mark(text)[0]):
            levels.append(begin)
        elif begin <= levels[-1] + _INDENT:
            levels[-1] = begin  # of a sheet that lies askew
        item.texts = [NESTED * min(len(levels) - 1, DEEPEST) + text]
        self._bottom = y1
