"""The second stage: prefills the sequences in the queue and runs decode steps, with its own batch size."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor

from batchocr.data import Completion, FinishReason, failed_completion
from batchocr.engine.backend.base import Segments
from batchocr.engine.backend.device import DeviceClock, Mark
from batchocr.engine.decode_rows import DecodeRows
from batchocr.engine.embedding_queue import EmbeddingQueue
from batchocr.engine.graphs import DecodeGraphs
from batchocr.engine.kv_cache import KVCache
from batchocr.engine.model.checkpoint import Model
from batchocr.engine.sampler import Sampler
from batchocr.engine.scheduler import Scheduler
from batchocr.engine.sequence import Announce, Sequence
from batchocr.planning.cost import decode_flop, prefill_flop
from batchocr.planning.limits import max_output_tokens
from batchocr.processes.counts import Stage
from batchocr.processes.engine_messages import EngineLimits
from batchocr.processes.meter import Meter

_LOOP_WINDOW = 768
_LOOP_GRAM = 8
_LOOP_CHECK_EVERY = 64

Answers = list[tuple[int, Completion]]
"""What requests ended with: (request_id, completion)."""


@dataclass(frozen=True, slots=True)
class _Launched:
    """A prefill or a decode step whose tokens the host has not read yet."""

    stage: Stage
    batch: list[Sequence]
    limit: float
    """How many sequences the batch could have had."""
    flop: float
    begun: Mark
    chosen: Tensor
    """The chosen tokens and their log-probabilities: float64 [2, sequences] on the host, valid once `done` is
    reached."""
    done: Mark


class DecodeStage:
    """Owns the KV cache and the running sequences."""

    def __init__(
        self, model: Model, queue: EmbeddingQueue, clock: DeviceClock, announce: Announce, limits: EngineLimits
    ) -> None:
        self._model = model
        self._device = model.device
        self._clock = clock
        self._announce = announce
        self._batch_size = batch_size = limits.llm_batch_size
        language = model.architecture.language
        num_kv_blocks = -(-limits.num_kv_tokens // model.ops.kv_block_size)
        self.cache = KVCache(model.language.new_cache(num_kv_blocks + 1), num_lanes=batch_size)
        self._sampler = Sampler(
            model.ops,
            model.device,
            num_rows=batch_size,
            vocab_size=language.vocab_size,
            max_new_tokens=max_output_tokens(limits.max_new_tokens, model.architecture),
        )
        self._rows = DecodeRows(
            model.device,
            num_rows=batch_size,
            max_blocks=self.cache.blocks_for(min(language.max_positions, self.cache.num_tokens)),
            block_size=self.cache.block_size,
        )
        self._graphs = DecodeGraphs(model.device, self._captured_step, max_rows=batch_size, spare_row=self._rows.spare)
        if model.ops.capturable:
            self._graphs.capture()
        self.scheduler = Scheduler(queue, self.cache, self._sampler, prefill_max_tokens=limits.prefill_max_tokens)
        self._launched: deque[_Launched] = deque()
        self._has_waited = False

    @property
    def has_work(self) -> bool:
        return self.scheduler.has_work or bool(self._launched)

    def run(self, meter: Meter, *, beside_vision: bool) -> Answers:
        """Read the tokens of earlier launches, prefill what fits, and launch one decode step.

        beside_vision: whether the device has other work. Then a step with few sequences, which takes it about as long
        as a full one, waits once, for another slice of the ViT.
        """
        few = len(self.scheduler.running) < self._batch_size // 4
        self._has_waited = beside_vision and few and not self._has_waited
        if self._has_waited:
            return self._read(meter)
        finished = self._read(meter, keep=self._device.max_unread)
        admitted = self.scheduler.admit()
        if admitted:
            self._try_prefill(admitted, meter)
            finished += self._read(meter, keep=self._device.max_unread)
        decoding = self.scheduler.make_room(meter)
        if decoding:
            self._launched.append(self._decode(decoding))
        return finished + self._read(meter, keep=None if decoding else 0)

    def clear(self) -> None:
        """Wait for the work on the device, then forget every request."""
        while self._launched:
            self._launched.popleft().done.wait()
        self.scheduler.clear()

    def _try_prefill(self, batch: list[Sequence], meter: Meter) -> None:
        """Prefill the batch. If it does not fit in device memory, requeue it; later batches are smaller."""
        try:
            self._launched.append(self._prefill(batch))
        except torch.OutOfMemoryError:
            if len(batch) == 1:
                raise
            for sequence in reversed(batch):
                self.scheduler.preempt(sequence)
            self.scheduler.prefill_limit.halve(sum(sequence.num_tokens for sequence in batch), meter)
        else:
            self.scheduler.prefill_limit.count_good()

    def _prefill(self, batch: list[Sequence]) -> _Launched:
        lengths = [sequence.num_tokens for sequence in batch]
        flop = prefill_flop(self._model.architecture.language, lengths)
        self._announce(flop, [])
        positions = self._device.upload(torch.cat([sequence.positions for sequence in batch], dim=1))
        slots = self._device.upload(torch.cat([self._slots(sequence) for sequence in batch]))
        segments = Segments.of(lengths, self._device.upload)
        begun = self._device.mark()
        x = self._embedded(batch)
        logits = self._model.language.prefill(x, positions, slots, segments, self.cache.pool)
        index = self._upload(_rows_of(batch))
        tokens, logprobs = self._sampler.sample(logits, index, _longest(batch))
        self._rows.begin(batch, index, tokens)
        mean_tokens = len(x) / len(batch)
        limit = max(len(batch), min(self._batch_size, self.scheduler.prefill_limit.size // mean_tokens))
        return _Launched("prefill", batch, limit, flop, begun, *self._read_back(batch, tokens, logprobs))

    def _embedded(self, batch: list[Sequence]) -> Tensor:
        """The embedded prompts, packed: [tokens, width]."""
        texts = []
        for sequence in batch:
            prompt = sequence.prompt
            texts.append(prompt.token_ids[: prompt.image_start])
            texts.append(prompt.token_ids[prompt.image_start + prompt.num_image_tokens :])
        embedded = self._model.language.embed(self._upload([token for text in texts for token in text]))
        parts = list(torch.split(embedded, [len(text) for text in texts]))
        for place, sequence in enumerate(batch):
            assert sequence.embeddings is not None and sequence.encoded is not None
            self._device.take_over(sequence.embeddings, sequence.encoded)
            parts.insert(3 * place + 1, sequence.embeddings)
        return torch.cat(parts)

    def _decode(self, batch: list[Sequence]) -> _Launched:
        self._rows.extend(batch)
        rows, lengths = _rows_of(batch), [sequence.num_tokens for sequence in batch]
        flop = decode_flop(self._model.architecture.language, lengths)
        self._announce(flop, [])
        begun = self._device.mark()  # the host's time before this must not count as the device's
        chosen = self._graphs.replay(rows)
        if chosen is None:
            index = self._upload(rows)
            logits = self._logits(index, max(lengths))
            chosen = self._sampler.sample(logits, index, _longest(batch))
            self._rows.advance(index, chosen[0])
        return _Launched("decode", batch, self._batch_size, flop, begun, *self._read_back(batch, *chosen))

    def _captured_step(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """A decode step that needs nothing from the host, so that a graph can replay it."""
        tokens, logprobs = self._sampler.sample(self._logits(index, None), index, 0)
        self._rows.advance(index, tokens)
        return tokens.double(), logprobs.double()  # as they are read back: converted later, they would be two launches

    def _logits(self, index: Tensor, longest: int | None) -> Tensor:
        tokens, positions, slots, context = self._rows.next_inputs(index, longest)
        return self._model.language.decode(tokens, positions, slots, context, self.cache.pool)

    def _read_back(self, batch: list[Sequence], tokens: Tensor, logprobs: Tensor) -> tuple[Tensor, Mark]:
        for sequence in batch:
            sequence.num_unread += 1
        return self._device.read_back(torch.stack([tokens.double(), logprobs.double()]))

    def _read(self, meter: Meter, *, keep: int | None = None) -> Answers:
        """Read the tokens of launched work that is done; unless keep is None, after waiting for all but the newest
        `keep`. Returns the requests that ended."""
        finished: Answers = []
        while self._launched and (
            (keep is not None and len(self._launched) > keep) or self._launched[0].done.is_done()
        ):
            step = self._launched.popleft()
            step.done.wait()
            meter.model_flop += step.flop
            begun_s, done_s = self._clock.at(step.begun), self._clock.at(step.done)
            meter.add_on_device(step.stage, begun_s, done_s, items=len(step.batch), limit=step.limit)
            tokens, logprobs = step.chosen.tolist()
            for sequence, token, logprob in zip(step.batch, tokens, logprobs, strict=True):
                sequence.num_unread -= 1
                # It may have ended with the previous token, or been preempted, after this step was launched.
                completion = None if sequence.ended else self._take(sequence, int(token), logprob)
                if completion is not None:
                    self.scheduler.finish(sequence)
                    finished.append((sequence.request_id, completion))
        return finished

    def _take(self, sequence: Sequence, token: int, logprob: float) -> Completion | None:
        """Process the newest token. Returns the completion if the request ends with it."""
        if not math.isfinite(logprob):
            # Attention multiplies masked tokens by 0, and 0 · NaN is NaN: the next owner of these blocks would get it.
            self.cache.wipe(self._upload(sequence.block_table))
            return failed_completion("the model computed values that are not finite")
        reason = self._append(sequence, token, logprob)
        if reason is None:
            return None
        completion = sequence.complete(self._model.prompts.decode(sequence.output_ids), reason)
        if reason == "repetition" and sequence.looped is None:
            self.scheduler.begin_again(sequence, sequence.without_loops(completion))
            return None
        return completion

    def _append(self, sequence: Sequence, token: int, logprob: float) -> FinishReason | None:
        """Append the newest token. Returns the finish reason, or None if the sequence continues."""
        sequence.logprobs.append(logprob)
        if token in self._model.prompts.stop_token_ids:
            return "stop"
        sequence.output_ids.append(token)
        outputs, loop_check = sequence.output_ids, sequence.sampling.loop_check
        if len(outputs) >= sequence.sampling.max_new_tokens:
            return "repetition" if loop_check == "at_limit" and goes_in_circles(outputs) else "length"
        if loop_check == "at_once" and len(outputs) % _LOOP_CHECK_EVERY == 0 and goes_in_circles(outputs):
            return "repetition"
        return None

    def _slots(self, sequence: Sequence) -> Tensor:
        """The cache slots of all tokens so far: int64 [num_tokens] on the host."""
        offsets = torch.arange(self.cache.block_size)
        slots = torch.tensor(sequence.block_table).unsqueeze(1) * self.cache.block_size + offsets
        return slots.flatten()[: sequence.num_tokens]

    def _upload(self, values: list[int]) -> Tensor:
        return self._device.upload(torch.tensor(values, dtype=torch.int64))


def _longest(batch: list[Sequence]) -> int:
    """How many output tokens a sequence has at most, with the next one; 0 if no sequence has a rule."""
    if not any(sequence.sampling.has_rules for sequence in batch):
        return 0
    return max(sequence.num_outputs for sequence in batch) + 1


def _rows_of(batch: list[Sequence]) -> list[int]:
    return [sequence.row for sequence in batch if sequence.row is not None]


def goes_in_circles(output_ids: list[int]) -> bool:
    """Whether the newest 768 tokens have too few distinct 8-grams to be from a document, other than a table.

    The n-gram rule alone does not end a loop: it forces one odd token in a hundred.
    """
    if len(output_ids) < _LOOP_WINDOW:
        return False
    window = output_ids[-_LOOP_WINDOW:]
    grams = {tuple(window[start : start + _LOOP_GRAM]) for start in range(_LOOP_WINDOW - _LOOP_GRAM + 1)}
    return len(grams) < _LOOP_WINDOW // 6
