"""Penalties and the n-gram rule against straightforward references, one sequence at a time."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import RepetitionPenaltyLogitsProcessor

from batchocr.data import Sampling
from batchocr.engine.backend.base import SamplerRows
from batchocr.engine.backend.device import Device
from batchocr.engine.backend.reference import Ops
from batchocr.engine.sampler import Sampler

VOCABULARY = 7
STEPS = 40
PROMPT = [2, 4, 4, 4, 6]


def new_sampler(num_rows: int) -> Sampler:
    cpu = torch.device("cpu")
    ops, device = Ops(cpu), Device(cpu)
    return Sampler(ops, device, num_rows=num_rows, vocab_size=VOCABULARY, max_new_tokens=STEPS)


def reference_choice(logits: list[float], sampling: Sampling, output: list[int]) -> int:
    """The next token, by the rules as vLLM's sampler, transformers and MinerU's n-gram processor state them."""
    counts = Counter(output)
    scores = []
    repetition = RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty)
    for token, score in enumerate(repetition(torch.tensor([[*PROMPT, *output]]), torch.tensor([logits]))[0].tolist()):
        score -= sampling.frequency_penalty * counts[token]
        score -= sampling.presence_penalty * (counts[token] > 0)
        scores.append(score)
    size = sampling.no_repeat_ngram_size
    if size:
        prefix = output[len(output) - (size - 1) :] if size > 1 else []
        for start in range(len(output) - size + 1):
            if output[start : start + size - 1] == prefix and len(prefix) == size - 1:
                scores[output[start + size - 1]] = -torch.inf
    return scores.index(max(scores))


SETTINGS = [
    Sampling(STEPS),
    Sampling(STEPS, presence_penalty=1.0, frequency_penalty=0.05),
    Sampling(STEPS, presence_penalty=0.5, no_repeat_ngram_size=2),
    Sampling(STEPS, no_repeat_ngram_size=3),
    Sampling(STEPS, no_repeat_ngram_size=4, frequency_penalty=0.3),
    Sampling(STEPS, repetition_penalty=1.5),
    Sampling(STEPS, repetition_penalty=0.8, presence_penalty=0.5, frequency_penalty=0.05, no_repeat_ngram_size=3),
]


def test_choices_follow_the_rules_for_a_batch_of_different_settings() -> None:
    sampler = new_sampler(num_rows=8)
    rows = [sampler.bind(sampling, PROMPT) for sampling in SETTINGS]
    outputs: list[list[int]] = [[] for _ in SETTINGS]
    generator = torch.manual_seed(0)
    # A few tokens are favoured, so that sequences would repeat themselves without the rules.
    favoured = 2 * torch.randn(len(SETTINGS), VOCABULARY, generator=generator)
    for step in range(STEPS):
        logits = favoured + torch.randn(len(SETTINGS), VOCABULARY, generator=generator)
        expected = [
            reference_choice(row.tolist(), sampling, output)
            for row, sampling, output in zip(logits, SETTINGS, outputs, strict=True)
        ]
        tokens, logprobs = sampler.sample(logits.clone(), torch.tensor(rows), step + 1)
        assert tokens.tolist() == expected
        assert torch.allclose(logprobs, logits.log_softmax(-1).gather(1, tokens[:, None])[:, 0], atol=1e-6)
        for output, token in zip(outputs, expected, strict=True):
            output.append(token)


@pytest.mark.parametrize("sampling", SETTINGS)
def test_a_row_begins_anew_for_each_sequence(sampling: Sampling) -> None:
    sampler = new_sampler(num_rows=2)
    generator = torch.manual_seed(1)
    row = sampler.bind(sampling, PROMPT)
    output: list[int] = []
    for step in range(STEPS):
        logits = torch.randn(1, VOCABULARY, generator=generator)
        if step % 8 == 7:
            sampler.release(row)
            row, output = sampler.bind(sampling, PROMPT), []
        tokens, _ = sampler.sample(logits.clone(), torch.tensor([row]), len(output) + 1)
        assert tokens.tolist() == [reference_choice(logits[0].tolist(), sampling, output)]
        output += tokens.tolist()


def test_a_row_that_was_given_back_before_it_was_used_begins_for_the_next_sequence_alone() -> None:
    sampler = new_sampler(num_rows=2)
    sampler.release(sampler.bind(SETTINGS[1], PROMPT))
    rows = [sampler.bind(SETTINGS[2], PROMPT), sampler.bind(SETTINGS[0], PROMPT)]
    logits = torch.tensor([[3.0, 2.9, 2.8, 2.7, 3.5, 3.6, 0.1]]).repeat(2, 1)
    chosen = [sampler.sample(logits.clone(), torch.tensor(rows), step)[0] for step in (1, 2)]
    assert torch.stack(chosen).tolist() == [[5, 5], [4, 5]]


class WorkOnDevice(TorchDispatchMode):
    """Counts what is launched on the meta device: uploads and operations, but no views."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operation(*args, **(kwargs or {}))
        values = tree_leaves((args, result))
        is_there = any(isinstance(value, Tensor) and value.is_meta for value in values)
        self.count += is_there and not operation.is_view
        return result


class ChooseNothing(Ops):
    """Leaves only what the sampler itself does."""

    def sample(self, logits: Tensor, index: Tensor, rows: SamplerRows, longest: int) -> tuple[Tensor, Tensor]:
        return index, index


def test_a_row_forgets_the_penalty_and_the_prompt_of_its_last_sequence() -> None:
    sampler = new_sampler(num_rows=1)
    logits = torch.tensor([[3.0, 2.9, 2.8, 2.7, 3.1, -0.5, 0.1]])
    chosen = []
    for sampling, prompt in [(SETTINGS[5], [4]), (SETTINGS[5], [0, 1]), (SETTINGS[3], [4])]:
        row = sampler.bind(sampling, prompt)
        chosen.append(sampler.sample(logits.clone(), torch.tensor([row]), 1)[0].item())
        sampler.release(row)
    assert chosen == [0, 4, 4]


@pytest.mark.parametrize(("sampling", "expected"), [(SETTINGS[1], 9), (SETTINGS[5], 11)])
def test_as_much_is_launched_for_eight_sequences_that_begin_as_for_one(sampling: Sampling, expected: int) -> None:
    meta = torch.device("meta")
    sampler = Sampler(ChooseNothing(meta), Device(meta), num_rows=9, vocab_size=VOCABULARY, max_new_tokens=STEPS)
    launches = []
    for num_sequences in (1, 8):
        with WorkOnDevice() as work:
            rows = [sampler.bind(sampling, PROMPT) for _ in range(num_sequences)]
            sampler.sample(torch.empty(0), torch.tensor(rows), 1)
        launches.append(work.count)
    assert launches == [expected, expected]
