"""The second stage: prefill of what the queue holds, and decode steps, in batches of its own size."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from batchocr.backend.base import PagedContext, Segments
from batchocr.data import Completion, FinishReason
from batchocr.engine.embedding_queue import EmbeddingQueue
from batchocr.engine.kv_cache import KVCache
from batchocr.engine.sampler import Sampler
from batchocr.engine.scheduler import Scheduler
from batchocr.engine.sequence import Sequence
from batchocr.meter import Meter
from batchocr.model.checkpoint import Model

_LOOP_WINDOW = 768
_LOOP_GRAM = 8
_LOOP_CHECK_EVERY = 64


class DecodeStage:
    """Owns the KV cache and the running sequences."""

    def __init__(
        self,
        model: Model,
        queue: EmbeddingQueue,
        *,
        batch_size: int,
        prefill_max_tokens: int,
        num_kv_blocks: int,
        max_new_tokens: int,
    ) -> None:
        self._model = model
        self._batch_size = batch_size
        self._prefill_max_tokens = prefill_max_tokens
        self.cache = KVCache(model.language.new_cache(num_kv_blocks))
        self._sampler = Sampler(
            num_rows=batch_size,
            vocab_size=model.architecture.language.vocab_size,
            max_new_tokens=max_new_tokens,
            device=model.device,
        )
        self.scheduler = Scheduler(queue, self.cache, self._sampler, prefill_max_tokens=prefill_max_tokens)

    def run(self, meter: Meter) -> list[tuple[int, Completion]]:
        """Prefill what fits, run one decode step. Returns what ended: (request_id, completion)."""
        finished: list[tuple[int, Completion]] = []
        admitted = self.scheduler.admit()
        if admitted:
            started = time.perf_counter()
            mean_tokens = sum(sequence.num_tokens for sequence in admitted) / len(admitted)
            fillable = max(len(admitted), min(self._batch_size, self._prefill_max_tokens / mean_tokens))
            finished += self._retire_finished(admitted, self._prefill(admitted))
            meter.add("prefill", time.perf_counter() - started, items=len(admitted), limit=fillable)
        decoding = self.scheduler.make_room()
        if decoding:
            started = time.perf_counter()
            finished += self._retire_finished(decoding, self._decode(decoding))
            meter.add("decode", time.perf_counter() - started, items=len(decoding), limit=self._batch_size)
        return finished

    def _prefill(self, batch: list[Sequence]) -> Tensor:
        token_ids = [[*sequence.prompt.token_ids, *sequence.output_ids] for sequence in batch]
        x = self._model.language.embed(self._to_device([token for tokens in token_ids for token in tokens]))
        ends = torch.tensor([0, *map(len, token_ids)]).cumsum(0)
        for sequence, start in zip(batch, ends.tolist(), strict=False):
            assert sequence.embeddings is not None
            image = start + sequence.prompt.image_start
            x[image : image + sequence.prompt.num_image_tokens] = sequence.embeddings
        positions = torch.cat([sequence.all_positions() for sequence in batch], dim=1).to(self._model.device)
        slots = torch.cat([self._slots(sequence) for sequence in batch]).to(self._model.device)
        segments = Segments([len(tokens) for tokens in token_ids], ends.to(self._model.device, torch.int32))
        return self._model.language.prefill(x, positions, slots, segments, self.cache.pool)

    def _decode(self, batch: list[Sequence]) -> Tensor:
        lengths = [sequence.num_tokens for sequence in batch]
        longest = max(len(sequence.block_table) for sequence in batch)
        tables = [sequence.block_table + [0] * (longest - len(sequence.block_table)) for sequence in batch]
        context = PagedContext(
            block_tables=self._to_device(tables, torch.int32),
            lengths=lengths,
            lengths_device=self._to_device(lengths, torch.int32),
        )
        positions = self._to_device([sequence.next_position for sequence in batch]).expand(3, -1)
        slots = self._to_device([self._slot(sequence, sequence.num_tokens - 1) for sequence in batch])
        last = self._to_device([sequence.output_ids[-1] for sequence in batch])
        return self._model.language.decode(last, positions, slots, context, self.cache.pool)

    def _retire_finished(self, batch: list[Sequence], logits: Tensor) -> list[tuple[int, Completion]]:
        rows = [sequence.row for sequence in batch if sequence.row is not None]
        tokens, logprobs = self._sampler.sample(logits, rows)
        finished = []
        for sequence, token, logprob in zip(batch, tokens.tolist(), logprobs.tolist(), strict=True):
            sequence.logprobs.append(logprob)
            reason = self._append(sequence, token)
            if reason is not None:
                self.scheduler.retire(sequence)
                text = self._model.prompts.decode(sequence.output_ids)
                finished.append((sequence.request_id, sequence.complete(text, reason)))
        return finished

    def _append(self, sequence: Sequence, token: int) -> FinishReason | None:
        """Take the newest token; returns why the sequence ends with it, None where it goes on."""
        if token in self._model.prompts.stop_token_ids:
            return "stop"
        sequence.output_ids.append(token)
        too_long = sequence.num_tokens >= self._model.architecture.language.max_positions
        if too_long or len(sequence.output_ids) >= sequence.sampling.max_new_tokens:
            return "length"
        if sequence.sampling.stop_loops and goes_in_circles(sequence.output_ids):
            return "repetition"
        return None

    def _slots(self, sequence: Sequence) -> Tensor:
        """The cache slots of all tokens so far: int64 [num_tokens] on the host."""
        offsets = torch.arange(self.cache.block_size)
        slots = torch.tensor(sequence.block_table).unsqueeze(1) * self.cache.block_size + offsets
        return slots.flatten()[: sequence.num_tokens]

    def _slot(self, sequence: Sequence, index: int) -> int:
        block, offset = divmod(index, self.cache.block_size)
        return sequence.block_table[block] * self.cache.block_size + offset

    def _to_device(self, values: list[int] | list[list[int]], dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.tensor(values, dtype=dtype).to(self._model.device, non_blocking=True)


def goes_in_circles(output_ids: list[int]) -> bool:
    """Whether the newest 768 tokens are built from so few 8-grams that no document reads like that.

    Looked at every 64 tokens only. The n-gram rule alone does not end a loop: it forces one odd token in a hundred.
    """
    if len(output_ids) < _LOOP_WINDOW or len(output_ids) % _LOOP_CHECK_EVERY:
        return False
    window = output_ids[-_LOOP_WINDOW:]
    grams = {tuple(window[start : start + _LOOP_GRAM]) for start in range(_LOOP_WINDOW - _LOOP_GRAM + 1)}
    return len(grams) < _LOOP_WINDOW // 6
