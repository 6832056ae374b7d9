"""The check of the engine as it runs on a GPU finds each kind of fault that streams and graphs can have."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from torch import Tensor

from batchocr.engine.backend.device import Mark, Result
from batchocr.engine.model.checkpoint import Model
from benchmarks.gpu import production_check
from benchmarks.gpu.variants import Wrapped, on_device
from benchmarks.record import Record
from benchmarks.trace import dense_trace
from benchmarks.true_shape import checkpoint

pytestmark = pytest.mark.slow


class StaleReplay(Wrapped):
    """A device whose graphs now and then replay what an earlier step had left in their buffers."""

    def capture(self, functions: Sequence[Callable[[], Result]]) -> list[Callable[[], Result]]:
        return [self._stale(function) for function in self.wrapped.capture(functions)]

    def _stale(self, replay: Callable[[], Result]) -> Callable[[], Result]:
        replays: list[Result] = []

        def changed() -> Result:
            replays.append(replay())
            return replays[-2] if len(replays) % 4 == 2 else replays[-1]

        return changed


class MissingWait(Wrapped):
    """A device on which the ViT's embeddings are taken before they are there: they are those of a blank image."""

    def take_over(self, value: Tensor, made: Mark) -> None:
        self.wrapped.take_over(value, made)
        value.zero_()


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with checkpoint(None, smoke=True) as folder:
        yield production_check.load_for(folder, "cpu")


@pytest.mark.parametrize(
    ("fault", "found_in"),
    [
        (StaleReplay, {"streams and graphs", "graphs alone"}),
        (MissingWait, {"streams and graphs", "streams alone"}),
    ],
)
def test_a_fault_of_graphs_or_streams_is_found_where_it_is(
    fault: type[Wrapped], found_in: set[str], model: Model, tmp_path: Path
) -> None:
    out = tmp_path / "check.json"
    record = Record("production_check", argparse.Namespace(out=out, smoke=True, device="cpu"))
    faulty = on_device(model, fault(model.device))
    assert not production_check.check(faulty, dense_trace(2).shrunk(0.1), record)
    rows = json.loads(out.read_text())["rows"]
    assert {row["check"] for row in rows if not row["ok"]} == found_in
    assert all("answers have other" in row["reason"] for row in rows if not row["ok"])
