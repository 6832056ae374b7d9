"""How much of a page lies in figures that were not read."""

from __future__ import annotations

from collections.abc import Sequence

from batchocr.data import Block, Box
from batchocr.pages.kinds import kind_of
from batchocr.pages.protocol.ink import Ink


def shares_in_figures(blocks: Sequence[Block], ink: Ink) -> tuple[float | None, float | None]:
    """The columns ink_in_figures and writing_in_figures of a page; None if its blocks have no ink.

    What lies in another block too, such as text on a picture, counts as read.
    """
    roles = [kind_of(block.type).role for block in blocks]
    total = ink.amount(block.bbox for block, role in zip(blocks, roles, strict=True) if role != "furniture")
    if not total:
        return None, None
    unread, others = list[Box](), list[Box]()
    for block, role in zip(blocks, roles, strict=True):
        (unread if role == "figure" and block.finish_reason is None else others).append(block.bbox)
    written = filter(ink.is_writing, unread)
    return round(ink.amount(unread, others) / total, 4), round(ink.amount(written, others) / total, 4)
