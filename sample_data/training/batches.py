"""Samples of any size as the tensors of one batch, packed one after the other; only answers are padded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from batchocr.engine.model.rope import mrope_positions, vision_positions
from sample_data.training.heads import IGNORED
from sample_data.training.samples import MERGE, PATCH, LayoutBlock, Sample
from sample_data.training.vocabulary import Vocabulary

_MEAN = _STD = 0.5
IMAGE_MEAN, IMAGE_STD = [_MEAN] * 3, [_STD] * 3
"""As in the checkpoint's preprocessor_config.json."""

T = TypeVar("T")
Runs: TypeAlias = tuple[tuple[int, int], ...]
"""Segments of a packed sequence as runs of one length, (count, length): those of a run can be computed as one."""


@dataclass(frozen=True, slots=True)
class Batch:
    """images: uint8 [patches, patch²], by merge squares. patch_places: their rows and columns, [patches, 2].

    image_runs: runs of patches.

    token_ids: the chats with image and answer, [tokens]. positions: [3, tokens]. runs: runs of tokens; num_answers: for
    each run, the answer tokens in each of its segments. image_index: indices of the image tokens, [image tokens].
    answer_index: indices of the tokens that predict the answer, [answer tokens]. answer: the next token of each, or
    IGNORED where words are said twice, and if an answer is shorter than others about images of its size. guide: the
    index of the token that each should attend to, or IGNORED. forks: as in Sample. labels: by head, the positions
    of labelled tokens among the image tokens, and the classes of their slots. said: the same for answer tokens.
    layouts: for each layout, the blocks that it should name; () if the batch asks for texts.
    """

    images: Tensor
    patch_places: Tensor
    image_runs: Runs
    token_ids: Tensor
    positions: Tensor
    runs: Runs
    num_answers: tuple[int, ...]
    image_index: Tensor
    answer_index: Tensor
    answer: Tensor
    guide: Tensor
    forks: Tensor
    labels: dict[str, tuple[Tensor, Tensor]]
    said: dict[str, tuple[Tensor, Tensor]]
    num_samples: int
    layouts: tuple[tuple[LayoutBlock, ...], ...]

    def patches(self) -> Tensor:
        """Return the normalised patches, float32."""
        return (self.images.float() / 255 - _MEAN) / _STD


def collate(samples: Sequence[Sample], vocabulary: Vocabulary) -> Batch:
    """Return these samples as a batch, with those of the same size next to each other."""
    samples = [even for _, alike in groupby(sorted(samples, key=_grid), _grid) for even in _padded(list(alike))]
    looks = [_looks(sample) for sample in samples]
    orders = [np.concatenate(look) for look in looks]
    token_ids: list[int] = []
    images, places, positions, image_index, answer_index, guide, lengths = [], [], [], [], [], [], []
    for sample, order in zip(samples, orders, strict=True):
        rows, columns = sample.grid
        before, after = vocabulary.chat(sample.prompt)
        image_start, num_image = len(token_ids) + len(before), rows * columns
        history = np.where(sample.history == IGNORED, vocabulary.padding, sample.history)
        ids = [*before, *[vocabulary.image] * num_image, *after, *history[:-1].tolist()]
        image_index.append(image_start + order)
        images.append(_squares(sample.image)[order].reshape(-1, PATCH * PATCH))
        by_square = vision_positions(MERGE * rows, MERGE * columns, MERGE).view(num_image, -1, 2)
        places.append(by_square[order].flatten(0, 1))
        token_ids += ids
        answer_index.append(np.arange(len(token_ids) - len(sample.answer), len(token_ids)))
        guide.append(np.where(sample.guide == IGNORED, IGNORED, image_start + sample.guide))
        positions.append(mrope_positions(len(ids), len(before), rows, columns))
        lengths.append((len(ids), len(sample.answer)))
    return Batch(
        images=torch.from_numpy(np.concatenate(images)),
        patch_places=torch.cat(places),
        image_runs=_runs([MERGE**2 * len(squares) for look in looks for squares in look]),
        token_ids=torch.tensor(token_ids),
        positions=torch.cat(positions, dim=1),
        runs=tuple((count, length) for count, (length, _) in _runs(lengths)),
        num_answers=tuple(num_answers for _, (_, num_answers) in _runs(lengths)),
        image_index=torch.from_numpy(np.concatenate(image_index)),
        answer_index=torch.from_numpy(np.concatenate(answer_index)),
        answer=torch.from_numpy(np.concatenate([sample.answer for sample in samples])),
        guide=torch.from_numpy(np.concatenate(guide)),
        forks=torch.from_numpy(np.concatenate([sample.forks for sample in samples])),
        labels=_labels([(len(order), sample.labels, order) for sample, order in zip(samples, orders, strict=True)]),
        said=_labels([(len(each.answer), each.said, np.arange(len(each.answer))) for each in samples]),
        num_samples=len(samples),
        layouts=tuple(sample.blocks for sample in samples if sample.blocks),
    )


def _grid(sample: Sample) -> tuple[int, int]:
    return sample.grid


def _padded(samples: list[Sample]) -> list[Sample]:
    """Return the samples with answers padded to one length, so that all can be computed as one."""
    longest = max(len(sample.answer) for sample in samples)

    def padded(values: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.pad(values, (0, longest - len(values)), constant_values=IGNORED)

    return [
        replace(
            each,
            answer=padded(each.answer),
            history=padded(each.history),
            guide=padded(each.guide),
            forks=padded(each.forks) == 1,
        )
        for each in samples
    ]


def _looks(sample: Sample) -> list[NDArray[np.int64]]:
    """Return the groups of squares that the ViT sees at once: the whole image, or each quarter."""
    squares = np.arange(sample.grid[0] * sample.grid[1]).reshape(sample.grid)
    if not sample.in_quarters:
        return [squares.flatten()]
    return [part.flatten() for half in np.array_split(squares, 2) for part in np.array_split(half, 2, axis=1)]


def _squares(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the patches of an image, [merge squares, merge², patch²]."""
    height, width = image.shape
    side = MERGE * PATCH
    squares = image.reshape(height // side, MERGE, PATCH, width // side, MERGE, PATCH).transpose(0, 3, 1, 4, 2, 5)
    return np.ascontiguousarray(squares).reshape(-1, MERGE * MERGE, PATCH * PATCH)


def _runs(values: Sequence[T]) -> tuple[tuple[int, T], ...]:
    """Return the runs of equal values as (count, value)."""
    return tuple((len(list(run)), value) for value, run in groupby(values))


def _labels(
    asked_of: Sequence[tuple[int, dict[str, NDArray[np.int64]], NDArray[np.int64]]],
) -> dict[str, tuple[Tensor, Tensor]]:
    """Return by head the labelled tokens (those with a known class) and their classes. asked_of: for each sample, its
    number of tokens, their labels, and the index of the label at each place."""
    found: dict[str, tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]] = {}
    first = 0
    for count, labels, order in asked_of:
        for name, classes in labels.items():
            asked, known = found.setdefault(name, ([], []))
            here = classes[order[: len(classes)]]
            told = (here != IGNORED).any(axis=1)
            asked.append(first + np.flatnonzero(told))
            known.append(here[told])
        first += count
    return {
        name: (torch.from_numpy(np.concatenate(asked)), torch.from_numpy(np.concatenate(known)))
        for name, (asked, known) in found.items()
    }
