"""Engines that break, hang or lie: their batches are answered by others, and one that breaks two is answered with an
error."""

from __future__ import annotations

import gc
import shutil
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from weakref import WeakKeyDictionary

import pytest
import torch
from torch import Tensor

from batchocr.config import Config
from batchocr.data import Completion, Pixels, Request, Sampling
from batchocr.engine import serve
from batchocr.engine.engine import Engine
from batchocr.engine.model.preprocess import PatchGrid
from batchocr.engine.model.vision import VisionModel
from batchocr.errors import EngineError, ModelError, UsageError
from batchocr.planning.families import read_architecture
from batchocr.planning.limits import engine_limits
from batchocr.processes import engines as engines_module
from batchocr.processes.channel import wait_for
from batchocr.processes.engine_messages import DeviceFound, LoadModel
from batchocr.processes.engines import Engines
from batchocr.processes.meter import Meter
from batchocr.processes.pixels import SharedBatch, share_batch
from batchocr.processes.questions import Questions
from tests.support import harmful_kernels
from tests.support.checkpoints import make_checkpoint
from tests.support.engine_thread import EngineThread
from tests.support.running import eventually

pytestmark = pytest.mark.slow

SIZES = [(56, 56), (56, 112), (84, 84), (112, 56), (56, 84)]
DEADLINE_S = 60.0

Answers = dict[int, tuple[Completion, ...]]
Answered = list[tuple[int, Completion]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture
def make(folder: Path) -> Iterator[Callable[..., Engines]]:
    """Engines for these devices that have loaded the model, as is planned; ended with the test."""
    made = []

    def load(device: str, planned: Callable[[Path, DeviceFound], LoadModel] = plan) -> Engines:
        made.append(engines := Engines(device, "reference"))
        engines.open()
        engines.load(lambda found: planned(folder, found), max_batches=100)
        return engines

    yield load
    for engines in made:
        engines.close()


def test_a_model_is_loaded_as_soon_as_its_device_is_known(
    make: Callable[[str], Engines], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batchocr.processes.engines._LOOK_INTERVAL_S", 20.0)
    begun_s = time.monotonic()
    make("cpu")
    assert time.monotonic() - begun_s < 15


def test_what_an_engine_has_loaded_is_not_searched_for_garbage_again(
    make: Callable[[str], Engines], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "gc", gc)
    gc.unfreeze()
    make("cpu")
    eventually(lambda: gc.get_freeze_count() > 100_000)
    gc.unfreeze()


def test_a_kernel_that_ends_the_engine_is_named_and_left_out_if_the_user_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch, engine_processes: None
) -> None:
    exits, breaks = harmful_kernels.HARMFUL
    for left_out, said in [("", f"exit code 1; it was trying the kernel {exits}: "), (exits, f"{breaks} has broken")]:
        monkeypatch.setenv("BATCHOCR_REJECT", left_out)
        engines = Engines("cpu", "reference", command=harmful_kernels.COMMAND)
        engines.open()
        with pytest.raises(EngineError, match=f"{said}.*leave it out with BATCHOCR_REJECT="):
            engines.load(lambda found: plan(folder, found), max_batches=100)
    monkeypatch.setenv("BATCHOCR_REJECT", f"{exits},{breaks}")
    engines = Engines("cpu", "reference", command=harmful_kernels.COMMAND)
    try:
        engines.open()
        engines.load(lambda found: plan(folder, found), max_batches=100)
        assert all(completion.error is None for completion in ask(engines, [(0,)])[0])
        assert [use.num_lost for use in engines.uses()] == [0]
    finally:
        engines.close()


def plan(folder: Path, found: DeviceFound) -> LoadModel:
    config = Config(vit_batch_size=3, vit_max_patches=3000, llm_batch_size=4, max_new_tokens=12)
    architecture = read_architecture(folder)
    limits = engine_limits(config, architecture, on_gpu=False, memory_bytes=1 << 30, value_bytes=4)
    return LoadModel(str(folder), "float32", "auto", limits)


def request(number: int) -> Request:
    height, width = SIZES[number]
    noise = torch.randint(0, 256, (height * width * 3,), generator=torch.manual_seed(number))
    return Request(Pixels(height, width, bytes(noise.tolist())), "\nText Recognition:", Sampling(12))


def batch_of(*numbers: int) -> SharedBatch:
    return SharedBatch(*share_batch(0, [request(number) for number in numbers]))


def take_all(questions: Questions, number: int) -> Answers:
    """The answers to this many batches."""
    answers: Answers = {}
    deadline_s = time.monotonic() + DEADLINE_S
    while len(answers) < number:
        assert time.monotonic() < deadline_s
        for key, completions in questions.take_answers():
            assert key not in answers, "a batch was answered twice"
            answers[key] = completions
        wait_for(questions.channels, 0.05 if len(answers) < number else 0)
    return answers


def ask(engines: Engines, batches: Sequence[Sequence[int]]) -> Answers:
    """What the engines answer to these batches, each of some of the requests."""
    questions = Questions(engines, shares=False)
    for key, numbers in enumerate(batches):
        questions.ask(key, batch_of(*numbers))
    return take_all(questions, len(batches))


def texts(answers: Answers) -> dict[int, list[str]]:
    return {key: [completion.text for completion in completions] for key, completions in answers.items()}


def break_on(monkeypatch: pytest.MonkeyPatch, *bad: int) -> list[int]:
    """Make an engine break at the first step in which it has one of these requests; returns those of each."""
    submit, step = Engine.submit, Engine.step
    has: WeakKeyDictionary[Engine, set[int]] = WeakKeyDictionary()
    broken: list[int] = []

    def note(engine: Engine, request_id: int, asked: Request) -> Completion | None:
        size = (asked.pixels.height, asked.pixels.width)
        if size in SIZES:
            has.setdefault(engine, set()).add(SIZES.index(size))
        return submit(engine, request_id, asked)

    def step_or_break(engine: Engine, meter: Meter) -> Answered:
        if found := has.get(engine, set()) & set(bad):
            engine._vision._announce(1.0, [sequence.request_id for *_, sequence in engine._vision._waiting])
            broken.append(min(found))
            raise RuntimeError("an illegal memory access was encountered\nand more lines")
        return step(engine, meter)

    monkeypatch.setattr(Engine, "submit", note)
    monkeypatch.setattr(Engine, "step", step_or_break)
    return broken


ONE_BY_ONE = [(0,), (1,), (2,), (3,), (4,)]


def test_a_request_that_breaks_two_engines_fails_alone(
    make: Callable[[str], Engines], monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = make("cpu")
    expected = texts(ask(engines, [(0, 1), (2, 3), (4,)]))
    engines.forget()
    broken = break_on(monkeypatch, 2)
    answers = ask(engines, [(0, 1), (2, 3), (4,)])
    [failed] = [answer for completions in answers.values() for answer in completions if answer.error]
    assert failed is answers[1][0]
    assert failed.error == "the engine failed on it: RuntimeError: an illegal memory access was encountered"
    assert set(broken) == {2} and 2 <= len(broken) <= 5
    answers[1] = answers[1][1:]
    expected[1] = expected[1][1:]
    assert texts(answers) == expected
    assert sum(use.num_lost for use in engines.uses()) == len(broken)


def test_the_rounds_of_an_engine_that_is_killed_are_answered_by_another_and_nobody_is_to_blame(
    make: Callable[[str], Engines], monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = make("cpu,cpu")
    expected = texts(ask(engines, ONE_BY_ONE))
    engines.forget()
    step, killed = Engine.step, threading.Event()

    def kill_one(engine: Engine, meter: Meter) -> Answered:
        if not killed.is_set():
            killed.set()
            engines.channels[0].close()
            time.sleep(0.05)
        return step(engine, meter)

    monkeypatch.setattr(Engine, "step", kill_one)
    assert texts(ask(engines, ONE_BY_ONE)) == expected
    assert [use.num_lost for use in engines.uses()] == [1, 0]


@pytest.mark.long
def test_an_engine_that_hangs_is_replaced_once_its_step_takes_much_longer_than_it_should(
    make: Callable[[str], Engines], monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = make("cpu")
    expected = texts(ask(engines, ONE_BY_ONE))
    step, hangs, let_go = Engine.step, threading.Lock(), threading.Event()

    def hang_once(engine: Engine, meter: Meter) -> Answered:
        if hangs.acquire(blocking=False):
            let_go.wait(DEADLINE_S)
        return step(engine, meter)

    monkeypatch.setattr(Engine, "step", hang_once)
    monkeypatch.setattr(engines_module, "_STEP_S", 1.0)
    monkeypatch.setattr("tests.support.engine_thread._JOIN_S", 0.0)
    assert texts(ask(engines, ONE_BY_ONE)) == expected
    assert [use.num_lost for use in engines.uses()] == [1]
    let_go.set()
    engines.close()
    eventually(lambda: not [thread for thread in threading.enumerate() if thread.name == "batchocr-engine"])


def test_ctrl_c_while_engines_are_being_ended_leaves_none(
    make: Callable[[str], Engines], monkeypatch: pytest.MonkeyPatch
) -> None:
    engines, wait, ended = make("cpu,cpu"), EngineThread.wait, []

    def wait_and_be_interrupted(engine: EngineThread, timeout: float) -> None:
        wait(engine, timeout)
        ended.append(engine)
        raise KeyboardInterrupt

    monkeypatch.setattr(EngineThread, "wait", wait_and_be_interrupted)
    with pytest.raises(KeyboardInterrupt):
        engines.close()
    assert (len(ended), engines.channels) == (2, [])


def test_what_was_asked_before_is_forgotten(make: Callable[[str], Engines]) -> None:
    engines = make("cpu,cpu")
    expected = texts(ask(engines, [(4,)]))
    questions = Questions(engines)
    for key in range(4):
        questions.ask(key + 10, batch_of(key))
    engines.forget()
    assert texts(ask(engines, [(4,)])) == expected
    assert sum(use.counts.patches for use in engines.uses()) == 4 * 6


def test_work_is_shared_by_its_size(make: Callable[[str], Engines]) -> None:
    engines = make("cpu,cpu")
    ask(engines, ONE_BY_ONE * 2)
    patches = [use.counts.patches for use in engines.uses()]
    assert min(patches) > 0.3 * sum(patches)


def test_one_bad_page_of_many_questions_costs_few_engines_and_no_other_page(
    make: Callable[[str], Engines], monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = make("cpu")
    expected = texts(ask(engines, [(1, 3), (4,), (1, 4, 3)]))
    engines.forget()
    broken = break_on(monkeypatch, 0, 2)
    answers = ask(engines, [(1, 3), (4,), (1, 4, 3), (0, 2) * 4])
    assert all(completion.error for completion in answers.pop(3))
    assert texts(answers) == expected
    assert len(broken) <= 8


def test_a_round_whose_engines_are_killed_again_and_again_is_to_blame_and_no_other(
    make: Callable[[str], Engines], monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = make("cpu")
    broken = break_on(monkeypatch, 2)
    monkeypatch.setattr(EngineThread, "returncode", -signal.SIGKILL)
    monkeypatch.setattr("batchocr.engine.serve._say_last", lambda *_: None)
    answers = ask(engines, [*ONE_BY_ONE, *ONE_BY_ONE[3:]])
    assert {key for key, [completion] in answers.items() if completion.error} == {2}
    assert 5 <= len(broken) <= 7


def test_a_model_that_is_gone_when_an_engine_is_replaced_costs_only_that_engine(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "model"))
    engines = Engines("cpu,cpu", "reference")
    planned = plan(copy, engines.open())
    engines.load(lambda found: planned, max_batches=100)
    shutil.rmtree(copy)
    try:
        engines.channels[0].close()
        answers = ask(engines, ONE_BY_ONE)
        assert not any(completion.error for [completion] in answers.values())
        questions = Questions(engines)
        eventually(lambda: questions.take_answers() == [] and len(engines.channels) == 1)
    finally:
        engines.close()


def test_engines_that_have_all_been_lost_are_an_error_and_not_silence(make: Callable[[str], Engines]) -> None:
    engines = make("cpu")
    questions = Questions(engines)
    questions.ask(0, batch_of(0))
    engines.close()
    with pytest.raises(EngineError, match="there is no engine any more"):
        questions.take_answers()


def test_an_engine_has_no_more_rounds_than_it_may(make: Callable[[str], Engines]) -> None:
    engines = make("cpu")
    engines.load(lambda found: plan(Path(), found), max_batches=2)
    [engine], questions = engines.able, Questions(engines)
    for key, numbers in enumerate(ONE_BY_ONE):
        questions.ask(key, batch_of(*numbers))
    assert len(engine.asked) == 2
    assert len(take_all(questions, 5)) == 5


@pytest.mark.parametrize("prompt", ["<|image_pad|>", "<|vision_start|>" * 99])
def test_a_question_that_no_model_understands_is_answered_with_an_error(
    prompt: str, make: Callable[[str], Engines]
) -> None:
    engines = make("cpu")
    odd = replace(request(0), prompt=prompt)
    questions = Questions(engines)
    questions.ask(0, SharedBatch(*share_batch(0, [odd, request(1)])))
    odd_answer, answer = take_all(questions, 1)[0]
    assert answer.error is None
    assert odd_answer.error or odd_answer.text is not None
    assert engines.uses()[0].num_lost == 0


def test_a_run_goes_on_without_a_device_that_cannot_be_used_even_if_it_is_the_first(
    make: Callable[..., Engines], caplog: pytest.LogCaptureFixture
) -> None:
    engines = make("cuda:0,cpu")
    assert texts(ask(engines, [(0,)]))
    assert "going on without cuda:0: --device cuda:0 cannot be used here" in caplog.text
    assert [use.device for use in engines.uses()] == ["cpu", "cuda:0"]


def test_a_run_goes_on_without_a_device_that_has_no_room(
    make: Callable[..., Engines], caplog: pytest.LogCaptureFixture
) -> None:
    rooms = iter([True, False])

    def plan_if_there_is_room(folder: Path, found: DeviceFound) -> LoadModel:
        if next(rooms):
            return plan(folder, found)
        raise UsageError("it does not fit")

    assert texts(ask(make("cpu,cpu", plan_if_there_is_room), [(0,)]))
    assert "going on without cpu: it does not fit" in caplog.text


def test_a_model_that_cannot_be_loaded_is_an_error_however_many_engines_there_are(folder: Path, tmp_path: Path) -> None:
    engines = Engines("cpu,cpu", "reference")
    engines.open()
    with pytest.raises(ModelError, match="holds no"):
        engines.load(lambda found: replace(plan(folder, found), folder=str(tmp_path)), max_batches=100)
    assert engines.channels == []


def test_rounds_that_are_forgotten_while_an_engine_is_replaced_leave_it_well(
    make: Callable[[str], Engines], monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = make("cpu")
    expected = texts(ask(engines, [(4,)]))
    with monkeypatch.context() as broken:
        break_on(broken, 0)
        questions = Questions(engines)
        questions.ask(0, batch_of(0))
        while engines.uses()[0].num_lost == 0:
            assert questions.take_answers() == []
    engines.forget()
    assert texts(ask(engines, [(4,)])) == expected
    assert engines.uses()[0].num_lost == 0


def spoil(monkeypatch: pytest.MonkeyPatch, *sizes: tuple[int, int], most_engines: int) -> None:
    """Make the values of images of these sizes not finite, in so many engines at most."""
    layers, spoilt = VisionModel.layers, set[VisionModel]()

    def layers_or_nonsense(
        self: VisionModel, patches: Tensor, grids: Sequence[PatchGrid]
    ) -> Generator[None, None, Tensor]:
        embeddings = yield from layers(self, patches, grids)
        for grid, part in zip(grids, embeddings.split([rows * columns // 4 for rows, columns in grids]), strict=True):
            if (grid[0] * 14, grid[1] * 14) in sizes and (self in spoilt or len(spoilt) < most_engines):
                spoilt.add(self)
                part.fill_(torch.nan)
        return embeddings

    monkeypatch.setattr(VisionModel, "layers", layers_or_nonsense)


@pytest.mark.parametrize("batches", [ONE_BY_ONE, ONE_BY_ONE[:1]])
def test_a_device_that_computes_nonsense_costs_no_answer(
    batches: Sequence[Sequence[int]], make: Callable[[str], Engines], monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = make("cpu")
    expected = texts(ask(engines, batches))
    engines.forget()
    spoil(monkeypatch, *SIZES, most_engines=1)
    answers = ask(engines, batches)
    assert not any(completion.error for [completion] in answers.values())
    assert texts(answers) == expected
    assert [use.num_lost for use in engines.uses()] == [1]


def test_a_request_whose_values_are_never_finite_fails_alone(
    make: Callable[[str], Engines], monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = make("cpu")
    expected = texts(ask(engines, ONE_BY_ONE))
    engines.forget()
    spoil(monkeypatch, SIZES[2], most_engines=9)
    answers = ask(engines, ONE_BY_ONE)
    [failed] = answers.pop(2)
    assert "values that are not finite" in (failed.error or "")
    assert texts(answers) == {key: text for key, text in expected.items() if key != 2}
    assert sum(use.num_lost for use in engines.uses()) in (0, 2)  # none, if another was answered meanwhile
