"""`python -m benchmarks.speed.forced_engine ANSWERS FD`: the product's engine process, whose answers are forced.

A request whose pixels are known is answered with the text set for it, after as many tokens as that takes: the model
does the work of a good answer, whatever its weights. ANSWERS: their file (`write_foreseen`). FD: as of
`batchocr.engine`.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from batchocr.data import Completion, Pixels, Request, failed_completion
from batchocr.engine import serve, start
from batchocr.engine.engine import Engine
from batchocr.engine.model.checkpoint import Model
from batchocr.engine.model.detector import Detector
from batchocr.engine.sequence import Announce
from batchocr.planning.limits import EngineLimits
from batchocr.processes.meter import Meter

_WARM_UP_ID = 0


@dataclass(frozen=True, slots=True)
class Foreseen:
    """An answer that is known before it is asked for. output_tokens: how many the answer takes."""

    text: str
    output_tokens: int


def pixels_key(pixels: Pixels) -> bytes:
    """A hash of the size and a few thousand bytes, cheap enough to compute while the engine runs."""
    view = memoryview(pixels.data).cast("B")
    step = max(1, len(view) // 4096)
    return hashlib.blake2b(b"%d %d " % (pixels.height, pixels.width) + bytes(view[::step]), digest_size=16).digest()


def write_foreseen(path: Path, answers: Mapping[bytes, Foreseen]) -> None:
    """Write the answers, each by the `pixels_key` of what it is about."""
    values = {key.hex(): [answer.text, answer.output_tokens] for key, answer in answers.items()}
    path.write_text(json.dumps(values), encoding="utf-8")


def read_foreseen(path: Path) -> dict[bytes, Foreseen]:
    values = json.loads(path.read_text(encoding="utf-8"))
    return {bytes.fromhex(key): Foreseen(*answer) for key, answer in values.items()}


class ForcedEngine(Engine):
    """Refuses requests that were not foreseen, but for the one that the process warms up with."""

    def __init__(
        self,
        model: Model,
        limits: EngineLimits,
        announce: Announce,
        *,
        detector: Detector | None = None,
        answers: Mapping[bytes, Foreseen],
    ) -> None:
        super().__init__(model, limits, announce, detector=detector)
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
