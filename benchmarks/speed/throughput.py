"""Pages per second of the engine alone, compared with transformers on the same requests.

    python -m benchmarks.speed.throughput --transformers 4,16
    python -m benchmarks.speed.throughput --pages 2000

The pages are the design's dense ones (`trace.py`). Both run the family's shape with random weights and no end token
(`true_shape.py`), so that they do the same work; a page's blocks are requested once its layout is ready. The time runs
from the first request to the last answer, after a warm-up, without model loading and page rendering (`end_to_end.py`
measures the whole). --pages alone are all read, after a short warm-up, and nothing is profiled. The energy of a page is
by the card's own meter. With --layout, or a --family that finds no layouts itself, a detector finds them, and a page
has as many blocks as before.

GPU idle time is measured in two ways: `no stage` by the events around the engine's stages, over the whole replay;
`device_idle_share_profiled` by torch's profiler, between kernels, over at most 200 steps of another replay. Expected on
an H200: for 1000 pages 110 s, for 400 in fp8 or with --layout 60 s.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from batchocr.config import DType, VitDType
from batchocr.engine import backend
from batchocr.planning.families import read_architecture
from batchocr.planning.limits import useful_pages_in_flight
from batchocr.processes.meter import Meter
from benchmarks.clocks import watch
from benchmarks.gpu.variants import Prepared, ProfiledEngine
from benchmarks.loading import free_memory, limits_for, load, make_engine, note_kernels
from benchmarks.options import (
    PEAK_TFLOPS,
    add_family_option,
    add_trace_options,
    engine_options,
    given_trace,
    numbers,
    peak_tflops,
)
from benchmarks.record import Record, benchmark_parser
from benchmarks.replay import Replayed, Steps, replay, stage_shares
from benchmarks.trace import Trace
from benchmarks.true_shape import checkpoint, detector

_PROFILED_STEPS = 200
_WORKERS = 8
_TRACED_STEPS = 50
"""As many as make a trace of a few megabytes."""
_PAGES, _SECONDS = 400, 40
_FIGURES = {"within": "pages_per_second", "before": "pages_per_second_prepared"}


def measure_engine(
    given: argparse.Namespace, folder: Path, trace: Trace, record: Record, layouts: Path | None = None
) -> None:
    """Replay the trace through batchocr's engine, after a warm-up that also shows how many pages there is time for.

    layouts: the folder of the detector that finds them.
    """
    model = load(folder, given.device, given.dtype, given.vit_dtype)
    note_kernels(record, model)
    device = model.device.torch_device
    rows = limits_for(model, engine_options(given)).llm_batch_size
    usual = useful_pages_in_flight(_WORKERS, rows, on_gpu=device.type == "cuda")
    pages_in_flight = given.pages_in_flight or usual
    prepared: Any = Prepared(model.preprocessor, device)
    model = replace(model, preprocessor=prepared)
    engine = make_engine(model, layouts=layouts, **engine_options(given))

    def run(engine: Steps, part: Trace, meter: Meter) -> Replayed:
        return replay(engine, model, part, pages_in_flight=pages_in_flight, meter=meter)

    some = trace.repeated(min(len(trace.pages), pages_in_flight))
    run(engine, some.repeated(min(16, len(some.pages))), Meter())
    warm_up = Meter()
    if given.seconds is not None:
        rate = run(engine, some, warm_up).pages_per_second
        record.figure("warm_up_pages_per_second", rate)  # in case this ends before the rest is measured
        trace = trace.repeated(max(len(some.pages), min(len(trace.pages), int(given.seconds * rate))))
    for images in ("within", "before") if given.prepared else ("within",):
        if images == "before":
            prepared.prepare(trace)
        meter = Meter()
        with watch(device) as clocks:
            result = run(engine, trace, meter)
        rates = result.rates(model.architecture, given.peak_tflops) | clocks.a_page(result.pages)
        record.add({"engine": "batchocr", "images": images} | rates)
        record.add({"engine": "batchocr", "in flight": pages_in_flight} | stage_shares(meter, result.seconds))
        record.figure(_FIGURES[images], result.pages_per_second)
    peak = backend.peak_device_bytes(device)
    record.note("peak_reserved_gb", round(peak / 1e9, 2) if peak else None)
    if given.seconds is None:
        return
    steps = warm_up.stages["decode"].batches
    profiled = ProfiledEngine(engine, device, first_step=steps // 3, num_steps=min(_PROFILED_STEPS, steps // 3))
    traced: Steps = profiled
    if given.chrome_trace:
        first_step, num_steps = 2 * steps // 3, min(_TRACED_STEPS, steps // 4)
        traced = ProfiledEngine(
            profiled, device, first_step=first_step, num_steps=num_steps, save_to=given.chrome_trace
        )
    run(traced, some, Meter())
    busy = profiled.busy_share
    record.note("device_idle_share_profiled", None if busy is None else round(1 - busy, 3))


def measure_transformers(given: argparse.Namespace, folder: Path, trace: Trace, record: Record) -> None:
    """Run the requests through transformers, after the memory of our engine is freed."""
    from benchmarks.speed.peer_transformers import TransformersEngine

    free_memory()
    some = trace.repeated(min(len(trace.pages), given.peer_pages))
    engine = TransformersEngine(folder, given.device)
    for batch_size in given.transformers:
        rates = engine.replay(some, batch_size).rates(read_architecture(folder), given.peak_tflops)
        record.add({"engine": f"transformers, batches of {batch_size}"} | rates)


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    add_trace_options(parser, pages=_PAGES)
    parser.set_defaults(pages=None)
    add_family_option(parser)
    parser.add_argument("--seconds", type=float, help=f"fewer pages if all take longer; {_SECONDS} without --pages")
    parser.add_argument("--prepared", action="store_true", help="once more, with images prepared beforehand")
    parser.add_argument("--dtype", choices=get_args(DType), default="auto")
    parser.add_argument("--vit-dtype", choices=get_args(VitDType), default="auto")
    parser.add_argument("--layout", action="store_true", help="layouts by a detector of PP-DocLayoutV2's shape")
    parser.add_argument("--chrome-trace", type=Path, help="write 50 steps there, for chrome://tracing: FILE.json.gz")
    parser.add_argument("--peak-tflops", type=float, help=f"of the device; {PEAK_TFLOPS:g} on a GPU if not given")
    parser.add_argument("--transformers", type=numbers, default=[], help="batch sizes to measure it with: 4,16")
    parser.add_argument("--peer-pages", type=int, default=16, help="pages for transformers, which takes its time")
    given = parser.parse_args(arguments)
    if given.smoke:
        given.transformers = given.transformers and [4]
    if given.pages is None:
        given.pages, given.seconds = _PAGES, given.seconds or _SECONDS
    record = Record("throughput", given)
    given.peak_tflops = given.peak_tflops or peak_tflops(record.device.type)
    trace = given_trace(given)
    with checkpoint(given.checkpoint, smoke=given.smoke, family=given.family) as folder:
        if given.layout or read_architecture(folder).detectors.usual:
            with detector(smoke=given.smoke) as layouts:
                measure_engine(given, folder, trace.detected(), record, layouts)
        else:
            measure_engine(given, folder, trace, record)
        if given.transformers:
            measure_transformers(given, folder, trace, record)


if __name__ == "__main__":
    main()
