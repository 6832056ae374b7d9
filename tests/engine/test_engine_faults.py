"""Faults in the engine cost the request that caused them, not the run."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from batchocr.backend.device import HostDevice
from batchocr.backend.reference import ReferenceOps
from batchocr.data import Completion, Pixels, Request, Sampling
from batchocr.engine.engine import Engine
from batchocr.engine.limits import EngineLimits
from batchocr.engine.recovery import RecoveringEngine
from batchocr.engine.thread import EngineThread
from batchocr.errors import EngineError
from batchocr.model.checkpoint import Model, load_model
from batchocr.model.preprocess import PatchGrid
from batchocr.stats.meter import Meter
from tests.support.checkpoints import make_checkpoint

CPU = torch.device("cpu")
SIZES = [(56, 56), (56, 112), (84, 84), (112, 56), (56, 84)]
LIMITS = EngineLimits(
    vit_batch_size=3,
    vit_max_patches=3000,
    embedding_queue_tokens=500,
    llm_batch_size=4,
    prefill_max_tokens=700,
    max_new_tokens=12,
    num_kv_tokens=8000,
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = make_checkpoint(tmp_path_factory.mktemp("checkpoint"))
    return load_model(folder, device=HostDevice(CPU), dtype=torch.float32, ops=ReferenceOps(CPU))


def request(number: int) -> Request:
    height, width = SIZES[number]
    noise = torch.randint(0, 256, (height * width * 3,), generator=torch.manual_seed(number))
    return Request(Pixels(height, width, bytes(noise.tolist())), "\nText Recognition:", Sampling(12))


def answers(model: Model, numbers: Sequence[int]) -> dict[int, Completion]:
    engine = RecoveringEngine(Engine(model, LIMITS))
    for number in numbers:
        assert engine.submit(number, request(number)) is None
    finished: dict[int, Completion] = {}
    while engine.has_work:
        for number, completion in engine.step(Meter()):
            assert number not in finished, "a request was answered twice"
            finished[number] = completion
    return finished


def spoil(monkeypatch: pytest.MonkeyPatch, model: Model, numbers: Sequence[int], how: Any) -> None:
    """Make the vision model go wrong on the images of these requests."""
    encode = type(model.vision).encode
    bad = [(SIZES[number][0] // 14, SIZES[number][1] // 14) for number in numbers]

    def encode_or_fail(self: Any, patches: Tensor, grids: Sequence[PatchGrid]) -> Tensor:
        embeddings: Tensor = encode(self, patches, grids)
        ends = torch.tensor([rows * columns // 4 for rows, columns in grids]).cumsum(0).tolist()
        for grid, end in zip(grids, ends, strict=True):
            if grid in bad:
                how(embeddings[end - grid[0] * grid[1] // 4 : end])
        return embeddings

    monkeypatch.setattr(type(model.vision), "encode", encode_or_fail)


def break_down(_part: Tensor) -> None:
    raise RuntimeError("an illegal memory access was encountered\nand more lines")


def test_a_request_that_breaks_the_engine_fails_alone(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = answers(model, range(5))
    spoil(monkeypatch, model, [2], break_down)
    finished = answers(model, range(5))
    assert finished.keys() == expected.keys()
    assert finished[2].error == "the engine failed on it: RuntimeError: an illegal memory access was encountered"
    others = {number: completion.text for number, completion in finished.items() if number != 2}
    assert others == {number: expected[number].text for number in others}


def test_values_that_are_not_finite_fail_the_request_that_has_them(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = answers(model, range(5))
    spoil(monkeypatch, model, [1], lambda part: part.fill_(torch.nan))
    finished = answers(model, range(5))
    assert finished[1].error == "the model computed values that are not finite"
    others = {number: completion.text for number, completion in finished.items() if number != 1}
    assert others == {number: expected[number].text for number in others}


def test_an_engine_that_fails_on_everything_ends_the_run(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, model, range(5), break_down)
    with pytest.raises(EngineError, match="3 times in a row, last with RuntimeError: an illegal memory access"):
        answers(model, range(5))


def test_faults_between_good_requests_do_not_add_up(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, model, [0, 1, 3], break_down)
    finished = answers(model, range(5))
    assert {number for number, completion in finished.items() if completion.error} == {0, 1, 3}


def test_requests_that_come_while_suspects_run_alone_are_answered(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, model, [0], break_down)
    engine = RecoveringEngine(Engine(model, LIMITS))
    for number in (0, 1):
        engine.submit(number, request(number))
    finished = dict(engine.step(Meter()))
    for number in (2, 3):
        assert engine.submit(number, request(number)) is None
    while engine.has_work:
        finished.update(engine.step(Meter()))
    assert {number: completion.error is None for number, completion in finished.items()} == {
        0: False,
        1: True,
        2: True,
        3: True,
    }


def test_a_request_that_breaks_the_engine_while_others_are_suspected_is_answered_once(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, model, [0, 2], break_down)
    engine = RecoveringEngine(Engine(model, LIMITS))
    for number in (0, 1):
        engine.submit(number, request(number))
    answered = [number for number, _ in engine.step(Meter())]
    engine.submit(2, request(2))
    while engine.has_work:
        answered += [number for number, _ in engine.step(Meter())]
    assert sorted(answered) == [0, 1, 2]


def test_what_is_not_finite_does_not_stay_in_the_cache(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = answers(model, range(5))
    spoil(monkeypatch, model, [1], lambda part: part.fill_(torch.nan))
    engine = RecoveringEngine(Engine(model, LIMITS))
    finished: dict[int, Completion] = {}
    for numbers in ([1], [0, 2, 3, 4]):
        for number in numbers:
            engine.submit(number, request(number))
        while engine.has_work:
            finished.update(engine.step(Meter()))
    assert finished.pop(1).error
    assert {number: completion.text for number, completion in finished.items()} == {
        number: expected[number].text for number in finished
    }


def test_a_cleared_engine_remembers_no_suspects(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, model, [0], break_down)
    engine = RecoveringEngine(Engine(model, LIMITS))
    engine.submit(0, request(0))
    engine.step(Meter())
    engine.clear()
    assert not engine.has_work


def test_the_switch_interval_is_what_it_was_once_the_last_of_two_engines_is_closed(model: Model) -> None:
    before_s = sys.getswitchinterval()
    first, second = (EngineThread(Engine(model, LIMITS), Meter(), notify=lambda: None) for _ in range(2))
    first.close()
    assert sys.getswitchinterval() < before_s
    second.close()
    assert sys.getswitchinterval() == before_s


def test_an_engine_that_hangs_ends_the_run_and_is_not_waited_for(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    began, let_go = threading.Event(), threading.Event()

    def hang(engine: Engine, meter: Meter) -> list[tuple[int, Completion]]:
        began.set()
        let_go.wait(60)
        return []

    monkeypatch.setattr(Engine, "step", hang)
    thread = EngineThread(Engine(model, LIMITS), Meter(), notify=lambda: None)
    try:
        thread.submit(0, request(0))
        assert began.wait(60)
        assert thread.finished() == []
        monkeypatch.setattr("batchocr.engine.thread._STALL_S", 0.0)
        with pytest.raises(EngineError, match="at one step"):
            thread.finished()
        assert not thread.close()
    finally:
        let_go.set()
