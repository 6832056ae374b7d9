"""The engine as it runs, against the same work in one stream and without graphs.

    python -m benchmarks.gpu.production_check

The requests of two dense pages in bfloat16, a few at a time, so that images are encoded beside decoding, rows are used
again and steps are padded. All engines get the same batches, because none looks at what the device happens to have
done. So every answer has the same tokens, and where two runs in one stream have the same bits of the probabilities, the
others have them too. On a CPU, a stand-in for streams and graphs takes their place. Exit code 1 if a check fails.

Expected on an H200: 35 s.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from batchocr.data import Completion
from batchocr.engine.backend.device import Device, Mark
from batchocr.engine.model.checkpoint import Model, load_model
from benchmarks.gpu.variants import OneStream, WithGraphsAsCalls, Wrapped, on_device
from benchmarks.loading import load, make_engine, note_kernels
from benchmarks.options import add_checkpoint_option, add_family_option
from benchmarks.record import Record, benchmark_parser
from benchmarks.trace import Noise, Trace, dense_trace
from benchmarks.true_shape import checkpoint
from tests.support.checkpoints import answers_of
from tests.support.late_device import CapturableOps, LateDevice

_SIZES = {"llm_batch_size": 8, "vit_batch_size": 3, "max_new_tokens": 512}
_REPEATS = 2
"""A wait that is missing need not be missed every time."""


class Steady(Wrapped):
    """A device whose marks are done once somebody has waited for them, so that every run makes the same batches."""

    def mark(self) -> Mark:
        return _SteadyMark(self.wrapped.mark())

    def read_back(self, value: Tensor) -> tuple[Tensor, Mark]:
        host, done = self.wrapped.read_back(value)
        return host, _SteadyMark(done)

    def take_over(self, value: Tensor, made: _SteadyMark) -> None:
        self.wrapped.take_over(value, made.wrapped)


class _SteadyMark(Wrapped):
    def __init__(self, wrapped: Mark) -> None:
        super().__init__(wrapped)
        self._waited = False

    def is_done(self) -> bool:
        return self._waited

    def wait(self) -> None:
        self.wrapped.wait()
        self._waited = True

    def seconds_since(self, earlier: _SteadyMark) -> float:
        return float(self.wrapped.seconds_since(earlier.wrapped))


def load_for(folder: Path, device_name: str) -> Model:
    """The product's model in bfloat16; on a CPU, on a device with stand-ins for streams and graphs."""
    model = load(folder, device_name, "bfloat16")
    if model.device.torch_device.type == "cuda":
        return model
    late = LateDevice()
    return load_model(folder, device=late, dtype=torch.bfloat16, ops=CapturableOps(late.torch_device))


def answers(model: Model, device: Device | Wrapped, trace: Trace) -> list[Completion]:
    """The answers to all requests of the trace, as the engine gives them on this device."""
    engine = make_engine(on_device(model, Steady(device)), **_SIZES)
    noise = Noise()
    asks = [ask for page in trace.pages for ask in page.asks]
    for index, ask in enumerate(asks):
        assert engine.submit(index, noise.request(ask)) is None
    done = answers_of(engine)
    return [done[index] for index in range(len(asks))]


def difference(actual: list[Completion], wanted: list[Completion], *, bits: bool) -> str | None:
    """How these answers differ from those of one stream; None if they do not. bits: whether probabilities count."""
    texts = sum(
        ours.text != right.text or ours.error != right.error for ours, right in zip(actual, wanted, strict=True)
    )
    values = sum(ours != right for ours, right in zip(actual, wanted, strict=True))
    if texts:
        return f"{texts} of {len(wanted)} answers have other tokens"
    return f"{values} of {len(wanted)} answers have other probabilities" if values and bits else None


def check(model: Model, trace: Trace, record: Record) -> bool:
    """Add a row for streams, for graphs and for both. Returns whether all are right."""
    device: Any = model.device
    alone = OneStream(WithGraphsAsCalls(device))
    wanted, again = answers(model, alone, trace), answers(model, alone, trace)
    bits = wanted == again
    record.note(
        "compared", "tokens and the bits of probabilities" if bits else "tokens: probabilities vary by themselves"
    )
    all_right = True
    for name, changed in (
        ("streams and graphs", device),
        ("streams alone", WithGraphsAsCalls(device)),
        ("graphs alone", OneStream(device)),
    ):
        reasons = [difference(answers(model, changed, trace), wanted, bits=bits) for _ in range(_REPEATS)]
        reason = next(filter(None, reasons), None)
        record.add({"check": name, "dtype": "bfloat16", "ok": reason is None, "reason": reason})
        all_right &= reason is None
    return all_right


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    add_checkpoint_option(parser)
    add_family_option(parser)
    given = parser.parse_args(arguments)
    record = Record("production_check", given)
    trace = dense_trace(2)
    with checkpoint(given.checkpoint, smoke=given.smoke, family=given.family) as folder:
        model = load_for(folder, given.device)
        note_kernels(record, model)
        if not check(model, trace.shrunk(0.1) if given.smoke else trace, record):
            sys.exit(1)


if __name__ == "__main__":
    main()
