"""Samples of any sizes as the tensors of one batch: everything packed, one after the other, without padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from typing import TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from batchocr.model.rope import mrope_positions, vision_positions
from sample_data.training.heads import IGNORED
from sample_data.training.samples import MERGE, PATCH, Sample
from sample_data.training.vocabulary import LAYOUT_PROMPT, Vocabulary

_MEAN = _STD = 0.5
IMAGE_MEAN, IMAGE_STD = [_MEAN] * 3, [_STD] * 3
"""As the checkpoint's preprocessor_config.json says."""

T = TypeVar("T")
Runs: TypeAlias = tuple[tuple[int, int], ...]
"""Segments of a packed sequence as (how many in a row, how long each): those of a run can be computed as one."""


@dataclass(frozen=True, slots=True)
class Batch:
    """images: uint8 [patches, patch²], in merge squares. patch_places: their rows and columns, [patches, 2].

    image_runs: of patches.

    token_ids: the chats with image and answer, [tokens]. positions: [3, tokens]. runs: of tokens, and for each run
    num_answers, the answer tokens of each of its segments. image_index: which
    tokens are the image's, [image tokens]. answer_index: which say the answer, [answer tokens]: each its next token,
    `answer`. guide: the index of the token that each should look at, or IGNORED. labels: by head, which image tokens
    are asked and the classes of their slots. is_layout, eyes_only: of all samples.
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
    labels: dict[str, tuple[Tensor, Tensor]]
    num_samples: int
    is_layout: bool
    eyes_only: bool

    def patches(self) -> Tensor:
        """Return the normalised patches, float32."""
        return (self.images.float() / 255 - _MEAN) / _STD

    def to(self, device: torch.device) -> Batch:
        moved = {}
        for field in fields(self):
            value = getattr(self, field.name)
            moved[field.name] = value.to(device) if isinstance(value, Tensor) else value
        labels = {name: (asked.to(device), classes.to(device)) for name, (asked, classes) in self.labels.items()}
        return Batch(**{**moved, "labels": labels})


def collate(samples: Sequence[Sample], vocabulary: Vocabulary) -> Batch:
    """Return the batch of these samples, those of one size next to each other."""
    samples = sorted(samples, key=lambda sample: (sample.grid, len(sample.answer)))
    grids = [sample.grid for sample in samples]
    token_ids: list[int] = []
    positions, image_index, answer_index, guide, lengths = [], [], [], [], []
    for sample, (rows, columns) in zip(samples, grids, strict=True):
        before, after = vocabulary.chat(sample.prompt)
        image_start, num_image = len(token_ids) + len(before), rows * columns
        ids = [*before, *[vocabulary.image] * num_image, *after, *sample.answer[:-1].tolist()]
        image_index.append(np.arange(image_start, image_start + num_image))
        token_ids += ids
        answer_index.append(np.arange(len(token_ids) - len(sample.answer), len(token_ids)))
        guide.append(np.where(sample.guide == IGNORED, IGNORED, image_start + sample.guide))
        positions.append(mrope_positions(len(ids), len(before), rows, columns))
        lengths.append((len(ids), len(sample.answer)))
    return Batch(
        images=torch.from_numpy(np.concatenate([_squares(sample.image) for sample in samples])),
        patch_places=torch.cat([vision_positions(MERGE * rows, MERGE * columns, MERGE) for rows, columns in grids]),
        image_runs=_runs([sample.num_patches for sample in samples]),
        token_ids=torch.tensor(token_ids),
        positions=torch.cat(positions, dim=1),
        runs=tuple((count, length) for count, (length, _) in _runs(lengths)),
        num_answers=tuple(num_answers for _, (_, num_answers) in _runs(lengths)),
        image_index=torch.from_numpy(np.concatenate(image_index)),
        answer_index=torch.from_numpy(np.concatenate(answer_index)),
        answer=torch.from_numpy(np.concatenate([sample.answer for sample in samples])),
        guide=torch.from_numpy(np.concatenate(guide)),
        labels=_labels(samples),
        num_samples=len(samples),
        is_layout=samples[0].prompt == LAYOUT_PROMPT,
        eyes_only=samples[0].eyes_only,
    )


def _squares(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the patches of an image, [patches, patch²], merge square after merge square."""
    height, width = image.shape
    side = MERGE * PATCH
    squares = image.reshape(height // side, MERGE, PATCH, width // side, MERGE, PATCH).transpose(0, 3, 1, 4, 2, 5)
    return np.ascontiguousarray(squares).reshape(-1, PATCH * PATCH)


def _runs(values: Sequence[T]) -> tuple[tuple[int, T], ...]:
    """Return how often each value comes in a row, and the value."""
    return tuple((len(list(run)), value) for value, run in groupby(values))


def _labels(samples: Sequence[Sample]) -> dict[str, tuple[Tensor, Tensor]]:
    found: dict[str, tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]] = {}
    first = 0
    for sample in samples:
        num_tokens = sample.grid[0] * sample.grid[1]
        for name, classes in sample.labels.items():
            asked, known = found.setdefault(name, ([], []))
            asked.append(np.arange(first, first + num_tokens))
            known.append(classes)
        first += num_tokens
    return {
        name: (torch.from_numpy(np.concatenate(asked)), torch.from_numpy(np.concatenate(known)))
        for name, (asked, known) in found.items()
    }
