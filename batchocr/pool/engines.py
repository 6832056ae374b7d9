"""The engines of a session: started, given the rounds of pages, watched, replaced. Knows nothing of pages or rows.

A round goes to the engine with the least to do. `rounds` says what is asked again when an engine is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace

from batchocr.config import BackendName
from batchocr.data import Completion
from batchocr.errors import EngineError, ModelError, UsageError
from batchocr.machine import peak_resident_bytes
from batchocr.pool.child import ENGINE_COMMAND
from batchocr.pool.engine_process import EngineLoss, EngineProcess
from batchocr.pool.rounds import Group, Part, Rounds
from batchocr.running_clock import RunningClock
from batchocr.wire.channel import Channel, wait_for
from batchocr.wire.counts import EngineCounts, sum_of
from batchocr.wire.engine_messages import DeviceFound, FromEngine, LoadModel, ToEngine, UseDevice
from batchocr.wire.pixels import SharedRound

logger = logging.getLogger(__name__)

_LOOK_INTERVAL_S = 0.5
_MAX_STILLBORN = 6
"""If this many engines in a row are lost on a device before they are ready, it gets no more."""
_MAX_FRUITLESS = 24
_MAX_CULPRITS = 40
_MAX_CULPRITS_AT_FIRST = 3
_MAX_KILLED = 30
"""Nor if this many in a row are lost, or so many questions found to be to blame (fewer as long as nothing at all has
been answered well), or so many engines killed, without a good answer in between. A question that is found makes up for
the engines that it has cost."""
_FRUITLESS_OF_TRUST = 4
"""A device that has lost so many in a row is not trusted: no question is blamed for it while another device is."""

Plan = Callable[[DeviceFound], LoadModel]
"""What to load on a device. Raises UsageError if it has no room for it."""


@dataclass(frozen=True, slots=True)
class EngineUse:
    """What became of a device. device: its name; several may be called cpu. counts: of all engines that were there.
    num_lost: how many were lost. peak_bytes: the most host memory that any held. peak_flop_per_s: None if unknown.
    given_up: why there is none any more; empty if there is."""

    device: str
    kernels: str = ""
    counts: EngineCounts = field(default_factory=EngineCounts)
    num_lost: int = 0
    peak_bytes: int | None = None
    peak_flop_per_s: float | None = None
    given_up: str = ""


class _Place:
    """A device, and the engine that is there now. work: what that has to do, in tokens. sent: what it was asked, and
    has not answered. group: the suspects that it has, if any, and then nothing else. num_lost: engines since the last
    `forget`; the other numbers, of which the limits above speak, are of what came in a row."""

    def __init__(self, device: str, process: EngineProcess) -> None:
        self.device = device
        self.process = process
        self.sent: dict[int, Part] = {}
        self.work = 0.0
        self.group: Group | None = None
        self.kernels = ""
        self.peak_flop_per_s: float | None = None
        self.num_lost = 0
        self.num_stillborn = 0
        self.num_fruitless = self.num_culprits = self.num_killed = 0
        self.has_answered = False
        self.counts_of_lost = EngineCounts()
        self.peak_bytes: int | None = None

    @property
    def is_ready(self) -> bool:
        return self.process.ready is not None

    @property
    def is_trusted(self) -> bool:
        """Whether a question may be blamed for what happens here: it has answered others well, and not too long ago."""
        return self.has_answered and self.num_fruitless < _FRUITLESS_OF_TRUST

    @property
    def is_hopeless(self) -> bool:
        return (
            self.num_stillborn >= _MAX_STILLBORN
            or self.num_fruitless >= _MAX_FRUITLESS
            or self.num_culprits >= (_MAX_CULPRITS if self.has_answered else _MAX_CULPRITS_AT_FIRST)
            or self.num_killed >= _MAX_KILLED
        )

    def send(self, number: int, part: Part) -> None:
        self.sent[number] = part
        self.work += part.work
        self.process.ask(number, part.round, part.positions)

    def take_back(self, number: int) -> Part:
        """What was sent under this number, and is answered or lost."""
        part = self.sent.pop(number)
        self.work -= part.work
        if not self.sent:
            self.group = None
        return part

    def note_facts(self) -> None:
        """What a report needs that is known only while the process is there."""
        self.peak_bytes = max(peak_resident_bytes(self.process.pid) or 0, self.peak_bytes or 0) or None
        if (ready := self.process.ready) is not None:
            self.kernels, self.peak_flop_per_s = ready.kernels, ready.peak_flop_per_s

    def use(self) -> EngineUse:
        return EngineUse(
            device=self.device,
            kernels=self.kernels,
            counts=sum_of([self.counts_of_lost, self.process.counts]),
            num_lost=self.num_lost,
            peak_bytes=self.peak_bytes,
            peak_flop_per_s=self.peak_flop_per_s,
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
        self._most_rounds = 0
        self._is_starting = False
        self._places: list[_Place] = []
        self._given_up: list[EngineUse] = []
        self._rounds = Rounds()
        self._last_number = 0

    # Starting and ending

    def open(self) -> DeviceFound:
        """Start an engine on the first device that can be used, and wait until it has found that. Raises UsageError if
        none can be used, EngineError."""
        *others, last = self._names
        for name in others:
            with suppress(UsageError):  # `load` tries it again, and warns of it
                return self._open(name)
        return self._open(last)

    def _open(self, name: str) -> DeviceFound:
        self._plan, self._given_up = None, []
        with self._starting():
            self._add(name)
            while (found := self._places[0].process.found) is None:
                self._look()
        self._places[0].device = found.device
        opened, names = (found.device, found.alike) if name == "auto" else (name, self._names)
        others = list(names)
        others.remove(opened)
        self._names = (opened, *others)
        return found

    def load(self, plan: Plan, *, most_rounds: int) -> None:
        """Start the engines of the other devices, and wait until all have loaded what is planned for them. Devices may
        be given up, with a warning; if none is left, raises what the last one refused with, or EngineError.

        most_rounds: how many all together have at once, and each its share; others wait for the next that has fewer.
        Raises ModelError.
        """
        if not self._places:  # all that there were have been lost
            self.open()
        self._plan, self._most_rounds = plan, most_rounds
        with self._starting():
            for name in self._names[1:]:
                self._add(name)
            while not all(place.is_ready for place in self._places):
                self._look()

    def close(self) -> None:
        """End all engines, whatever they are doing."""
        for place in self._places:  # they end at once, if they can, and together
            place.process.channel.close()
        with ExitStack() as closing:  # all of them, though Ctrl-C be pressed meanwhile
            while self._places:
                closing.callback(self._places.pop().process.close)
        self._rounds.drop()

    def forget(self) -> None:
        """Drop all rounds, and count from zero. Devices that were given up stay so."""
        self._rounds.drop()
        self._given_up = [replace(use, counts=EngineCounts(), num_lost=0) for use in self._given_up]
        for place in self._places:
            for number in list(place.sent):
                place.take_back(number)
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
        """What became of each device: whether there is an engine, and what was done since the last `forget`."""
        for place in self._places:
            place.note_facts()
        return [*(place.use() for place in self._places), *self._given_up]

    # Asking and answering

    def ask(self, key: int, round: SharedRound, positions: Sequence[int] | None = None) -> None:
        """Have a round answered, or the questions at these positions. key: what it comes back under, with all these
        answers, in this order. Never blocks."""
        self._rounds.add(key, round, range(len(round.message.questions)) if positions is None else positions)
        self._assign()

    def take_answers(self) -> list[tuple[int, tuple[Completion, ...]]]:
        """The rounds that have been answered since the last call. Replaces engines that are lost; raises EngineError if
        there is none any more."""
        if not self._places:
            raise EngineError("there is no engine any more")
        self._hear()
        self._tend()
        self._assign()
        return self._rounds.take_done()

    def _hear(self) -> None:
        for place in self._places:
            for answers in place.process.receive():
                if any(completion.error is None for completion in answers.completions):
                    place.has_answered = True
                    place.num_fruitless = place.num_culprits = place.num_killed = 0
                self._rounds.answer(place.take_back(answers.task_id), answers.completions)

    def _assign(self) -> None:
        """Give out what is waiting: suspects to engines that have nothing else, the rest to those with the least."""
        rounds = self._rounds
        for place in self._places:
            if place.is_ready and not place.sent and rounds.suspects:
                self._assign_suspects(place)
        able = [place for place in self._places if place.is_ready and place.group is None]
        if rounds.suspects and able and len(able) == len(self._places):
            # One of them gets no more until it has nothing else.
            able.remove(min(able, key=lambda place: (not self._may_have(place, rounds.suspects[0]), place.work)))
        share = -(-self._most_rounds // max(1, len(self._places)))
        while rounds.waiting and (able := [place for place in able if len(place.sent) < share]):
            self._send(min(able, key=lambda place: place.work), rounds.waiting.popleft())

    def _assign_suspects(self, place: _Place) -> None:
        """Give an idle engine a group of suspects. If the one before it answered nothing well, it first gets a round
        that is above suspicion, if there is one: it may be the device's fault. But only every other time: they may be
        dangerous as well."""
        rounds = self._rounds
        if place.num_fruitless % 2 and rounds.waiting:
            self._send(place, rounds.waiting.popleft())
            return
        group = next((group for group in rounds.suspects if self._may_have(place, group)), None)
        if group is not None:
            rounds.suspects.remove(group)
            for part in group.parts:
                self._send(place, part)
            place.group = group

    def _may_have(self, place: _Place, group: Group) -> bool:
        """Suspects are tried on a device that is trusted, if there is one, and on another one than before, if that is
        ready."""
        others = [other for other in self._places if other is not place and other.is_trusted]
        if not place.is_trusted:
            return not others
        return group.lost_on is not place or not any(other.is_ready for other in others)

    def _send(self, place: _Place, part: Part) -> None:
        self._last_number += 1
        place.send(self._last_number, part)

    # Watching and replacing

    @contextmanager
    def _starting(self) -> Iterator[None]:
        """Inside, a refusal gives a device up at once, and that of the last device is raised as it is."""
        self._is_starting = True
        try:
            yield
        except BaseException:
            self.close()
            raise
        finally:
            self._is_starting = False

    def _look(self) -> None:
        wait_for(self.channels, _LOOK_INTERVAL_S)
        self._hear()
        self._tend()

    def _add(self, device: str) -> None:
        """Start an engine on a device. Raises EngineError if that is impossible, and it was the only one."""
        try:
            self._places.append(_Place(device, self._start_process(device)))
        except EngineError as error:
            if not self._places:
                raise
            self._given_up.append(EngineUse(device, given_up=str(error)))
            logger.warning("going on without %s: %s", device, error)

    def _tend(self) -> None:
        """Let engines that have found their device load, and replace those that are lost. Raises BatchOcrError."""
        for place in list(self._places):
            process = place.process
            loss = process.loss()
            if loss is None and self._plan is not None and process.found is not None and not process.is_loading:
                try:
                    process.load(self._plan(process.found))
                except UsageError as error:
                    loss = EngineLoss(str(error), refusal=error)
            if loss is not None:
                self._lose(place, loss)

    def _lose(self, place: _Place, loss: EngineLoss) -> None:
        """Replace an engine, or give its device up, and see to it that its rounds are asked again. Raises
        BatchOcrError."""
        try:
            self._replace(place, loss)
        except BaseException:  # a Ctrl-C too: the next pass opens all again
            self.close()
            raise

    def _replace(self, place: _Place, loss: EngineLoss) -> None:
        process = place.process
        place.note_facts()
        may_blame = place.is_trusted or not any(other.is_trusted for other in self._places)
        index = self._places.index(place)
        del self._places[index]
        process.close()
        place.num_lost += 1
        if process.ready is None:
            place.num_stillborn += 1
        else:
            place.num_stillborn = 0
            place.num_fruitless += not loss.killed
            place.num_killed += loss.killed
        place.counts_of_lost = sum_of([place.counts_of_lost, process.counts])
        process.counts = EngineCounts()
        if self._take_back(place, loss, may_blame=may_blame):
            place.num_fruitless = 0
            place.num_culprits += 1
        is_refused = self._is_starting and loss.refusal is not None
        if is_refused or place.is_hopeless:
            self._give_up(place, loss)
            return
        logger.warning("the engine on %s was lost, and is replaced: %s", place.device, loss.message)
        try:
            place.process = self._start_process(place.device)
        except EngineError as error:
            self._give_up(place, EngineLoss(str(error)))
        else:
            self._places.insert(index, place)

    def _take_back(self, place: _Place, loss: EngineLoss, *, may_blame: bool) -> bool:
        """Returns whether a question was found to be to blame."""
        group = place.group
        begun: list[Part] = []
        others: list[Part] = []
        for number in sorted(place.sent):
            (begun if number in place.process.begun else others).append(place.take_back(number))
        return self._rounds.lose(
            begun, others, group, on=place, killed=loss.killed, may_blame=may_blame, why=loss.message
        )

    def _give_up(self, place: _Place, loss: EngineLoss) -> None:
        """Go on without a device. Raises BatchOcrError if it was the last, or if it refused a model, as all would."""
        self._given_up.append(replace(place.use(), given_up=loss.message))
        if self._is_starting and loss.refusal is not None:
            if not self._places or isinstance(loss.refusal, ModelError):
                raise loss.refusal
        elif not self._places:
            raise EngineError(f"the engine on {place.device} failed: {loss.message}")
        logger.warning("going on without %s: %s", place.device, loss.message)

    def _start_process(self, device: str) -> EngineProcess:
        """Raises EngineError."""
        use = UseDevice(device, self._backend, len(self._names), self._try_bfloat16)
        try:
            return EngineProcess(use, self._command, self._clock)
        except OSError as error:
            raise EngineError(f"an engine process cannot be started: {error.strerror or error}") from error
