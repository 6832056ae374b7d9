"""The auxiliary heads: what they say of image tokens and answer tokens. They are thrown away after training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from sample_data.training.truth import BlockType

BLOCK_TYPES: tuple[BlockType, ...] = get_args(BlockType)
IGNORED = -100
MAX_RANK = 47
MAX_PLACE = 95
SLOT_WIDTH, SLOT_HEIGHT, SLOTS = 5, 10, 8
"""A square of 20 × 20 px holds 4 × 2 slots; each holds the middle of one character at most."""


Source: TypeAlias = Literal["eyes", "image", "answer"]
"""What a head looks at: the ViT's last image tokens, the language model's after two layers, or its answer tokens after
three."""


@dataclass(frozen=True, slots=True)
class Head:
    """A linear head on tokens.

    slots: answers a token. rare: how much less a class 0 counts than another, for most tokens hold nothing.
    spread: of a class over its neighbours, as a standard deviation, where classes are px: near is better than far.
    """

    name: str
    slots: int
    num_classes: int
    weight: float
    rare: float = 1.0
    source: Source = "eyes"
    spread: float = 0.0


def heads(num_tokens: int) -> tuple[Head, ...]:
    """Return the heads for a vocabulary of that size.

    characters: which token's ink has its middle in the slot. kinds: the block type of each patch. corners: whether a
    block begins, and ends, in the square; offsets: at which px of it; ranks: the place in the reading order of the
    block that begins there. places: the token's row and column. next_places: those of the token that shows what is to
    be said next, which an answer token must know to go on reading from there.
    """
    return (
        Head("characters", SLOTS, 1 + num_tokens, 1.0, rare=0.15),
        Head("kinds", 4, 1 + len(BLOCK_TYPES), 1.0, rare=0.3),
        Head("corners", 2, 2, 2.0, rare=0.1),
        Head("offsets", 4, 20, 1.0, spread=1.5),
        Head("ranks", 1, MAX_RANK + 1, 1.0, spread=0.7),
        Head("places", 2, MAX_PLACE + 1, 0.3, source="image"),
        Head("next_places", 2, MAX_PLACE + 1, 0.3, source="answer", spread=0.5),
    )
