"""The engines of a session: started, given the rounds of pages, watched, replaced. Knows nothing of pages or rows.

A round goes to the engine with the least to do. If an engine is lost, another takes its place, and what it had not
answered is asked again. Rounds that it had begun with may be to blame, unless somebody killed it: their questions are
asked one by one, each of an engine that does nothing else; one that takes that engine down as well is answered with an
error.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from batchocr.config import BackendName
from batchocr.data import Completion, failed_completion
from batchocr.errors import BatchOcrError, EngineError, ModelError
from batchocr.machine import peak_resident_bytes
from batchocr.pool.child import ENGINE_COMMAND
from batchocr.pool.engine_process import EngineLoss, EngineProcess
from batchocr.running_clock import RunningClock
from batchocr.wire.channel import Channel, wait_for
from batchocr.wire.counts import EngineCounts, sum_of
from batchocr.wire.engine_messages import DeviceFound, FromEngine, LoadModel, Ready, ToEngine, UseDevice
from batchocr.wire.pixels import SharedRound

logger = logging.getLogger(__name__)

_LOOK_INTERVAL_S = 0.5
_MAX_FRUITLESS = 6
"""If this many engines in a row are lost on a device before they have answered anything, it gets no more. One bad
request may cost two."""
_MAX_KILLS = 5
"""How many engines that somebody kills a round may be asked of."""
_QUESTION_WORK: Final = 100
"""What a question takes besides its image, in image tokens."""
_PIXELS_PER_TOKEN: Final = 28 * 28

Plan = Callable[[DeviceFound], LoadModel]
"""What to load on a device. Raises UsageError if it has no room for it."""


@dataclass(frozen=True, slots=True)
class EngineUse:
    """What became of a device. device: its name; several may be called cpu. counts: of all engines that were there.
    num_lost: how many were lost. peak_bytes: the most host memory that any held. peak_flop_per_s: None if unknown."""

    device: str
    kernels: str = ""
    counts: EngineCounts = field(default_factory=EngineCounts)
    num_lost: int = 0
    peak_bytes: int | None = None
    peak_flop_per_s: float | None = None


@dataclass(slots=True, eq=False)
class _Asked:
    """A round that is not answered yet. key: what the caller calls it. work: how much it takes, roughly, in tokens.
    suspect: whether an engine was lost that had begun with it. kills: engines with it that somebody killed."""

    key: int
    round: SharedRound
    work: float
    answers: list[Completion | None]
    suspect: bool = False
    kills: int = 0

    def to_ask(self) -> tuple[int, ...]:
        """The questions to ask next, by their position: all that are open, or the first, if one may be dangerous."""
        unanswered = tuple(position for position, answer in enumerate(self.answers) if answer is None)
        return unanswered[:1] if self.suspect else unanswered


@dataclass(slots=True, eq=False)
class _Sent:
    """What an engine was asked, and has not answered: some questions of a round."""

    asked: _Asked
    positions: tuple[int, ...]


class _Place:
    """A device, and the engine that is there now. work: what that has to do, in tokens."""

    def __init__(self, device: str, process: EngineProcess) -> None:
        self.device = device
        self.process = process
        self.work = 0.0
        self._sent: dict[int, _Sent] = {}
        self.ready: Ready | None = None
        self.num_lost = 0
        self.num_fruitless = 0
        self.counts_of_lost = EngineCounts()
        self.peak_bytes: int | None = None

    @property
    def can_work(self) -> bool:
        return self.process.ready is not None

    @property
    def is_idle(self) -> bool:
        return self.can_work and not self._sent

    @property
    def is_alone_with_a_suspect(self) -> bool:
        return len(self._sent) == 1 and all(sent.asked.suspect for sent in self._sent.values())

    def send(self, number: int, asked: _Asked) -> None:
        self._sent[number] = sent = _Sent(asked, asked.to_ask())
        self.work += asked.work
        self.process.ask(number, asked.round, sent.positions)

    def take_back(self, number: int) -> _Sent:
        """What was sent under this number, and is answered or lost."""
        sent = self._sent.pop(number)
        self.work -= sent.asked.work
        return sent

    def take_back_all(self) -> list[tuple[int, _Sent]]:
        return [(number, self.take_back(number)) for number in list(self._sent)]

    def note_memory(self) -> None:
        peak_bytes = peak_resident_bytes(self.process.pid)
        self.peak_bytes = max(peak_bytes or 0, self.peak_bytes or 0) or None

    def use(self) -> EngineUse:
        return EngineUse(
            device=self.device,
            kernels=self.ready.kernels if self.ready else "",
            counts=sum_of([self.counts_of_lost, self.process.counts]),
            num_lost=self.num_lost,
            peak_bytes=self.peak_bytes,
            peak_flop_per_s=self.ready.peak_flop_per_s if self.ready else None,
        )


class Engines:
    """One engine for each device. Belongs to one thread at a time.

    After `open` and `load`: `ask`, wait until one of `channels` has something, and `take_answers`.
    """

    def __init__(
        self,
        device: str,
        backend: BackendName,
        *,
        try_bfloat16: bool = False,
        command: Sequence[str] = ENGINE_COMMAND,
    ) -> None:
        """device: as --device. try_bfloat16: as in UseDevice. command: to start an engine with."""
        self._names = tuple(device.split(","))
        self._backend = backend
        self._try_bfloat16 = try_bfloat16
        self._command = command
        self._clock = RunningClock()
        self._plan: Plan | None = None
        self._places: list[_Place] = []
        self._given_up: list[EngineUse] = []
        self._last_error: BatchOcrError = EngineError("there is no engine")
        self._waiting: deque[_Asked] = deque()
        self._suspects: deque[_Asked] = deque()
        self._done: list[tuple[int, tuple[Completion, ...]]] = []
        self._last_number = 0

    # Starting and ending

    def open(self) -> DeviceFound:
        """Start the engine of the first device, and wait until it has found that. Raises UsageError if it cannot be
        used, EngineError."""
        self._places, self._plan = [self._start(self._names[0])], None
        try:
            while self._places[0].process.found is None:
                self._wait()
                self._hear()
                self._tend()
        except BaseException:
            self.close()
            raise
        found = self._places[0].process.found
        if self._names == ("auto",):
            self._names = found.alike
        self._places[0].device = found.device
        return found

    def load(self, plan: Plan) -> None:
        """Start the engines of the other devices, and wait until all have loaded what is planned for them. Some may be
        given up, with a warning; if none is left, raises what the last refused with, or EngineError. Raises
        ModelError."""
        if not self._places:  # all that there were have been lost
            self.open()
        self._plan = plan
        try:
            self._places += [self._start(name) for name in self._names[1:]]
            while not all(place.can_work for place in self._places):
                self._tend()
                self._wait()
                self._hear()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all engines, whatever they are doing."""
        for place in self._places:
            place.process.close()
        self._places = []
        self._drop_rounds()

    def forget(self) -> None:
        """Drop all rounds, and count from zero."""
        self._drop_rounds()
        self._given_up = []
        for place in self._places:
            place.take_back_all()
            place.num_lost, place.counts_of_lost = 0, EngineCounts()
            place.process.forget()

    @property
    def are_loaded(self) -> bool:
        """Whether there are engines that have been told what to load."""
        return self._plan is not None and bool(self._places)

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that there are to be engines for, once opened."""
        return self._names

    @property
    def channels(self) -> list[Channel[ToEngine, FromEngine]]:
        """Those to wait for: of the engines that there are now."""
        return [place.process.channel for place in self._places]

    def uses(self) -> list[EngineUse]:
        """What became of each device since the last `forget`."""
        for place in self._places:
            place.note_memory()
        return [*(place.use() for place in self._places), *self._given_up]

    # Asking and answering

    def ask(self, key: int, round: SharedRound) -> None:
        """Have a round answered. key: what it comes back under, with all its answers. Never blocks."""
        work = sum(_work(*(each.resize_to or (each.height, each.width))) for each in round.message.questions)
        self._waiting.append(_Asked(key, round, work, [None] * len(round.message.questions)))
        self._assign()

    def take_answers(self) -> list[tuple[int, tuple[Completion, ...]]]:
        """The rounds that have been answered since the last call. Replaces engines that are lost; raises EngineError if
        there is none any more."""
        self._hear()
        self._tend()
        self._assign()
        done, self._done = self._done, []
        return done

    def _hear(self) -> None:
        for place in self._places:
            for answers in place.process.receive():
                if any(completion.error is None for completion in answers.completions):
                    place.num_fruitless = 0
                self._take(place.take_back(answers.task_id), answers.completions)

    def _take(self, sent: _Sent, completions: Sequence[Completion]) -> None:
        asked = sent.asked
        for position, completion in zip(sent.positions, completions, strict=True):
            asked.answers[position] = completion
        answers = tuple(answer for answer in asked.answers if answer is not None)
        if len(answers) == len(asked.answers):
            self._done.append((asked.key, answers))
        else:
            self._suspects.appendleft(asked)

    def _assign(self) -> None:
        """Give out what is waiting. Suspects first, each to an engine that has nothing else."""
        able = [place for place in self._places if place.can_work]
        for place in able:
            if self._suspects and place.is_idle:
                self._send(place, self._suspects.popleft())
        able = [place for place in able if not place.is_alone_with_a_suspect]
        if self._suspects and able and len(able) == len(self._places):
            able.remove(min(able, key=_work_of))  # until it has nothing else
        while self._waiting and able:
            self._send(min(able, key=_work_of), self._waiting.popleft())

    def _send(self, place: _Place, asked: _Asked) -> None:
        self._last_number += 1
        place.send(self._last_number, asked)

    # Watching and replacing

    def _wait(self) -> None:
        wait_for(self.channels, _LOOK_INTERVAL_S)

    def _tend(self) -> None:
        """Let engines that have found their device load, and replace those that are lost. Raises BatchOcrError."""
        for place in list(self._places):
            process = place.process
            if self._plan is not None and process.found is not None and not process.is_loading:
                try:
                    process.load(self._plan(process.found))
                except BatchOcrError as error:
                    self._lose(place, EngineLoss(str(error), refusal=error))
                    continue
            place.ready = process.ready or place.ready
            if (loss := process.loss()) is not None:
                self._lose(place, loss)

    def _lose(self, place: _Place, loss: EngineLoss) -> None:
        process = place.process
        place.note_memory()
        process.close()
        place.num_lost += 1
        place.num_fruitless += 1
        place.counts_of_lost = sum_of([place.counts_of_lost, process.counts])
        process.counts = EngineCounts()
        # The first come first again.
        for number, sent in reversed(place.take_back_all()):
            self._ask_again(sent, loss, is_begun=number in process.begun)
        self._last_error = loss.refusal or EngineError(f"the engine on {place.device} failed: {loss.message}")
        if isinstance(loss.refusal, ModelError):  # as it would be on every other device
            raise loss.refusal
        is_refused = loss.refusal is not None and place.num_lost == 1
        if is_refused or place.num_fruitless >= _MAX_FRUITLESS:
            self._give_up(place, loss)
        else:
            logger.warning("the engine on %s was lost, and is replaced: %s", place.device, loss.message)
            self._restart(place)

    def _restart(self, place: _Place) -> None:
        try:
            place.process = self._start_process(place.device)
        except EngineError as error:
            self._give_up(place, EngineLoss(str(error)))

    def _give_up(self, place: _Place, loss: EngineLoss) -> None:
        self._places.remove(place)
        self._given_up.append(place.use())
        if not self._places:
            raise self._last_error
        logger.warning("going on without %s: %s", place.device, loss.message)

    def _ask_again(self, sent: _Sent, loss: EngineLoss, *, is_begun: bool) -> None:
        """Put a round in front, to be asked again; if it is to blame for too much, answer it with an error."""
        asked = sent.asked
        asked.kills += loss.killed and is_begun
        is_culprit = is_begun and asked.suspect and not loss.killed
        if is_culprit or asked.kills >= _MAX_KILLS:
            error = f"the engine failed on it: {loss.message}"
            self._take(sent, [failed_completion(error)] * len(sent.positions))
            return
        asked.suspect = asked.suspect or (is_begun and not loss.killed)
        (self._suspects if asked.suspect else self._waiting).appendleft(asked)

    def _start(self, device: str) -> _Place:
        return _Place(device, self._start_process(device))

    def _start_process(self, device: str) -> EngineProcess:
        """Raises EngineError."""
        use = UseDevice(device, self._backend, len(self._names), self._try_bfloat16)
        try:
            return EngineProcess(use, self._command, self._clock)
        except OSError as error:
            raise EngineError(f"an engine process cannot be started: {error.strerror or error}") from error

    def _drop_rounds(self) -> None:
        self._waiting.clear()
        self._suspects.clear()
        self._done.clear()


def _work_of(place: _Place) -> float:
    return place.work


def _work(height: int, width: int) -> float:
    """How much a question takes, roughly: text grows with the area that it covers."""
    return _QUESTION_WORK + height * width / _PIXELS_PER_TOKEN
