"""Muon for the matrices, AdamW for the rest.

Source: Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024. torch's own Muon
updates matrices one by one, which takes longer if they are small.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

import torch
from torch import Tensor, nn

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_NEWTON_SCHULZ_STEPS = 5
_MATRICES_AT_ONCE = 8


def orthogonalised(matrices: Tensor) -> Tensor:
    """Return roughly the nearest orthogonal matrices. matrices: [n, rows, columns]."""
    a, b, c = _COEFFICIENTS
    tall = matrices.shape[1] > matrices.shape[2]
    x = (matrices.mT if tall else matrices).bfloat16().contiguous()
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(_NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if tall else x).to(matrices.dtype)


class Muon(torch.optim.Optimizer):
    """Momentum with orthogonalised steps; each of the threads updates several matrices of one shape at once."""

    def __init__(
        self, parameters: Iterable[nn.Parameter], lr: float, threads: ThreadPoolExecutor, momentum: float = 0.95
    ) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum})
        self._threads = threads

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape[parameter.shape].append(parameter)
            alike = [
                parameters[first : first + _MATRICES_AT_ONCE]
                for parameters in by_shape.values()
                for first in range(0, len(parameters), _MATRICES_AT_ONCE)
            ]
            updated = self._threads.map(self._updates, alike, repeat(group["momentum"]))
            for parameters, updates in zip(alike, updated, strict=True):
                rows, columns = parameters[0].shape
                scale = -group["lr"] * max(1.0, rows / columns) ** 0.5
                for parameter, update in zip(parameters, updates, strict=True):
                    parameter.add_(update, alpha=scale)

    @torch.no_grad()
    def _updates(self, parameters: Sequence[Tensor], momentum: float) -> Tensor:
        """Return the update directions of matrices of one shape, [n, rows, columns]."""
        return orthogonalised(torch.stack([self._momentum(each, momentum) for each in parameters]))

    def _momentum(self, parameter: Tensor, momentum: float) -> Tensor:
        """Nesterov's momentum: between the gradient and the running mean, which already includes it."""
        state = self.state[parameter]
        if not state:
            state["mean"] = torch.zeros_like(parameter)
        state["mean"].lerp_(parameter.grad, 1 - momentum)
        return parameter.grad.lerp(state["mean"], momentum)


def optimizers(
    model: nn.Module, muon_lr: float, adam_lr: float, threads: ThreadPoolExecutor
) -> tuple[Muon, torch.optim.AdamW]:
    """Return the two optimisers, which divide the model's weights between them.

    AdamW also gets the merger's matrices: making the largest of them orthogonal costs as much as all others together.
    """
    matrices, others = [], []
    for name, parameter in model.named_parameters():
        is_matrix = parameter.ndim == 2 and name.startswith(("visual.blocks", "model.layers"))
        (matrices if is_matrix else others).append(parameter)
    return Muon(matrices, muon_lr, threads), torch.optim.AdamW(others, adam_lr, betas=(0.9, 0.98), weight_decay=0.0)
