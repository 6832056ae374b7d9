"""Engines that exist only here, and are killed, or break on bad questions, or at everything; the run's side is real.

Hundreds of runs, each with its own seed: every batch is answered once, the run ends, and no good question is blamed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from batchocr.data import Completion, Pixels, Request, Sampling
from batchocr.errors import EngineError
from batchocr.processes import engine_slot
from batchocr.processes import engines as pool_engines
from batchocr.processes.counts import Counts
from batchocr.processes.deduplicator import RequestDeduplicator
from batchocr.processes.engine_messages import Answers, DeviceFound, EngineLimits, LoadModel, Ready, UseDevice
from batchocr.processes.engine_process import EngineLoss
from batchocr.processes.engines import Engines
from batchocr.processes.pixels import SharedBatch, share_batch

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


class SimulatedEngine:
    """Stands for EngineProcess. It begins with some batches at each step, and answers some of them at the next ones."""

    world: World

    def __init__(self, use: UseDevice, command: object, clock: object) -> None:
        self.pid = 0
        self.channel = self
        self.counts = Counts()
        self.found: DeviceFound | None = None
        self.ready: Ready | None = None
        self.is_loading = False
        self.begun: set[int] = set()
        self._device = use.device
        self._prompts: dict[int, list[str]] = {}
        self._lost: EngineLoss | None = None

    def load(self, message: LoadModel) -> None:
        self.is_loading = True

    def ask(self, number: int, batch: SharedBatch, positions: Sequence[int]) -> None:
        self._prompts[number] = [batch.message.questions[position].prompt for position in positions]

    def loss(self) -> EngineLoss | None:
        return self._lost

    def close(self) -> None:
        """It holds nothing; neither does the channel that it also stands for."""

    def receive(self) -> list[Answers]:
        chance = self.world.chance
        if self._lost is not None or chance.random() < 0.3:
            return []
        if self.found is None:
            self.found = DeviceFound(self._device, (self._device,), "reference", 1)
        elif self.is_loading and self.ready is None:
            if chance.random() < self.world.stillborn:
                self._lost = EngineLoss("it did not start", killed=chance.random() < 0.5)
            else:
                self.ready = Ready("")
        elif self.ready is not None:
            return self._work(chance)
        return []

    def _work(self, chance: random.Random) -> list[Answers]:
        if chance.random() < self.world.killed:
            self._lost = EngineLoss("it was killed", killed=True)
        fresh = [number for number in self._prompts if number not in self.begun]
        self.begun.update(fresh[: chance.randint(0, 6)])
        is_bad = any(BAD in self._prompts[number] for number in self.begun)
        if self._lost is None and (is_bad or (self.begun and self._device in self.world.broken)):
            self._lost = EngineLoss("it broke")
        if self._lost is not None:
            return []
        done = [number for number in sorted(self.begun) if chance.random() < 0.5]
        self.begun.difference_update(done)
        return [Answers(number, (WELL,) * len(self._prompts.pop(number)), Counts()) for number in done]


@pytest.fixture(autouse=True)
def _simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_engines, "EngineProcess", SimulatedEngine)
    monkeypatch.setattr(pool_engines, "wait_for", lambda *_: set())
    monkeypatch.setattr(engine_slot, "peak_resident_bytes", lambda _: None)


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
    SimulatedEngine.world = world
    batches = {
        key: [GOOD] * world.chance.randint(0, MOST_QUESTIONS - 1) + [BAD if key in bad else GOOD]
        for key in range(NUM_ROUNDS)
    }
    to_ask, in_flight = list(batches), set[int]()
    blamed = {BAD: 0, GOOD: 0}
    engines = opened(devices)
    for _ in range(MOST_STEPS):
        while to_ask and len(in_flight) < IN_FLIGHT:
            in_flight.add(to_ask[0])
            engines.ask(to_ask[0], batch_of(batches[to_ask.pop(0)]))
        for key, completions in engines.take_answers():
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
        world = SimulatedEngine.world = World(seed, killed=killed)
        names = [f"{GOOD} {number}" for number in range(12)]
        bad = world.chance.sample(range(NUM_ROUNDS), num_bad)
        batches = {
            key: world.chance.choices(names, k=world.chance.randint(1, MOST_QUESTIONS)) + [BAD] * (key in bad)
            for key in range(NUM_ROUNDS)
        }
        shared = RequestDeduplicator(opened("d0,d1"))
        to_ask, answered = list(batches), dict[int, list[bool]]()
        for _ in range(MOST_STEPS):
            while to_ask and NUM_ROUNDS - len(to_ask) - len(answered) < IN_FLIGHT:
                shared.ask(to_ask[0], batch_of(batches[to_ask.pop(0)]))
            for key, completions in shared.take_answers():
                assert key not in answered
                answered[key] = [completion.error is not None for completion in completions]
            if len(answered) == NUM_ROUNDS:
                break
        else:
            raise AssertionError(f"seed {seed}: some are never answered")
        assert answered == {key: [prompt == BAD for prompt in prompts] for key, prompts in batches.items()}
        assert shared.counts.asked == sum(map(len, batches.values()))


def test_a_device_that_fails_at_everything_is_given_up_before_many_are_blamed_for_it() -> None:
    with pytest.raises(EngineError, match="the engine on d0 failed: it broke"):
        read(World(0, broken=("d0",)), "d0", [])
