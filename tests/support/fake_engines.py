"""Engines that exist only in tests, for what asks them."""

from __future__ import annotations

from collections.abc import Sequence

from batchocr.data import Completion, failed_completion
from batchocr.processes.pixels import SharedBatch


class PatientEngines:
    """Answers each question with its prompt in capitals, when it is told to; one in `deadly` with an error.

    prompts: all that it was asked.
    """

    channels = ()

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self.deadly: set[str] = set()
        self._waiting: list[tuple[int, list[str]]] = []
        self._done: list[tuple[int, tuple[Completion, ...]]] = []

    def ask(self, key: int, batch: SharedBatch, positions: Sequence[int]) -> None:
        prompts = [batch.message.questions[position].prompt for position in positions]
        self.prompts += prompts
        self._waiting.append((key, prompts))

    def answer(self) -> None:
        self._done += [(key, tuple(map(self._completion, prompts))) for key, prompts in reversed(self._waiting)]
        self._waiting.clear()

    def take_answers(self) -> list[tuple[int, tuple[Completion, ...]]]:
        done, self._done = self._done, []
        return done

    def _completion(self, prompt: str) -> Completion:
        well = Completion(prompt.upper(), "stop", 3, 2, 0.5, -1.0)
        return failed_completion("it broke") if prompt in self.deadly else well
