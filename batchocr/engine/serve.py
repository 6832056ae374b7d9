"""An engine process from its first message to its last."""

from __future__ import annotations

import gc
import logging
import socket
import time
from typing import Final, Literal

import torch

from batchocr.data import Completion, Pixels, Request, Sampling, failed_completion
from batchocr.engine import backend
from batchocr.engine.backend.dtype import select_dtype
from batchocr.engine.start import find_device, flop_per_s, load_engine
from batchocr.errors import BatchOcrError, EngineError, ModelError, UsageError
from batchocr.machine import return_freed_memory
from batchocr.processes.channel import FROM_ENGINE, TO_ENGINE, Channel, ChannelError
from batchocr.processes.child_process import belong_to_the_run
from batchocr.processes.counts import DEVICE_STAGES
from batchocr.processes.engine_messages import (
    Answers,
    Broken,
    DeviceFound,
    Forget,
    FromEngine,
    LoadModel,
    Logged,
    Refused,
    ToEngine,
    UseDevice,
    Working,
)
from batchocr.processes.messages import RequestBatch
from batchocr.processes.meter import Meter
from batchocr.processes.pixels import SharedBatch

_OOM_SCORE = 500
"""The score of an engine for the system's OOM killer: it kills the workers before an engine, and an engine before the
run."""
_TRIM_INTERVAL_S = 10.0
_QUIET_S = 1.0
"""How long an engine at work may say nothing."""
_LEAST_MEASURED_S = 5.0
_WARM_UP_PX, _WARM_UP_TOKENS = 28, 2
"""The size of a warm-up question. It is little to compute, as a CPU takes its time: the second token is a decode
step's."""
_MAX_NOT_FINITE = 3
"""How many requests in a row, all of which end with values that are not finite, mean that the device may be broken;
fewer do if there is nothing else to compute."""

_REFUSALS: Final[dict[type[Exception], Literal["usage", "model"]]] = {UsageError: "usage", ModelError: "model"}


def serve(descriptor: int) -> None:
    """Work for the run at the other end of the socket until the run closes it."""
    with belong_to_the_run(descriptor, oom_score=_OOM_SCORE) as sock:
        channel = Channel(sock, FROM_ENGINE, TO_ENGINE)
        logger = logging.getLogger("batchocr")
        logger.addHandler(_LogToRun(channel))
        logger.setLevel(logging.INFO)
        work(sock, channel)


def work(sock: socket.socket, channel: Channel[FromEngine, ToEngine]) -> None:
    """Find the device, load the model and answer request batches. What ends it is the last thing that is said."""
    server = None
    try:
        if (use := channel.receive_one(UseDevice)) is None:
            return
        found = find_device(use)
        channel.send(found)
        if (load := channel.receive_one(LoadModel)) is None:
            return
        server = _Server(channel, found, load)
        # What is loaded stays to the end. A search for garbage among its 200,000 objects would take a quarter of a
        # second, in which nothing is launched.
        gc.collect()
        gc.freeze()
        server.run()
    except ChannelError:
        raise
    except Exception as error:  # noqa: BLE001 (boundary: the engine's step, or its start)
        ours = isinstance(error, BatchOcrError)
        reason = str(error) if ours else f"{type(error).__name__}: {error}".splitlines()[0]
        refused = Refused(_REFUSALS.get(type(error), "engine"), reason)
        _say_last(sock, channel, Broken(reason) if server else refused)


def _say_last(sock: socket.socket, channel: Channel[FromEngine, ToEngine], message: FromEngine) -> None:
    sock.setblocking(True)
    channel.send(message)


class _Server:
    """Answers batches as they come, those of many pages at once."""

    def __init__(self, channel: Channel[FromEngine, ToEngine], found: DeviceFound, load: LoadModel) -> None:
        self._channel = channel
        self._device = torch.device(found.device)
        self._engine, ready = load_engine(found, load, self._announce)
        self._flop_per_s = flop_per_s(self._device, select_dtype(load.dtype, self._device))
        self._meter = Meter()
        self._answers: dict[int, list[Completion | None]] = {}
        self._requests: dict[int, tuple[int, int]] = {}
        self._last_id = 0
        self._begun: set[int] = set()
        self._is_warm = False
        self._doubtful: list[tuple[int, Completion]] = []
        self._said_s = self._trimmed_s = time.monotonic()
        self._warm_up(has_detector=bool(load.detector))
        channel.send(ready)

    def _warm_up(self, *, has_detector: bool) -> None:
        """Answer a question about a blank image. It tells whether the device works, before any page is blamed for it,
        and compiles what is compiled when it is first used. Raises EngineError, and what a step raises."""
        blank = Pixels(_WARM_UP_PX, _WARM_UP_PX, memoryview(bytearray([255] * 3 * _WARM_UP_PX**2)))
        for detector in ("", "any") if has_detector else ("",):
            asked = Request(blank, self._engine.example, Sampling(_WARM_UP_TOKENS), detector=detector)
            refused = self._engine.submit(0, asked)
            answers = [] if refused is None else [(0, refused)]
            while not answers:
                answers = self._engine.step(Meter())
            [(_, completion)] = answers
            if completion.error:
                raise EngineError(f"it cannot answer a question about a blank image: {completion.error}")
        self._is_warm = True

    def run(self) -> None:
        """Work until the channel closes. Raises ChannelError if the run breaks the protocol, and what a step raises."""
        while self._take_messages():
            for request_id, completion in self._engine.step(self._meter):
                self._sift(request_id, completion)
            self._require_sound()
            self._trim_memory()

    def _take_messages(self) -> bool:
        """Take what has arrived, waiting if there is nothing to do. Returns False when the run is gone."""
        while True:
            self._channel.flush()
            for message, descriptor in self._channel.receive():
                match message:
                    case RequestBatch() if descriptor is not None:
                        self._begin(SharedBatch(message, descriptor))
                    case Forget():
                        self._forget()
                    case _:
                        raise ChannelError(f"{message.type!r} came out of turn")
            if self._channel.closed:
                return False
            if self._engine.has_work:
                return True
            started_s = time.perf_counter()
            self._channel.wait()
            self._meter.starved_s += time.perf_counter() - started_s

    def _begin(self, batch: SharedBatch) -> None:
        number, requests = batch.message.task_id, batch.requests()
        self._answers[number] = [None] * len(requests)
        for position, request in enumerate(requests):
            self._last_id += 1
            self._requests[self._last_id] = (number, position)
            try:
                refused = self._engine.submit(self._last_id, request)
            except Exception as error:  # noqa: BLE001 (boundary: nothing of it is on the device yet)
                refused = failed_completion(f"{type(error).__name__}: {error}".splitlines()[0])
            if refused is not None:
                self._take(self._last_id, refused)

    def _forget(self) -> None:
        self._engine.clear()
        self._meter = Meter()
        self._answers.clear()
        self._requests.clear()
        self._begun.clear()
        self._doubtful.clear()

    def _take(self, request_id: int, completion: Completion) -> None:
        """Note an answer; if it was the last of its batch, send the answers of the batch."""
        number, position = self._requests.pop(request_id)
        answers = self._answers[number]
        answers[position] = completion
        completions = tuple(answer for answer in answers if answer is not None)
        if len(completions) == len(answers):
            del self._answers[number]
            self._begun.discard(number)
            counts = self._meter.counts(peak_device_bytes=backend.peak_device_bytes(self._device))
            self._channel.send(Answers(number, completions, counts))

    def _announce(self, flop: float, begun_requests: list[int]) -> None:
        """Tell the run what comes next, if that is something new or may take long, or if nothing has been said for
        long."""
        if not self._is_warm:
            return
        begun = {self._requests[request_id][0] for request_id in begun_requests} - self._begun
        seconds, now_s = flop / self._rate(), time.monotonic()
        if begun or seconds > _QUIET_S or now_s - self._said_s > _QUIET_S:
            self._channel.send(Working(seconds, tuple(begun)))
            self._begun |= begun
            self._said_s = now_s

    def _rate(self) -> float:
        """Operations per second, as measured in this engine's work once there was some."""
        busy_s = sum(self._meter.stages[stage].busy_s for stage in DEVICE_STAGES)
        flop = self._meter.model_flop  # of batches that have ended; 0 while only slices of the first have
        return flop / busy_s if flop and busy_s > _LEAST_MEASURED_S else self._flop_per_s

    def _sift(self, request_id: int, completion: Completion) -> None:
        """Keep back values that are not finite until other answers show that the request is to blame, and not the
        device."""
        self._doubtful.append((request_id, completion))
        if completion.error is None:
            for answered in self._doubtful:
                self._take(*answered)
            self._doubtful.clear()

    def _require_sound(self) -> None:
        """Raises EngineError if the device may compute nothing but nonsense: its requests are for another engine."""
        if len(self._doubtful) >= _MAX_NOT_FINITE or (self._doubtful and not self._engine.has_work):
            raise EngineError(f"the device may be broken: {self._doubtful[-1][1].error}")

    def _trim_memory(self) -> None:
        now_s = time.monotonic()
        if now_s - self._trimmed_s > _TRIM_INTERVAL_S:
            return_freed_memory()
            self._trimmed_s = now_s


class _LogToRun(logging.Handler):
    """Sends the log's lines to the run, whose log it is."""

    def __init__(self, channel: Channel[FromEngine, ToEngine]) -> None:
        super().__init__()
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        self._channel.send(Logged(record.levelno, record.getMessage()))
