"""An engine that survives its errors: it reruns unfinished requests one at a time to find the one that broke it."""

from __future__ import annotations

import logging
from collections import deque

from batchocr.data import Completion, Request, failed_completion
from batchocr.engine.decode_stage import Answers
from batchocr.engine.engine import Engine
from batchocr.errors import EngineError
from batchocr.stats.meter import Meter

logger = logging.getLogger(__name__)

_MAX_FAILURES = 3
"""Requests in a row that must fail, each run alone, before the engine itself counts as broken."""


class RecoveringEngine:
    """Wraps an engine. After an exception in its step it runs unfinished requests one by one, then works as before."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._in_hand: dict[int, Request] = {}
        self._suspects: deque[tuple[int, Request]] = deque()
        self._held_back: list[tuple[int, Request]] = []
        self._on_trial: int | None = None
        self._failures = 0

    @property
    def has_work(self) -> bool:
        return self._engine.has_work or bool(self._suspects or self._held_back)

    def submit(self, request_id: int, request: Request) -> Completion | None:
        """See Engine.submit. While suspects run one by one, new requests wait."""
        if self._on_trial is not None:
            self._held_back.append((request_id, request))
            return None
        refused = self._engine.submit(request_id, request)
        if refused is None:
            self._in_hand[request_id] = request
        return refused

    def step(self, meter: Meter) -> Answers:
        """See Engine.step. Raises EngineError if several requests in a row fail when run alone."""
        finished = [] if self._engine.has_work else self._take_next()
        try:
            finished += self._engine.step(meter)
        except Exception as error:  # noqa: BLE001 (boundary: the engine's step)
            finished += self._recover(error)
        else:
            self._failures = 0 if finished else self._failures
        for request_id, _ in finished:
            self._in_hand.pop(request_id, None)
        return finished

    def clear(self) -> None:
        """Forget every request: nobody waits for the results any more."""
        self._engine.clear()
        self._in_hand.clear()
        self._suspects.clear()
        self._held_back.clear()
        self._on_trial, self._failures = None, 0

    def _recover(self, error: Exception) -> Answers:
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        self._engine.clear()
        if self._on_trial is None:
            logger.warning("the engine failed (%s); running the %d requests in hand alone", what, len(self._in_hand))
            # Replaced, not extended: the requests in hand include the remaining suspects.
            self._suspects = deque(self._in_hand.items())
            return []
        self._failures += 1
        if self._failures >= _MAX_FAILURES:
            raise EngineError(f"the engine failed {self._failures} times in a row, last with {what}") from error
        return [(self._on_trial, failed_completion(f"the engine failed on it: {what}"))]

    def _take_next(self) -> Answers:
        """Put the next suspect on trial or, after the last, submit the requests held back. Returns the refused ones."""
        requests = [self._suspects.popleft()] if self._suspects else self._held_back
        self._on_trial = None
        finished = [
            (request_id, refused)
            for request_id, request in requests
            if (refused := self.submit(request_id, request)) is not None
        ]
        if requests is self._held_back:
            self._held_back = []
        else:
            self._on_trial = requests[0][0]
        return finished
