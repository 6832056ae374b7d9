"""What an answer says again and again, it says once; however long it is, that is found in a moment."""

from __future__ import annotations

import time

import pytest

from batchocr.pages.protocol.repeats import line_said_once, said_once


@pytest.mark.parametrize(
    ("text", "once"),
    [
        ("", ""),
        ("abcdef", "abcdef"),
        ("abcabcabc", "abc"),
        ("once" + "upon" * 5 + "up", "onceupon"),
        ("aaaa", "a"),
        ("twotwo", "twotwo"),
        ("the" + "end" * 2, "the" + "end" * 2),
    ],
)
def test_what_an_answer_said_before_it_went_in_circles(text: str, once: str) -> None:
    assert said_once(text, 3) == once


@pytest.mark.parametrize(
    ("text", "once"),
    [
        ("no-" * 40, "no-no-no-"),
        ("no-" * 14, "no-" * 14),
        ("on " * 20 + "no " * 20, "on " * 20 + "no no no"),
        ("on " * 40 + "no " * 20, "on " * 40 + "no " * 20),
    ],
)
def test_only_a_long_end_that_is_much_of_the_text_is_said_once(text: str, once: str) -> None:
    assert said_once(text, 5, unit=8, share=0.4) == once


@pytest.mark.parametrize(
    ("text", "once"),
    [
        ("", ""),
        ("first\n" + " same\n" * 12 + "last", "first\n same"),
        ("first\n" + "same\n" * 9, "first\n" + "same\n" * 9),
        ("same\nother\n" * 12, "same\nother\n" * 12),
    ],
)
def test_a_line_that_is_nearly_all_of_an_answer_is_said_once(text: str, once: str) -> None:
    assert line_said_once(text) == once


@pytest.mark.parametrize(
    "text",
    [" ".join(map(str, range(20_000))), "a" * 100_000, "ab" * 50_000 + "c", ("a" * 300 + "b") * 330, "\n" * 100_000],
)
def test_a_long_answer_is_looked_through_in_a_moment(text: str) -> None:
    started_s = time.process_time()
    line_said_once(said_once(text, 10, unit=10))
    assert time.process_time() - started_s < 2
