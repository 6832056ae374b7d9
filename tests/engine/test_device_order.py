"""The order of the engine's calls to a device that, like a GPU, has done nothing yet when a call returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor

from batchocr.data import Pixels, Request, Sampling
from batchocr.engine.backend.device import CaptureError, Device, Mark, Result
from batchocr.engine.backend.reference import Ops
from batchocr.engine.engine import Engine
from batchocr.engine.graphs import DecodeGraphs, graph_sizes
from batchocr.engine.model.checkpoint import Model, load_model
from batchocr.engine.model.preprocess import PatchGrid
from batchocr.errors import EngineError
from batchocr.processes.counts import Stage
from batchocr.processes.meter import Meter
from tests.support.checkpoints import SMALL_LIMITS, make_checkpoint
from tests.support.late_device import CapturableOps, LateDevice, LateMark

CPU = torch.device("cpu")
NUM_REQUESTS = 14
MOST_STEPS = 500
LIMITS = replace(SMALL_LIMITS, vit_batch_size=4, llm_batch_size=6, prefill_max_tokens=400, max_new_tokens=20)

Answers = dict[int, tuple[str, int]]
"""Text and number of tokens by request."""


class WatchedDevice(LateDevice):
    """Counts what is under way: batches off the main stream, and steps that the host has not read yet."""

    def __init__(self) -> None:
        super().__init__()
        self.most_batches = 0
        self.most_unread = 0
        self._batches: list[LateMark] = []
        self._reads: list[LateMark] = []

    @property
    def pending_batches(self) -> list[LateMark]:
        return [mark for mark in self._batches if not mark.done]

    @property
    def num_pending(self) -> int:
        return sum(not mark.done for mark in (*self._batches, *self._reads))

    @contextmanager
    def beside(self) -> Iterator[None]:
        with super().beside():
            yield
            self._batches.append(self._side[-1])
        self.most_batches = max(self.most_batches, sum(not mark.done for mark in self._batches))

    def read_back(self, value: Tensor) -> tuple[Tensor, Mark]:
        self.most_unread = max(self.most_unread, sum(not mark.done for mark in self._reads))
        host, mark = super().read_back(value)
        assert isinstance(mark, LateMark)
        self._reads.append(mark)
        return host, mark


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="module")
def expected(checkpoint: Path) -> Answers:
    """The answers with a device that does everything immediately."""
    return run(Engine(load(checkpoint, Device(CPU), Ops(CPU)), LIMITS))


@pytest.fixture
def device() -> WatchedDevice:
    return WatchedDevice()


@pytest.fixture
def model(checkpoint: Path, device: WatchedDevice) -> Model:
    return load(checkpoint, device, CapturableOps(CPU))


def load(checkpoint: Path, device: Device, ops: Ops) -> Model:
    return load_model(checkpoint, device=device, dtype=torch.float32, ops=ops)


def request(number: int) -> Request:
    height, width = 56 + 28 * (number % 5), 84 + 28 * (number % 3)
    noise = torch.randint(0, 256, (height, width, 3), dtype=torch.uint8, generator=torch.manual_seed(number))
    return Request(Pixels(height, width, bytearray(noise.numpy())), "\nText Recognition:", Sampling(20))


def submit_all(engine: Engine) -> None:
    for number in range(NUM_REQUESTS):
        assert engine.submit(number, request(number)) is None


def run(engine: Engine, meter: Meter | None = None) -> Answers:
    submit_all(engine)
    answers: Answers = {}
    for _ in range(MOST_STEPS):
        for number, completion in engine.step(meter or Meter()):
            answers[number] = completion.text, completion.output_tokens
        if not engine.has_work:
            return answers
    raise AssertionError("the engine never came to an end")


def test_answers_are_those_of_a_device_that_does_everything_at_once_and_no_more_is_under_way_than_there_may_be(
    model: Model, device: WatchedDevice, expected: Answers
) -> None:
    assert run(Engine(model, LIMITS)) == expected
    assert len(set(expected.values())) > NUM_REQUESTS / 2
    assert device.events.count("take over") == NUM_REQUESTS, "an image is admitted once it is encoded"
    assert device.most_batches == 2
    # A step is launched before the last is read, and no earlier.
    assert device.most_unread == device.max_unread == 1


def test_an_answer_ends_where_the_model_has_no_more_positions(model: Model) -> None:
    model.prompts.stop_token_ids = frozenset()
    images = [rows * columns // 4 for rows, columns in grids(model)]
    prompts = [len(model.prompts.encode("\nText Recognition:", tokens).token_ids) for tokens in images]
    language = replace(model.architecture.language, max_positions=max(prompts) + 7)
    few_positions = replace(model, architecture=replace(model.architecture, language=language))
    lengths = {number: length for number, (_, length) in run(Engine(few_positions, LIMITS)).items()}
    assert lengths == {number: min(20, 7 + max(prompts) - prompt) for number, prompt in enumerate(prompts)}
    assert 7 < lengths[prompts.index(sorted(set(prompts))[-2])] < 20


@pytest.fixture
def sliced(device: WatchedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """One layer of the ViT a slice; the model has two."""
    monkeypatch.setattr(device, "vit_slice_flop_per_sequence", 1.0, raising=False)


@pytest.mark.usefixtures("sliced")
def test_slices_of_the_vit_change_no_token_and_there_is_one_decode_step_to_each(
    model: Model, device: WatchedDevice, expected: Answers
) -> None:
    meter = Meter()
    assert run(Engine(model, LIMITS), meter) == expected
    vit = meter.stages["vit"]
    assert (vit.items, vit.batches) == (NUM_REQUESTS, meter.stages["preprocess"].batches)

    launches = [event for event in device.events if event in ("beside", "replay")]
    both = launches[launches.index("replay") : -launches[::-1].index("beside")]
    assert both.count("beside") >= 4
    assert "beside beside" not in " ".join(both)
    assert launches.count("beside") == 2 * 4  # two layers of four batches


@pytest.mark.usefixtures("sliced")
@pytest.mark.parametrize("queue", [500, 40])
def test_beside_the_last_slice_that_the_queue_has_room_for_decoding_is_paced_too(
    model: Model, device: WatchedDevice, monkeypatch: pytest.MonkeyPatch, queue: int
) -> None:
    monkeypatch.setattr(LateMark, "is_done", lambda mark: mark.done)  # nothing is done before it is waited for
    engine = Engine(model, replace(LIMITS, embedding_queue_tokens=queue))
    submit_all(engine)
    num_steps, most_steps = 0, 0
    while engine.has_work:
        before, slices = device.events.count("replay"), device.pending_batches
        engine.step(Meter())
        is_beside = bool(slices) and slices == device.pending_batches
        num_steps = num_steps + device.events.count("replay") - before if is_beside else 0
        most_steps = max(most_steps, num_steps)
    assert most_steps <= 2


@pytest.mark.usefixtures("sliced")
def test_a_step_with_few_sequences_waits_for_another_slice(
    model: Model, device: WatchedDevice, expected: Answers
) -> None:
    assert run(Engine(model, replace(LIMITS, llm_batch_size=4 * NUM_REQUESTS + 4, num_kv_tokens=60_000))) == expected
    launches = [event for event in device.events if event in ("beside", "replay")]
    both = launches[launches.index("replay") : -launches[::-1].index("beside")]
    assert both.count("replay") >= 2
    assert "replay beside replay" not in " ".join(both)


@pytest.mark.usefixtures("sliced")
def test_a_slice_that_does_not_fit_the_memory_loses_nothing(
    model: Model, device: WatchedDevice, expected: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = model.vision.layers

    def too_large_in_the_second(patches: Tensor, grids: list[PatchGrid]) -> Generator[None, None, Tensor]:
        steps = layers(patches, grids)
        yield next(steps)
        if len(grids) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return (yield from steps)

    monkeypatch.setattr(model.vision, "layers", too_large_in_the_second)
    meter = Meter()
    assert run(Engine(model, LIMITS), meter) == expected
    assert meter.batches_halved["vit"] >= 1
    assert meter.stages["vit"].items == NUM_REQUESTS


@pytest.mark.slow
@pytest.mark.parametrize("slice_flop", [math.inf, 1.0])
@pytest.mark.parametrize("steps", [1, 3, 8])
def test_a_cleared_engine_has_nothing_under_way_and_starts_anew(
    model: Model,
    device: WatchedDevice,
    expected: Answers,
    steps: int,
    slice_flop: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device, "vit_slice_flop_per_sequence", slice_flop, raising=False)
    # The queue is so short that room still held for forgotten requests would be missed.
    engine = Engine(model, replace(LIMITS, embedding_queue_tokens=40))
    submit_all(engine)
    for _ in range(steps):
        engine.step(Meter())
    assert device.num_pending

    engine.clear()
    assert not engine.has_work
    assert not device.num_pending
    assert run(engine) == expected


class ScarceMemory:
    """Stands in for a stage's computation on a GPU with memory for only so many patches, or tokens, at once."""

    def __init__(self, compute: Callable[..., Tensor], most: int) -> None:
        self._compute = compute
        self._most = most
        self.batches: list[int] = []

    def __call__(self, packed: Tensor, *others: object) -> Tensor:
        self.batches.append(len(packed))
        if len(packed) > self._most:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return self._compute(packed, *others)


def test_a_vit_batch_that_does_not_fit_the_memory_is_halved_and_nothing_is_lost(
    model: Model, expected: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    largest = max(rows * columns for rows, columns in grids(model))
    scarce = ScarceMemory(model.vision.layers, 2 * largest)
    monkeypatch.setattr(model.vision, "layers", scarce)
    meter = Meter()

    # The limit on patches is far above what a batch holds: halving it alone would retry the same batch.
    limits = replace(LIMITS, vit_batch_size=NUM_REQUESTS, vit_max_patches=1_000_000)
    assert run(Engine(model, limits), meter) == expected

    too_large = [batch for batch in scarce.batches if batch > 2 * largest]
    assert meter.batches_halved == {"vit": len(too_large)}
    assert len(too_large) > 0
    assert all(later <= batch // 2 for batch, later in pairwise(scarce.batches[: len(too_large) + 1]))
    assert all(batch <= 2 * largest for batch in scarce.batches[len(too_large) :])
    assert meter.patches == sum(rows * columns for rows, columns in grids(model))


def test_a_prefill_that_does_not_fit_the_memory_is_halved_and_nothing_is_lost(
    model: Model, expected: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    plenty = ScarceMemory(model.language.prefill, 1_000_000)
    monkeypatch.setattr(model.language, "prefill", plenty)
    run(Engine(model, LIMITS))
    most = 2 * max(plenty.batches) // 3
    scarce = ScarceMemory(plenty, most)
    monkeypatch.setattr(model.language, "prefill", scarce)
    meter = Meter()

    assert run(Engine(model, LIMITS), meter) == expected

    too_large = [batch for batch in scarce.batches if batch > most]
    assert meter.batches_halved == {"prefill": len(too_large)}
    assert len(too_large) > 0
    assert all(batch <= most for batch in scarce.batches[len(too_large) :])


@pytest.mark.parametrize(("stage", "part", "name"), [("vit", "vision", "layers"), ("prefill", "language", "prefill")])
def test_once_memory_that_was_taken_for_a_moment_is_free_again_batches_are_as_large_as_before(
    model: Model, expected: Answers, monkeypatch: pytest.MonkeyPatch, stage: Stage, part: str, name: str
) -> None:
    monkeypatch.setattr("batchocr.engine.batch_limit._FIRST_WAIT", 1)
    compute = getattr(getattr(model, part), name)
    plenty = ScarceMemory(compute, 1_000_000)
    monkeypatch.setattr(getattr(model, part), name, plenty)
    engine = Engine(model, LIMITS)
    assert run(engine) == expected
    scarce = ScarceMemory(compute, max(plenty.batches) - 1)
    monkeypatch.setattr(getattr(model, part), name, scarce)
    meter = Meter()
    assert run(engine, meter) == expected
    assert meter.batches_halved[stage] >= 1
    for _ in range(3):
        monkeypatch.setattr(getattr(model, part), name, free := ScarceMemory(compute, 1_000_000))
        assert run(engine) == expected
    assert free.batches == plenty.batches


def test_one_image_or_prompt_that_does_not_fit_the_memory_is_an_error(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part, name in ((model.vision, "layers"), (model.language, "prefill")):
        with monkeypatch.context() as patching, pytest.raises(torch.OutOfMemoryError):
            patching.setattr(part, name, ScarceMemory(getattr(part, name), 1))
            run(Engine(model, LIMITS))


def grids(model: Model) -> list[PatchGrid]:
    images = [request(number).pixels for number in range(NUM_REQUESTS)]
    return [model.preprocessor.patch_grid(image.height, image.width, None) for image in images]


@pytest.mark.parametrize("max_rows", [1, 2, 3, 8, 13, 64, 100, 128, 200, 256, 1000])
def test_graph_sizes_grow_with_the_batch_and_end_with_the_largest(max_rows: int) -> None:
    sizes = graph_sizes(max_rows)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == max_rows
    for rows in range(1, max_rows + 1):
        padding = next(size for size in sizes if size >= rows) - rows
        assert padding < (8 if rows <= 64 else 16 if rows <= 128 else 32)


def test_the_sizes_for_256_sequences() -> None:
    tens = [8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256]
    assert graph_sizes(256) == [1, 2, 4, *tens]


def test_a_replay_is_padded_with_the_spare_row_to_the_next_size() -> None:
    seen: list[list[int]] = []

    def step(index: Tensor) -> tuple[Tensor, Tensor]:
        seen.append(index.tolist())
        return 10 * index, -index.double()

    graphs = DecodeGraphs(LateDevice(), step, max_rows=20, spare_row=20)
    assert graphs.replay([0]) is None

    graphs.capture()
    assert [len(index) for index in seen] == [20, 16, 8, 4, 2, 1]
    for count in range(1, 21):
        rows = list(range(20))[-count:]
        replayed = graphs.replay(rows)
        assert replayed is not None
        tokens, logprobs = replayed
        assert tokens.tolist() == [10 * row for row in rows]
        assert logprobs.tolist() == [-row for row in rows]
        size = next(size for size in graph_sizes(20) if size >= count)
        assert seen[-1] == rows + [20] * (size - count)


class FailingDevice(LateDevice):
    """Captures so many graphs and no more."""

    def __init__(self, graphs: int, *, failure: Exception | None = None, lazy: bool = False) -> None:
        super().__init__()
        self._left = graphs
        self._failure = failure or CaptureError("not while capturing")
        self.lazy_graphs = lazy

    def capture(self, functions: Sequence[Callable[[], Result]]) -> Iterator[Callable[[], Result]]:
        for function in functions:
            if not self._left:
                raise self._failure
            self._left -= 1
            yield self._capture(function)


@pytest.mark.parametrize(
    ("graphs", "said"),
    [
        (0, "for 4 sequences cannot be captured as a graph (not while capturing); going on without graphs"),
        (2, "for 1 sequences cannot be captured as a graph (not while capturing); going on with those for 2, 4"),
    ],
    ids=["the first", "the third"],
)
def test_a_graph_that_cannot_be_captured_costs_no_answer(
    checkpoint: Path, expected: Answers, graphs: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    device = FailingDevice(graphs)
    limits = replace(LIMITS, llm_batch_size=4)
    assert run(Engine(load(checkpoint, device, CapturableOps(CPU)), limits)) == expected
    [warning] = caplog.messages
    assert said in warning and "BATCHOCR_REJECT" in warning
    assert ("replay" in device.events) is bool(graphs)


def test_fewer_rows_than_any_graph_has_are_padded_to_the_smallest_that_was_captured() -> None:
    seen: list[int] = []

    def step(index: Tensor) -> tuple[Tensor, Tensor]:
        seen.append(len(index))
        return 10 * index, -index.double()

    graphs = DecodeGraphs(FailingDevice(2), step, max_rows=20, spare_row=20)
    graphs.capture()
    seen.clear()
    for count in (1, 8, 16, 17, 20):
        replayed = graphs.replay(list(range(count)))
        assert replayed is not None
        assert replayed[0].tolist() == [10 * row for row in range(count)]
    assert seen == [16, 16, 16, 20, 20]


def test_a_capture_that_breaks_the_device_ends_the_engine(checkpoint: Path) -> None:
    broken = FailingDevice(1, failure=EngineError("nothing works any more"))
    with pytest.raises(EngineError, match="nothing works any more"):
        Engine(load(checkpoint, broken, CapturableOps(CPU)), LIMITS)


def test_lazy_graphs_are_captured_for_the_largest_batch_and_for_those_that_come() -> None:
    seen: list[int] = []

    def step(index: Tensor) -> tuple[Tensor, Tensor]:
        seen.append(len(index))
        return 10 * index, -index.double()

    device = LateDevice()
    device.lazy_graphs = True
    graphs = DecodeGraphs(device, step, max_rows=20, spare_row=20)
    graphs.capture()
    assert seen == [20]
    for count, steps in [(3, [4, 4]), (4, [4]), (20, [20]), (9, [16, 16]), (3, [4]), (16, [16])]:
        seen.clear()
        replayed = graphs.replay(list(range(count)))
        assert replayed is not None
        assert replayed[0].tolist() == [10 * row for row in range(count)]
        assert seen == steps, "a step more where a graph is captured"


def test_lazy_graphs_give_the_same_answers(model: Model, device: WatchedDevice, expected: Answers) -> None:
    device.lazy_graphs = True
    assert run(Engine(model, LIMITS)) == expected
    assert "replay" in device.events


@pytest.mark.parametrize(
    "failure",
    [CaptureError("not while capturing"), torch.OutOfMemoryError("CUDA out of memory")],
    ids=["not while capturing", "out of memory"],
)
def test_a_lazy_graph_that_cannot_be_captured_costs_no_answer_and_is_said_once(
    checkpoint: Path, expected: Answers, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    device = FailingDevice(1, failure=failure, lazy=True)
    assert run(Engine(load(checkpoint, device, CapturableOps(CPU)), replace(LIMITS, llm_batch_size=4))) == expected
    [warning] = caplog.messages
    assert f"cannot be captured as a graph ({failure}); going on with those for 4: decoding is slower" in warning


def test_the_rows_of_a_lazy_graph_that_cannot_be_captured_are_padded_to_one_that_was() -> None:
    seen: list[int] = []

    def step(index: Tensor) -> tuple[Tensor, Tensor]:
        seen.append(len(index))
        return 10 * index, -index.double()

    graphs = DecodeGraphs(FailingDevice(2, lazy=True), step, max_rows=20, spare_row=20)
    graphs.capture()
    for count in (7, 3, 16, 8):
        seen.clear()
        replayed = graphs.replay(list(range(count)))
        assert replayed is not None
        assert replayed[0].tolist() == [10 * row for row in range(count)]
        assert seen == {7: [8, 8], 3: [8], 16: [20], 8: [8]}[count]


def test_a_lazy_capture_that_breaks_the_device_ends_the_run(checkpoint: Path) -> None:
    broken = FailingDevice(1, failure=EngineError("nothing works any more"), lazy=True)
    engine = Engine(load(checkpoint, broken, CapturableOps(CPU)), LIMITS)
    with pytest.raises(EngineError, match="nothing works any more"):
        run(engine)
