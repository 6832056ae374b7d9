"""Which sequences run: admission by tokens, rows and KV blocks, and preemption when blocks run out."""

from __future__ import annotations

from collections import deque

from batchocr.engine.batch_limit import BatchLimit
from batchocr.engine.embedding_queue import EmbeddingQueue
from batchocr.engine.kv_cache import KVCache
from batchocr.engine.sampler import Sampler
from batchocr.engine.sequence import Sequence
from batchocr.processes.meter import Meter


class Scheduler:
    """Owns the running sequences and the preempted ones, which are admitted before the queue."""

    def __init__(self, queue: EmbeddingQueue, cache: KVCache, sampler: Sampler, *, prefill_max_tokens: int) -> None:
        self.running: list[Sequence] = []
        """The running sequences, oldest first."""
        self.prefill_limit = BatchLimit("prefill", prefill_max_tokens, "tokens (--prefill-max-tokens)")
        self._queue = queue
        self._cache = cache
        self._sampler = sampler
        self._preempted: deque[Sequence] = deque()

    @property
    def has_work(self) -> bool:
        return bool(self.running or self._preempted or len(self._queue))

    def admit(self) -> list[Sequence]:
        """Admit as many waiting sequences as one prefill batch, the rows and the KV blocks allow, and allocate their
        rows and blocks. A prompt longer than the batch limit gets a batch of its own."""
        admitted: list[Sequence] = []
        tokens = 0
        while (
            self._sampler.num_free
            and (sequence := self._preempted[0] if self._preempted else self._queue.peek()) is not None
        ):
            tokens += sequence.num_tokens
            if admitted and tokens > self.prefill_limit.size:
                break
            # Keep a spare block per running sequence, or the newcomer would be the first to be preempted.
            needed = self._cache.blocks_for(sequence.num_tokens)
            if self.running and needed + len(self.running) > self._cache.num_free:
                break
            if not self._cache.grow(sequence.block_table, sequence.num_tokens):
                break
            self._take_waiting()
            sequence.row = self._sampler.bind(sequence.sampling, sequence.prompt.token_ids)
            admitted.append(sequence)
            self.running.append(sequence)
        return admitted

    def make_room(self, meter: Meter) -> list[Sequence]:
        """Give running sequences a slot for their newest token; if blocks run out, preempt the youngest.

        Returns the sequences that decode in this step: those that can go on and got a slot.
        """
        ready: list[Sequence] = []
        block_size = self._cache.block_size
        pending = deque([sequence for sequence in self.running if sequence.can_go_on])
        while pending:
            sequence = pending.popleft()
            # Nearly all are within a block, and need not ask for one.
            while sequence.num_tokens > len(sequence.block_table) * block_size and not self._cache.grow(
                sequence.block_table, sequence.num_tokens
            ):
                youngest = pending.pop() if pending else sequence
                self.preempt(youngest)
                meter.preemptions += 1
                if youngest is sequence:
                    break
            else:
                ready.append(sequence)
        return ready

    def preempt(self, sequence: Sequence) -> None:
        """End a running sequence, and have its request begin again, ahead of all others."""
        self._preempted.appendleft(sequence.again())
        self._end(sequence)

    def finish(self, sequence: Sequence) -> None:
        """Release what a finished sequence holds."""
        self._end(sequence)
        sequence.embeddings = None

    def begin_again(self, ended: Sequence, again: Sequence) -> None:
        """Finish a sequence and queue another in its place."""
        self.finish(ended)
        self._preempted.append(again)

    def clear(self) -> None:
        """Forget every sequence, running or waiting, and free all rows and blocks."""
        while self.running:
            self._end(self.running[-1])
        self._preempted.clear()
        self._queue.clear()

    def _end(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self._cache.release(sequence.block_table)
        assert sequence.row is not None
        self._sampler.release(sequence.row)
        sequence.row, sequence.ended = None, True

    def _take_waiting(self) -> None:
        if self._preempted:
            self._preempted.popleft()
        else:
            self._queue.pop()
