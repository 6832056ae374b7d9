"""Which sequences run: who is admitted, who waits, who is preempted, and that nothing is kept by those who left."""

from __future__ import annotations

import torch

from batchocr.data import Pixels, Sampling
from batchocr.engine.backend.device import Device
from batchocr.engine.backend.reference import Ops
from batchocr.engine.embedding_queue import EmbeddingQueue
from batchocr.engine.kv_cache import KVCache
from batchocr.engine.model.prompt import PromptTokens
from batchocr.engine.sampler import Sampler
from batchocr.engine.scheduler import Scheduler
from batchocr.engine.sequence import Sequence
from batchocr.processes.meter import Meter

BLOCK_SIZE = 4


class Bench:
    """A scheduler with what it schedules on: blocks of four tokens, rows, and a queue that takes everything."""

    def __init__(self, *, blocks: int = 100, rows: int = 10, prefill_max_tokens: int = 1000) -> None:
        cpu = torch.device("cpu")
        self.queue = EmbeddingQueue(10_000)
        self.cache = KVCache(torch.zeros(1, 2, blocks + 1, BLOCK_SIZE, 1, 2), num_lanes=rows)
        self.sampler = Sampler(Ops(cpu), Device(cpu), num_rows=rows, vocab_size=9, max_new_tokens=64)
        self.scheduler = Scheduler(
            self.queue,
            self.cache,
            self.sampler,
            prefill_max_tokens=prefill_max_tokens,
        )
        self.meter = Meter()
        self.free = (self.cache.num_free, self.sampler.num_free)

    def wait(self, *lengths: int) -> list[Sequence]:
        """Sequences with prompts of these lengths, waiting in the queue in this order."""
        waiting = [sequence(number, length) for number, length in enumerate(lengths)]
        for one in waiting:
            self.queue.reserve(one)
            self.queue.put(one)
        return waiting

    def step(self) -> list[int]:
        """Give every running sequence a slot and a token; returns the numbers of those that got one."""
        ready = self.scheduler.make_room(self.meter)
        for one in ready:
            one.output_ids.append(1)
        return numbers(ready)

    def admit(self) -> list[int]:
        return numbers(self.scheduler.admit())


def sequence(number: int, length: int) -> Sequence:
    return Sequence(
        request_id=number,
        prompt=PromptTokens(tuple(range(length)), image_start=0, num_image_tokens=1),
        positions=torch.zeros(3, length, dtype=torch.int64),
        position_shift=0,
        grid=(2, 2),
        resize_to=None,
        sampling=Sampling(64),
        pixels=Pixels(1, 1, b"\0\0\0"),
    )


def numbers(sequences: list[Sequence]) -> list[int]:
    return [one.request_id for one in sequences]


def test_a_prefill_takes_what_its_limit_allows_and_a_longer_prompt_alone() -> None:
    bench = Bench(prefill_max_tokens=20)
    bench.wait(8, 8, 8, 30, 4)
    assert [bench.admit() for _ in range(4)] == [[0, 1], [2], [3], [4]]


def test_no_more_run_than_there_are_rows_and_the_next_comes_when_one_ends() -> None:
    bench = Bench(rows=2)
    first, *_ = bench.wait(4, 4, 4)
    assert bench.admit() == [0, 1]
    assert bench.admit() == []
    bench.scheduler.finish(first)
    assert bench.admit() == [2]


def test_a_newcomer_leaves_every_running_sequence_a_block_to_grow_into() -> None:
    bench = Bench(blocks=5)
    bench.wait(8, 8, 4)
    assert bench.admit() == [0, 1]  # four blocks of five; a third would need the last one
    assert bench.admit() == []
    assert bench.step() == [0, 1]


def test_when_blocks_run_out_the_youngest_is_preempted_and_admitted_again_before_the_queue() -> None:
    bench = Bench(blocks=4)
    old, young, _ = bench.wait(8, 4, 4)
    assert bench.admit() == [0, 1]
    for _ in range(4):  # the old one fills its third block, the young one its second: five are needed
        bench.step()
    assert numbers(bench.scheduler.running) == [0]
    assert (bench.meter.preemptions, young.ended) == (1, True)
    assert (young.row, young.block_table) == (None, [])
    bench.scheduler.finish(old)
    again, _ = bench.scheduler.admit()
    assert (again.request_id, again.output_ids, again.ended) == (young.request_id, [], False)


def test_of_several_that_could_give_way_the_youngest_does() -> None:
    bench = Bench(blocks=6)
    bench.wait(6, 4, 4)  # four blocks; the younger ones soon take the last two
    assert bench.admit() == [0, 1, 2]
    for _ in range(4):  # then the oldest needs one more
        bench.step()
    assert numbers(bench.scheduler.running) == [0, 1]


def test_a_sequence_that_cannot_go_on_keeps_its_place_and_gets_no_slot() -> None:
    bench = Bench()
    full, _ = bench.wait(4, 4)
    bench.admit()
    full.output_ids += [1] * full.sampling.max_new_tokens
    ready = bench.scheduler.make_room(bench.meter)
    assert numbers(ready) == [1]
    assert numbers(bench.scheduler.running) == [0, 1]


def test_those_who_leave_keep_neither_rows_nor_blocks() -> None:
    bench = Bench()
    ended, preempted, again, _ = bench.wait(4, 8, 8, 12)
    bench.admit()
    bench.scheduler.finish(ended)
    bench.scheduler.preempt(preempted)
    bench.scheduler.begin_again(again, sequence(9, 8))
    assert bench.admit() == [1, 9]
    bench.scheduler.clear()
    assert (bench.cache.num_free, bench.sampler.num_free) == bench.free
    assert not bench.scheduler.has_work
