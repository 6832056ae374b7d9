"""The losses: of the answer's tokens, of the heads on image tokens, and of the attention that is led to the ink."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from sample_data.training.batches import Batch
from sample_data.training.heads import IGNORED, Head
from sample_data.training.model import ReadingModel

GUIDE_WEIGHT = 0.3


def losses(model: ReadingModel, heads: tuple[Head, ...], batch: Batch, *, eyes_only: bool = False) -> dict[str, Tensor]:
    """Return the losses of a batch by name, each with its weight: their sum is what to make small."""
    vision = model.see(batch)
    found = _head_losses(model, [head for head in heads if not head.in_language], batch, vision)
    if eyes_only:
        return found
    seen = model(batch, vision)
    found |= _head_losses(model, [head for head in heads if head.in_language], batch, seen.image)
    found["answer"] = F.cross_entropy(seen.logits.float(), batch.answer)
    guided = batch.guide != IGNORED
    if guided.any():
        found["guide"] = -GUIDE_WEIGHT * torch.stack([logs[guided].mean() for logs in seen.guides]).mean()
    return found


def _head_losses(model: ReadingModel, heads: list[Head], batch: Batch, image: Tensor) -> dict[str, Tensor]:
    """Return the losses of these heads by name, with their weights. image: image tokens, [tokens, width]."""
    found = {}
    for head in heads:
        if head.name in batch.labels:
            asked, classes = batch.labels[head.name]
            scores = model.heads[head.name](image[asked]).float().view(-1, head.num_classes)
            found[head.name] = head.weight * _head_loss(head, scores, classes.flatten())
    return found


def _head_loss(head: Head, scores: Tensor, labels: Tensor) -> Tensor:
    """scores: [n, classes]. labels: [n], those to be left out IGNORED."""
    classes = torch.arange(head.num_classes, device=scores.device)
    if head.spread:
        known = labels != IGNORED
        if not known.any():
            return scores.sum() * 0.0
        distance = (classes - labels[known, None]) / head.spread
        return F.cross_entropy(scores[known], (-(distance**2) / 2).softmax(-1))
    weights = torch.where(classes == 0, head.rare, 1.0)
    return F.cross_entropy(scores, labels, weights, ignore_index=IGNORED)
