"""An engine process as the run sees it: what it was told and asked, what it says, and why it is lost."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from batchocr.errors import BatchOcrError, EngineError, ModelError, UsageError
from batchocr.processes.channel import FROM_ENGINE, TO_ENGINE, ChannelError
from batchocr.processes.child import Child
from batchocr.processes.counts import Counts
from batchocr.processes.engine_messages import (
    REJECT,
    TRYING,
    Answers,
    Broken,
    DeviceFound,
    Forget,
    FromEngine,
    LoadModel,
    Logged,
    Ready,
    Refused,
    ToEngine,
    UseDevice,
    Working,
)
from batchocr.processes.messages import RequestBatch
from batchocr.processes.pixels import SharedBatch
from batchocr.processes.running_clock import RunningClock

logger = logging.getLogger(__name__)

_FIND_S = 300.0
"""For loading torch, which may come from a slow file server, and looking at the device."""
_LOAD_S = 1200.0
"""For reading the weights and trying kernels."""
_STEP_S = 60.0
"""For a step that should take no time at all: the first ones may compile kernels."""
_STEP_FACTOR = 10.0
"""How many times as long as it was said to take a step may take, besides."""

_REFUSALS: Final = {"usage": UsageError, "model": ModelError, "engine": EngineError}


@dataclass(frozen=True, slots=True)
class EngineLoss:
    """Why an engine was lost. killed: by somebody, or by the system for lack of memory: no batch is to blame. refusal:
    if it refused to start, or ended in the trial of a kernel, the error to raise if no other starts."""

    message: str
    killed: bool = False
    refusal: BatchOcrError | None = None


class EngineProcess(Child[ToEngine, FromEngine, Answers]):
    """An engine process and what is known about it.

    found, ready: None before it has said so. is_loading: whether it has been told what to load. asked: how many
    questions of each batch it has not answered. begun: the batches that it has begun with. counts: what it had done
    when it last answered.
    """

    def __init__(self, use: UseDevice, command: Sequence[str], clock: RunningClock) -> None:
        """Start it. clock: for its time limits. Raises OSError."""
        super().__init__(command, TO_ENGINE, FROM_ENGINE, name="engine")
        self._clock = clock
        self.found: DeviceFound | None = None
        self.ready: Ready | None = None
        self.is_loading = False
        self.asked: dict[int, int] = {}
        self.begun: set[int] = set()
        self.counts = Counts()
        self._lost: EngineLoss | None = None
        self._said = ""
        self._due_s = 0.0
        self._send(use, within_s=_FIND_S if use.try_kernels is None else _LOAD_S)

    def load(self, message: LoadModel) -> None:
        self.is_loading = True
        self._send(message, within_s=_LOAD_S)

    def ask(self, number: int, batch: SharedBatch, positions: Sequence[int]) -> None:
        """Have it answer these questions of a batch. number: what the answers come back under. Never blocks."""
        questions = tuple(batch.message.questions[position] for position in positions)
        self.asked[number] = len(questions)
        try:
            descriptor = batch.duplicate()
        except ChannelError as error:
            self._break_off(error)
        else:
            self._send(RequestBatch(number, batch.message.round, questions), descriptor, within_s=_STEP_S)

    def forget(self) -> None:
        """Drop all batches. What it is doing it does to the end."""
        self.asked.clear()
        self.begun.clear()
        self.counts = Counts()
        if self.ready is not None:
            self._send(Forget(), within_s=0.0)

    def loss(self) -> EngineLoss | None:
        """Why it is lost: it said so, it died, broke the protocol, or took too long."""
        if self._lost is None and self.fault is not None:
            self._lost = EngineLoss(f"it broke off: {self.fault}")
        if self._lost is None and self.channel.closed:
            death = self.death()
            self._lose(death.failure.message, killed=death.killed)
        is_waited_for = bool(self.asked) if self.ready else self.is_loading or self.found is None
        if self._lost is None and is_waited_for and self._clock.now() > self._due_s:
            what = "a step takes" if self.ready else "loading the model takes" if self.found else "its start takes"
            self._lose(f"{what} much longer than it should, as when a device hangs")
        return self._lost

    def _lose(self, message: str, *, killed: bool = False) -> None:
        """It is lost without a word of its own. If it was trying a kernel, the next engine would be lost as well."""
        refusal = None
        if self._said.startswith(TRYING) and not killed:
            tried = self._said.removeprefix(TRYING)
            message += f"; it was {self._said}: leave it out with {REJECT}='{tried}'"
            refusal = EngineError(message)
        self._lost = EngineLoss(message, killed, refusal)

    def _send(self, message: ToEngine, descriptor: int | None = None, *, within_s: float) -> None:
        self._due_s = max(self._due_s, self._clock.now() + within_s)
        self._tell(message, descriptor)

    def _follow(self, message: FromEngine, descriptor: int | None) -> Sequence[Answers]:
        if descriptor is not None:
            os.close(descriptor)
            raise ChannelError("it sent a descriptor")
        match message:
            case Logged():
                self._said = message.message
                logger.log(message.level, "%s", message.message)
                return []
            case Refused():
                self._lost = EngineLoss(message.message, refusal=_REFUSALS[message.error](message.message))
            case Broken():
                self._lost = EngineLoss(message.message)
            case DeviceFound() if self.found is None:
                self.found = message
            case Ready() if self.found is not None and self.ready is None:
                self.ready, self._due_s = message, 0.0
            case Working() if self.ready is not None:
                self.begun |= self.asked.keys() & message.begun
                self._due_s = self._clock.now() + _STEP_S + _STEP_FACTOR * message.seconds
            case Answers() if self.ready is not None:
                return self._take(message)
            case _:
                raise ChannelError(f"it sent {message.type!r} out of turn")
        return []

    def _take(self, answers: Answers) -> list[Answers]:
        """Nothing if the batch has been forgotten meanwhile. Raises ChannelError if it was another."""
        num_questions = self.asked.pop(answers.task_id, None)
        if num_questions is None:
            return []
        if len(answers.completions) != num_questions:
            raise ChannelError(f"it gave {len(answers.completions)} answers to {num_questions} questions")
        self.begun.discard(answers.task_id)
        self.counts = answers.counts
        # Another batch may be under way, for which it has announced more.
        self._due_s = max(self._due_s, self._clock.now() + _STEP_S) if self.asked else 0.0
        return [answers]
