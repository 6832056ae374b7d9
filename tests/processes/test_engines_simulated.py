"""Engines that exist only here, and are killed, or break on bad questions, or at everything; the run's side is real.

Hundreds of runs, each with its own seed: every batch is answered once, the run ends, and no good question is blamed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from batchocr.data import Completion, Pixels, Request, Sampling
from batchocr.errors import EngineError
from batchocr.processes import engines as pool_engines
from batchocr.processes.channel import ChannelError
from batchocr.processes.counts import Counts
from batchocr.processes.engine_messages import (
    Answers,
    Broken,
    DeviceFound,
    EngineLimits,
    FromEngine,
    LoadModel,
    Ready,
    UseDevice,
    Working,
)
from batchocr.processes.engines import Engines
from batchocr.processes.messages import Question
from batchocr.processes.pixels import SharedBatch, share_batch
from batchocr.processes.questions import Questions
from tests.support.fake_engines import SimulatedEngine

NUM_ROUNDS, IN_FLIGHT, MOST_QUESTIONS = 24, 12, 4
GOOD, BAD = "good", "bad"
WELL = Completion("text", "stop", 1, 1, 0.5, -1.0)
LIMITS = EngineLimits(
    vit_batch_size=1,
    vit_max_patches=1,
    embedding_queue_tokens=1,
    llm_batch_size=1,
    prefill_max_tokens=1,
    max_new_tokens=1,
    num_kv_tokens=1,
)
MOST_STEPS = 5000


@dataclass
class World:
    """What may happen in a run. broken: devices that fail at every question. killed: how probable it is at each step
    that an engine is killed. stillborn: that it is lost as it starts."""

    seed: int
    broken: tuple[str, ...] = ()
    killed: float = 0.0
    stillborn: float = 0.0
    chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)


class EngineOfTheWorld(SimulatedEngine):
    """It begins with some batches at each step, and answers some of them at the next ones."""

    world: World

    def says(self) -> Iterator[FromEngine]:
        chance, device = self.world.chance, self.use.device
        if chance.random() < 0.3:
            return
        if self.found is None:
            yield DeviceFound(device, (device,), "reference", 1)
        elif self.ready is not None:
            yield from self._work(chance)
        elif self.is_loading:
            if chance.random() >= self.world.stillborn:
                yield Ready()
            elif chance.random() < 0.5:
                self.close()
            else:
                yield Broken("it did not start")

    def _work(self, chance: random.Random) -> Iterator[FromEngine]:
        is_killed = chance.random() < self.world.killed
        fresh = [number for number in self.asked if number not in self.begun]
        yield Working(0.0, tuple(fresh[: chance.randint(0, 6)]))
        is_bad = any(question.prompt == BAD for number in self.begun for question in self.asked[number])
        if is_killed:
            self.close()
        elif is_bad or (self.begun and self.use.device in self.world.broken):
            yield Broken("it broke")
        else:
            for number in [number for number in sorted(self.begun) if chance.random() < 0.5]:
                yield Answers(number, (WELL,) * len(self.asked[number]), Counts())


@pytest.fixture(autouse=True)
def _simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_engines, "EngineProcess", EngineOfTheWorld)
    monkeypatch.setattr(pool_engines, "wait_for", lambda *_: set())


def batch_of(prompts: Sequence[str]) -> SharedBatch:
    pixel = Pixels(1, 1, b"\0\0\0")
    requests = [Request(pixel, prompt, Sampling(1)) for prompt in prompts]
    return SharedBatch(*share_batch(0, requests))


def opened(devices: str) -> Engines:
    """Engines that are ready."""
    engines = Engines(devices, "reference")
    engines.open()
    engines.load(lambda found: LoadModel("", "float32", "auto", LIMITS), max_batches=IN_FLIGHT)
    return engines


def read(world: World, devices: str, bad: Sequence[int]) -> tuple[int, int]:
    """Have all batches answered, of which `bad` have a bad question; how many bad and good questions had an error."""
    EngineOfTheWorld.world = world
    batches = {
        key: [GOOD] * world.chance.randint(0, MOST_QUESTIONS - 1) + [BAD if key in bad else GOOD]
        for key in range(NUM_ROUNDS)
    }
    to_ask, in_flight = list(batches), set[int]()
    blamed = {BAD: 0, GOOD: 0}
    questions = Questions(opened(devices), shares=False)
    for _ in range(MOST_STEPS):
        while to_ask and len(in_flight) < IN_FLIGHT:
            in_flight.add(to_ask[0])
            questions.ask(to_ask[0], batch_of(batches[to_ask.pop(0)]))
        for key, completions in questions.take_answers():
            in_flight.remove(key)
            for prompt, completion in zip(batches[key], completions, strict=True):
                blamed[prompt] += completion.error is not None
        if not in_flight and not to_ask:
            return blamed[BAD], blamed[GOOD]
    raise AssertionError(f"{sorted(in_flight)} are never answered")


@pytest.mark.slow
@pytest.mark.parametrize("devices", ["d0", "d0,d1", "d0,d1,d2"])
@pytest.mark.parametrize(
    ("num_bad", "broken", "killed", "stillborn"),
    [(0, (), 0.03, 0.0), (3, (), 0.0, 0.0), (3, (), 0.02, 0.1), (12, (), 0.0, 0.0), (2, ("d1",), 0.0, 0.0)],
    ids=["kills", "bad questions", "all at once", "every second page is bad", "a broken device and bad questions"],
)
def test_every_round_is_answered_once_and_only_bad_questions_are_blamed(
    devices: str, num_bad: int, broken: tuple[str, ...], killed: float, stillborn: float
) -> None:
    for seed in range(15):
        bad = random.Random(seed).sample(range(NUM_ROUNDS), num_bad)
        world = World(seed, broken, killed, stillborn)
        assert read(world, devices, bad) == (num_bad, 0), f"seed {seed}"


@pytest.mark.parametrize(
    ("num_bad", "killed"), [(0, 0.03), (3, 0.02), (12, 0.0)], ids=["kills", "both", "every second page is bad"]
)
def test_every_round_is_answered_once_if_pages_share_their_questions(num_bad: int, killed: float) -> None:
    for seed in range(15):
        world = EngineOfTheWorld.world = World(seed, killed=killed)
        names = [f"{GOOD} {number}" for number in range(12)]
        bad = world.chance.sample(range(NUM_ROUNDS), num_bad)
        batches = {
            key: world.chance.choices(names, k=world.chance.randint(1, MOST_QUESTIONS)) + [BAD] * (key in bad)
            for key in range(NUM_ROUNDS)
        }
        questions = Questions(opened("d0,d1"))
        to_ask, answered = list(batches), dict[int, list[bool]]()
        for _ in range(MOST_STEPS):
            while to_ask and NUM_ROUNDS - len(to_ask) - len(answered) < IN_FLIGHT:
                questions.ask(to_ask[0], batch_of(batches[to_ask.pop(0)]))
            for key, completions in questions.take_answers():
                assert key not in answered
                answered[key] = [completion.error is not None for completion in completions]
            if len(answered) == NUM_ROUNDS:
                break
        else:
            raise AssertionError(f"seed {seed}: some are never answered")
        assert answered == {key: [prompt == BAD for prompt in prompts] for key, prompts in batches.items()}
        assert questions.counts.asked == sum(map(len, batches.values()))


def test_a_device_that_fails_at_everything_is_given_up_before_many_are_blamed_for_it() -> None:
    EngineOfTheWorld.world = World(0, broken=("d0",))
    engines = opened("d0")
    questions = Questions(engines, shares=False)
    for key in range(NUM_ROUNDS):
        questions.ask(key, batch_of([GOOD]))
    with pytest.raises(EngineError, match="the engine on d0 failed: it broke"):
        while True:
            assert questions.take_answers() == []
    assert [use.num_lost for use in engines.uses()] == [8]


@pytest.mark.parametrize(
    ("broken", "killed", "num_lost"), [(("d0",), 0.0, 24), ((), 1.0, 30)], ids=["it breaks", "it is killed"]
)
def test_a_device_that_has_worked_is_given_up_after_more_losses(
    broken: tuple[str, ...], killed: float, num_lost: int
) -> None:
    world = EngineOfTheWorld.world = World(0)
    engines = opened("d0")
    questions = Questions(engines, shares=False)
    for key in range(NUM_ROUNDS):
        questions.ask(key, batch_of([GOOD]))
    while not questions.take_answers():
        assert engines.uses()[0].num_lost == 0
    world.broken, world.killed = broken, killed
    with pytest.raises(EngineError, match="the engine on d0 failed: it "):
        while True:
            questions.take_answers()
    assert [use.num_lost for use in engines.uses()] == [num_lost]


def test_a_device_on_which_no_engine_starts_is_given_up_after_six() -> None:
    EngineOfTheWorld.world = World(0, stillborn=1.0)
    engines = Engines("d0", "reference")
    engines.open()
    with pytest.raises(EngineError, match="the engine on d0 failed: it "):
        engines.load(lambda found: LoadModel("", "float32", "auto", LIMITS), max_batches=IN_FLIGHT)
    assert [use.num_lost for use in engines.uses()] == [6]


class PlacedEngine(EngineOfTheWorld):
    """Notes the cores of each that is started, and how many engines divide them."""

    placed: list[tuple[set[int], int]]

    def __init__(self, message: UseDevice, *given: Any, cores: set[int]) -> None:
        super().__init__(message, *given, cores=cores)
        self.placed.append((set(cores), message.num_sharing))


@pytest.mark.parametrize(
    ("devices", "placed"),
    [
        ("cpu", [(set(), 1)]),
        ("cpu,cpu", [({0, 1}, 1), ({2, 3}, 1)]),
        ("cpu,cpu,cpu", [(set(), 3)] * 3),
        ("cpu,cpu,cpu,cpu", [({0, 1}, 2), ({2, 3}, 2)] * 2),
        ("cuda:0,cuda:1", [(set(), 2)] * 2),
    ],
)
def test_engines_on_the_cpu_are_on_a_node_of_memory_each_where_all_nodes_get_as_many(
    devices: str, placed: list[tuple[set[int], int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_engines, "EngineProcess", PlacedEngine)
    monkeypatch.setattr(pool_engines, "cores_of_nodes", lambda: [{0, 1}, {2, 3}])
    PlacedEngine.world, PlacedEngine.placed = World(0), []
    opened(devices)
    assert PlacedEngine.placed == placed


class GreedyEngine(SimulatedEngine):
    """It begins with all that it has, and breaks on a bad question; at its next step it has the answers."""

    asks: list[tuple[int, int]]
    """How much each was asked at once: how many batches it had by then, and how many questions came in this."""
    had: list[int]
    """How many batches each had that broke."""

    def ask(self, number: int, batch: SharedBatch, questions: Sequence[Question]) -> None:
        super().ask(number, batch, questions)
        self.asks.append((len(self.asked), len(questions)))

    def says(self) -> Iterator[FromEngine]:
        if self.found is None:
            yield DeviceFound("d0", ("d0",), "reference", 1)
        elif self.ready is None:
            yield Ready()
        elif self.asked.keys() - self.begun:
            yield Working(0.0, tuple(self.asked))
            if any(question.prompt == BAD for questions in self.asked.values() for question in questions):
                self.had.append(len(self.asked))
                yield Broken("it broke")
        else:
            for number, questions in list(self.asked.items()):
                yield Answers(number, (WELL,) * len(questions), Counts())


def read_a_bad_page(
    bad_page: list[str], *, beside: int, max_batches: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[Engines, list[bool]]:
    """Have the questions of a page answered, and of so many good ones; which of the page had an error."""
    monkeypatch.setattr(pool_engines, "EngineProcess", GreedyEngine)
    GreedyEngine.asks, GreedyEngine.had = [], []
    engines = Engines("d0", "reference")
    engines.open()
    engines.load(lambda found: LoadModel("", "float32", "auto", LIMITS), max_batches=max_batches)
    questions, answers = Questions(engines, shares=False), dict[int, tuple[Completion, ...]]()
    questions.ask(0, batch_of(bad_page))
    for key in range(1, beside + 1):
        questions.ask(key, batch_of([GOOD] * 3))
    while len(answers) <= beside:
        answers.update(questions.take_answers())
    blamed = [each.error is not None for each in answers.pop(0)]
    assert not any(each.error for completions in answers.values() for each in completions)
    return engines, blamed


@pytest.mark.parametrize(
    ("bad_page", "beside", "num_lost", "asked_alone"),
    [
        ([GOOD, BAD, GOOD], 499, 3, [3] * 500 + [1] * 3),
        ([BAD], 499, 3, [3] * 499 + [1, 1]),
        ([GOOD, BAD, GOOD], 0, 3, [3, 1, 1, 1]),
        ([BAD] * 9, 0, 4, [9, 1, 1]),
    ],
    ids=["one of three", "one alone", "nothing else to answer", "all of a page"],
)
def test_a_page_with_bad_questions_costs_few_engines_and_its_device_is_not_given_up(
    bad_page: list[str], beside: int, num_lost: int, asked_alone: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    engines, blamed = read_a_bad_page(bad_page, beside=beside, max_batches=beside + 1, monkeypatch=monkeypatch)
    assert blamed == [prompt == BAD for prompt in bad_page]
    assert [use.num_lost for use in engines.uses()] == [num_lost]
    assert sorted(GreedyEngine.asks[beside + 1 :], reverse=True) == [(1, number) for number in asked_alone]


class ForgetfulEngine(GreedyEngine):
    """The first of them leaves out an answer."""

    num_started = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        ForgetfulEngine.num_started += 1
        self._is_first = ForgetfulEngine.num_started == 1

    def receive(self) -> list[Answers]:
        try:
            return super().receive()
        except ChannelError as error:
            self.fault = str(error)
            return []

    def says(self) -> Iterator[FromEngine]:
        for message in super().says():
            if self._is_first and isinstance(message, Answers):
                message = replace(message, completions=message.completions[1:])
            yield message


def test_questions_that_an_engine_gave_too_few_answers_to_are_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_engines, "EngineProcess", ForgetfulEngine)
    ForgetfulEngine.asks, ForgetfulEngine.had, ForgetfulEngine.num_started = [], [], 0
    engines = Engines("d0", "reference")
    engines.open()
    engines.load(lambda found: LoadModel("", "float32", "auto", LIMITS), max_batches=4)
    questions = Questions(engines, shares=False)
    questions.ask(0, batch_of([GOOD] * 3))
    answers = [each for _ in range(MOST_STEPS) for each in questions.take_answers()]
    assert answers == [(0, (WELL,) * 3)]
    assert [use.num_lost for use in engines.uses()] == [1]


def test_what_is_suspect_is_asked_of_an_engine_that_has_nothing_else_though_others_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, blamed = read_a_bad_page([GOOD, BAD], beside=40, max_batches=4, monkeypatch=monkeypatch)
    assert blamed == [False, True]
    assert GreedyEngine.had == [4, 1, 1]


def test_an_engine_whose_replacement_was_interrupted_is_replaced_in_the_next_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    EngineOfTheWorld.world = World(0, broken=("d1",))
    engines = opened("d0,d1")

    def interrupted(*_: object, **__: object) -> EngineOfTheWorld:
        raise KeyboardInterrupt

    questions = Questions(engines)
    questions.ask(0, batch_of([GOOD] * 2))
    questions.ask(1, batch_of([f"{GOOD} too"]))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(pool_engines, "EngineProcess", interrupted)
        for _ in range(MOST_STEPS):
            questions.take_answers()
    questions.close()
    engines.forget()
    EngineOfTheWorld.world = World(0)
    questions = Questions(engines)
    while len(engines.able) < 2:
        assert questions.take_answers() == []
