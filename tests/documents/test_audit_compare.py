"""What a second reader does not confirm of a page: its lines are given here as it would read them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from batchocr.data import Block
from batchocr.documents.audit.compare import compare_page
from batchocr.documents.audit.lines import ReadLine

LEFT = ["The ferry left at six and carried 1482 people,", "as it had every morning since the bridge fell."]
RIGHT = ["Nobody asked the miller about the beehive,", "which stood behind the chapel until April."]


def lines(texts: list[str], x: float = 0.1, y: float = 0.1, score: float = 1.0) -> list[ReadLine]:
    return [ReadLine((x, y + 0.03 * n, x + 0.38, y + 0.03 * n + 0.02), text, score) for n, text in enumerate(texts)]


def block(text: str | None, x: float = 0.09, kind: str = "text") -> Block:
    return Block(kind, (x, 0.09, x + 0.4, 0.2), 0, text)


def kinds(blocks: list[Block], read: list[ReadLine]) -> list[tuple[str, str, str]]:
    return [(found.kind, found.text, found.second_text) for found in compare_page(blocks, read).findings]


def test_a_page_that_both_read_alike_has_no_findings() -> None:
    found = compare_page([block(" ".join(LEFT))], lines(LEFT))
    assert (found.findings, found.characters) == ((), len("".join(filter(str.isalnum, "".join(LEFT)))))


def test_hyphens_quotes_case_ligatures_and_spaces_are_no_difference() -> None:
    read = lines(["“THE FIRST FERRY LEFT—AT SIX, as it had every morn-", "ing since the bridge fell"])
    assert kinds([block('"The ﬁrst ferry left-at six, as it had everymorning since the bridge fell')], read) == []


def test_letters_in_figures_and_in_unknown_scripts_are_counted_as_uncompared() -> None:
    assert compare_page([block(None, kind="image")], lines(LEFT)).uncompared == len(
        "".join(filter(str.isalnum, "".join(LEFT)))
    )
    assert compare_page([block("Привет, мир")], lines(LEFT)).uncompared == len("Приветмир")
    assert compare_page([block("\\[ a + b \\]", kind="equation")], lines(LEFT)).uncompared == 0
    assert compare_page([block(" ".join(LEFT))], lines(LEFT)).uncompared == 0


def test_a_line_in_no_block_is_omitted_text() -> None:
    [found] = compare_page([block(" ".join(LEFT))], lines(LEFT) + lines(RIGHT[:1], y=0.5)).findings
    assert (found.kind, found.block, found.second_text, found.characters) == ("omitted", None, RIGHT[0], 35)
    assert found.bbox == (0.1, 0.5, 0.48, 0.52)


def test_a_sentence_that_a_block_lacks_is_omitted_text_of_that_block() -> None:
    [found] = compare_page([block(LEFT[0])], lines(LEFT)).findings
    assert (found.kind, found.block, found.characters) == ("omitted", 0, 37)


ITEMS = ["Miller 31", "Baker 70", "Smith 42", "Cooper 9", "Weaver 56", "Potter 18", "Tanner 63", "Fisher 27"]
ROWS = [["Hay", "12"], ["Oats", "317"], ["Rye", "48"], ["Wheat", "905"], ["Flax", "7"], ["Hops", "66"]]
COLUMN = ["钟是在大洪", "水那一年铸", "造的由邻村", "的敲钟人悬"]


def cells(rows: list[list[str]]) -> list[str]:
    return [cell for row in rows for cell in row]


def table(rows: list[list[str]]) -> str:
    return f"<table>{''.join(f'<tr><td>{name}</td><td>{number}</td></tr>' for name, number in rows)}</table>"


@pytest.mark.parametrize(
    ("kind", "content", "read", "missing"),
    [
        ("list", "\n".join(ITEMS[:2]), ITEMS, ITEMS[2:]),
        ("list", "\n".join([*ITEMS[:3], ITEMS[4], *ITEMS[6:]]), ITEMS, [ITEMS[3], ITEMS[5]]),
        ("table", table(ROWS[:3]), cells(ROWS), cells(ROWS[3:])),
        ("table", table(ROWS[::2]), cells(ROWS), cells(ROWS[1::2])),
        ("table", None, cells(ROWS), cells(ROWS)),
        ("text", COLUMN[0], COLUMN, COLUMN[1:]),
        ("text", None, COLUMN, COLUMN),
    ],
)
def test_short_lines_that_a_block_lacks_are_omitted_together(
    kind: str, content: str | None, read: list[str], missing: list[str]
) -> None:
    box = Block(kind, (0.05, 0.05, 0.6, 0.9), 0, content)
    found = compare_page([box], lines(read)).findings
    assert {(one.kind, one.block) for one in found} == {("omitted", 0)}
    assert sum(one.characters for one in found) == sum(map(str.isalnum, "".join(missing)))


def test_short_lines_that_a_block_lacks_are_no_finding_if_they_are_few_unsure_or_formulas() -> None:
    sure, unsure = lines(["ab", "cde", "fgh"], y=0.3), lines(["ijkl", "mnop", "qrst"], y=0.4, score=0.7)
    tall = Block("text", (0.05, 0.05, 0.6, 0.9), 0, " ".join(LEFT))
    assert kinds([tall], lines(LEFT) + sure) == []
    assert kinds([replace(tall, content=None)], sure + unsure) == []
    assert kinds([replace(tall, content=None)], lines(["Late in the autumn"], score=0.7)) == []
    mixed = " ".join([RIGHT[0], r"\(\alpha\)", LEFT[0], RIGHT[1], LEFT[1]])
    formulas = lines(["a1x+b", "y2=cz", "k3<uv"], y=0.3)
    assert kinds([replace(tall, content=mixed)], lines(LEFT + RIGHT) + formulas) == []


def test_a_sentence_without_lines_of_its_own_is_invented() -> None:
    invented = "No further shipments were recorded that year."
    assert kinds([block(f"{LEFT[0]} {invented} {LEFT[1]}")], lines(LEFT)) == [("invented", invented, "")]


def test_text_that_stands_on_ink_which_could_not_be_read_is_not_invented() -> None:
    ink = ReadLine((0.1, 0.16, 0.48, 0.18), "", 0.0)
    assert kinds([block(f"{' '.join(LEFT)} and nobody knew why it had to be so")], [*lines(LEFT), ink]) == []


def test_a_changed_digit_weighs_more_than_a_changed_word() -> None:
    number, word = (
        compare_page([block(" ".join(LEFT).replace(old, new))], lines(LEFT)).findings[0]
        for old, new in (("1482", "1432"), ("bridge", "pelican"))
    )
    assert (number.kind, number.text, number.second_text, number.characters) == ("number", "1432", "1482", 1)
    assert (word.kind, word.text, word.second_text) == ("different", "pelican", "bridge")
    assert number.weight > word.weight


def test_a_letter_that_looks_like_a_digit_is_one() -> None:
    assert kinds([block("in the early 970s")], lines(["in the early 97os"])) == []


def test_figures_that_the_second_reader_doubts_are_no_finding() -> None:
    [first, second] = lines(LEFT)
    doubtful = ReadLine(first.box, first.text, first.score, ("1482",))
    assert kinds([block(" ".join(LEFT).replace("1482", "1432"))], [doubtful, second]) == []


def test_a_reader_that_goes_across_columns_is_no_finding() -> None:
    across = Block("text", (0.05, 0.05, 0.95, 0.3), 0, " ".join(LEFT + RIGHT))
    assert kinds([across], lines(LEFT) + lines(RIGHT, x=0.5)) == []


def test_a_line_that_lies_in_the_wrong_block_is_no_finding() -> None:
    assert kinds([block(" ".join(LEFT)), block(" ".join(RIGHT), x=0.5)], lines(RIGHT) + lines(LEFT, x=0.51)) == []


def test_a_page_that_lies_on_its_side_is_read_by_the_angle_of_its_blocks() -> None:
    turned = [
        ReadLine((1 - y1, x0, 1 - y0, x1), text, 1.0)
        for x0, y0, x1, y1, text in ((*line.box, line.text) for line in lines(LEFT))
    ]
    assert kinds([Block("text", (0.7, 0.05, 0.95, 0.6), 90, " ".join(LEFT))], turned) == []


def test_a_table_is_compared_by_its_cells_in_any_order() -> None:
    table = block(
        "<table><tr><td>Wheat</td><td>1482</td></tr><tr><td>Barley</td><td>317</td></tr></table>", kind="table"
    )
    assert kinds([table], lines(["Barley", "317", "Wheat", "1482"])) == []
    assert kinds([table], lines(["Barley", "347", "Wheat", "1482"])) == [("number", "317", "347")]


def test_formulas_figures_and_unknown_scripts_are_left_out_and_counted() -> None:
    blocks = [block("x^2", kind="equation"), block(None, kind="image"), block("Съешь же ещё этих мягких булок", x=0.5)]
    found = compare_page(blocks, lines(["x2 and more of it", "written in a figure"]))
    assert (found.findings, found.characters) == ((), 0)
    assert compare_page([], []).characters == 0
    assert sorted(found.left_out) == ["figure", "formula", "script"]


def test_lines_within_a_block_of_an_unknown_script_are_counted() -> None:
    found = compare_page([block("Съешь же ещё этих мягких булок")], lines(LEFT))
    assert (found.findings, found.left_out) == ((), ("script", "script_line", "script_line"))


def test_lines_within_a_figure_are_counted() -> None:
    found = compare_page([block(None, kind="chart"), block(" ".join(RIGHT), x=0.5)], lines(LEFT) + lines(RIGHT, x=0.51))
    assert (found.findings, found.left_out) == ((), ("figure", "figure_line", "figure_line"))


def test_a_formula_within_text_may_be_read_as_anything() -> None:
    read = lines(["We assume that a1 < B holds", "for every such bridge"])
    assert kinds([block(r"We assume that \(\alpha_1 < \beta\) holds for every such bridge")], read) == []


def test_noise_outside_of_blocks_is_no_finding() -> None:
    noise = lines(["i l  tt iii x l ti"], y=0.5, score=0.4) + lines(["12"], y=0.9)
    assert kinds([block(" ".join(LEFT))], lines(LEFT) + noise) == []
