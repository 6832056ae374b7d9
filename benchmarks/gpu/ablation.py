"""What each part of the engine's design contributes: the same trace with one thing changed at a time.

    python -m benchmarks.gpu.ablation
    python -m benchmarks.gpu.ablation --only as_it_is,vit_in_whole_batches

The variants come in the order of what they decide, and each is written when it is measured: how decoding keeps pace
with the ViT first, then how much is in flight, then what the design has from the start. `as_it_is_again` shows how far
two equal runs differ.

`coupled_N` stands for a server with one batch size N for both stages: it encodes a batch of images, answers all of
them, then begins the next batch. Compare with the best of the batch sizes.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from batchocr.engine.model.checkpoint import Model
from batchocr.errors import EngineError, UsageError
from batchocr.processes.meter import Meter
from benchmarks.gpu.variants import CoupledEngine, OneStream, Paced, WithoutGraphs, WithoutOverlap, on_device
from benchmarks.loading import load, make_engine, note_kernels
from benchmarks.options import add_trace_options, engine_options, given_trace, numbers
from benchmarks.record import Record, Row, benchmark_parser
from benchmarks.replay import Steps, replay, stage_shares
from benchmarks.trace import Trace
from benchmarks.true_shape import checkpoint

_LARGEST_IMAGE = 5476
"""Patches of a layout image."""
_MOST_WARM_UP_PAGES = 24


@dataclass(frozen=True, slots=True)
class Variant:
    """The engine with one thing changed.

    change: changes the model. sizes, pages_in_flight: instead of those given. coupled: one batch size for both stages.
    """

    name: str
    change: Callable[[Model], Model] | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    pages_in_flight: int | None = None
    coupled: int | None = None


def _paced(gflop_a_row: float) -> Callable[[Model], Model]:
    """With other slices of the ViT: at 512 rows, 4 GFLOP a row are slices of 2 TFLOP."""
    return lambda model: on_device(model, Paced(model.device, 1e9 * gflop_a_row))


VARIANTS = (
    Variant("as_it_is"),
    Variant("vit_in_whole_batches", _paced(math.inf)),
    Variant("vit_32_gflop_a_row", _paced(32)),
    Variant("vit_4_gflop_a_row", _paced(4)),
    Variant("vit_16_gflop_a_row", _paced(16)),
    Variant("vit_8_gflop_a_row", _paced(8)),
    Variant("as_it_is_again"),
    Variant("80_in_flight_256_rows", sizes={"llm_batch_size": 256}, pages_in_flight=80),
    Variant("208_in_flight_512_rows", sizes={"llm_batch_size": 512}, pages_in_flight=208),
    Variant("208_in_flight_256_rows", sizes={"llm_batch_size": 256}, pages_in_flight=208),
    Variant("80_in_flight_512_rows", sizes={"llm_batch_size": 512}, pages_in_flight=80),
    Variant("one_stream", lambda model: on_device(model, OneStream(model.device))),
    Variant("no_vit_beside_decoding", lambda model: on_device(model, WithoutOverlap(model.device))),
    Variant("no_graphs", lambda model: on_device(model, WithoutGraphs(model.device))),
)
"""And, behind them, the coupled engines."""


def variants(given: argparse.Namespace) -> list[Variant]:
    """Those that are asked for. Raises UsageError if one of them does not exist."""
    known = {each.name: each for each in (*VARIANTS, *map(_coupled, given.coupled))}
    names = given.only.split(",") if given.only else known
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"--only: no {', '.join(unknown)}; there is {', '.join(known)}")
    return [known[name] for name in names]


def _coupled(size: int) -> Variant:
    sizes = {
        "vit_batch_size": size,
        "vit_max_patches": size * _LARGEST_IMAGE,
        "llm_batch_size": size,
        "embedding_queue_tokens": size * _LARGEST_IMAGE,
    }
    return Variant(f"coupled_{size}", sizes=sizes, coupled=size)


def engine_of(variant: Variant, model: Model, given: argparse.Namespace) -> Steps:
    """The variant's engine. model: the one that the variants change."""
    if variant.change is not None:
        model = variant.change(model)
    engine = make_engine(model, **engine_options(given) | dict(variant.sizes))
    return engine if variant.coupled is None else CoupledEngine(engine, variant.coupled)


def measure(engine: Steps, model: Model, trace: Trace, pages_in_flight: int) -> Row:
    """Replay the trace, after a warm-up with part of it."""
    some = trace.repeated(max(1, min(_MOST_WARM_UP_PAGES, len(trace.pages) // 4)))
    replay(engine, model, some, pages_in_flight=pages_in_flight, meter=Meter())
    meter = Meter()
    result = replay(engine, model, trace, pages_in_flight=pages_in_flight, meter=meter)
    decode, prefill = meter.stages["decode"], meter.stages["prefill"]
    return {
        "pages/s": result.pages_per_second,
        "rows a step": decode.items / decode.batches,
        "ms a step": 1000 * decode.busy_s / decode.batches,
        "a prefill": prefill.items / prefill.batches,
        **stage_shares(meter, result.seconds),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    add_trace_options(parser, pages=400)
    parser.set_defaults(pages_in_flight=208)
    parser.add_argument("--coupled", type=numbers, default=[16, 64, 128], help="batch sizes of the coupled engine")
    parser.add_argument("--only", help="these variants alone, by their names: NAME,NAME")
    given = parser.parse_args(arguments)
    if given.smoke:
        given.coupled = [8]
    chosen = variants(given)
    record = Record("ablation", given)
    trace = given_trace(given)
    with checkpoint(given.checkpoint, smoke=given.smoke) as folder:
        model = load(folder, given.device)
        note_kernels(record, model)
        failed = measure_all(chosen, model, trace, record, given)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def measure_all(
    chosen: list[Variant], model: Model, trace: Trace, record: Record, given: argparse.Namespace
) -> list[str]:
    """Returns the names of those that failed."""
    failed: list[str] = []
    whole: float | None = None
    width = max(len(variant.name) for variant in chosen)
    for variant in chosen:
        pages_in_flight = variant.pages_in_flight or given.pages_in_flight
        try:
            # Held by no name here: its memory is needed for the next one.
            row = measure(engine_of(variant, model, given), model, trace, pages_in_flight)
        except (EngineError, RuntimeError) as error:
            record.note(variant.name, f"{type(error).__name__}: {str(error).splitlines()[0]}")
            failed.append(variant.name)
            continue
        rate = float(str(row["pages/s"]))
        whole = rate if variant.name == "as_it_is" else whole
        record.add({"variant": variant.name.ljust(width), "of as_it_is": whole and rate / whole, **row})
        record.figure(variant.name, rate)
    return failed


if __name__ == "__main__":
    main()
