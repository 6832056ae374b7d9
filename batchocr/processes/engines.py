"""The engines of a session: started, given request batches, watched, replaced. Knows nothing of pages or rows.

A batch goes to the engine with the least to do. `batches` says what is asked again when an engine is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

from batchocr.config import BackendName
from batchocr.data import Completion
from batchocr.errors import EngineError, ModelError, UsageError
from batchocr.processes.batches import RequestBatches
from batchocr.processes.channel import Channel, wait_for
from batchocr.processes.child import ENGINE_COMMAND
from batchocr.processes.counts import Counts
from batchocr.processes.engine_messages import DeviceFound, FromEngine, LoadModel, ToEngine, UseDevice
from batchocr.processes.engine_process import EngineLoss, EngineProcess
from batchocr.processes.engine_slot import EngineSlot, EngineUse
from batchocr.processes.pixels import SharedBatch
from batchocr.processes.running_clock import RunningClock

logger = logging.getLogger(__name__)

_LOOK_INTERVAL_S = 0.5

Plan = Callable[[DeviceFound], LoadModel]
"""What to load on a device. Raises UsageError if it has no room for it."""


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
        self._max_batches = 0
        self._is_starting = False
        self._slots: list[EngineSlot] = []
        self._given_up: list[EngineUse] = []
        self._batches = RequestBatches()

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
            while (found := self._slots[0].process.found) is None:
                self._wait()
        self._slots[0].use.device = found.device
        opened, names = (found.device, found.alike) if name == "auto" else (name, self._names)
        others = list(names)
        others.remove(opened)
        self._names = (opened, *others)
        return found

    def load(self, plan: Plan, *, max_batches: int) -> None:
        """Start the engines of the other devices, and wait until all have loaded what is planned for them. Devices may
        be given up, with a warning; if none is left, raises what the last one refused with, or EngineError.

        max_batches: how many all together have at once, and each its share; others wait for the next that has fewer.
        Raises ModelError.
        """
        if not self._slots:  # all that there were have been lost
            self.open()
        self._plan, self._max_batches = plan, max_batches
        with self._starting():
            for name in self._names[1:]:
                self._add(name)
            while not all(slot.is_ready for slot in self._slots):
                self._wait()

    def close(self) -> None:
        """End all engines, whatever they are doing."""
        for slot in self._slots:  # they end at once, if they can, and together
            slot.process.channel.close()
        with ExitStack() as closing:  # all of them, though Ctrl-C be pressed meanwhile
            while self._slots:
                closing.callback(self._slots.pop().process.close)
        self._batches.drop()

    def forget(self) -> None:
        """Drop all batches, and count from zero. Devices that were given up stay so."""
        self._batches.drop()
        for use in self._given_up:
            use.counts, use.num_lost = Counts(), 0
        for slot in self._slots:
            slot.forget()

    @property
    def are_loaded(self) -> bool:
        """Whether there are engines that have been told what to load."""
        return self._plan is not None and bool(self._slots)

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that are to have an engine; final once opened."""
        return self._names

    @property
    def channels(self) -> list[Channel[ToEngine, FromEngine]]:
        """The channels of the current engines, to wait for."""
        return [slot.process.channel for slot in self._slots]

    def uses(self) -> list[EngineUse]:
        """How each device was used since the last `forget`."""
        for slot in self._slots:
            slot.note_use()
        return [replace(use) for use in [*(slot.use for slot in self._slots), *self._given_up]]

    # Asking and answering

    def ask(self, task_id: int, batch: SharedBatch, positions: Sequence[int] | None = None) -> None:
        """Have a batch answered, or the questions at these positions. task_id: what it comes back under, with all these
        answers, in this order; never the same for two batches at once. Never blocks."""
        self._batches.add(task_id, batch, range(len(batch.message.questions)) if positions is None else positions)
        self._assign()

    def take_answers(self) -> list[tuple[int, tuple[Completion, ...]]]:
        """The batches that have been answered since the last call. Replaces engines that are lost. Raises EngineError
        if there is none any more."""
        if not self._slots:
            raise EngineError("there is no engine any more")
        self._receive()
        self._load_and_replace()
        self._assign()
        return self._batches.take_done()

    def _receive(self) -> None:
        for slot in self._slots:
            for answers in slot.process.receive():
                if any(completion.error is None for completion in answers.completions):
                    slot.has_answered = True
                    slot.num_losses = slot.num_killed = 0
                self._batches.answer(slot.take_back(answers.task_id), answers.completions)

    def _assign(self) -> None:
        """Give out what is waiting, to the engines with the least to do. What is to be asked alone goes to one that
        gets nothing more until it is idle."""
        batches = self._batches
        able = [slot for slot in self._slots if slot.is_ready and not any(part.is_alone for part in slot.sent.values())]
        if batches.alone and (
            fit := [slot for slot in able if self._is_trusted(slot) and not (slot.num_losses and batches.waiting)]
        ):
            slot = min(fit, key=lambda slot: slot.work)
            able.remove(slot)
            if not slot.sent:
                slot.send(batches.alone.popleft())
        share = -(-self._max_batches // max(1, len(self._slots)))
        while batches.waiting and (able := [slot for slot in able if len(slot.sent) < share]):
            min(able, key=lambda slot: slot.work).send(batches.waiting.popleft())

    def _is_trusted(self, slot: EngineSlot) -> bool:
        """Whether a question may be blamed for what happens here: this device has given a good answer, or none has."""
        return slot.has_answered or not any(other.has_answered for other in self._slots)

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

    def _wait(self) -> None:
        self._load_and_replace()
        wait_for(self.channels, _LOOK_INTERVAL_S)
        self._receive()

    def _add(self, device: str) -> None:
        """Start an engine on a device. Raises EngineError if that is impossible, and it was the only one."""
        try:
            self._slots.append(EngineSlot(device, self._start_process(device)))
        except EngineError as error:
            if not self._slots:
                raise
            self._given_up.append(EngineUse(device, given_up=str(error)))
            logger.warning("going on without %s: %s", device, error)

    def _load_and_replace(self) -> None:
        """Let engines that have found their device load, and replace those that are lost. Raises BatchOcrError."""
        for slot in list(self._slots):
            process = slot.process
            loss = process.loss()
            if loss is None and self._plan is not None and process.found is not None and not process.is_loading:
                try:
                    process.load(self._plan(process.found))
                except UsageError as error:
                    loss = EngineLoss(str(error), refusal=error)
            if loss is not None:
                self._lose(slot, loss)

    def _lose(self, slot: EngineSlot, loss: EngineLoss) -> None:
        """Replace an engine, or give its device up, and see to it that its batches are asked again. Raises
        BatchOcrError."""
        try:
            self._replace(slot, loss)
        except BaseException:  # a Ctrl-C too: the next run opens all again
            self.close()
            raise

    def _replace(self, slot: EngineSlot, loss: EngineLoss) -> None:
        slot.note_use()
        slot.count_loss(killed=loss.killed)
        self._take_back(slot, loss)
        slot.process.close()
        slot.counts_of_lost = slot.use.counts
        if (self._is_starting and loss.refusal is not None) or slot.is_hopeless:
            self._give_up(slot, loss)
            return
        logger.warning("the engine on %s was lost, and is replaced: %s", slot.device, loss.message)
        try:
            slot.process = self._start_process(slot.device)
        except EngineError as error:
            self._give_up(slot, EngineLoss(str(error)))

    def _take_back(self, slot: EngineSlot, loss: EngineLoss) -> None:
        parts = {task_id: slot.take_back(task_id) for task_id in list(slot.sent)}
        begun = [part for task_id, part in parts.items() if task_id in slot.process.begun]
        others = [part for task_id, part in parts.items() if task_id not in slot.process.begun]
        self._batches.lose(begun, others, killed=loss.killed, may_blame=self._is_trusted(slot), why=loss.message)

    def _give_up(self, slot: EngineSlot, loss: EngineLoss) -> None:
        """Go on without a device. Raises BatchOcrError if it was the last, or if it refused a model, as all would."""
        self._slots.remove(slot)
        slot.use.given_up = loss.message
        self._given_up.append(slot.use)
        if self._is_starting and loss.refusal is not None:
            if not self._slots or isinstance(loss.refusal, ModelError):
                raise loss.refusal
        elif not self._slots:
            raise EngineError(f"the engine on {slot.device} failed: {loss.message}")
        logger.warning("going on without %s: %s", slot.device, loss.message)

    def _start_process(self, device: str) -> EngineProcess:
        """Raises EngineError."""
        use = UseDevice(device, self._backend, len(self._names), self._try_bfloat16)
        try:
            return EngineProcess(use, self._command, self._clock)
        except OSError as error:
            raise EngineError(f"an engine process cannot be started: {error.strerror or error}") from error
