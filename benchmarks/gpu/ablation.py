"""What each part of the engine's design contributes, and what would make it faster: one thing changed at a time.

    python -m benchmarks.gpu.ablation
    python -m benchmarks.gpu.ablation --only as_it_is,sm_margin_16

The variants come in the order of what they decide, and each is written when it is measured: how the two stages share
the device and how much is in flight, then what the product does not have (`levers.py`), then what the design has from
the start. `as_it_is_again` shows how far two equal runs differ. The rates are over all the time, in which the ramps at
both ends weigh the more the fewer pages there are.

A lever is a model loaded with other operations, so its answers are compared with those of the model as it is before it
is timed: `embeddings off` and `logits off` are relative errors (root mean square) about a page and given tokens, and
`same tokens` is the share of a few answers of the engine that are the same. With random weights the errors of fp8 say
whether a lever computes what it should, not what reading well would cost: nearly uniform attention hides much, and
answers part at the first rounding. That of bfloat16 itself is in `model_check`.

`coupled_N` stands for a server with one batch size N for both stages: it encodes a batch of images, answers all of
them, then begins the next batch. Compare with the best of the batch sizes.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from batchocr.engine.backend.reference import Ops
from batchocr.engine.model.checkpoint import Model, load_model
from batchocr.errors import UsageError
from batchocr.processes.meter import Meter
from benchmarks.clocks import watch
from benchmarks.gpu import levers
from benchmarks.gpu.levers_check import Answers
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

    change: changes the model. vision, language: change the operations that a part of the model is loaded with. sizes,
    pages_in_flight: instead of those given. coupled: one batch size for both stages.
    """

    name: str
    change: Callable[[Model], Model] | None = None
    vision: Callable[[Ops], Ops] | None = None
    language: Callable[[Ops], Ops] | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    pages_in_flight: int | None = None
    coupled: int | None = None


def _paced(gflop_a_row: float) -> Callable[[Model], Model]:
    """With other slices of the ViT: at 512 rows, 4 GFLOP a row are slices of 2 TFLOP."""
    return lambda model: on_device(model, Paced(model.device, 1e9 * gflop_a_row))


VARIANTS = (
    Variant("as_it_is"),
    Variant("one_stream", lambda model: on_device(model, OneStream(model.device))),
    Variant("sm_margin_8", vision=levers.sm_margin(8)),
    Variant("sm_margin_16", vision=levers.sm_margin(16)),
    Variant("sm_margin_24", vision=levers.sm_margin(24)),
    Variant("free_sms_8", vision=levers.free_sms(8)),
    Variant("free_sms_16", vision=levers.free_sms(16)),
    Variant("24_gflop_500_in_flight", _paced(24), pages_in_flight=500),
    Variant("16_gflop_500_in_flight", _paced(16), pages_in_flight=500),
    Variant("500_in_flight", pages_in_flight=500),
    Variant("fp8_attention", vision=levers.fp8_attention),
    Variant("llm_fp8_prefill", language=levers.fp8_prefill),
    Variant("llm_fp8", language=levers.fp8_language),
    Variant("llm_fp8_fused", language=levers.fused_fp8_language),
    Variant("residual_in_products", vision=levers.residual_in_products),
    Variant("vit_fp8", vision=levers.fp8_products),
    Variant("vit_fp8_with_attention", vision=lambda ops: levers.fp8_attention(levers.fp8_products(ops))),
    Variant("vit_and_llm_fp8", vision=levers.fp8_products, language=levers.fused_fp8_language),
    Variant(
        "all_fp8",
        vision=lambda ops: levers.fp8_attention(levers.fp8_products(ops)),
        language=levers.fused_fp8_language,
    ),
    Variant("as_it_is_again"),
    Variant("scaled_fp8_attention", vision=levers.scaled_fp8_attention),
    Variant("vit_in_whole_batches", _paced(math.inf)),
    Variant("vit_32_gflop_a_row", _paced(32)),
    Variant("vit_4_gflop_a_row", _paced(4)),
    Variant("vit_16_gflop_a_row", _paced(16)),
    Variant("vit_8_gflop_a_row", _paced(8)),
    Variant("80_in_flight_256_rows", sizes={"llm_batch_size": 256}, pages_in_flight=80),
    Variant("208_in_flight_512_rows", sizes={"llm_batch_size": 512}, pages_in_flight=208),
    Variant("208_in_flight_256_rows", sizes={"llm_batch_size": 256}, pages_in_flight=208),
    Variant("80_in_flight_512_rows", sizes={"llm_batch_size": 512}, pages_in_flight=80),
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


def model_of(variant: Variant, model: Model, folder: Path) -> Model:
    """The variant's model. model: the one that the variants change, of the checkpoint in this folder."""
    if variant.vision or variant.language:
        vision, language = (change(model.ops) if change else model.ops for change in (variant.vision, variant.language))
        dtype = model.language.dtype
        model = load_model(folder, device=model.device, dtype=dtype, ops=language, vision_ops=vision)
    return model if variant.change is None else variant.change(model)


def engine_of(variant: Variant, model: Model, given: argparse.Namespace) -> Steps:
    engine = make_engine(model, **engine_options(given) | dict(variant.sizes))
    return engine if variant.coupled is None else CoupledEngine(engine, variant.coupled)


def measure(engine: Steps, model: Model, trace: Trace, pages_in_flight: int) -> Row:
    """Replay the trace, after a warm-up with part of it."""
    some = trace.repeated(max(1, min(_MOST_WARM_UP_PAGES, len(trace.pages) // 4)))
    replay(engine, model, some, pages_in_flight=pages_in_flight, meter=Meter())
    meter = Meter()
    with watch(model.device.torch_device) as clocks:
        result = replay(engine, model, trace, pages_in_flight=pages_in_flight, meter=meter)
    decode, prefill = meter.stages["decode"], meter.stages["prefill"]
    return {
        "pages": result.pages,
        "pages/s": result.pages_per_second,
        "rows a step": decode.items / decode.batches,
        "ms a step": 1000 * decode.busy_s / decode.batches,
        "a prefill": prefill.items / prefill.batches,
        **stage_shares(meter, result.seconds),
        **clocks.columns(),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    add_trace_options(parser, pages=240)
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
        model = load(folder, given.device, tries_fp8=True)
        note_kernels(record, model)
        failed = measure_all(chosen, model, folder, trace, record, given)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def measure_all(
    chosen: list[Variant], model: Model, folder: Path, trace: Trace, record: Record, given: argparse.Namespace
) -> list[str]:
    """Returns the names of those that failed. What cannot be had on this machine is noted, and has not failed."""
    failed: list[str] = []
    whole: float | None = None
    width = max(len(variant.name) for variant in chosen)
    answers = Answers(model, folder, smoke=given.smoke)
    for variant in chosen:
        try:
            row = _row(variant, model, folder, answers, trace, given)
        except Exception as error:  # noqa: BLE001 (boundary: one variant; the others are still worth knowing)
            record.note(variant.name, f"{type(error).__name__}: {str(error).splitlines()[0]}")
            failed += [] if isinstance(error, UsageError | ImportError) else [variant.name]
            continue
        rate = float(str(row["pages/s"]))
        whole = rate if variant.name == "as_it_is" else whole
        record.add({"variant": variant.name.ljust(width), "of as_it_is": whole and rate / whole, **row})
        record.figure(variant.name, rate)
    return failed


def _row(variant: Variant, base: Model, folder: Path, answers: Answers, trace: Trace, given: argparse.Namespace) -> Row:
    """What the variant does. Its model and its engine are gone when this returns: the next one needs their memory."""
    model = model_of(variant, base, folder)
    off = answers.compared(model) if variant.vision or variant.language else Answers.SAME
    pages_in_flight = variant.pages_in_flight or given.pages_in_flight
    pages = trace if given.smoke else trace.repeated(max(len(trace.pages), pages_in_flight))
    return {**measure(engine_of(variant, model, given), model, pages, pages_in_flight), **off}


if __name__ == "__main__":
    main()
