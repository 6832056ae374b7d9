"""The losses: of the answer's tokens, of the auxiliary heads, and of the attention that is guided to the ink."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from sample_data.training.batches import Batch
from sample_data.training.heads import IGNORED, Head
from sample_data.training.model import ReadingModel
from sample_data.training.vocabulary import NUMBERS

GUIDE_WEIGHT = 0.3
NUMBER_SPREAD = 2.0
"""The standard deviation by which a layout's numbers are spread over their neighbours."""


def vision_losses(model: ReadingModel, heads: tuple[Head, ...], batch: Batch, vision: Tensor) -> dict[str, Tensor]:
    """Return the weighted losses of the ViT's own heads by name. vision: the ViT's output for the batch."""
    return _head_losses(model, [head for head in heads if not head.in_language], batch.labels, vision)


def language_losses(
    model: ReadingModel, heads: tuple[Head, ...], batch: Batch, vision: Tensor, fork_weight: float = 1.0
) -> dict[str, Tensor]:
    """Return the weighted losses of the language model and its heads by name. fork_weight: of the samples' forks,
    beside other tokens."""
    seen = model(batch, vision)
    in_language = [head for head in heads if head.in_language]
    found = _head_losses(model, in_language, batch.labels, seen.image)
    said = _head_losses(model, in_language, batch.said, seen.said)
    found |= {f"said_{name}": loss for name, loss in said.items()}
    weights = torch.where(batch.forks, fork_weight, 1.0)
    found |= answer_losses(seen.logits.float(), batch.answer, weights)
    guided = weights * (batch.guide != IGNORED)
    if guided.any():
        followed = torch.stack([(guided * logs).sum() for logs in seen.guides]).mean() / guided.sum()
        found["guide"] = -GUIDE_WEIGHT * followed
    return found


def answer_losses(logits: Tensor, answer: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """Return the cross-entropy of the answer and, separately, of a layout's numbers, which are the last token ids; for
    these, near numbers are partly right. weights: of the answer's other tokens."""
    first_number = logits.shape[1] - len(NUMBERS)
    is_number = answer >= first_number
    told = torch.where(is_number, IGNORED, answer)
    by_token = F.cross_entropy(logits, told, ignore_index=IGNORED, reduction="none")
    found = {"answer": (weights * by_token).sum() / (weights * (told != IGNORED)).sum()}
    if is_number.any():
        wanted = F.pad(_near(answer[is_number] - first_number, len(NUMBERS), NUMBER_SPREAD), (first_number, 0))
        found["numbers"] = F.cross_entropy(logits[is_number], wanted)
    return found


def _near(labels: Tensor, num_classes: int, spread: float) -> Tensor:
    """Return for each label the shares of the classes near it, [labels, classes]."""
    distance = (torch.arange(num_classes) - labels[:, None]) / spread
    return (-(distance**2) / 2).softmax(-1)


def _head_losses(
    model: ReadingModel, heads: list[Head], labels: dict[str, tuple[Tensor, Tensor]], tokens: Tensor
) -> dict[str, Tensor]:
    """Return the weighted losses of these heads by name. labels: as in Batch. tokens: [tokens, width]."""
    found = {}
    for head in heads:
        if head.name in labels:
            asked, classes = labels[head.name]
            scores = model.heads[head.name](tokens[asked]).float().view(-1, head.num_classes)
            found[head.name] = head.weight * _head_loss(head, scores, classes.flatten())
    return found


def _head_loss(head: Head, scores: Tensor, labels: Tensor) -> Tensor:
    """scores: [n, classes]. labels: [n]; IGNORED ones are left out."""
    if head.spread:
        known = labels != IGNORED
        if not known.any():
            return scores.sum() * 0.0
        return F.cross_entropy(scores[known], _near(labels[known], head.num_classes, head.spread))
    weights = torch.where(torch.arange(head.num_classes) == 0, head.rare, 1.0)
    return F.cross_entropy(scores, labels, weights, ignore_index=IGNORED)
