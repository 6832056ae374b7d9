"""The request batches that engines have to answer, and what becomes of one that an engine was lost with.

It is asked again alone, of an engine that has nothing else. If that is lost too, its questions are asked one after the
other, each alone; one that an engine is lost with then is answered with an error. An engine that was killed from
outside is no batch's fault, the first four times.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from batchocr.data import Completion, failed_completion
from batchocr.processes.pixels import SharedBatch

_MAX_KILLS: Final = 5
_ONE_BY_ONE: Final = 2
"""After so many losses a batch is divided into its questions."""
_MAX_POISONOUS: Final = 2
"""If engines were lost with so many questions of a batch, its others are not tried."""
_QUESTION_WORK: Final = 100
"""What a question takes besides its image, in image tokens."""
_PIXELS_PER_TOKEN: Final = 28 * 28


@dataclass(slots=True, eq=False)
class _AskedBatch:
    """task_id: what the answers come back under. answers: to the questions that are asked, by their positions. kills:
    how many engines were killed that had begun with it. num_poisonous: the questions that cost an engine."""

    task_id: int
    shared: SharedBatch
    answers: dict[int, Completion | None]
    kills: int = 0
    num_poisonous: int = 0


@dataclass(slots=True, eq=False)
class BatchPart:
    """Questions of a batch, by their positions, that are asked together. losses: of engines that had begun with
    them."""

    batch: _AskedBatch
    positions: list[int]
    losses: int = 0

    @property
    def is_alone(self) -> bool:
        """Whether it is asked of an engine that has nothing else."""
        return self.losses > 0

    @property
    def work(self) -> float:
        """Roughly how much work they are, in tokens: text grows with the area that it covers."""
        questions = [self.batch.shared.message.questions[position] for position in self.positions]
        sizes = [question.resize_to or (question.height, question.width) for question in questions]
        return sum(_QUESTION_WORK + height * width / _PIXELS_PER_TOKEN for height, width in sizes)


class RequestBatches:
    """Those that are not answered yet. waiting: to be asked. alone: to be asked of an engine that has nothing else."""

    def __init__(self) -> None:
        self.waiting: deque[BatchPart] = deque()
        self.alone: deque[BatchPart] = deque()
        self._done: list[tuple[int, tuple[Completion, ...]]] = []

    def add(self, task_id: int, shared: SharedBatch, positions: Sequence[int]) -> None:
        """task_id: what it comes back under, with the answers to the questions at these positions, in this order."""
        self.waiting.append(BatchPart(_AskedBatch(task_id, shared, dict.fromkeys(positions)), list(positions)))

    def take_done(self) -> list[tuple[int, tuple[Completion, ...]]]:
        """The batches that have been answered since the last call."""
        done, self._done = self._done, []
        return done

    def drop(self) -> None:
        """Forget all."""
        self.waiting.clear()
        self.alone.clear()
        self._done.clear()

    def answer(self, part: BatchPart, completions: Sequence[Completion]) -> None:
        """Note the answers to a part."""
        batch = part.batch
        batch.answers.update(zip(part.positions, completions, strict=True))
        answers = tuple(answer for answer in batch.answers.values() if answer is not None)
        if len(answers) == len(batch.answers):
            self._done.append((batch.task_id, answers))

    def lose(
        self, begun: Sequence[BatchPart], others: Sequence[BatchPart], *, killed: bool, may_blame: bool, why: str
    ) -> None:
        """Queue what an engine had that was lost, in front, as it was asked before the rest.

        begun: what it had said that it had begun with. killed: from outside. may_blame: whether it is hardly the
        device's fault. why: in words.
        """
        if not begun:
            begun, others = others, ()
        for part in reversed(others):
            self._queue_again(part)
        for part in reversed(begun):
            part.batch.kills += killed
            if killed and part.batch.kills < _MAX_KILLS:
                self._queue_again(part)
                continue
            part.losses += 1
            if part.losses == _ONE_BY_ONE:
                self.alone.extend(BatchPart(part.batch, [position], part.losses) for position in part.positions)
            elif part.losses > _ONE_BY_ONE and may_blame:
                self._fail(part, why)
            else:
                self.alone.append(part)

    def _queue_again(self, part: BatchPart) -> None:
        (self.alone if part.is_alone else self.waiting).appendleft(part)

    def _fail(self, part: BatchPart, why: str) -> None:
        """Answer a question that engines are lost with; after a second one of its batch, those too that still wait."""
        error = failed_completion(f"the engine failed on it: {why}")
        self.answer(part, [error])
        part.batch.num_poisonous += 1
        if part.batch.num_poisonous >= _MAX_POISONOUS:
            for other in [other for other in self.alone if other.batch is part.batch]:
                self.alone.remove(other)
                self.answer(other, [error] * len(other.positions))
