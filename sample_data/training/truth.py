"""The exact content of a training page: every block in reading order, every character with its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

BlockType: TypeAlias = Literal[
    "title",
    "text",
    "list_item",
    "table",
    "table_caption",
    "table_footnote",
    "image",
    "image_caption",
    "equation",
    "header",
    "footer",
    "page_number",
    "page_footnote",
]
ABOVE, BELOW = 0.53, 0.51
"""How far a line extends above and below the middle of its small letters, in font sizes."""


class Mark(NamedTuple):
    """A token of a block's text, and where its ink is: from x0 to x1, the middle of small letters at y.

    x0, x1, y, size: points while a page is set, px afterwards; NaN for a token without ink. size: of the font.
    line: its line in the block.
    """

    token: str
    x0: float
    x1: float
    y: float
    size: float
    line: int


@dataclass(frozen=True, slots=True)
class Block:
    """A block and its text as the model should give it; a figure has none.

    box: x0, y0, x1, y1 in px. places: float32 [tokens, 4], the x0, x1, y and size of each mark. lines: int16 [tokens].
    """

    type: BlockType
    box: tuple[float, float, float, float]
    tokens: tuple[str, ...]
    places: NDArray[np.float32]
    lines: NDArray[np.int16]

    @property
    def text(self) -> str:
        return "".join(self.tokens)


@dataclass(frozen=True, slots=True)
class TrainingPage:
    """image: uint8 [height, width], grey. blocks: in reading order."""

    image: NDArray[np.uint8]
    blocks: tuple[Block, ...]


def block_of(
    kind: BlockType, marks: list[Mark], box: tuple[float, float, float, float] | None = None, *, padding: float = 1.0
) -> Block:
    """Return the block of these marks. If no box is given, it is the one that its lines fill, plus some padding."""
    places = np.array([mark[1:5] for mark in marks], dtype=np.float32).reshape(-1, 4)
    if box is None:
        x0, y0, x1, y1 = ink_box(places)
        box = (x0 - 1.5 * padding, y0 - padding / 2, x1 + 1.5 * padding, y1 + padding / 2)
    lines = np.array([mark.line for mark in marks], dtype=np.int16)
    return Block(kind, box, tuple(mark.token for mark in marks), places, lines)


def ink_box(places: NDArray[np.float32]) -> tuple[float, float, float, float]:
    """Return the box that lines at these places fill. Raises ValueError if none has ink."""
    x0, x1, y, size = places[~np.isnan(places[:, 0])].T
    return float(x0.min()), float((y - ABOVE * size).min()), float(x1.max()), float((y + BELOW * size).max())


def moved(block: Block, matrix: NDArray[np.float64]) -> Block:
    """Return the block after an affine map of the page, with at most a small rotation. matrix: [2, 3]."""
    scale = float(np.hypot(*matrix[:, 0]))
    x0, x1, y, size = block.places.T.astype(np.float64)
    left, right = matrix @ np.stack([x0, y, np.ones_like(y)]), matrix @ np.stack([x1, y, np.ones_like(y)])
    places = np.stack([left[0], right[0], (left[1] + right[1]) / 2, size * scale], axis=1).astype(np.float32)
    corners = np.array([(x, y, 1.0) for x in block.box[::2] for y in block.box[1::2]]).T
    xs, ys = matrix @ corners
    box = (float(xs.min()), float(ys.min()), float(xs.max()), float(ys.max()))
    return Block(block.type, box, block.tokens, places, block.lines)
