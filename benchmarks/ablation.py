"""What each part of the engine's design contributes: the same trace with one thing switched off at a time.

    python -m benchmarks.ablation

`coupled_N` stands for a server with one batch size N for both stages: it encodes a batch of images, answers all of
them, then begins the next batch. Compare with the best of the batch sizes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

from batchocr.errors import UsageError
from batchocr.model.checkpoint import Model
from batchocr.stats.meter import Meter
from benchmarks.loading import load, make_engine, note_kernels
from benchmarks.options import add_trace_options, engine_options, given_trace, numbers
from benchmarks.record import Record, benchmark_parser
from benchmarks.replay import Steps, replay, stage_shares
from benchmarks.trace import Trace
from benchmarks.true_shape import checkpoint
from benchmarks.variants import CoupledEngine, WithoutGraphs, WithoutOverlap, on_device, with_host_patches

_LARGEST_IMAGE = 5476
"""Patches of a layout image."""


def variants(model: Model, given: argparse.Namespace) -> Iterator[tuple[str, Callable[[], Steps]]]:
    """The name of each variant, and a function that makes its engine."""
    options = engine_options(given)
    yield "as_it_is", lambda: make_engine(model, **options)
    for size in given.coupled:
        coupled = options | {
            "vit_batch_size": size,
            "vit_max_patches": size * _LARGEST_IMAGE,
            "llm_batch_size": size,
            "embedding_queue_tokens": size * _LARGEST_IMAGE,
        }
        yield (
            f"coupled_{size}",
            lambda size=size, coupled=coupled: CoupledEngine(make_engine(model, **coupled), size),
        )
    yield "no_vit_beside_decoding", lambda: make_engine(on_device(model, WithoutOverlap(model.device)), **options)
    yield "no_graphs", lambda: make_engine(on_device(model, WithoutGraphs(model.device)), **options)
    yield "preprocessing_on_the_host", lambda: make_engine(with_host_patches(model), **options)


def measure(make: Callable[[], Steps], model: Model, trace: Trace, given: argparse.Namespace) -> dict[str, float]:
    """Replay the trace, after a warm-up with part of it."""
    engine = make()
    some = trace.repeated(max(1, len(trace.pages) // 4))
    replay(engine, model, some, pages_in_flight=given.pages_in_flight, meter=Meter())
    meter = Meter()
    result = replay(engine, model, trace, pages_in_flight=given.pages_in_flight, meter=meter)
    shares = {name: float(str(share)) for name, share in stage_shares(meter, result.seconds).items()}
    return {"pages/s": result.pages_per_second, **shares}


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    add_trace_options(parser, pages=96)
    parser.add_argument("--coupled", type=numbers, default=[16, 64, 128], help="batch sizes of the coupled engine")
    given = parser.parse_args(arguments)
    if given.smoke:
        given.coupled = [8]
    record = Record("ablation", given)
    trace = given_trace(given)
    with checkpoint(given.checkpoint, smoke=given.smoke) as folder:
        model = load(folder, given.device)
        note_kernels(record, model)
        whole = 0.0
        for name, make in variants(model, given):
            try:
                rates = measure(make, model, trace, given)
            except UsageError as error:  # a batch that this device cannot hold
                record.note(name, str(error))
                continue
            whole = whole or rates["pages/s"]
            record.add({"variant": name.ljust(26), "of as_it_is": rates["pages/s"] / whole, **rates})
            record.figure(name, rates["pages/s"])


if __name__ == "__main__":
    main()
