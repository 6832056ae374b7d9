"""One request on its way through the engine."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from batchocr.data import Completion, FinishReason, Pixels, Sampling
from batchocr.model.preprocess import PatchGrid
from batchocr.model.prompt import PromptTokens


@dataclass(slots=True, eq=False)
class Sequence:
    """A request's state: owned by the vision stage first, then by the decode stage.

    positions: int64 [3, prompt] on the host. pixels: until the vision stage has read them. embeddings:
    [image tokens, width] on the device, kept until the end, for a second prefill after having been put back.
    row: the sampler's, while it decodes.
    """

    request_id: int
    prompt: PromptTokens
    positions: Tensor
    grid: PatchGrid
    resize_to: tuple[int, int] | None
    sampling: Sampling
    pixels: Pixels | None
    embeddings: Tensor | None = None
    row: int | None = None
    block_table: list[int] = field(default_factory=list)
    output_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    @property
    def num_patches(self) -> int:
        return self.grid[0] * self.grid[1]

    @property
    def num_tokens(self) -> int:
        """Prompt and output so far."""
        return len(self.prompt.token_ids) + len(self.output_ids)

    @property
    def next_position(self) -> int:
        """The position of the last token so far, in all three dimensions, once there is output."""
        return int(self.positions[0, -1]) + len(self.output_ids)

    def all_positions(self) -> Tensor:
        """Positions of prompt and output so far: int64 [3, num_tokens] on the host."""
        output = int(self.positions[0, -1]) + 1 + torch.arange(len(self.output_ids))
        return torch.cat([self.positions, output.expand(3, -1)], dim=1)

    def complete(self, text: str, finish_reason: FinishReason) -> Completion:
        probabilities = [math.exp(logprob) for logprob in self.logprobs]
        return Completion(
            text=text,
            finish_reason=finish_reason,
            image_tokens=self.prompt.num_image_tokens,
            output_tokens=len(self.output_ids),
            mean_probability=sum(probabilities) / len(probabilities),
            min_logprob=min(self.logprobs),
        )
