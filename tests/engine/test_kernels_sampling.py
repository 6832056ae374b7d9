"""The sampling kernels against the reference, step by step: what they choose, and what they remember."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import fields

import pytest
import torch
from torch import Tensor

from batchocr.data import Sampling
from batchocr.engine.backend.base import SamplerRows
from batchocr.engine.backend.device import Device
from batchocr.engine.backend.kernels import sampling, vocabulary_piece
from batchocr.engine.backend.reference import Ops
from batchocr.engine.sampler import Sampler
from tests.support.kernel_compilation import Launch, kernel_device

VOCABULARY = 50
STEPS = 7
PROMPT = [*range(0, VOCABULARY, 3), 0, 0]
SETTINGS = [
    Sampling(STEPS),
    Sampling(STEPS, presence_penalty=1.0, frequency_penalty=0.05, no_repeat_ngram_size=100),
    Sampling(STEPS, presence_penalty=0.5, no_repeat_ngram_size=3),
    Sampling(STEPS, presence_penalty=-0.5, no_repeat_ngram_size=2),
    Sampling(STEPS, frequency_penalty=0.5, no_repeat_ngram_size=1),
    Sampling(STEPS, repetition_penalty=3.0),
    Sampling(STEPS, repetition_penalty=1.1, presence_penalty=0.5, frequency_penalty=0.05, no_repeat_ngram_size=2),
]


@pytest.fixture
def device() -> Iterator[torch.device]:
    with kernel_device(sampling, vocabulary_piece) as device, device:
        torch.manual_seed(0)
        yield device


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shrink the blocks, so that a few dozen tokens span several pieces, tiles and blocks."""
    for name, size in (("PIECE", 32), ("ROWS", 2), ("COLUMNS", 8), ("HISTORY_BLOCK", 8)):
        monkeypatch.setattr(sampling, name, size)


class RecordingOps:
    """The one operation that a sampler needs; keeps the rows it was handed."""

    rows: SamplerRows

    def __init__(self, *, reference: bool) -> None:
        self._reference = reference

    def sample(self, logits: Tensor, index: Tensor, rows: SamplerRows, longest: int) -> tuple[Tensor, Tensor]:
        self.rows = rows
        if self._reference:
            return Ops(logits.device).sample(logits, index, rows, longest)
        return sampling.sample(logits, index, rows, longest)


class BothSamplers:
    """Does everything twice, with the reference and with the kernels, and compares."""

    def __init__(self, num_rows: int, max_new_tokens: int, device: torch.device) -> None:
        self._longest = max_new_tokens
        self._ops = RecordingOps(reference=True), RecordingOps(reference=False)
        self._samplers = [
            Sampler(ops, Device(device), num_rows=num_rows, vocab_size=VOCABULARY, max_new_tokens=max_new_tokens)
            for ops in self._ops
        ]

    def bind(self, sampling: Sampling) -> int:
        first, second = (sampler.bind(sampling, PROMPT) for sampler in self._samplers)
        assert first == second
        return first

    def release(self, row: int) -> None:
        for sampler in self._samplers:
            sampler.release(row)

    def sample(self, logits: Tensor, rows: list[int]) -> list[int]:
        index = torch.tensor(rows, device=logits.device)
        expected, found = (sampler.sample(logits.clone(), index, self._longest) for sampler in self._samplers)
        assert found[0].tolist() == expected[0].tolist()
        torch.testing.assert_close(found[1], expected[1], atol=1e-5, rtol=1e-5)
        for field in fields(SamplerRows):
            assert torch.equal(*(getattr(ops.rows, field.name) for ops in self._ops)), field.name
        return found[0].tolist()


@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
def test_choices_and_memory_are_those_of_the_reference_step_by_step(device: torch.device) -> None:
    samplers = BothSamplers(len(SETTINGS) + 1, STEPS, device)
    rows = [samplers.bind(setting) for setting in SETTINGS]
    outputs: list[list[int]] = [[] for _ in SETTINGS]
    # A few tokens are favoured, so that sequences would repeat themselves without the rules; the same on any device.
    favoured = 1.5 * torch.randn(VOCABULARY, device="cpu")
    changed = torch.zeros(len(SETTINGS))
    order = random.Random(0)
    for step in range(STEPS):
        if step % 5 == 4:
            put_back = order.randrange(len(SETTINGS))
            samplers.release(rows[put_back])
            rows[put_back], outputs[put_back] = samplers.bind(SETTINGS[put_back]), []
        logits = (favoured + torch.randn(len(SETTINGS), VOCABULARY, device="cpu")).to(device)
        tokens = samplers.sample(logits, rows)
        changed += torch.tensor(tokens) != logits.argmax(dim=1)
        for output, token in zip(outputs, tokens, strict=True):
            output.append(token)
    assert changed[0] == 0 and bool((changed[1:] > 0).all())


@pytest.mark.usefixtures("small_blocks")
def test_a_token_that_would_close_a_long_ngram_again_is_not_chosen(device: torch.device) -> None:
    loop, setting = [3, 14, 15, 9, 26, 5, 35], Sampling(120, no_repeat_ngram_size=100)
    rows = rows_after([(setting, (20 * loop)[:105]), (setting, (20 * loop)[:106])], VOCABULARY, device)
    logits = torch.zeros(2, VOCABULARY)
    logits[0, loop[105 % 7]] = logits[1, loop[106 % 7]] = 9
    logits[:, 44] = 5

    assert chosen_by_both(logits, rows) == [loop[105 % 7], 44]


@pytest.mark.long
@pytest.mark.slow
def test_the_true_vocabulary_and_blocks_choose_as_the_reference_does(device: torch.device) -> None:
    vocab_size = 151_936
    # In bfloat16 many of these are equal.
    logits = torch.randn(3, vocab_size).bfloat16()
    leading = [row.argsort(descending=True, stable=True)[:600].tolist() for row in logits]
    settings = (
        Sampling(700, presence_penalty=3.0, frequency_penalty=0.05),
        Sampling(700, no_repeat_ngram_size=1),
        Sampling(700, repetition_penalty=4.0),
    )

    tokens = chosen_by_both(logits, rows_after(list(zip(settings, leading, strict=True)), vocab_size, device))

    assert all(token not in first for token, first in zip(tokens, leading, strict=True))


def rows_after(begun: list[tuple[Sampling, list[int]]], vocab_size: int, device: torch.device) -> SamplerRows:
    """The rows of sequences with these settings and outputs."""
    rows = SamplerRows.empty(len(begun) + 1, vocab_size, begun[0][0].max_new_tokens, device)
    for row, (setting, output) in enumerate(begun):
        tokens = torch.tensor(output)
        rows.history[row, : len(output)] = tokens
        rows.counts[row] = torch.bincount(tokens, minlength=vocab_size)
        rows.suffix[row, : len(output)] = torch.tensor([_common_suffix(output, end) for end in range(len(output))])
        rows.length[row], rows.ngram_size[row] = len(output), setting.no_repeat_ngram_size
        rows.presence[row], rows.frequency[row] = setting.presence_penalty, setting.frequency_penalty
        rows.repetition[row] = setting.repetition_penalty
    return rows


def _common_suffix(tokens: list[int], end: int) -> int:
    """How many tokens ending at this place match the end of the list; 0 at the end itself."""
    length = 0
    while end < len(tokens) - 1 and length <= end and tokens[end - length] == tokens[-1 - length]:
        length += 1
    return length


def chosen_by_both(logits: Tensor, rows: SamplerRows) -> list[int]:
    """The tokens that the kernels choose, as does the reference."""
    index = torch.arange(len(logits))
    copied = SamplerRows(**{field.name: getattr(rows, field.name).clone() for field in fields(rows)})
    longest = rows.history.shape[1]
    expected, logprobs = Ops(logits.device).sample(logits, index, copied, longest)
    found, found_logprobs = sampling.sample(logits.clone(), index, rows, longest)
    assert found.tolist() == expected.tolist()
    torch.testing.assert_close(found_logprobs, logprobs, atol=1e-5, rtol=1e-5)
    for field in fields(SamplerRows):
        assert torch.equal(getattr(rows, field.name), getattr(copied, field.name)), field.name
    return found.tolist()


@pytest.mark.usefixtures("small_blocks")
def test_nothing_is_remembered_of_padding_nor_in_a_full_row(device: torch.device) -> None:
    rows = SamplerRows.empty(4, VOCABULARY, 3, device)
    rows.length[1], rows.history[1], rows.counts[1, :3] = 3, torch.arange(3), 1
    before = {field.name: getattr(rows, field.name).clone() for field in fields(rows)}
    logits = torch.randn(4, VOCABULARY)

    tokens, _ = sampling.sample(logits.clone(), torch.tensor([1, 3, 3, 3]), rows, 3)

    assert tokens[1:].tolist() == logits[1:].argmax(dim=1).tolist()
    for name, value in before.items():
        assert torch.equal(getattr(rows, name), value), name


@pytest.mark.usefixtures("small_blocks")
def test_logits_that_are_no_numbers_choose_a_token_that_exists(device: torch.device) -> None:
    logits = torch.randn(2, VOCABULARY)
    logits[0, ::7], logits[1] = torch.nan, -torch.inf

    tokens, _ = sampling.sample(logits, torch.tensor([0, 1]), SamplerRows.empty(3, VOCABULARY, 4, device), 4)

    assert all(0 <= token < VOCABULARY for token in tokens.tolist())


@pytest.mark.usefixtures("small_blocks")
def test_rows_of_a_wider_matrix_are_left_alone_beyond_the_vocabulary(device: torch.device) -> None:
    wide = torch.randn(2, 64)
    wide[:, VOCABULARY:] = 99
    expected = wide[:, :VOCABULARY].argmax(dim=1).tolist()

    tokens, _ = sampling.sample(
        wide[:, :VOCABULARY], torch.tensor([0, 1]), SamplerRows.empty(3, VOCABULARY, 4, device), 4
    )

    assert tokens.tolist() == expected
    assert bool((wide[:, VOCABULARY:] == 99).all())


def _launch(dtype: torch.dtype) -> Launch:
    def call() -> object:
        rows = SamplerRows.empty(2, 151_936, 8192, torch.device("cpu"))
        return sampling.sample(torch.empty(1, 151_936, dtype=dtype), torch.zeros(1, dtype=torch.int64), rows, 8192)

    return Launch(f"sample, {str(dtype).removeprefix('torch.')} logits", call)


LAUNCHES = (_launch(torch.bfloat16), _launch(torch.float32))
