"""Answers that loop: stopped, begun once more under a rule that breaks loops, and marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from batchocr.data import Completion, LoopCheck, Pixels, Request, Sampling
from batchocr.engine.backend.device import Device
from batchocr.engine.backend.reference import Ops
from batchocr.engine.decode_stage import goes_in_circles
from batchocr.engine.engine import Engine
from batchocr.engine.model.checkpoint import Model, load_model
from tests.support.checkpoints import SMALL_LIMITS, TokenIdFormat, answers_of, make_checkpoint
from tests.support.late_device import LateDevice

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
MAX_NEW_TOKENS = 900


@pytest.fixture(
    scope="module",
    params=[Device(CPU), pytest.param(LateDevice(), marks=pytest.mark.long)],
    ids=["host", "late"],
)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A model with random weights, which never ends an answer."""
    device: Device = request.param
    folder = make_checkpoint(tmp_path_factory.mktemp("checkpoint"))
    model = load_model(folder, device=device, dtype=torch.float32, ops=Ops(CPU))
    prompts = TokenIdFormat(folder, model.architecture)
    prompts.stop_token_ids = frozenset()
    return replace(model, prompts=prompts)


@pytest.fixture(scope="module")
def completions(model: Model) -> list[Completion]:
    """What it answers, in one batch: to two requests that are looked at at once, one at its limit, and one never."""
    return answers(model, ("at_once", "at_once", "at_limit", "never"), widths=(56, 84, 56, 56))


def answers(model: Model, loop_checks: Sequence[LoopCheck], *, widths: Sequence[int]) -> list[Completion]:
    engine = Engine(model, replace(SMALL_LIMITS, llm_batch_size=4, max_new_tokens=MAX_NEW_TOKENS))
    for number, (loop_check, width) in enumerate(zip(loop_checks, widths, strict=True)):
        pixels = Pixels(28, width, bytearray(range(28)) * 3 * width)
        # A reward instead of a penalty: the first token is repeated over and over.
        sampling = Sampling(MAX_NEW_TOKENS, presence_penalty=-50.0, loop_check=loop_check)
        assert engine.submit(number, Request(pixels, "\nText Recognition:", sampling)) is None
    found = answers_of(engine)
    return [found[number] for number in range(len(widths))]


def test_a_loop_is_one_whatever_its_period_and_ordinary_text_is_none() -> None:
    text = [(17 * position * position) % 1009 for position in range(768)]
    assert not goes_in_circles(text)
    for period in (1, 7, 60):
        assert goes_in_circles(text[:64] + (text[:period] * 800)[:768])
    assert not goes_in_circles([1] * 700), "too short to tell"


@pytest.mark.long
def test_an_answer_that_loops_twice_is_the_first_one_and_marked(completions: list[Completion]) -> None:
    first, second, _, unbounded = completions
    assert unbounded.finish_reason == "length"
    for completion in (first, second):
        assert completion.finish_reason == "repetition"
        num_tokens = len(completion.text.split())
        assert num_tokens in (768, 832)
        assert completion.output_tokens == num_tokens + MAX_NEW_TOKENS, "the second attempt has cost something, too"
    assert first.text.split() == unbounded.text.split()[: len(first.text.split())]


def test_a_second_attempt_that_ends_by_itself_is_the_answer_and_still_marked(
    model: Model, completions: list[Completion], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = completions[3].text.split()
    # The second attempt leaves the loop with a token that is not in it: make the answer end there.
    monkeypatch.setattr(model.prompts, "stop_token_ids", frozenset(set(range(262)) - set(map(int, tokens))))
    [again] = answers(model, ("at_once",), widths=(56,))
    assert again.finish_reason == "repetition"
    num_tokens = len(again.text.split())
    assert num_tokens < 100
    assert again.text.split() == tokens[:num_tokens]
    assert again.output_tokens == 768 + num_tokens


def table_of_equal_cells() -> list[int]:
    """40 rows of a label and 13 times `<fcel>$0.00`, in tokens of one digit each."""
    cell, end_of_row, zeros = 1, 2, [3, 4, 5, 4, 4]
    return [token for row in range(40) for token in (cell, 100 + row, 200 + row, *[cell, *zeros] * 13, end_of_row)]


def test_a_table_of_equal_cells_looks_like_a_loop_and_only_a_table_is_read_on_to_its_limit(
    completions: list[Completion],
) -> None:
    assert goes_in_circles(table_of_equal_cells())
    _, _, table, unbounded = completions
    assert table.finish_reason == "repetition", "at the limit it was one"
    assert table.text == unbounded.text
    assert table.output_tokens == 2 * MAX_NEW_TOKENS, "and was read again"
