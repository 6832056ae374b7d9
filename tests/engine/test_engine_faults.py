"""Values that are not finite cost the request that has them, and no other."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from batchocr.data import Completion, Pixels, Request, Sampling
from batchocr.engine.backend.device import Device
from batchocr.engine.backend.reference import Ops
from batchocr.engine.engine import Engine
from batchocr.engine.model.checkpoint import Model, load_model
from batchocr.engine.model.preprocess import PatchGrid
from tests.support.checkpoints import SMALL_LIMITS, answers_of, make_checkpoint

CPU = torch.device("cpu")
SIZES = [(56, 56), (56, 112), (84, 84), (112, 56), (56, 84)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = make_checkpoint(tmp_path_factory.mktemp("checkpoint"))
    return load_model(folder, device=Device(CPU), dtype=torch.float32, ops=Ops(CPU))


def request(number: int) -> Request:
    height, width = SIZES[number]
    noise = torch.randint(0, 256, (height * width * 3,), generator=torch.manual_seed(number))
    return Request(Pixels(height, width, memoryview(bytearray(noise.tolist()))), "\nText Recognition:", Sampling(12))


def answers(model: Model, *batches: Sequence[int]) -> dict[int, Completion]:
    """What an engine answers to these requests, each batch once it has ended the one before."""
    engine = Engine(model, SMALL_LIMITS)
    finished: dict[int, Completion] = {}
    for numbers in batches:
        for number in numbers:
            assert engine.submit(number, request(number)) is None
        finished |= answers_of(engine)
    return finished


def spoil(monkeypatch: pytest.MonkeyPatch, model: Model, number: int) -> None:
    """Have the vision model make no numbers of the image of this request."""
    layers = type(model.vision).layers
    bad = SIZES[number][0] // 14, SIZES[number][1] // 14

    def layers_or_nonsense(self: Any, patches: Tensor, grids: Sequence[PatchGrid]) -> Generator[None, None, Tensor]:
        embeddings = yield from layers(self, patches, grids)
        ends = torch.tensor([rows * columns // 4 for rows, columns in grids]).cumsum(0).tolist()
        for grid, end in zip(grids, ends, strict=True):
            if grid == bad:
                embeddings[end - grid[0] * grid[1] // 4 : end] = torch.nan
        return embeddings

    monkeypatch.setattr(type(model.vision), "layers", layers_or_nonsense)


def test_nothing_of_values_that_are_not_finite_stays_in_the_cache(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attention may multiply what it leaves out by zero, which such values survive."""
    new_cache, caches = type(model.language).new_cache, list[Tensor]()

    def seen(self: Any, num_blocks: int) -> Tensor:
        caches.append(new_cache(self, num_blocks))
        return caches[-1]

    monkeypatch.setattr(type(model.language), "new_cache", seen)
    spoil(monkeypatch, model, 1)
    assert answers(model, [1])[1].error is not None
    assert [bool(cache.isfinite().all()) for cache in caches] == [True]


@pytest.mark.parametrize(
    "batches", [[range(5)], [[1], [0, 2, 3, 4]]], ids=["in its batch", "later, in its place in the cache"]
)
def test_values_that_are_not_finite_fail_the_request_that_has_them_and_no_other(
    model: Model, monkeypatch: pytest.MonkeyPatch, batches: Sequence[Sequence[int]]
) -> None:
    expected = answers(model, range(5))
    spoil(monkeypatch, model, 1)
    finished = answers(model, *batches)
    assert finished.pop(1).error == "the model computed values that are not finite"
    assert [finished[number].text for number in (0, 2, 3, 4)] == [expected[number].text for number in (0, 2, 3, 4)]
