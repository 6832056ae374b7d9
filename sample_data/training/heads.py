"""The auxiliary heads: what they predict for image tokens and answer tokens. They are discarded after training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from sample_data.training.truth import BlockType
from sample_data.training.vocabulary import NUMBERS

BLOCK_TYPES: tuple[BlockType, ...] = get_args(BlockType)
IGNORED = -100
MAX_RANK, MAX_PLACE = 47, 95
EDGE_STEP = 4
"""The width of a class of edges, in thousandths of the page."""
SLOT_WIDTH, SLOT_HEIGHT, SLOTS = 5, 10, 8
"""A square of 20 × 20 px holds 4 × 2 slots, each with the middle of at most one character."""


@dataclass(frozen=True, slots=True)
class Head:
    """A linear head on tokens. in_language: on those in the middle of the language model, not on the ViT's output.

    slots: predictions per token. rare: the weight of class 0 relative to the others, because most tokens hold nothing.
    spread: the standard deviation by which a class is spread over its neighbours, if classes are lengths or ranks: near
    is better than far.
    """

    name: str
    slots: int
    num_classes: int
    weight: float
    rare: float = 1.0
    in_language: bool = False
    spread: float = 0.0


def heads(num_inks: int) -> tuple[Head, ...]:
    """Return the heads. num_inks: the number of tokens that can be on a page.

    characters: the token whose ink has its middle in the slot. kinds: the block type of each patch. corners: whether a
    block begins, and whether one ends, in the square; offsets: at which px of it; ranks: the places in reading order of
    the blocks that begin and end there; links: the left and lower edge of the block before the one that begins there,
    and the start of the one that ends there; edges: where in the image the corners are. places: the token's row and
    column. Ranks, links and places are also predicted for answer tokens, so that the two can be matched.
    """
    return (
        Head("characters", SLOTS, 1 + num_inks, 1.0, rare=0.15),
        Head("kinds", 4, 1 + len(BLOCK_TYPES), 1.0, rare=0.3),
        Head("corners", 2, 2, 2.0, rare=0.1),
        Head("offsets", 4, 20, 1.0, spread=1.5),
        Head("ranks", 2, MAX_RANK + 1, 0.5, spread=0.7, in_language=True),
        Head("links", 4, len(NUMBERS) // EDGE_STEP, 1.0, spread=1.5, in_language=True),
        Head("edges", 4, len(NUMBERS) // EDGE_STEP, 1.0, in_language=True, spread=1.0),
        Head("places", 2, MAX_PLACE + 1, 0.3, in_language=True),
    )
