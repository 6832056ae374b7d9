"""The request deduplicator, between the pages and the engines: questions with the same digest are asked once.

An answer goes to all pages that wait for it. Answers without an error are kept, as far as there is room, and in a cache
on disk if there is one. An error goes to the pages that wait, because asking again could cost another engine; it is not
kept. If a page loses its worker, the other pages still get the answer, and so does the page when it is begun again.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from batchocr.data import Completion
from batchocr.processes.answer_cache import AnswerCache
from batchocr.processes.channel import Channel
from batchocr.processes.counts import Counts
from batchocr.processes.engine_messages import FromEngine, ToEngine
from batchocr.processes.engines import Engines
from batchocr.processes.messages import Question
from batchocr.processes.pixels import SharedBatch

_MAX_BYTES: Final = 64 << 20
"""What the answers that are kept may take: some fifty thousand blocks of text, or more short ones."""
_BYTES_EACH: Final = 600
"""What an answer takes besides its text: its digest, its numbers, its entries in two tables."""


@dataclass(slots=True, eq=False)
class _WaitingBatch:
    """A batch that is not answered in full. asked: the positions of the questions that the engines were asked. missing:
    how many answers are missing."""

    key: int
    questions: Sequence[Question]
    answers: list[Completion | None]
    asked: list[int] = field(default_factory=list)
    missing: int = 0


class RequestDeduplicator:
    """Asks engines on behalf of pages. The interface is that of Engines. Belongs to one thread.

    max_bytes: how much memory the kept answers may take. counts: the questions asked and saved so far.
    """

    def __init__(self, engines: Engines, cache: AnswerCache | None = None, *, max_bytes: int = _MAX_BYTES) -> None:
        self.counts = Counts()
        self._engines = engines
        self._cache = cache
        self._kept = _Kept(max_bytes)
        self._asked: dict[int, _WaitingBatch] = {}
        self._waiting: dict[str, list[tuple[_WaitingBatch, int]]] = {}
        self._done: list[tuple[int, tuple[Completion, ...]]] = []

    @property
    def channels(self) -> list[Channel[ToEngine, FromEngine]]:
        """The channels of the engines, to wait for."""
        return self._engines.channels

    def ask(self, key: int, batch: SharedBatch) -> None:
        """Have a batch answered. key: what it comes back under, with all its answers."""
        questions = batch.message.questions
        begun = _WaitingBatch(key, questions, [None] * len(questions), missing=len(questions))
        self.counts.asked += len(questions)
        cached = self._cached(questions)
        for position, question in enumerate(questions):
            digest = question.digest
            if (answer := self._kept.find(digest)) is not None:
                self.counts.from_run += 1
                self._save(begun, position, answer)
            elif (answer := cached.get(digest)) is not None:
                self.counts.from_cache += 1
                self._kept.put(digest, answer)
                self._save(begun, position, answer)
            elif digest in self._waiting:
                self._waiting[digest].append((begun, position))
            else:
                begun.asked.append(position)
                self._waiting[digest] = []
        if begun.asked:
            self._asked[key] = begun
            self._engines.ask(key, batch, begun.asked)

    def take_answers(self) -> list[tuple[int, tuple[Completion, ...]]]:
        """The batches that have been answered since the last call. Raises EngineError as Engines does."""
        for key, completions in self._engines.take_answers():
            batch = self._asked.pop(key)
            for position, completion in zip(batch.asked, completions, strict=True):
                self._arrive(batch, position, completion)
        if self._cache is not None:
            self._cache.write_if_due()
        done, self._done = self._done, []
        return done

    def _cached(self, questions: Sequence[Question]) -> dict[str, Completion]:
        """The answers in the cache to those questions that would have to be asked otherwise."""
        if self._cache is None:
            return {}
        digests = {question.digest for question in questions}
        return self._cache.find([each for each in digests if each not in self._kept and each not in self._waiting])

    def _arrive(self, batch: _WaitingBatch, position: int, completion: Completion) -> None:
        """Give an answer of an engine to all that wait for it."""
        self._fill(batch, position, completion)
        digest = batch.questions[position].digest
        for other, position_there in self._waiting.pop(digest):
            self.counts.from_run += 1
            self._save(other, position_there, completion)
        if completion.error is None:
            self._kept.put(digest, completion)
            if self._cache is not None:
                self._cache.put(digest, completion)

    def _save(self, batch: _WaitingBatch, position: int, completion: Completion) -> None:
        """Give an answer for which no engine was asked."""
        self.counts.saved_image_tokens += completion.image_tokens
        self.counts.saved_output_tokens += completion.output_tokens
        self._fill(batch, position, completion)

    def _fill(self, batch: _WaitingBatch, position: int, completion: Completion) -> None:
        batch.answers[position] = completion
        batch.missing -= 1
        if not batch.missing:
            self._done.append((batch.key, tuple(answer for answer in batch.answers if answer is not None)))


class _Kept:
    """Answers by their digests. When they take too much memory, the least recently used is removed first."""

    def __init__(self, max_bytes: int) -> None:
        self._answers: OrderedDict[str, Completion] = OrderedDict()
        self._bytes_left = max_bytes

    def __contains__(self, digest: str) -> bool:
        return digest in self._answers

    def find(self, digest: str) -> Completion | None:
        answer = self._answers.get(digest)
        if answer is not None:
            self._answers.move_to_end(digest)
        return answer

    def put(self, digest: str, answer: Completion) -> None:
        """Keep an answer whose digest is not kept yet."""
        self._answers[digest] = answer
        self._bytes_left -= _num_bytes(answer)
        while self._bytes_left < 0:
            _, oldest = self._answers.popitem(last=False)
            self._bytes_left += _num_bytes(oldest)


def _num_bytes(answer: Completion) -> int:
    return _BYTES_EACH + sys.getsizeof(answer.text)
