"""Values that are not finite cost the request that has them, and no other."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from batchocr.data import Completion, Pixels, Request, Sampling
from batchocr.engine.backend.device import HostDevice
from batchocr.engine.backend.reference import ReferenceOps
from batchocr.engine.engine import Engine
from batchocr.engine.model.checkpoint import Model, load_model
from batchocr.engine.model.preprocess import PatchGrid
from tests.support.checkpoints import SMALL_LIMITS, answers_of, make_checkpoint

CPU = torch.device("cpu")
SIZES = [(56, 56), (56, 112), (84, 84), (112, 56), (56, 84)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = make_checkpoint(tmp_path_factory.mktemp("checkpoint"))
    return load_model(folder, device=HostDevice(CPU), dtype=torch.float32, ops=ReferenceOps(CPU))


def request(number: int) -> Request:
    height, width = SIZES[number]
    noise = torch.randint(0, 256, (height * width * 3,), generator=torch.manual_seed(number))
    return Request(Pixels(height, width, memoryview(bytearray(noise.tolist()))), "\nText Recognition:", Sampling(12))


def answers(model: Model, numbers: Sequence[int]) -> dict[int, Completion]:
    engine = Engine(model, SMALL_LIMITS)
    for number in numbers:
        assert engine.submit(number, request(number)) is None
    return answers_of(engine)


def spoil(monkeypatch: pytest.MonkeyPatch, model: Model, numbers: Sequence[int], how: Any) -> None:
    """Make the vision model go wrong on the images of these requests."""
    layers = type(model.vision).layers
    bad = [(SIZES[number][0] // 14, SIZES[number][1] // 14) for number in numbers]

    def layers_or_nonsense(self: Any, patches: Tensor, grids: Sequence[PatchGrid]) -> Generator[None, None, Tensor]:
        embeddings = yield from layers(self, patches, grids)
        ends = torch.tensor([rows * columns // 4 for rows, columns in grids]).cumsum(0).tolist()
        for grid, end in zip(grids, ends, strict=True):
            if grid in bad:
                how(embeddings[end - grid[0] * grid[1] // 4 : end])
        return embeddings

    monkeypatch.setattr(type(model.vision), "layers", layers_or_nonsense)


def test_values_that_are_not_finite_fail_the_request_that_has_them(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = answers(model, range(5))
    spoil(monkeypatch, model, [1], lambda part: part.fill_(torch.nan))
    finished = answers(model, range(5))
    assert finished[1].error == "the model computed values that are not finite"
    others = {number: completion.text for number, completion in finished.items() if number != 1}
    assert others == {number: expected[number].text for number in others}


def test_what_is_not_finite_does_not_stay_in_the_cache(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = answers(model, range(5))
    spoil(monkeypatch, model, [1], lambda part: part.fill_(torch.nan))
    engine = Engine(model, SMALL_LIMITS)
    finished: dict[int, Completion] = {}
    for numbers in ([1], [0, 2, 3, 4]):
        for number in numbers:
            engine.submit(number, request(number))
        finished |= answers_of(engine)
    assert finished.pop(1).error
    assert {number: completion.text for number, completion in finished.items()} == {
        number: expected[number].text for number in finished
    }
