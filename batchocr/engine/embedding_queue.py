"""The queue between the two stages: images whose embeddings wait on the device for prefill."""

from __future__ import annotations

from collections import deque

from batchocr.engine.sequence import Sequence


class EmbeddingQueue:
    """A FIFO queue bounded in image tokens. A sequence larger than the bound may enter an empty queue."""

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._waiting: deque[Sequence] = deque()
        self.num_tokens = 0
        """Image tokens of the waiting sequences, and of the sequences for which room is reserved."""

    def __len__(self) -> int:
        return len(self._waiting)

    def has_room(self, num_tokens: int) -> bool:
        return self.num_tokens + num_tokens <= self._max_tokens

    def reserve(self, sequence: Sequence) -> None:
        """Reserve room for a sequence that will be put later."""
        self.num_tokens += sequence.prompt.num_image_tokens

    def put(self, sequence: Sequence) -> None:
        """Append a sequence whose room was reserved."""
        self._waiting.append(sequence)

    def peek(self) -> Sequence | None:
        return self._waiting[0] if self._waiting else None

    def pop(self) -> Sequence:
        sequence = self._waiting.popleft()
        self.num_tokens -= sequence.prompt.num_image_tokens
        return sequence

    def clear(self) -> None:
        """Forget every sequence and every reservation."""
        self._waiting.clear()
        self.num_tokens = 0
