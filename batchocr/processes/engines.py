"""The engines of a session: one for each device, started, asked, watched and replaced. Knows nothing of pages.

An engine process starts, is ready, and is lost. Then another takes its place, with what is known of the device, or the
device is given up.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from math import prod
from typing import Final, Literal, TypeAlias

from batchocr.config import BackendName
from batchocr.errors import BatchOcrError, EngineError, ModelError, UsageError
from batchocr.machine import cores_of_nodes, peak_resident_bytes
from batchocr.processes.channel import FROM_ENGINE, TO_ENGINE, Channel, ChannelError, wait_for
from batchocr.processes.child import ENGINE_COMMAND, Child
from batchocr.processes.counts import Counts, sum_of
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
from batchocr.processes.messages import Question, RequestBatch
from batchocr.processes.pixels import SharedBatch
from batchocr.processes.running_clock import RunningClock

logger = logging.getLogger(__name__)

EngineChannel: TypeAlias = Channel[ToEngine, FromEngine]
Plan: TypeAlias = Callable[[DeviceFound], LoadModel]
"""What to load on a device. Raises UsageError if it has no room for it."""

_LOOK_INTERVAL_S = 0.5
_FIND_S = 300.0
"""How long loading torch, which may come from a slow file server, and looking at the device may take."""
_LOAD_S = 1200.0
"""How long reading the weights and trying kernels may take."""
_STEP_S = 60.0
"""How long a step that should take no time at all may take: the first steps may compile kernels."""
_STEP_FACTOR = 10.0
"""How many times as long as announced a step may take, besides the fixed time."""

LossKind: TypeAlias = Literal["failed start", "loss at first", "loss", "kill"]
"""How an engine was lost: before it was ready; when no engine of the device had ever given an answer without an error,
or when one had; by a kill from outside."""
_MAX_IN_A_ROW: Final[dict[LossKind, int]] = {"failed start": 6, "loss at first": 8, "loss": 24, "kill": 30}
"""How many losses of each kind in a row mean that a device is given up: without an answer between them that is no
error, or, of failed starts, without an engine that was ready. The bad questions of a page cost at most four engines:
see `questions`."""

_QUESTION_WORK_PX: Final = 100 * 28 * 28
"""What a question takes besides its image, in pixels of that."""

_REFUSALS: Final = {"usage": UsageError, "model": ModelError, "engine": EngineError}


@dataclass(frozen=True, slots=True)
class EngineLoss:
    """Why an engine was lost."""

    message: str
    killed: bool = False
    """Whether a SIGKILL from outside ended the engine: of a user, or of the kernel's OOM killer. No question is to
    blame."""
    refusal: BatchOcrError | None = None
    """The error to raise if no other engine starts, where this one refused to start, or ended in the trial of a kernel;
    else None."""


@dataclass(slots=True)
class EngineUse:
    """How a device was used by all engines that ran on it: the counts since the last `forget`, the rest ever."""

    device: str
    """The name of the device; several may be called cpu."""
    kernels: str = ""
    counts: Counts = field(default_factory=Counts)
    num_lost: int = 0
    peak_bytes: int | None = None
    """The most host memory that any engine held."""
    given_up: str = ""
    """Why no engine runs on the device any more; empty if one does."""
    was_ready: bool = False
    """Whether any engine was."""
    has_answered: bool = False
    """Whether any engine has given an answer that is not an error."""
    in_a_row: Counter[LossKind] = field(default_factory=Counter)
    """The losses since the last such answer."""

    @property
    def is_hopeless(self) -> bool:
        """Whether the device is to be given up."""
        return any(self.in_a_row[kind] >= most for kind, most in _MAX_IN_A_ROW.items())


class EngineProcess(Child[ToEngine, FromEngine, Answers]):
    """An engine process and what is known about it."""

    def __init__(
        self, message: UseDevice, command: Sequence[str], use: EngineUse | None = None, *, cores: Collection[int] = ()
    ) -> None:
        """Start the engine. use: how its device was used before. cores: as Child has them. Raises OSError."""
        super().__init__(command, TO_ENGINE, FROM_ENGINE, name="engine", cores=cores)
        self.use = use or EngineUse(message.device)
        """How the device was used before, without what this process has done."""
        self.found: DeviceFound | None = None
        self.ready: Ready | None = None
        self.is_loading = False
        """Whether the engine has been told what to load."""
        self.asked: dict[int, Sequence[Question]] = {}
        """The questions that the engine has not answered yet, by the number of their batch."""
        self.begun: set[int] = set()
        """The numbers of the batches that the engine has begun with."""
        self.work_px = 0
        """Roughly how much work the engine has, as the pixels of images."""
        self.counts = Counts()
        """What the engine had done when it last answered."""
        self._lost: EngineLoss | None = None
        self._said = ""
        self._clock = RunningClock()
        self._due_s = 0.0
        self._send(message, within_s=_FIND_S if message.try_kernels is None else _LOAD_S)

    def load(self, plan: Plan) -> None:
        """Have the engine load what is planned for its device, once it has found the device. If there is no room, the
        engine is lost."""
        if self.found is None or self.is_loading:
            return
        try:
            self._send(plan(self.found), within_s=_LOAD_S)
            self.is_loading = True
        except UsageError as error:
            self._lost = EngineLoss(str(error), refusal=error)

    def ask(self, number: int, batch: SharedBatch, questions: Sequence[Question]) -> None:
        """Have the engine answer these questions of a batch. number: what the answers come back under. Never blocks."""
        self.asked[number] = questions
        self.work_px += _work_px(questions)
        try:
            self._send(RequestBatch(number, batch.message.round, tuple(questions)), batch.duplicate(), within_s=_STEP_S)
        except ChannelError as error:
            self._break_off(error)

    def forget(self) -> None:
        """Drop all questions, and count from zero. The engine finishes what it is doing."""
        self.asked.clear()
        self.begun.clear()
        self.work_px, self.counts = 0, Counts()
        if self.ready is not None:
            self._send(Forget(), within_s=0.0)

    def used(self) -> EngineUse:
        """How the engine's device has been used, by this process too. The process's memory is known only while it
        lives."""
        counts = sum_of([self.use.counts, self.counts])
        peak_bytes = max(peak_resident_bytes(self.pid) or 0, self.use.peak_bytes or 0) or None
        return replace(self.use, counts=counts, peak_bytes=peak_bytes)

    def used_and_lost(self, loss: EngineLoss) -> EngineUse:
        """How the device was used, as `used` says, with this process as one more that was lost."""
        in_use: LossKind = "kill" if loss.killed else "loss" if self.use.has_answered else "loss at first"
        kind: LossKind = "failed start" if self.ready is None else in_use
        return replace(self.used(), num_lost=self.use.num_lost + 1, in_a_row=self.use.in_a_row + Counter([kind]))

    def loss(self) -> EngineLoss | None:
        """Why the engine is lost: it said so, it died, broke the protocol, or took too long; None if it is not."""
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
        """Set down that the engine is lost without a word of its own. If it was trying a kernel, the next engine would
        be lost as well."""
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
            case Refused():
                self._lost = EngineLoss(message.message, refusal=_REFUSALS[message.error](message.message))
            case Broken():
                self._lost = EngineLoss(message.message)
            case DeviceFound() if self.found is None:
                self.found = message
            case Ready() if self.found is not None and self.ready is None:
                self.ready, self._due_s = message, 0.0
                self.use.kernels, self.use.was_ready = message.kernels, True
                del self.use.in_a_row["failed start"]
            case Working() if self.ready is not None:
                self.begun |= self.asked.keys() & message.begun
                self._due_s = self._clock.now() + _STEP_S + _STEP_FACTOR * message.seconds
            case Answers() if self.ready is not None:
                return self._take(message)
            case _:
                raise ChannelError(f"it sent {message.type!r} out of turn")
        return []

    def _take(self, answers: Answers) -> list[Answers]:
        """Nothing if the questions have been forgotten meanwhile. Raises ChannelError if it was asked others."""
        questions = self.asked.get(answers.task_id)
        if questions is None:
            return []
        if len(answers.completions) != len(questions):
            raise ChannelError(f"it gave {len(answers.completions)} answers to {len(questions)} questions")
        del self.asked[answers.task_id]
        self.begun.discard(answers.task_id)
        self.work_px -= _work_px(questions)
        self.counts = answers.counts
        if any(completion.error is None for completion in answers.completions):
            self.use.has_answered = True
            self.use.in_a_row.clear()
        # Others may be under way, for which it has announced more.
        self._due_s = max(self._due_s, self._clock.now() + _STEP_S) if self.asked else 0.0
        return [answers]


class Engines:
    """One engine for each device. Belongs to one thread at a time.

    After `open` and `load`: ask those that are `able`, wait until one of `channels` has something, `receive` and
    `replace_lost`.
    """

    def __init__(
        self, device: str, backend: BackendName, *, try_bfloat16: bool = False, command: Sequence[str] = ENGINE_COMMAND
    ) -> None:
        """device: as --device. try_bfloat16: as in UseDevice. command: to start an engine with."""
        self.devices = tuple("cuda:0" if name == "cuda" else name for name in device.split(","))
        """The devices that are to have an engine; final once opened."""
        self._use_device = UseDevice("", backend, try_bfloat16=try_bfloat16)
        self._command = command
        self._plan: Plan | None = None
        self._max_batches = 0
        self._engines: list[EngineProcess] = []
        self._given_up: list[EngineUse] = []

    # Starting and ending

    def open(self) -> DeviceFound:
        """Start an engine on the first device that can be used, and wait until it has found that. Raises UsageError if
        none can be used, EngineError."""
        *others, last = self.devices
        for name in others:
            with suppress(UsageError):  # `load` tries it again, and warns of it
                return self._open(name)
        return self._open(last)

    def _open(self, name: str) -> DeviceFound:
        self._plan, self._given_up = None, []
        self._start([name])
        found = self._engines[0].found
        assert found is not None
        self._engines[0].use.device = found.device
        opened, names = (found.device, found.alike) if name == "auto" else (name, self.devices)
        others = list(names)
        others.remove(opened)
        self.devices = (opened, *others)
        return found

    def only(self, devices: tuple[str, ...], found: DeviceFound) -> DeviceFound:
        """Go on with these of the devices alone, and return what is found on the first of them. found: on the device
        that is open. Raises as `open`."""
        self.devices = devices
        if found.device in devices:
            return found
        self.close()
        return self.open()

    def load(self, plan: Plan, *, max_batches: int) -> None:
        """Start the engines of the other devices, and wait until all have loaded what is planned for them. Devices may
        be given up, with a warning; if none is left, raises what the last one refused with, or EngineError.

        max_batches: the questions of how many pages all have at once together, and each its share of them. Raises
        ModelError.
        """
        if not self._engines:  # all that there were have been lost
            self.open()
        self._plan, self._max_batches = plan, max_batches
        self._start(self.devices[1:])

    def close(self) -> None:
        """End all engines, whatever they are doing."""
        for engine in self._engines:  # they end at once, if they can, and together
            engine.channel.close()
        with ExitStack() as closing:  # all of them, though Ctrl-C be pressed meanwhile
            while self._engines:
                closing.callback(self._engines.pop().close)

    def forget(self) -> None:
        """Drop what was asked, and count from zero. Devices that were given up stay so."""
        for engine in self._engines:
            engine.forget()
        for use in [*self._given_up, *(engine.use for engine in self._engines)]:
            use.counts, use.num_lost = Counts(), 0

    @property
    def are_loaded(self) -> bool:
        """Whether there are engines that have been told what to load."""
        return self._plan is not None and bool(self._engines)

    def uses(self) -> list[EngineUse]:
        """How each device was used since the last `forget`."""
        return [engine.used() for engine in self._engines] + [replace(use) for use in self._given_up]

    # Asking and answering

    @property
    def channels(self) -> list[EngineChannel]:
        """The channels of the current engines, to wait for."""
        return [engine.channel for engine in self._engines]

    @property
    def loaded(self) -> list[tuple[DeviceFound, Ready]]:
        """What each engine that is ready has found, and what it has loaded."""
        return [(engine.found, engine.ready) for engine in self._engines if engine.found and engine.ready]

    @property
    def able(self) -> list[EngineProcess]:
        """The engines that can be asked more: they are ready, and have less than their share. The least busy comes
        first."""
        share = -(-self._max_batches // max(1, len(self._engines)))
        able = [engine for engine in self._engines if engine.ready is not None and len(engine.asked) < share]
        return sorted(able, key=lambda engine: engine.work_px)

    def is_trusted(self, engine: EngineProcess) -> bool:
        """Whether what happens to an engine may be a question's fault, and not its device's: the device has given an
        answer without an error, or no device has."""
        return engine.use.has_answered or not any(other.use.has_answered for other in self._engines)

    def receive(self) -> list[Answers]:
        """What the engines have answered since the last call. Raises EngineError if there is no engine any more."""
        if not self._engines:
            raise EngineError("there is no engine any more")
        return [answers for engine in self._engines for answers in engine.receive()]

    def replace_lost(self) -> list[tuple[EngineProcess, EngineLoss]]:
        """Replace engines that are lost, or give their devices up, and return them; let those load that have found
        their devices. Raises BatchOcrError if there is no engine any more."""
        lost = []
        for engine in list(self._engines):
            if self._plan is not None:
                engine.load(self._plan)
            if (loss := engine.loss()) is not None:
                lost.append((engine, loss))
                self._replace(engine, loss)
        return lost

    # Watching and replacing

    def _start(self, devices: Sequence[str]) -> None:
        """Start engines on these devices, and wait until all have found their devices, and loaded what is planned.
        Raises BatchOcrError as `_give_up` does."""
        try:
            for device in devices:
                self._add(EngineUse(device), len(self._engines))
            while not all(engine.ready if self._plan else engine.found for engine in self._engines):
                self.replace_lost()
                wait_for(self.channels, _LOOK_INTERVAL_S)
                self.receive()
        except BaseException:
            self.close()
            raise

    def _add(self, use: EngineUse, index: int) -> None:
        """Start an engine on a device, in place of the one at the index, if any. Raises BatchOcrError as `_give_up`."""
        cores, num_sharing = _cores_of(use.device, index, len(self.devices))
        message = replace(self._use_device, device=use.device, num_sharing=num_sharing)
        try:
            self._engines[index : index + 1] = [EngineProcess(message, self._command, use, cores=cores)]
        except OSError as error:
            why = f"an engine process cannot be started: {error.strerror or error}"
            self._give_up(use, index, EngineLoss(why, refusal=EngineError(why)))

    def _replace(self, engine: EngineProcess, loss: EngineLoss) -> None:
        """Start another engine instead, or give the device up. Raises BatchOcrError as `_give_up` does."""
        use, index = engine.used_and_lost(loss), self._engines.index(engine)
        engine.close()  # it stays in the list until it is replaced: after a Ctrl-C it is found to be lost again
        if use.is_hopeless or (loss.refusal is not None and not use.was_ready):
            self._give_up(use, index, loss)
        else:
            logger.warning("the engine on %s was lost, and is replaced: %s", use.device, loss.message)
            self._add(use, index)

    def _give_up(self, use: EngineUse, index: int, loss: EngineLoss) -> None:
        """Go on without a device, and the engine at the index. If there is no other, or none could load the model
        either, raises BatchOcrError: what it refused with, if no engine was ever ready on it."""
        del self._engines[index : index + 1]
        use.given_up = loss.message
        self._given_up.append(use)
        refusal = None if use.was_ready else loss.refusal
        if not self._engines or isinstance(refusal, ModelError):
            raise refusal or EngineError(f"the engine on {use.device} failed: {loss.message}")
        logger.warning("going on without %s: %s", use.device, loss.message)


def _cores_of(device: str, index: int, num_engines: int) -> tuple[Collection[int], int]:
    """The cores to keep an engine on, and how many engines divide them: those of one node of memory, if the CPU has
    several and all get as many engines; else none are named, and the engines divide all."""
    nodes = cores_of_nodes() if device == "cpu" else []
    if not nodes or num_engines % len(nodes):
        return (), num_engines
    return nodes[index % len(nodes)], num_engines // len(nodes)


def _work_px(questions: Sequence[Question]) -> int:
    """Roughly how much work questions are: text grows with the area that it covers."""
    return sum(_QUESTION_WORK_PX + prod(each.resize_to or (each.height, each.width)) for each in questions)
