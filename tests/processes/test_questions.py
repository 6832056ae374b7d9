"""What is asked once though many ask it: which questions reach an engine, and who has its answer."""

from __future__ import annotations

import json
import os
import tracemalloc
from dataclasses import replace

import pytest

from batchocr.data import Completion, Pixels, Request, Sampling
from batchocr.processes.counts import Counts
from batchocr.processes.pixels import SharedBatch, digest_of, share_batch
from batchocr.processes.questions import Questions, _Kept
from tests.support.fake_engines import PatientEngines

QUESTION = Request(Pixels(2, 3, bytes(range(18))), "q", Sampling(9), (28, 28))


def batch_of(prompts: str) -> SharedBatch:
    """A batch that asks each letter."""
    return SharedBatch(*share_batch(0, [replace(QUESTION, prompt=each) for each in prompts]))


@pytest.fixture
def engines() -> PatientEngines:
    return PatientEngines()


@pytest.fixture
def questions(engines: PatientEngines) -> Questions:
    return Questions(engines)  # type: ignore[arg-type]


def taken(questions: Questions) -> dict[int, str]:
    """What has been answered since the last time: the letters of each batch's answers, `!` for an error."""
    answers: dict[int, str] = {}
    for key, completions in questions.take_answers():
        assert key not in answers
        answers[key] = "".join("!" if each.error else each.text for each in completions)
    return answers


def test_what_has_been_answered_is_not_asked_again(engines: PatientEngines, questions: Questions) -> None:
    questions.ask(1, batch_of("ab"))
    engines.answer()
    assert taken(questions) == {1: "AB"}
    questions.ask(2, batch_of("bca"))
    assert taken(questions) == {}
    engines.answer()
    assert taken(questions) == {2: "BCA"}
    questions.ask(3, batch_of("cc"))
    assert taken(questions) == {3: "CC"}, "at once, as no engine is asked"
    assert engines.prompts == ["a", "b", "c"]
    assert questions.counts == Counts(asked=7, from_run=4, saved_image_tokens=12, saved_output_tokens=8)


def test_what_is_being_asked_is_waited_for(engines: PatientEngines, questions: Questions) -> None:
    questions.ask(1, batch_of("aab"))
    questions.ask(2, batch_of("ba"))
    questions.ask(3, batch_of("ca"))
    assert engines.prompts == ["a", "b", "c"]
    engines.answer()
    assert taken(questions) == {1: "AAB", 2: "BA", 3: "CA"}
    assert questions.counts.from_run == 4


def test_an_error_is_for_those_that_wait_for_it_and_is_not_remembered(
    engines: PatientEngines, questions: Questions
) -> None:
    engines.deadly = {"a"}
    questions.ask(1, batch_of("ab"))
    questions.ask(2, batch_of("a"))
    engines.answer()
    assert taken(questions) == {1: "!B", 2: "!"}
    engines.deadly = set()
    questions.ask(3, batch_of("ab"))
    engines.answer()
    assert taken(questions) == {3: "AB"}
    assert engines.prompts == ["a", "b", "a"]


def test_nothing_is_shared_or_kept_if_all_is_to_be_asked(engines: PatientEngines) -> None:
    questions = Questions(engines, shares=False)  # type: ignore[arg-type]
    for key in range(2):
        questions.ask(key, batch_of("aab"))
    assert engines.prompts == ["a", "a", "b"] * 2
    engines.answer()
    assert taken(questions) == {0: "AAB", 1: "AAB"}
    assert questions.counts == Counts()


def num_pixel_files() -> int:
    """How many descriptors of pixels this process has open."""
    return sum("batchocr-pixels" in os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd"))


def test_pixels_are_held_no_longer_than_an_engine_may_be_asked_about_them(
    engines: PatientEngines, questions: Questions
) -> None:
    before = num_pixel_files()
    questions.ask(1, batch_of("ab"))
    questions.ask(2, batch_of("ab"))  # which waits for the first
    assert num_pixel_files() == before + 1
    engines.answer()
    assert taken(questions) == {1: "AB", 2: "AB"}
    assert num_pixel_files() == before
    questions.ask(3, batch_of("c"))
    questions.close()
    assert num_pixel_files() == before


def test_the_answers_that_were_not_asked_for_the_longest_time_make_room_for_others(engines: PatientEngines) -> None:
    questions = Questions(engines, max_bytes=1500)  # type: ignore[arg-type]
    for key, prompt in enumerate("ababcab"):  # there is room for two: `a`, which is asked less lately than b, goes
        questions.ask(key, batch_of(prompt))
        engines.answer()
        assert taken(questions) == {key: prompt.upper()}
    assert engines.prompts == ["a", "b", "c", "a", "b"]


@pytest.mark.slow
@pytest.mark.parametrize("letter", ["a", "é", "日", "😀"])
@pytest.mark.parametrize("letters", [0, 30, 3000])
def test_however_many_answers_there_are_those_that_are_kept_take_no_more_than_the_bound(
    letter: str, letters: int
) -> None:
    max_bytes = 1 << 20
    kept = _Kept(max_bytes)
    tracemalloc.start()
    try:
        for number in range(3 * max_bytes // (600 + letters)):
            text = json.loads(json.dumps(letter * letters + str(number)))  # as it comes from an engine
            kept.put(f"{number:064x}", Completion(text, "stop", 1000 + number, 1000 + number, number / 7, -number / 7))
        taken_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert max_bytes / 2 < taken_bytes <= max_bytes


def test_an_answer_that_is_larger_than_the_room_for_all_is_given_and_not_kept(engines: PatientEngines) -> None:
    questions = Questions(engines, max_bytes=0)  # type: ignore[arg-type]
    for key in range(2):
        questions.ask(key, batch_of("aa"))
        engines.answer()
        assert taken(questions) == {key: "AA"}
    assert engines.prompts == ["a", "a"]


PIXELS = QUESTION.pixels


@pytest.mark.parametrize(
    "other",
    [
        replace(QUESTION, prompt="r"),
        replace(QUESTION, resize_to=(28, 56)),
        replace(QUESTION, resize_to=None),
        replace(QUESTION, pixels=replace(PIXELS, height=3, width=2)),
        replace(QUESTION, pixels=replace(PIXELS, data=bytes(range(1, 19)))),
        replace(QUESTION, sampling=Sampling(8)),
        replace(QUESTION, sampling=Sampling(9, no_repeat_ngram_size=100)),
        replace(QUESTION, sampling=Sampling(9, loop_check="at_limit")),
        replace(QUESTION, sampling=Sampling(9, repetition_penalty=1.1)),
    ],
    ids=["prompt", "resize_to", "as it is", "shape", "pixels", "limit", "penalty", "loop check", "repetition"],
)
def test_questions_that_may_have_other_answers_have_other_digests(other: Request) -> None:
    assert digest_of(QUESTION) != digest_of(other)


def test_a_digest_without_a_repetition_penalty_is_that_of_the_versions_that_had_none() -> None:
    """So their caches are continued."""
    assert digest_of(QUESTION) == "b6f8a421d8de89c1c405496903fadbefc3497026e2b7fccb313b6689bdd6464f"


def test_a_digest_depends_on_nothing_else() -> None:
    same = replace(QUESTION, pixels=replace(PIXELS, data=memoryview(bytearray(PIXELS.data))), round=1)
    assert digest_of(QUESTION) == digest_of(same)
