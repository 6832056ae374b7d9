"""How long a decode step takes, by batch size, with graphs and without, alone and beside a busy ViT.

    python -m benchmarks.decode --batch-sizes 1,64,256

Sequences begin with prompts of some 260 tokens, as blocks of pages do; `length` is their mean when the steps are timed.
`step ms` is by the clock, from step to step; `device ms` between the events around a step; `host ms` what the host
worked, its waiting for the device left out. With the ViT busy, layout images (5,476 patches) are encoded and wait in
the queue; no prefill disturbs the steps.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from batchocr.engine.engine import Engine
from batchocr.meter import Meter
from batchocr.model.checkpoint import Model
from benchmarks.loading import load, make_engine, note_kernels
from benchmarks.options import add_checkpoint_option, numbers
from benchmarks.record import Record, Row, benchmark_parser
from benchmarks.replay import work_of
from benchmarks.trace import LAYOUT_SIZE, Ask, Noise
from benchmarks.true_shape import checkpoint
from benchmarks.variants import Watched, WithoutGraphs, on_device

_SETTLING_STEPS = 8
_BUSY_IMAGES = 32


def measure_steps(model: Model, batch_size: int, given: argparse.Namespace, *, graphs: bool) -> list[Row]:
    """A row for the steps alone and one for those beside the ViT."""
    device: Any = Watched(model.device if graphs else WithoutGraphs(model.device))
    engine = make_engine(
        on_device(model, device),
        llm_batch_size=batch_size,
        embedding_queue_tokens=1 << 20,
        max_new_tokens=64 * given.steps,
    )
    side = 84 if given.smoke else 420
    noise = Noise(1 << 24)
    for index in range(batch_size):
        request = noise.request(Ask("text", side, side, 64 * given.steps))
        engine.submit(index, request)
    outputs = _start_all(engine, batch_size)
    length = work_of(model, request).prompt_tokens + outputs
    common: dict[str, Any] = {"sequences": batch_size, "length": length, "graphs": graphs}
    rows: list[Row] = [common | {"ViT busy": False} | _timed(engine, device, given.steps)]
    for index in range(2 if given.smoke else _BUSY_IMAGES):
        side = 112 if given.smoke else LAYOUT_SIZE
        engine.submit(batch_size + index, noise.request(Ask("layout", side, side, 1)))
    rows.append(common | {"ViT busy": True} | _timed(engine, device, given.steps))
    engine.clear()
    return rows


def _start_all(engine: Engine, batch_size: int) -> int:
    """Step until every sequence decodes. Returns how many tokens each has put out by then, in the mean."""
    meter = Meter()
    while meter.stages["prefill"].items < batch_size:
        engine.step(meter)
    for _ in range(_SETTLING_STEPS):
        engine.step(meter)
    return meter.stages["decode"].items // batch_size


def _timed(engine: Engine, device: Watched, steps: int) -> dict[str, Any]:
    meter = Meter()
    device.waited_s = 0.0
    started = time.perf_counter()
    for _ in range(steps):
        if engine.step(meter):
            raise RuntimeError("a sequence ended while its steps were timed")
    seconds = time.perf_counter() - started
    decode = meter.stages["decode"]
    return {
        "step ms": 1000 * seconds / steps,
        "device ms": 1000 * decode.busy_s / max(1, decode.batches),
        "host ms": 1000 * (seconds - device.waited_s) / steps,
        "tokens/s": decode.items / seconds,
    }


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    add_checkpoint_option(parser)
    parser.add_argument("--batch-sizes", type=numbers, default=[1, 8, 32, 64, 128, 256, 512])
    parser.add_argument("--steps", type=int, default=40)
    given = parser.parse_args(arguments)
    if given.smoke:
        given.batch_sizes, given.steps = [1, 4], 3
    record = Record("decode", given)
    with checkpoint(given.checkpoint, smoke=given.smoke) as folder:
        model = load(folder, given.device)
        note_kernels(record, model)
        for graphs in (True, False):
            for batch_size in given.batch_sizes:
                alone, beside = measure_steps(model, batch_size, given, graphs=graphs)
                record.add(alone)
                record.add(beside)
                if graphs:
                    record.figure(f"step_{batch_size}_alone_ms", float(str(alone["step ms"])))
                    record.figure(f"step_{batch_size}_ms", float(str(beside["step ms"])))
                    record.figure(f"host_{batch_size}_ms", float(str(beside["host ms"])))


if __name__ == "__main__":
    main()
