"""Layouts rehearsed from memory: the ViT's output for the last pages, with different blocks left out each time.

The language model learns from blocks which corner to look at next, and there are only ten on a page that takes the ViT
most of a second. From memory, and with most squares other than those at corners left out, a page takes a tenth of that.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sample_data.training.batches import Batch, collate
from sample_data.training.heads import IGNORED
from sample_data.training.samples import SQUARE, LayoutBlock, Sampler
from sample_data.training.vocabulary import Vocabulary

_NUM_PAGES = 120
_FEWEST = 20
"""The number of pages below which nothing is rehearsed: the same few would be learnt by heart."""
_WHOLE, _UNPRUNED, _KEPT_SQUARES = 0.35, 0.15, 0.35
"""Shares: of pages with all their blocks, of pages with all their squares, and of the squares that others keep."""


@dataclass(frozen=True, slots=True)
class _Page:
    """seen: bfloat16 [squares, width]. empty: the squares that no block touches."""

    blocks: tuple[LayoutBlock, ...]
    seen: Tensor
    empty: NDArray[np.int64]


class Memory:
    """The pages that the ViT saw last."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._sampler = Sampler(vocabulary)
        self._pages: deque[_Page] = deque(maxlen=_NUM_PAGES)

    def add(self, layouts: Batch, vision: Tensor) -> None:
        """Remember the ViT's output for these layouts. vision: [image tokens, width]."""
        order = layouts.image_index.view(len(layouts.layouts), -1)
        order = order - order.amin(1, keepdim=True)
        by_layout = vision.bfloat16().split(order.shape[1])
        for blocks, squares, seen in zip(layouts.layouts, order, by_layout, strict=True):
            by_row = torch.empty_like(seen)
            by_row[squares] = seen
            self._remember(blocks, by_row)

    @property
    def has_enough(self) -> bool:
        """Whether there are enough pages to choose from."""
        return len(self._pages) >= _FEWEST

    def rehearsal(self, rng: np.random.Generator) -> tuple[Batch, Tensor]:
        """Return a layout to rehearse and the ViT's output for it, [image tokens, width]."""
        page = self._pages[rng.integers(len(self._pages))]
        num_kept = len(page.blocks)
        if rng.uniform() >= _WHOLE:
            num_kept = 1 + int(len(page.blocks) * rng.uniform() ** 1.5)
        kept = set(rng.permutation(len(page.blocks))[:num_kept].tolist())
        blocks = tuple(block for number, block in enumerate(page.blocks) if number in kept)
        side = _side(page.seen)
        erased = np.flatnonzero(_covered(page.blocks, side) & ~_covered(blocks, side))
        seen = page.seen.clone()
        seen[erased] = page.seen[rng.choice(page.empty, len(erased))]
        image = np.zeros((side * SQUARE, side * SQUARE), dtype=np.uint8)  # never looked at
        batch = collate([self._sampler.layout_of(image, blocks, rng)], self._vocabulary)
        kept_squares = rng.uniform(size=side * side) < (1.0 if rng.uniform() < _UNPRUNED else _KEPT_SQUARES)
        return _pruned(batch, seen.float(), kept_squares)

    def state(self) -> list[Any]:
        """Return what `restore` takes, in types that a checkpoint can hold."""
        return [([tuple(block) for block in page.blocks], page.seen) for page in self._pages]

    def restore(self, state: list[Any]) -> None:
        """Restore the pages that were remembered when the state was taken."""
        self._pages.clear()
        for blocks, seen in state:
            self._remember(tuple(LayoutBlock(*block) for block in blocks), seen)

    def _remember(self, blocks: tuple[LayoutBlock, ...], seen: Tensor) -> None:
        empty = np.flatnonzero(~_covered(blocks, _side(seen)))
        if len(empty):
            self._pages.append(_Page(blocks, seen, empty))


def _side(seen: Tensor) -> int:
    return round(len(seen) ** 0.5)


def _covered(blocks: tuple[LayoutBlock, ...], side: int) -> NDArray[np.bool_]:
    """Return which squares these blocks touch."""
    covered = np.zeros((side, side), dtype=bool)
    for block in blocks:
        x0, y0, x1, y1 = (edge * side // 1000 for edge in block.box)
        covered[y0 : y1 + 1, x0 : x1 + 1] = True
    return covered.ravel()


def _pruned(batch: Batch, seen: Tensor, is_kept: NDArray[np.bool_]) -> tuple[Batch, Tensor]:
    """Return a layout's batch and ViT output with only these squares and those that hold a corner."""
    first, num_squares, num_tokens = int(batch.image_index[0]), len(batch.image_index), len(batch.token_ids)
    stays = torch.ones(num_tokens, dtype=torch.bool)
    stays[batch.image_index] = torch.from_numpy(is_kept)
    guided = batch.guide != IGNORED
    stays[batch.guide[guided]] = True
    token = stays.cumsum(0) - 1
    square = token[first : first + num_squares] - first
    square_stays = stays[batch.image_index]

    def moved(asked: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        return square[asked[square_stays[asked]]], classes[square_stays[asked]]

    pruned = replace(
        batch,
        token_ids=batch.token_ids[stays],
        positions=batch.positions[:, stays],
        runs=((1, int(stays.sum())),),
        image_index=token[batch.image_index[square_stays]],
        answer_index=token[batch.answer_index],
        guide=torch.where(guided, token[batch.guide.clamp(min=0)], IGNORED),
        labels={name: moved(*pair) for name, pair in batch.labels.items()},
    )
    return pruned, seen[square_stays]
