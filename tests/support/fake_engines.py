"""Engines that exist only in tests, for what asks them: one whose answers are its questions in capitals, and one whose
process is simulated, while all that the run knows of it is real."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from batchocr.data import Completion, Failure, failed_completion
from batchocr.processes.child import Child, Death
from batchocr.processes.counts import Counts
from batchocr.processes.engine_messages import Answers, FromEngine, ToEngine
from batchocr.processes.engines import EngineProcess, EngineUse
from batchocr.processes.messages import Question
from batchocr.processes.pixels import SharedBatch


class PatientEngines:
    """Stands for Engines, and for the only one of them. It answers each question with its prompt in capitals, the
    newest batch first, when it is told to; one in `deadly` with an error. prompts: all that it was asked."""

    channels = ()

    def __init__(self) -> None:
        self.use = EngineUse("cpu")
        self.work_px = 0
        self.asked: dict[int, Sequence[Question]] = {}
        self.prompts: list[str] = []
        self.deadly: set[str] = set()
        self._said: list[Answers] = []

    @property
    def able(self) -> list[PatientEngines]:
        return [self]

    def is_trusted(self, engine: object) -> bool:
        return True

    def ask(self, number: int, batch: SharedBatch, questions: Sequence[Question]) -> None:
        self.asked[number] = questions
        self.prompts += [question.prompt for question in questions]

    def answer(self) -> None:
        """Answer all that it was asked."""
        for number, questions in reversed(self.asked.items()):
            completions = tuple(self._completion(question.prompt) for question in questions)
            self._said.append(Answers(number, completions, Counts()))
        self.asked.clear()

    def receive(self) -> list[Answers]:
        said, self._said = self._said, []
        return said

    def replace_lost(self) -> list[Any]:
        return []

    def _completion(self, prompt: str) -> Completion:
        well = Completion(prompt.upper(), "stop", 3, 2, 0.5, -1.0)
        return failed_completion("it broke") if prompt in self.deadly else well


class _NoProcess(Child[ToEngine, FromEngine, Answers]):
    """Stands for the process, and for the channel to it."""

    pid = 0

    def __init__(self, *_: object, **__: object) -> None:
        self.fault = None
        self.closed = False
        self.channel = self  # type: ignore[assignment]

    def _tell(self, message: ToEngine, descriptor: int | None = None) -> None:
        if descriptor is not None:
            os.close(descriptor)

    def close(self) -> None:
        self.closed = True

    def death(self) -> Death:
        return Death(Failure("crashed", "it was killed"), killed=True)


class SimulatedEngine(EngineProcess, _NoProcess):
    """An engine without a process. It is killed once `closed` is set."""

    def receive(self) -> list[Answers]:
        if self.closed or self._lost is not None:
            return []
        return [answers for message in self.says() for answers in self._follow(message, None)]

    def says(self) -> Iterable[FromEngine]:
        """What it says next."""
        raise NotImplementedError
