"""Glyphs are believed if the model, asked about few lines of the page, reads them as the PDF says."""

from __future__ import annotations

import pytest

from batchocr.data import Glyph
from batchocr.protocol.audit import Audit
from batchocr.protocol.audit_plan import AuditPlan, LineQuestion, plan_audit
from batchocr.protocol.layer_text import LayerBlock, LayerLine

PROSE = (
    "the path of the earth is a little longer on one side than on the other and its axis leans so a sundial runs "
    "ahead of the clock in some months and behind it in others by as much as a quarter of an hour in november"
)
WORDS = PROSE.split(" ")


def line(text: str, *, y: float = 0.0, hyphenated: bool = False, font: int = 0) -> LayerLine:
    words, x = [], 0.0
    for word in text.split():
        glyphs = []
        for letter in word:
            glyphs.append(Glyph(letter, font, font * 2000 + ord(letter), x, y, 10.0, 20.0, (x, y - 14, x + 9, y)))
            x += 10
        words.append(tuple(glyphs))
        x += 6
    return LayerLine(tuple(words), hyphenated)


def block(*texts: str, flowing: bool = True, font: int = 0) -> LayerBlock:
    """A block of these lines; one that ends with a hyphen goes on in the next."""
    last = len(texts) - 1
    lines = [
        line(text, y=20.0 + 30 * number, hyphenated=text.endswith("-") and number < last, font=font)
        for number, text in enumerate(texts)
    ]
    return LayerBlock((0, 0, 700, 30 * len(texts)), tuple(lines), flowing)


def prose(num_lines: int, *, font: int = 0) -> LayerBlock:
    """Lines that all have many letters."""
    return block(*(" ".join((WORDS * 9)[number * 7 :][:9]) for number in range(num_lines)), font=font)


def heard(layer: LayerBlock, *answers: str, rest: str = "") -> str | None:
    """What a block says when the model has answered about each of its lines; rest: of another block, all as it is."""
    blocks = {0: layer, 1: block(*([rest] * 5))} if rest else {0: layer}
    audit = Audit(blocks)
    for number, answer in enumerate(answers):
        audit.hear(LineQuestion(0, number, number), answer)
    if rest:
        audit.hear(LineQuestion(1, 0, 4), " ".join([rest] * 5))
    return audit.text_of(0)


# --- what is asked ---------------------------------------------------------------------------------------------------


def test_every_shape_is_in_two_of_the_lines_that_are_asked_about() -> None:
    blocks = {0: prose(30), 3: prose(25), 4: block("a quiz")}
    plan = plan_audit(blocks)
    assert {0, 3} <= plan.spared
    assert 0 < len(plan.questions) < 20
    shown: list[int] = []
    for question in plan.questions:
        assert question.block in plan.spared
        lines = blocks[question.block].lines[question.first : question.last + 1]
        shown += [glyph.shape for line in lines for glyph in line.glyphs]
    for number in blocks.keys() - plan.spared:
        shown += [glyph.shape for line in blocks[number].lines for glyph in line.glyphs]
    wanted = [glyph.shape for number in plan.spared for line in blocks[number].lines for glyph in line.glyphs]
    assert all(shown.count(shape) >= min(2, wanted.count(shape)) for shape in wanted)


def test_blocks_are_asked_about_if_their_lines_would_cost_as_much() -> None:
    nothing = AuditPlan(frozenset(), ())
    assert plan_audit({}) == nothing
    assert plan_audit({0: block("one line")}) == nothing
    assert plan_audit({0: block("a line", "in a font"), 1: block("other lines", "quick jab", font=1)}) == nothing


def test_a_block_that_does_not_flow_is_never_spared_but_shows_its_shapes() -> None:
    ragged = LayerBlock((0, 0, 700, 600), prose(20).lines, flowing=False)
    plan = plan_audit({0: ragged, 1: prose(10)})
    assert plan == AuditPlan(frozenset({1}), ())
    assert plan_audit({1: prose(10)}).questions


def test_lines_that_a_hyphen_holds_together_are_asked_about_together() -> None:
    lines = [" ".join((WORDS * 9)[number * 7 :][:9]) for number in range(40)]
    lines[4] += " cir-"
    lines[5] = "cum-"
    lines[9] += " self-"
    plan = plan_audit({0: block(*lines)})
    assert {LineQuestion(0, 4, 6), LineQuestion(0, 9, 10)} <= set(plan.questions)


# --- what is believed ------------------------------------------------------------------------------------------------


def test_what_the_model_confirms_is_the_text() -> None:
    assert (
        heard(block("the sun is up", "and it rains"), "the sun is up", "and it rains") == "the sun is up and it rains"
    )


def test_a_shape_that_was_not_shown_is_not_believed() -> None:
    assert heard(block("the sun is up", "the zoo"), "the sun is up") is None
    assert heard(block("the sun is up", "this is it"), "the sun is up") == "the sun is up this is it"


@pytest.mark.parametrize(
    ("says", "seen"),
    [
        ("the sun is up", "the sun is vp"),
        ("the sun is up", "the snn is np"),
        ("nu nun run sun", "un unu rnu snu"),  # swapped
        ("there were 0101010101 of them", "there were 1010101010 of them"),
        ("in the year 2021", "in the year 1012"),
        ("the sun is up", "the sun is up now"),
        ("the sun is up", "the sun is u"),
        ("the sun is up", "the sun \\( i \\)s up"),
        ("the sun is up", "a table of contents"),
        ("the sun is up", ""),
        ("Al", "AI"),
    ],
)
def test_what_the_model_sees_otherwise_is_not_believed(says: str, seen: str) -> None:
    assert heard(block(says), seen) is None


def test_a_letter_that_is_misread_once_in_many_times_is_believed_still() -> None:
    lines = ["the sun is up"] * 6
    assert heard(block(*lines), *lines[:5], "the sun is ug") == " ".join(lines)
    assert heard(block(*lines), *lines[:4], "the sun is ug", "the sun is ug") is None


def test_letters_that_the_model_takes_for_others_elsewhere_are_not_believed_here() -> None:
    audit = Audit({0: block("a rare quiz"), 1: block("quick")})
    audit.hear(LineQuestion(0, 0, 0), "a rare quiz")
    assert audit.text_of(1) is None
    assert audit.text_of(0) == "a rare quiz"
    audit.hear(LineQuestion(1, 0, 0), "guick")
    assert audit.text_of(0) is None


def test_an_answer_that_is_about_something_else_speaks_against_every_shape() -> None:
    audit = Audit({0: block("the sun is up"), 1: block("the sun is up")})
    audit.hear(LineQuestion(0, 0, 0), "the sun is up")
    audit.hear(LineQuestion(1, 0, 0), "no such line at all")
    assert audit.text_of(0) is None


@pytest.mark.parametrize("seen", ["thesun is up", "the s un is up"])
def test_spaces_that_the_model_sees_elsewhere_are_not_believed(seen: str) -> None:
    assert heard(block("the sun is up"), seen) is None


@pytest.mark.parametrize(
    ("says", "seen", "text"),
    [
        ("don’t", "don't", "don't"),  # as the model writes it
        ("“Now” – it", '"Now" - it', '"Now" - it'),
        ("the oﬃce", "the office", "the office"),
        ("the oﬃce", "the oﬃce", "the office"),
        ("wait ...", "wait ...", "wait ..."),
        ("wait …", "wait ...", "wait ..."),
        ("wait …", "wait …", "wait …"),
    ],
)
def test_signs_that_have_variants_are_written_as_the_model_does(says: str, seen: str, text: str) -> None:
    assert heard(block(says), seen) == text


def test_of_variants_the_one_is_taken_that_the_model_writes_most() -> None:
    assert heard(block("don’t", "won’t can’t"), "don't", "won’t can’t") == "don’t won’t can’t"
    assert heard(block("don’t won’t", "can’t"), "don't won't", "can’t") == "don't won't can't"
    assert heard(block("don’t", "can’t"), "don't", "can’t") is None


def test_a_word_whose_spaces_are_elsewhere_says_nothing_of_its_letters() -> None:
    audit = Audit({0: block("of ﬁrst"), 1: block("on it")})
    assert audit.hear(LineQuestion(0, 0, 0), "off irst") == (7, 0)
    audit.hear(LineQuestion(1, 0, 0), "on it")
    assert audit.text_of(1) is None


def test_one_sign_read_for_three_does_not_become_three() -> None:
    assert heard(block("wait ... now"), "wait … now") is None


@pytest.mark.parametrize(
    ("first", "second", "answer", "text"),
    [
        ("the circum-", "ference of it", "the circumference of it", "the circumference of it"),
        ("it is self-", "contained now", "it is self-contained now", "it is self-contained now"),
        ("it is self-", "contained now", "it is self- contained now", None),
        ("the circum-", "ference of it", "the circum ference of it", None),
        ("it is self-", "contained now", "it is selfecontained now", None),
        ("it is self-", "contained now", "it is sel-contained now", None),
        ("the circum-", "ference of it", "the circumstance of it", None),
    ],
)
def test_whether_a_hyphen_belongs_to_the_word_is_the_models_to_say(
    first: str, second: str, answer: str, text: str | None
) -> None:
    audit = Audit({0: block(first, second), 1: block(*["fence the circum-stance of it self-contained now"] * 3)})
    audit.hear(LineQuestion(1, 0, 2), " ".join(["fence the circum-stance of it self-contained now"] * 3))
    assert audit.text_of(0) is None
    audit.hear(LineQuestion(0, 0, 1), answer)
    assert audit.text_of(0) == text


def test_a_hyphen_alone_on_a_line_that_the_model_does_not_read_decides_nothing() -> None:
    audit = Audit({0: block("-", "hello world and today")})
    assert audit.hear(LineQuestion(0, 0, 1), "hello world and todaX") == (18, 1)
    assert audit.text_of(0) is None


def test_hyphens_that_are_all_dropped_leave_no_trace() -> None:
    audit = Audit({0: block("the wa-", "ter")})
    audit.hear(LineQuestion(0, 0, 1), "the water")
    assert audit.text_of(0) == "the water"


def test_how_far_an_answer_differs_is_counted_in_letters() -> None:
    audit = Audit({0: block("the sun is up")})
    assert audit.hear(LineQuestion(0, 0, 0), "the sun is up") == (10, 0)
    assert audit.hear(LineQuestion(0, 0, 0), "the son is up!") == (10, 2)
