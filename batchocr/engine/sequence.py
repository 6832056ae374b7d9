"""One request on its way through the engine."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from torch import Tensor

from batchocr.data import Completion, FinishReason, Pixels, Sampling
from batchocr.engine.backend.device import Mark
from batchocr.engine.model.preprocess import PatchGrid
from batchocr.engine.model.prompt import PromptTokens

_NGRAM_AFTER_LOOP = 20
"""Length of the n-grams that a second attempt may not repeat: longer than a phrase, shorter than most loops."""


@dataclass(slots=True, eq=False)
class Sequence:
    """A request's state: owned by the vision stage first, then by the decode stage."""

    request_id: int
    prompt: PromptTokens
    positions: Tensor
    """The M-RoPE positions of the prompt: int64 [3, prompt] on the host."""
    position_shift: int
    """Position minus index of a token after the image; never above 0, because an image takes up no more positions than
    it has tokens."""
    grid: PatchGrid
    resize_to: tuple[int, int] | None
    """Height and width in px to resize the image to before it is resized to its grid."""
    sampling: Sampling
    """How tokens are chosen. It allows no more new tokens than the model has positions for."""
    pixels: Pixels
    embeddings: Tensor | None = None
    """The image's embeddings, [image tokens, width] on the device, valid once `encoded` is done; kept until the end in
    case the sequence is preempted and begins again."""
    encoded: Mark | None = None
    row: int | None = None
    """The sequence's row in the decode batch on the device, while it decodes; else None."""
    block_table: list[int] = field(default_factory=list)
    """The sequence's KV blocks, in order."""
    output_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    num_unread: int = 0
    """Generated tokens that the host has not yet read."""
    ended: bool = False
    """Whether the sequence has ended: its tokens that are read from now on are dropped."""
    looped: Completion | None = None
    """The result of the first attempt, if this is the second."""

    @property
    def num_patches(self) -> int:
        return self.grid[0] * self.grid[1]

    @property
    def num_outputs(self) -> int:
        """Tokens generated so far, read or not."""
        return len(self.output_ids) + self.num_unread

    @property
    def num_tokens(self) -> int:
        """Tokens of the prompt and of the output so far."""
        return len(self.prompt.token_ids) + len(self.output_ids) + self.num_unread

    @property
    def can_go_on(self) -> bool:
        """Whether the sequence may have another token, counting those not yet read."""
        return len(self.output_ids) + self.num_unread < self.sampling.max_new_tokens

    def without_loops(self, looped: Completion) -> Sequence:
        """The sequence's request again, from its first token, under a rule that breaks loops. looped: the first
        result."""
        sampling = replace(self.sampling, no_repeat_ngram_size=_NGRAM_AFTER_LOOP, loop_check="at_once")
        return replace(self.again(), sampling=sampling, looped=looped)

    def again(self) -> Sequence:
        """The sequence's request again, from its first token."""
        return replace(self, row=None, block_table=[], output_ids=[], logprobs=[], num_unread=0, ended=False)

    def complete(self, text: str, finish_reason: FinishReason) -> Completion:
        """The completion of the sequence. Of two attempts, the text is of the second if it stopped by itself, else of
        the first; either way, `finish_reason` is `repetition` and the output tokens of both are counted."""
        output_tokens = len(self.output_ids)
        if self.looped is not None:
            output_tokens += self.looped.output_tokens
            if finish_reason != "stop":
                return replace(self.looped, output_tokens=output_tokens)
            finish_reason = "repetition"
        probabilities = [math.exp(logprob) for logprob in self.logprobs]
        return Completion(
            text=text,
            finish_reason=finish_reason,
            image_tokens=self.prompt.num_image_tokens,
            output_tokens=output_tokens,
            mean_probability=sum(probabilities) / len(probabilities),
            min_logprob=min(self.logprobs),
        )


Announce: TypeAlias = Callable[[float, list[int]], None]
"""What is told before work: how many floating-point operations it takes, and which requests are begun with it."""


def announce_nothing(flop: float, begun: list[int]) -> None:
    """Announce nothing, for callers that do not watch the engine."""
