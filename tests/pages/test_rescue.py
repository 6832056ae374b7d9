"""The page's own text in place of an answer that was lost: where what was read agrees with it, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pymupdf
import pytest

from batchocr.data import Completion, Page, Reading
from batchocr.pages.input.render import open_document
from tests.pages.test_trusted_text import COVERS, SAID, Draw, page_of, write
from tests.support.page_reading import Reader, completion, line

TEXT = "050 100 950 450"
LOWER = "050 500 950 900"
CUT = completion(SAID[:40], "length")
LOST = completion("", error="the engine broke on it")


def below(page_text: str) -> Draw:
    """Draws a second block, under the first."""
    return lambda page: page.insert_text((40, 200), page_text, fontsize=14)


def checked(tmp_path: Path, *draw: Draw) -> Page:
    """A page as `--text-layer check` has it, that can be drawn again with its glyphs."""
    page_of(tmp_path, *draw)
    document = open_document(str(tmp_path / "a.pdf"), password=None, dpi=144, text_layer="check")
    return replace(document.render(0), again=lambda: document.render(0, with_glyphs=True))  # type: ignore[call-arg]


def read(page: Page, *answers: Completion, types: Sequence[str] = ("text", "text")) -> Reading:
    layout = "".join(line(box, type) for box, type in zip((TEXT, LOWER), types[: len(answers)], strict=False))
    return Reader(layout, lambda number, _: answers[number]).read(page)


@pytest.mark.parametrize("type", ["text", "title", "list_item", "page_footnote"])
def test_an_answer_that_was_cut_becomes_the_pages_own_text_and_says_how_it_ended(tmp_path: Path, type: str) -> None:
    reading = read(checked(tmp_path, write), CUT, types=[type])
    [block] = reading.blocks
    assert (block.content, block.text_source) == (SAID, "page")
    assert (block.finish_reason, block.tokens, block.confidence) == ("length", CUT.output_tokens, CUT.mean_probability)
    assert (reading.error_message, reading.rescued_blocks) == (None, 1)
    assert SAID in reading.markdown


def test_an_answer_that_went_in_circles_counts_up_to_where_it_began_to(tmp_path: Path) -> None:
    circling = completion(SAID[:40] + " made-up" * 9, "repetition")
    assert read(checked(tmp_path, write), replace(circling, text=SAID[:40] + SAID[30:40] * 9)).rescued_blocks == 1
    assert read(checked(tmp_path, write), circling).rescued_blocks == 0


@pytest.mark.parametrize(
    ("read_before", "number"),
    [(SAID[:22], 0), (SAID[:24], 1), (SAID[:60].replace("e", "c"), 0), (SAID[:60].replace("p", "q"), 1)],
)
def test_twenty_letters_have_to_be_read_and_nineteen_in_twenty_be_the_pages(
    tmp_path: Path, read_before: str, number: int
) -> None:
    reading = read(checked(tmp_path, write), completion(read_before, "length"))
    assert reading.rescued_blocks == number
    assert bool(reading.error_message) == (number == 0)


@pytest.mark.parametrize("name", [name for name in COVERS if name != "no text"])
@pytest.mark.parametrize("answer", [CUT, LOST], ids=["cut", "failed"])
def test_letters_that_are_not_plain_rescue_nothing(tmp_path: Path, name: str, answer: Completion) -> None:
    page = checked(tmp_path, *COVERS[name], below("This block stands below, in letters that are plain."))
    whole = completion("This block stands below, in letters that are plain.")
    assert read(page, answer, whole).blocks[0].text_source != "page"


def test_a_font_that_lies_rescues_nothing(tmp_path: Path) -> None:
    page = checked(tmp_path, write, below("This block stands below, in the same letters."))
    lie = str.maketrans("abcdefghijklmnopqrstuvwxyz", "bcdefghijklmnopqrstuvwxyza")
    seen = "This block stands below, in the same letters.".translate(lie)
    for answer in (completion(SAID[:60].translate(lie), "length"), LOST):
        reading = read(page, answer, completion(seen))
        assert (reading.rescued_blocks, reading.blocks[0].text_source) == (0, "model" if answer is not LOST else None)
        assert reading.error_message


def test_a_block_of_which_nothing_was_read_needs_the_others_of_its_page(tmp_path: Path) -> None:
    said = "This block stands below, in the same letters."
    page = checked(tmp_path, write, below(said))
    reading = read(page, LOST, completion(said))
    assert [block.content for block in reading.blocks] == [SAID, said]
    assert (reading.rescued_blocks, reading.error_message) == (1, None)
    assert read(page, LOST, completion("Something else was read here, and not that.")).rescued_blocks == 0
    assert read(page, LOST, LOST).rescued_blocks == 0
    assert read(page, LOST, completion("too short to tell")).rescued_blocks == 0


@pytest.mark.parametrize("type", ["table", "equation", "code", "algorithm"])
def test_only_running_text_is_rescued(tmp_path: Path, type: str) -> None:
    reading = read(checked(tmp_path, write), CUT, types=[type])
    assert reading.rescued_blocks == 0
    assert "hit the token limit" in (reading.error_message or "")


def test_a_page_stays_degraded_for_what_is_not_rescued(tmp_path: Path) -> None:
    page = checked(tmp_path, write, below("This block stands below, in the same letters."))
    reading = read(page, CUT, completion("No such words at all are there.", "length"))
    assert (reading.rescued_blocks, reading.error_message) == (1, "block 1 hit the token limit")


def test_a_page_is_drawn_again_only_for_an_answer_that_is_lost(tmp_path: Path) -> None:
    drawn = []
    page = replace(checked(tmp_path, write), again=lambda: drawn.append(1))
    assert read(page, completion(SAID)).error_message is None
    assert not drawn
    assert read(page, CUT).error_message == "block 0 hit the token limit"
    assert drawn == [1]


def lying(path: Path, *fonts: str, letters: bytes = b"abcdefghijklmnopqrstuvwxyz", shift: int = 1) -> None:
    """Have these fonts of a PDF say other letters than they show."""
    with pymupdf.open(path) as document:
        for number in range(1, document.xref_length()):
            if document.xref_get_key(number, "BaseFont")[1].removeprefix("/") in fonts:
                said = b"".join(
                    b"<%02x> <%04x>\n" % (letter, letters[(at + shift) % len(letters)])
                    for at, letter in enumerate(letters)
                )
                mapping = document.get_new_xref()
                document.update_object(mapping, "<<>>")
                head = (
                    b"/CIDInit /ProcSet findresource begin begincmap 1 begincodespacerange <00> <ff> endcodespacerange "
                )
                stream = head + b"%d beginbfchar\n%sendbfchar endcmap end" % (len(letters), said)
                document.update_stream(mapping, stream)
                document.xref_set_key(number, "ToUnicode", f"{mapping} 0 R")
        document.save(path.with_name("lying.pdf"))


def checked_lying(tmp_path: Path, draw: Draw, *fonts: str, letters: bytes = b"abcdefghijklmnopqrstuvwxyz") -> Page:
    page_of(tmp_path, draw)
    lying(tmp_path / "a.pdf", *fonts, letters=letters)
    document = open_document(str(tmp_path / "lying.pdf"), password=None, dpi=144, text_layer="check")
    return replace(document.render(0), again=lambda: document.render(0, with_glyphs=True))  # type: ignore[call-arg]


def test_a_second_font_that_lies_rescues_nothing(tmp_path: Path) -> None:
    def draw(page: pymupdf.Page) -> None:
        for number, (font, text) in enumerate(
            [("helv", "The committee met on Monday to discuss"), ("tiro", "the rest")]
        ):
            page.insert_text((40, 60 + 20 * number), text, fontname=font, fontsize=14)

    cut = completion("The committee met on Monday to", "length")
    honest, lie = checked_lying(tmp_path, draw), checked_lying(tmp_path, draw, "Times-Roman")
    assert lie.words != honest.words
    assert read(lie, cut).rescued_blocks == 0
    assert read(honest, cut).rescued_blocks == 0  # of its second font nothing was read
    assert read(honest, completion("The committee met on Monday to discuss the re", "length")).rescued_blocks == 1


def test_a_lost_block_in_a_font_of_its_own_is_not_rescued_for_what_others_say(tmp_path: Path) -> None:
    said = "This block stands below, in another font."

    def draw(page: pymupdf.Page) -> None:
        write(page, fontname="tiro")
        page.insert_text((40, 200), said, fontname="helv", fontsize=14)

    assert read(checked_lying(tmp_path, draw, "Times-Roman"), LOST, completion(said)).rescued_blocks == 0


def test_digits_that_differ_from_those_read_rescue_nothing(tmp_path: Path) -> None:
    text = "The sum of 12345 was to be paid to them on Monday, and so it was."
    page = checked_lying(
        tmp_path, lambda page: page.insert_text((20, 60), text, fontsize=11), "Helvetica", letters=b"0123456789"
    )
    assert "23456" in [said for *_, said in page.words]
    reading = read(page, completion(text[:60], "length"))
    assert (reading.rescued_blocks, reading.blocks[0].content) == (0, text[:60])


def test_an_answer_that_ended_early_is_no_evidence_for_the_rest_of_its_block(tmp_path: Path) -> None:
    said = "This block stands below, in the same letters."
    page = checked(tmp_path, write, below(said))
    assert read(page, LOST, completion(said)).rescued_blocks == 1
    assert read(page, LOST, completion(said[:28])).rescued_blocks == 0
