"""Chunks hold all of a document's text, in order, each of a size and none with a cut row or formula."""

from __future__ import annotations

import json
import re
import time

import pytest

from batchocr.data import Block
from batchocr.documents.assembly.document import Gap, PageEnd, Piece, Place
from batchocr.documents.export import chunks as chunks_format
from batchocr.documents.export.chunks import chunks
from batchocr.documents.export.formats import FormatOptions
from batchocr.documents.export.html import document_html
from tests.support.documents import BBOX, SolidFigures, document_of, piece, row_of
from tests.support.strict_html import parsed

SENTENCES = [f"Sentence {number} has a few words, and \\( x_{{{number}}} = 1. B \\) in it." for number in range(60)]


def texts(*parts: Piece | Gap | PageEnd, max_chars: int = 300) -> list[str]:
    return [chunk["text"] for chunk in chunks(document_of(*parts), max_chars)]


def test_a_chunk_knows_its_headings_pages_and_boxes() -> None:
    [first, second] = chunks(
        document_of(
            piece("title", "A book", level=1),
            piece("title", "1 Intro", level=2),
            piece("text", "Some text."),
            PageEnd(0),
            piece("title", "2 More \\( x \\)", level=2, page_index=1),
            piece("text", "Other text.", page_index=1),
        ),
        300,
    )
    assert first["heading_path"] == ["A book", "1 Intro"]
    assert first["text"] == "# A book\n\n## 1 Intro\n\nSome text."
    assert second == {
        "id": second["id"],
        "source": "folder/a.pdf",
        "doc_id": "ab" * 32,
        "pages": [2],
        "boxes": [{"page": 2, "bbox": list(BBOX)}, {"page": 2, "bbox": list(BBOX)}],
        "heading_path": ["A book", "2 More $x$"],
        "text": "## 2 More $x$\n\nOther text.",
    }


def test_a_long_paragraph_is_cut_at_the_ends_of_sentences_and_loses_nothing() -> None:
    made = texts(piece("title", "A", level=1), piece("text", " ".join(SENTENCES)))
    assert all(len(text) <= 300 for text in made)
    assert made[0].startswith("# A\n\nSentence 0")
    assert all(text.endswith("in it.") for text in made)
    rest = " ".join(made).removeprefix("# A\n\n")
    assert rest == " ".join(SENTENCES).replace("\\( ", "$").replace(" \\)", "$")


@pytest.mark.parametrize("sentence", ["यह एक परीक्षण वाक्य है जो काफी लंबा है।", "هذه جملة تجريبية طويلة بعض الشيء؟"])
def test_a_text_of_any_script_is_cut_at_the_ends_of_its_sentences(sentence: str) -> None:
    found = texts(piece("text", " ".join([sentence] * 30)))
    assert len(found) > 2 and all(text.endswith(sentence) for text in found)


@pytest.mark.parametrize("text", ["word " * 500, "x" * 3000, "一" * 3000, "<b>&" * 700, "Dr. No. 5 " * 300])
def test_a_text_without_sentences_is_cut_anyway(text: str) -> None:
    made = texts(piece("text", text))
    assert all(len(part) <= 300 for part in made)
    assert "".join("".join(made).split()).replace("&lt;", "<") == "".join(text.split())


@pytest.mark.parametrize("letter", ["e\u0301\u0323", "👨‍👩‍👧‍👦", "🇩🇪", "ก็", "각", "👍🏽", "ཀྱི", "🏴󠁧󠁢󠁥󠁮󠁧󠁿"])
def test_no_letter_is_cut_from_its_accents_and_no_emoji_in_itself(letter: str) -> None:
    made = texts(piece("text", letter * 500))
    assert len(made) > 1
    assert {part.replace(letter, "") for part in made} == {""}
    page = document_html(document_of(piece("title", letter * 500)), {})
    assert set(re.findall("<title>(.*)</title>", page)[0].split(letter)) == {""}


def test_a_single_letter_without_end_is_cut_anyway() -> None:
    made = texts(piece("text", "e" + "\u0301" * 2_000))
    assert "".join(made) == "e" + "\u0301" * 2_000
    assert all(len(part) <= 300 for part in made)


def test_a_list_is_cut_between_its_items() -> None:
    made = texts(piece("list", "\n".join(f"• item {number}. It has two sentences." for number in range(40))))
    assert len(made) > 3
    assert all(line.startswith("- item") for text in made for line in text.split("\n"))


def test_the_parts_of_a_nested_list_are_nested_as_it_is() -> None:
    nested = "\n".join(["1. First", *(f"    {letter}) {'word ' * 12}" for letter in "abcdef")])
    parts = texts(piece("list", nested))
    assert len(parts) > 1 and parts[0].startswith("1. First\n    - a)")
    assert not any(line.startswith(" ") for part in parts[1:] for line in part.split("\n"))


def test_code_is_cut_between_its_lines_and_fenced() -> None:
    made = texts(piece("code", "```python\n" + "\n".join(f"    x{number} = 1" for number in range(100)) + "\n```"))
    assert all(len(text) <= 300 for text in made)
    assert all(text.startswith("```python\n    x") and text.endswith("= 1\n```") for text in made)


def test_a_table_is_cut_between_its_rows_its_header_repeated_and_its_own_caption_not() -> None:
    rows = "".join(f"<tr><td>row {number}</td><td>{number}</td></tr>" for number in range(50))
    header = "<caption>Sales of <b>2020</caption><tr><td>Name</td><td>N</td></tr>"
    made = texts(piece("table", f"<table>{header}{rows}</table>", captions=["Table 1"]))
    assert all(len(text) <= 300 for text in made)
    assert made[0].startswith("Table 1\n\n<table><caption>Sales of &lt;b&gt;2020</caption><tr><td>Name")
    assert not any("Sales" in text for text in made[1:])
    names = []
    for text in made:
        header, *cells = [cell.text for cell in parsed(text).iter("td")][::2]
        assert header == "Name"
        names += cells
    assert names == [f"row {number}" for number in range(50)]


def test_a_cell_that_reaches_over_a_cut_is_in_both_parts() -> None:
    rows = "".join(
        f"<tr>{'<td rowspan=20>side</td>' * (not number % 20)}<td>{number}</td></tr>" for number in range(40)
    )
    made = texts(piece("table", f"<table><tr><td>A</td><td>B</td></tr>{rows}</table>"))
    for text in made:
        trs = list(parsed(text).iter("tr"))
        covered = [0, 0]
        for index, tr in enumerate(trs):
            width = sum(1 for end in covered if end > index)
            for cell in tr:
                covered[0] = max(covered[0], index + int(cell.get("rowspan", 1)) if cell.text == "side" else 0)
            assert width + len(tr) == 2 or (len(tr) == 2 and index == 0)
        assert trs[1][0].text == "side"


def test_a_row_and_a_formula_stay_whole_however_long() -> None:
    long = " ".join(["word"] * 200)
    table = f"<table><tr><td>A</td></tr><tr><td>{long}</td></tr><tr><td>b</td></tr></table>"
    assert [text for text in texts(piece("table", table)) if long in text]
    latex = "x + " * 200 + "y"
    assert texts(piece("title", "A"), piece("equation", f"\\[{latex}\\]")) == [f"# A\n\n$$\n{latex}\n$$"]
    inline = texts(piece("text", f"Before. \\( {latex} \\) After."))
    assert f"${latex}$" in inline


def test_a_heading_stays_with_what_follows() -> None:
    made = texts(
        piece("text", "a" * 250),
        piece("title", "Next", level=1),
        Gap(1, "failed", "timeout"),
        piece("text", "b" * 250),
        piece("title", "Last"),
    )
    assert made == ["a" * 250, f"# Next\n\n{'b' * 250}", "# Last"]


@pytest.mark.parametrize("length", [180, 225, 226, 250, 290, 297, 298, 300, 2400])
def test_what_stands_below_a_long_heading_is_not_cut_within_words(length: int) -> None:
    title = "h" * (length - 2)
    made = chunks(document_of(piece("title", title, level=1), piece("text", " ".join(SENTENCES))), 300)
    assert made[0]["text"].startswith(f"# {title}")
    assert {chunk["text"][-6:] for chunk in made if chunk["text"] != f"# {title}"} == {"in it."}
    assert all(len(chunk["text"]) <= 300 for chunk in made if chunk["text"] != f"# {title}")
    assert all(chunk["heading_path"] == [title] for chunk in made)


def test_a_footnote_for_which_there_is_no_room_is_not_cut() -> None:
    table = f"<table><tr><td>{'x' * 240}</td></tr></table>"
    note = "† a note that stands below it"
    assert texts(piece("table", table, footnotes=[note])) == [table, note]


def test_a_chunk_does_not_go_on_over_a_page_that_failed() -> None:
    assert texts(piece("text", "a"), Gap(1, "failed", "timeout"), piece("text", "b")) == ["a", "b"]


def test_a_part_of_a_piece_names_the_blocks_that_it_is_from() -> None:
    contents = ["First words. " * 40, "Second words. " * 40]
    rows = [row_of(page, [Block("text", BBOX, 0, contents[page])]) for page in (0, 1)]
    document = document_of(Piece("text", "".join(contents), (Place(0, BBOX, 0), Place(1, BBOX, 0))), rows=rows)
    for chunk in chunks(document, 300):
        expected = [page for page, word in ((1, "First"), (2, "Second")) if word in chunk["text"]]
        assert chunk["pages"] == [box["page"] for box in chunk["boxes"]] == expected


def test_ids_are_the_same_every_time_and_never_twice() -> None:
    parts = [piece("text", "same " * 50), piece("title", "A"), piece("text", "same " * 50), piece("title", "A")]
    first = [chunk["id"] for chunk in chunks(document_of(*parts), 300)]
    changed = [chunk["id"] for chunk in chunks(document_of(*parts[:2], piece("text", "new"), *parts[3:]), 300)]
    assert len(set(first)) == len(first) == 3
    assert first[0] == changed[0] and first[1] != changed[1]


def test_the_file_has_a_line_for_each_chunk() -> None:
    document = document_of(piece("text", "a\u2028b 日"), piece("title", "A"))
    [file] = chunks_format.files(document, "folder/a", SolidFigures(), FormatOptions())
    assert file.path == "folder/a.chunks.jsonl"
    assert [json.loads(line)["text"] for line in file.data.decode().split("\n")[:-1]] == ["a\u2028b 日", "# A"]


@pytest.mark.slow
@pytest.mark.parametrize("max_chars", [60, 2000])
def test_no_text_takes_quadratic_time_or_is_lost(max_chars: int) -> None:
    started = time.process_time()
    for content in ("a. B" * 5_000, "\\( " * 5_000, "<" * 5_000, "\n• a" * 5_000, "{=" * 5_000):
        made = texts(piece("text", content), max_chars=max_chars)
        assert len(re.sub(r"\s", "", "".join(made))) >= len(re.sub(r"\s", "", content)) - 10_000
    cells = "<tr><td rowspan=9>a</td></tr>" * 2_000
    assert texts(piece("table", f"<table>{cells}</table>"), max_chars=max_chars)
    assert time.process_time() - started < 5
