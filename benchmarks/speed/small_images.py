"""Requests per second for small images with short answers: 448 × 448 px, 16 tokens.

    python -m benchmarks.speed.small_images

512 requests are in flight; those behind them are submitted between steps, when others end, as in a run. The model has
MinerU2.5's shape and random weights (`true_shape.py`). Expected on an H200: 35 s.
"""

from __future__ import annotations

from batchocr.processes.meter import Meter
from benchmarks.loading import load, make_engine, note_kernels
from benchmarks.options import add_engine_options, engine_options, peak_tflops
from benchmarks.record import Record, benchmark_parser
from benchmarks.replay import replay, stage_shares
from benchmarks.trace import Ask, Trace, TracePage
from benchmarks.true_shape import checkpoint

SIDE = 448
OUTPUT_TOKENS = 16
_IN_FLIGHT = 512


def small_image_trace(images: int, side: int) -> Trace:
    """A trace in which each image is a page with a single request."""
    return Trace((TracePage(Ask("text", side, side, OUTPUT_TOKENS), ()),) * images)


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    add_engine_options(parser)
    parser.add_argument("--images", type=int, default=1000)
    given = parser.parse_args(arguments)
    record = Record("small_images", given)
    trace = small_image_trace(8, 84) if given.smoke else small_image_trace(given.images, SIDE)
    with checkpoint(given.checkpoint, smoke=given.smoke) as folder:
        model = load(folder, given.device)
        note_kernels(record, model)
        engine = make_engine(model, **engine_options(given))
        replay(engine, model, trace.repeated(len(trace.pages) // 4), pages_in_flight=_IN_FLIGHT, meter=Meter())
        meter = Meter()
        result = replay(engine, model, trace, pages_in_flight=_IN_FLIGHT, meter=meter)
        record.add(result.rates(model.architecture, peak_tflops(record.device.type)))
        record.add(stage_shares(meter, result.seconds))
        record.figure("requests_per_second", result.pages_per_second)


if __name__ == "__main__":
    main()
