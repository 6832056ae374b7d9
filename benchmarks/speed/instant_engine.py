"""`python -m benchmarks.speed.instant_engine ANSWERS FD`: an engine process that answers at once, and has no model.

It says what the product's engine says (`batchocr.engine.serve`), as often, and loads no torch. ANSWERS: the file of its
answers (`foreseen.py`). FD: as of `batchocr.engine`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from batchocr.machine import usable_memory_bytes
from batchocr.processes.channel import Channel, engine_end
from batchocr.processes.child_process import belong_to_the_run
from batchocr.processes.counts import DEVICE_STAGES, EngineCounts, StageCount
from batchocr.processes.engine_messages import (
    Answers,
    DeviceFound,
    Forget,
    FromEngine,
    LoadModel,
    Ready,
    ToEngine,
    UseDevice,
    Working,
)
from batchocr.processes.messages import RequestBatch
from batchocr.processes.pixels import SharedBatch
from benchmarks.foreseen import Foreseen, pixels_key, read_foreseen

_COUNTS = EngineCounts(
    stages={stage: StageCount(12.345678, 1_234, 56_789, 98_765.0) for stage in DEVICE_STAGES},
    patches=12_345_678,
    model_flop=1.2345678e15,
    busy_s=123.45678,
    starved_s=1.2345678,
)
"""As long as those of an engine that has worked for a while."""


def main(answers: Path, descriptor: int) -> None:
    foreseen = read_foreseen(answers)
    with belong_to_the_run(descriptor, oom_score=0) as sock:
        channel = engine_end(sock)
        while not channel.closed:
            channel.wait()
            for message, pixels in channel.receive():
                match message:
                    case UseDevice():
                        channel.send(DeviceFound("cpu", ("cpu",), "cpu", usable_memory_bytes()))
                    case LoadModel():
                        channel.send(Ready("", None))
                    case RequestBatch():
                        assert pixels is not None
                        answer(channel, SharedBatch(message, pixels), foreseen)
                    case Forget():
                        pass


def answer(channel: Channel[FromEngine, ToEngine], batch: SharedBatch, foreseen: Mapping[bytes, Foreseen]) -> None:
    number = batch.message.task_id
    completions = tuple(foreseen[pixels_key(request.pixels)].completion for request in batch.requests())
    channel.send(Working(0.01, (number,)))
    channel.send(Answers(number, completions, _COUNTS))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
