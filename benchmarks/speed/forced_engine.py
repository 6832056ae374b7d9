"""`python -m benchmarks.speed.forced_engine ANSWERS FD`: the product's engine process, whose answers are forced.

A request whose pixels are known is answered with the text set for it, after as many tokens as that takes: the model
does the work of a good answer, whatever its weights. ANSWERS: their file (`foreseen.py`). FD: as of `batchocr.engine`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from batchocr.data import Completion, Request, failed_completion
from batchocr.engine import serve, start
from batchocr.engine.engine import Engine
from batchocr.engine.model.checkpoint import Model
from batchocr.engine.sequence import Announce
from batchocr.planning.limits import EngineLimits
from batchocr.processes.meter import Meter
from benchmarks.foreseen import Foreseen, pixels_key, read_foreseen

_WARM_UP_ID = 0


class ForcedEngine(Engine):
    """Refuses requests that were not foreseen, but for the one that the process warms up with."""

    def __init__(
        self, model: Model, limits: EngineLimits, announce: Announce, *, answers: Mapping[bytes, Foreseen]
    ) -> None:
        super().__init__(model, limits, announce)
        self._answers = answers
        self._texts: dict[int, str] = {}

    def submit(self, request_id: int, request: Request) -> Completion | None:
        answer = self._answers.get(pixels_key(request.pixels))
        if request_id == _WARM_UP_ID:
            return super().submit(request_id, request)
        if answer is None:
            return failed_completion("it was not foreseen")
        self._texts[request_id] = answer.text
        sampling = replace(request.sampling, max_new_tokens=answer.output_tokens, loop_check="never")
        return super().submit(request_id, replace(request, sampling=sampling))

    def step(self, meter: Meter) -> list[tuple[int, Completion]]:
        return [
            (request_id, replace(completion, text=self._texts.pop(request_id, ""), finish_reason="stop"))
            for request_id, completion in super().step(meter)
        ]


if __name__ == "__main__":
    start.Engine = partial(ForcedEngine, answers=read_foreseen(Path(sys.argv[1])))
    serve.serve(int(sys.argv[2]))
