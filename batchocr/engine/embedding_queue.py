"""What joins the two stages: images whose embeddings wait, on the device, to be prefilled."""

from __future__ import annotations

from collections import deque

from batchocr.engine.sequence import Sequence


class EmbeddingQueue:
    """First in, first out, with a bound in image tokens. A sequence larger than the bound may pass alone.

    num_tokens: of the sequences that wait, and of those whose images are being encoded.
    """

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._waiting: deque[Sequence] = deque()
        self.num_tokens = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def has_room(self, num_tokens: int) -> bool:
        return self.num_tokens + num_tokens <= self._max_tokens

    def reserve(self, sequence: Sequence) -> None:
        """Keep room for a sequence that will be put."""
        self.num_tokens += sequence.prompt.num_image_tokens

    def put(self, sequence: Sequence) -> None:
        """Append a sequence that room was reserved for."""
        self._waiting.append(sequence)

    def peek(self) -> Sequence | None:
        return self._waiting[0] if self._waiting else None

    def pop(self) -> Sequence:
        sequence = self._waiting.popleft()
        self.num_tokens -= sequence.prompt.num_image_tokens
        return sequence

    def clear(self) -> None:
        """Forget every sequence, also those that room was reserved for."""
        self._waiting.clear()
        self.num_tokens = 0
