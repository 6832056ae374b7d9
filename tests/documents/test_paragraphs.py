"""Documents that a script set are put together from their rows, and come out as they were set."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

import pytest

from batchocr.data import Block, PageResult
from batchocr.documents.assembly.assemble import assemble
from batchocr.documents.assembly.document import AssembledDocument, PageEnd, Piece
from tests.support.documents import block, text_row
from tests.support.typeset import Element, Figure, Paragraph, Typeset, typeset

WORDS = (
    "water rises slowly through the porous ground while several measurements of temperature and pressure continue "
    "without interruption at neighbouring stations whose instruments were calibrated against Kew standards in May"
)

text, page = partial(block, "text"), partial(text_row, "a")


def prose(number: int, *, sentences: int = 9) -> str:
    """A paragraph of sentences, none of which is another's."""
    drawn = random.Random(number)
    said = [[*drawn.choices(WORDS.split(), k=drawn.randint(8, 24)), f"of{number}x{at}"] for at in range(sentences)]
    return " ".join(" ".join([words[0].capitalize(), *words[1:]]) + "." for words in said)


def pieces(document: AssembledDocument) -> list[Piece]:
    return [part for part in document.parts if isinstance(part, Piece)]


def said(document: AssembledDocument, *types: str) -> list[str | None]:
    return [piece.content for piece in pieces(document) if piece.type in types]


def recognisable(set: Typeset, text: str) -> list[str]:
    """What a paragraph should come out as: two, if a page end has cut it between two sentences."""
    for before, after in set.cuts:
        first, between, rest = text.partition(f"{before[-60:]} {after[:60]}")
        if between and before.endswith("."):
            return [first + before[-60:], after[:60] + rest]
    return [text]


@pytest.mark.parametrize("num_columns", [1, 2])
def test_paragraphs_that_columns_and_pages_cut_are_whole_again(num_columns: int) -> None:
    texts = [prose(number) for number in range(60)]
    set = typeset([Paragraph(text) for text in texts], num_columns=num_columns)
    assert any(before.endswith("-") for before, _ in set.cuts)
    assert said(assemble("set.pdf", set.rows), "text") == [part for text in texts for part in recognisable(set, text)]


def test_every_piece_knows_its_pages_and_boxes_and_stands_before_the_end_of_its_first_page() -> None:
    set = typeset([Paragraph(prose(number)) for number in range(30)], num_columns=2)
    document = assemble("set.pdf", set.rows)
    placed = [(place.page_index, place.block) for piece in pieces(document) for place in piece.places]
    assert sorted(placed) == [
        (row.page_index, at) for row in set.rows for at, block in enumerate(row.blocks) if block.type == "text"
    ]
    page = 0
    for part in document.parts:
        if isinstance(part, Piece):
            assert part.places[0].page_index == page
            for place in part.places:
                assert set.rows[place.page_index].blocks[place.block].bbox == place.bbox
        elif isinstance(part, PageEnd):
            assert part.page_index == page
            page += 1
    assert page == len(set.rows) == document.page_count


@pytest.mark.parametrize("num_columns", [1, 2])
def test_figures_tables_and_notes_between_its_halves_do_not_part_a_paragraph(num_columns: int) -> None:
    elements: list[Element] = []
    for number in range(24):
        note = f"{number + 1} A note that belongs to page and mark." if number % 3 == 0 else None
        elements.append(Paragraph(prose(number), note))
        if number % 5 == 1:
            elements.append(Figure(90, f"Figure {number}: what was seen.", "Source: the author."))
    set = typeset(elements, num_columns=num_columns)
    top = Block("image", (0.1, 0.05, 0.9, 0.07), 0, None)  # of the page on which a paragraph goes on
    rows = [replace(row, blocks=(row.blocks[0], top, *row.blocks[1:])) for row in set.rows]
    document = assemble("set.pdf", rows)
    texts = [element.text for element in elements if isinstance(element, Paragraph)]
    assert said(document, "text") == [part for text in texts for part in recognisable(set, text)]
    notes = [element.note for element in elements if isinstance(element, Paragraph) and element.note]
    assert said(document, "page_footnote") == notes
    assert len(said(document, "image")) == 5 + len(rows)


def test_a_paragraph_ends_where_a_heading_a_formula_or_a_list_comes() -> None:
    first, rest = "It ends in the middle of a sentence, as they often do, and", "then goes on with small letters."
    for between in (block("title", "Methods"), block("equation", "x"), block("index", "1 A 2")):
        document = assemble("a", [page(0, text(first)), page(1, between, text(rest))])
        assert said(document, "text") == [first, rest]


def test_what_is_no_continuation_stays_apart() -> None:
    long = "A line that is as long as its column and has no full stop at its end because it is an address"
    for first, second in [
        ("The sentence is ended.", "And another begins, which is a paragraph of its own."),
        ("Is it ended? (Yes.)", "And another begins."),
        ("Dr A. Smith", "Department of Geology"),
        (long, "(a) the first of several"),
        (long, "[12] Smith, J. On water."),
        ("The following was found:", "water"),
        ("The flow of rivers and what the ground has of it ........ 5", "Temperature of the ground ........ 7"),
        ("The flow of rivers and what the ground has of it . . . . . xii", "temperature of the ground"),
        ("河流的流量以及地下水的来源和它们的变化 ……… 5", "地下水的温度"),
        ("The sentence is ended, and a note belongs to it.12", "And another begins."),
        ("He said “it is ended, and a note belongs to it.”3", "And another begins."),
        ("The sentence is ended, and a note belongs to it.<sup>1</sup>", "And another begins."),
        ("The law of flow is, as all the measurements have shown,\n\\[\nx = 1\n\\]", "And another begins."),
        ("水是从地下慢慢上升的，这一点已经得到证实。", "另一段从这里开始。"),
    ]:
        assert said(assemble("a", [page(0, text(first)), page(1, text(second))]), "text") == [first, second]


def test_what_goes_on_is_joined_as_its_language_is_written() -> None:
    for first, second, whole in [
        ("measured by Smith et al.", "and others.", "measured by Smith et al. and others."),
        ("as shown in Fig.", "3 of the book.", "as shown in Fig. 3 of the book."),
        ("a divi-", "ded word", "a divided word"),
        ("a soft\u00ad", "ly divided word", "a softly divided word"),
        ("Jean-", "Paul said", "Jean-Paul said"),
        ("from 1990-", "1995 on", "from 1990-1995 on"),
        (
            "水是从地下慢慢上升的，这一点在很多地方都",
            "已经得到证实。",
            "水是从地下慢慢上升的，这一点在很多地方都已经得到证实。",
        ),
        ("the formula\n\\[\nx = 1\n\\]", "where x is", "the formula\n\\[\nx = 1\n\\] where x is"),
        ("他在这里说了很多关于河流的话……然后", "他走了。", "他在这里说了很多关于河流的话……然后他走了。"),
        ("it rose by 2.5", "percent", "it rose by 2.5 percent"),
        ("a line that was cut by the end of the page with the name of", "Kew", None),
    ]:
        document = assemble("a", [page(0, text(first)), page(1, text(second))])
        assert said(document, "text") == [whole or f"{first} {second}"]


LINE = "a line that is as long as its column and goes to the end of the page, but has no full stop there"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        # clauses, items, articles, questions
        ("3.1 The Supplier shall deliver within thirty days and at its own cost;", "3.2 The Customer shall pay;"),
        ("3.1 The Supplier shall deliver within thirty days of the order", "3.2 the Customer shall pay each invoice;"),
        ("The parties have agreed on all of the following terms;", "Article 5 Payment is due within sixty days."),
        (LINE, "Article 5 Payment is due within sixty days."),
        (f"{LINE}; or", "6.4.e. the applicant has ceased to be a member."),
        (f"{LINE}; and", "(c) the Minister shall be told."),
        ("11 Which of these is a river, and which of them is a lake or a sea", "12 Which of these is a mountain?"),
        (LINE, "§ 12 Der Vorstand besteht aus drei Personen."),
        (LINE, "Step 3: Close the valve."),
        (LINE, "\u25cf\u200bThe next of them."),
        (
            "（2）乙方应当在收到货物之日起三十日内完成验收，并向甲方出具书面的验收报告；",
            "（3）甲方应当支付全部合同价款；",
        ),
        ("2、乙方应当在收到货物之日起三十日内完成验收，并向甲方出具书面的验收报告；", "3、甲方应当支付全部合同价款；"),
        ("乙方应当在收到货物之日起三十日内完成验收并向甲方出具书面的验收报告", "３．甲方应当支付全部合同价款。"),
        ("乙方应当在收到货物之日起三十日内完成验收并向甲方出具书面的验收报告", "第三条 甲方应当支付全部合同价款。"),
        (
            "회원은 본회의 결정에 따라 회비를 납부하고 그 의무를 성실히 이행하여야 하며 다음과 같이",
            "제3조(목적) 본회는 학생의 권익을 보호한다.",
        ),
        (
            "يجوز للمحكمة في جميع الأحوال أن تقرر ما تراه مناسبا وفق أحكام القانون",
            "أ. إذا اختل أحد الشروط.",
        ),
        (
            "يجوز للمحكمة في جميع الأحوال أن تقرر ما تراه مناسبا وفق أحكام القانون",
            "المادة (12): يسقط الحق.",
        ),
        ("не позднее десяти дней со дня получения такого требования от заказчика", "3.7. Целевые поступления."),
        (f"{LINE},", "5) the spread of them."),
        (f"{LINE}; and", "4.\u200bMeet with the others."),
        # the mark of a note behind the end of a sentence
        ("Los estudiantes tienen el derecho de reunirse para su formación. 47", "Con tal fin se reunen."),
        ("El presidente dice entonces en voz alta “Terminada la votación”. 70", "Posteriormente se cierra."),
        # those that follow what the block before begins with
        ("가. 회원은 회비를 납부하고 그 의무를 성실히 이행하여야 하며 그 밖에", "나. 회원은 총회에 참석한다."),
        ("第二条甲方应当在收到货物之日起三十日内完成验收并出具书面的验收报告", "第三条乙方应当支付价款。"),
        ("Άρθρο 3 Ο προμηθευτής παραδίδει τα αγαθά εντός τριάντα ημερών από την", "Άρθρο 4 Ο πελάτης πληρώνει."),
        # the first of a list behind an open end, and the choices of an exam
        ("The seller shall at its own cost and at its own risk be responsible for", "1. the delivery of the goods."),
        ("12. The capital of the largest country, measured by its area, is", "A. Moscow"),
        # speakers
        ("Alice: I had never seen the harbour before the day on which we", "Bob: You had, in the year before."),
        ("王主任：我们已经在春天举行了会议并且同意了新的港口应当尽快建成", "李处长：费用由国家承担。"),
        ("MS. JONES: I did not see the car until it was on the pavement --", "MR. SMITH: Objection, your honour."),
        ("Councillor Fielding: All that in the three months since we met", "Councillor Mayes: Some would say so."),
        # slides, cells and forms have no sentences
        ("Expand into three new regional markets before the end of the year", "Hire twelve engineers in Lisbon"),
        ("It was, as all of them know, e.g. the case of Keine Angabe and more", "GV1"),
        # ends of sentences in other scripts, and behind what French sets before a mark
        ("Il a répondu sans attendre : « Je reviendrai bientôt.\u00a0»", "Le lendemain il était là."),
        ("The function is defined on the half-open interval (0, 1] and is continuous there.", "We turn to the proof."),
        ("यह एक परीक्षण वाक्य है जो काफी लंबा है।", "यह एक परीक्षण वाक्य है जो काफी लंबा है।"),
        ("هذه جملة تجريبية طويلة بعض الشيء؟", "هذه جملة تجريبية طويلة بعض الشيء؟"),
        ("ይህ ሕግ በነጋሪት ጋዜጣ ታትሞ ከወጣበት ቀን ጀምሮ የጸና ይሆናል።", "ይህ ሕግ ከወጣበት ቀን ጀምሮ የጸና ይሆናል።"),
        # entries of a table of contents, and a word that is cut by no hyphen
        (f"{LINE} . . . . . . 17775", "Enhancing Post-Hoc Attributions in Long Documents"),
        (
            "the experiments have shown, and as is known of the linear transforma-",
            "Since the columns are fixed, it is.",
        ),
    ],
)
def test_what_begins_anew_stays_apart(first: str, second: str) -> None:
    for type in ("text", "ref_text"):
        rows = [page(0, block(type, first)), page(1, block(type, second))]
        assert said(assemble("a", rows), type) == [first, second]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("The committee met in the spring and agreed that the new harbour", "would be built before long."),
        ("The survey was carried out in the north of the country by the", "Institute of Geology, which was there."),
        ("The average rose from 3.1 to 3.4 in the second year, and to", "3.9 in the third, before it fell again."),
        ("The treaty was signed on the last day of the conference in", "1986. It came into force two years later."),
        ("It was decided by the court on the grounds that are set out in", "Section 5. They were given on the"),
        ("The optimiser runs for a hundred steps with a batch of a size of", "256. The temperature is 1."),
        ("It has been used widely for such tasks (Kong et al., 2020;", "Jeong et al., 2021) and for others."),
        ("and was received there with honours by the mayor, Mr.", "Thorgrimson, who spoke for an hour."),
        ("as has been shown in great detail by all of them in their Fig. 3", "of the book, which was written then."),
        ("as follows from the law of flow that has been shown before in", "(3) and from what is said of it."),
        ("It was used for many years in all of the hospitals by exactly", "12 Americans and their families."),
        ("Die Verarbeitung erfolgt in allen diesen Fällen auf der Grundlage gemäß", "Art. 6 Abs. 1 DSGVO. Sie endet."),
        ("The parties are bound by all of the provisions of Section 4 and", "Section 9 Paragraph 2. They pay."),
        ("Samir Gadre, Gabriel Ilharco, Jongho Park, Rebecca", "Roelofs, Mitchell Wortsman, Ali Farhadi, Ludwig"),
        ("It was asked of all of them whether they had been there; some had,", "the others had not."),
    ],
)
def test_a_number_a_name_or_a_citation_within_a_sentence_does_not_part_it(first: str, second: str) -> None:
    assert said(assemble("a", [page(0, text(first)), page(1, text(second))]), "text") == [f"{first} {second}"]


def test_a_chinese_text_goes_on_behind_a_semicolon_or_a_character() -> None:
    for first, second in [
        ("委员会在春天举行了会议，并且同意新的港口应当在十年之内建成，", "而且费用由国家承担。"),
        ("委员会在春天举行了会议，并且同意新的港口应当在十年之内建成；", "费用由国家承担。"),
        ("擅自公开他人的姓名、肖像、住址和电话号码等个人信息，导致个", "\u2f08名誉受到损害"),
    ]:
        assert said(assemble("a", [page(0, text(first)), page(1, text(second))]), "text") == [first + second]


def test_the_blocks_of_slides_do_not_go_on_and_the_prose_of_two_pages_on_a_sheet_does() -> None:
    for first, second, num_texts in [
        ("The work was begun in the spring. It was carried out by the", "Institute of Geology.", 2),
        ("expand into three new regional markets before the end of the year", "hire twelve engineers in Lisbon", 2),
        ("The work was begun in the spring. It was carried out by the", "institute itself.", 1),
    ]:
        slides = [
            replace(page(number, text(said)), width=1600, height=900) for number, said in enumerate((first, second))
        ]
        assert len(said(assemble("a", slides), "text")) == num_texts
        turned = [replace(row, width=900, height=1600, orientation=90) for row in slides]
        assert len(said(assemble("a", turned), "text")) == num_texts


@pytest.mark.parametrize(
    ("first", "second", "whole"),
    [
        ("as in low-", "and middle-income countries", "as in low- and middle-income countries"),
        ("die Haupt-", "und Nebenstellen", "die Haupt- und Nebenstellen"),
        ("a three-", "to five-year plan", "a three- to five-year plan"),
        ("for low-", "and/or middle-income countries", "for low- and/or middle-income countries"),
        ("zwei-", "bis dreimal am Tag", "zwei- bis dreimal am Tag"),
        ("a state-of-the-", "art machine", "a state-of-the-art machine"),
        ("the e-", "mail of that day", "the e-mail of that day"),
        ("the price-", "determining factors", "the price-determining factors"),
        ("the docu-", "mentation of it", "the documentation of it"),
        ("a well-", "known river", "a wellknown river"),
    ],
)
def test_a_hyphen_stays_where_it_belongs_to_the_word(first: str, second: str, whole: str) -> None:
    words = "There are price-determining factors. A well-known wellknown river."
    document = assemble("a", [page(0, text(words), text(first)), page(1, text(second))])
    assert said(document, "text") == [words, whole]


def test_a_paragraph_does_not_go_on_over_a_page_that_is_missing() -> None:
    halves = text("It ends in the middle of"), text("a sentence.")
    failed = PageResult("a", 1, "failed", error_kind="damaged", error_message="the page is damaged")
    document = assemble("a", [page(0, halves[0]), failed, page(2, halves[1])])
    assert said(document, "text") == ["It ends in the middle of", "a sentence."]
    assert said(assemble("a", [page(0, halves[0]), page(2, halves[1])]), "text") == said(document, "text")
    assert said(assemble("a", [page(0, halves[0]), page(1), page(2, halves[1])]), "text") == [
        "It ends in the middle of a sentence."
    ]


LEFT, RIGHT = (0.1, 0.7, 0.48, 0.9), (0.52, 0.1, 0.9, 0.3)
CUT = "The response of the neonatal ground to the rain of that year was not signifi"


def of_page(*blocks: tuple[str, tuple[float, float, float, float], str | None]) -> list[str | None]:
    """The texts of a page with these blocks: type, box, content."""
    made = (Block(type, box, 0, content) for type, box, content in blocks)
    return said(assemble("a", [text_row("a", 0, *made)]), "text")


def test_a_paragraph_goes_on_at_the_top_of_the_next_column() -> None:
    figure = ("image", (0.52, 0.05, 0.9, 0.08), None)
    for before, after, whole in [
        (CUT, "cantly another.", f"{CUT} cantly another."),
        (f"{CUT}-", "cantly another.", f"{CUT}cantly another."),
        ("The ground takes the rain that comes down from the hills of", "Kew in May.", None),
        (
            "水是从地下慢慢上升的，这一点在很多地方都",
            "已经得到证实。",
            "水是从地下慢慢上升的，这一点在很多地方都已经得到证实。",
        ),
    ]:
        found = of_page(("text", LEFT, before), figure, ("text", RIGHT, after))
        assert found == [whole or f"{before} {after}"]
    for before, after in [
        (f"{CUT}cant.", "another sentence."),
        (f"{CUT}cant: ....... 12", "another entry ....... 13"),
        (CUT, "(a) the first of several"),
    ]:
        assert of_page(("text", LEFT, before), ("text", RIGHT, after)) == [before, after]
    assert len(of_page(("text", LEFT, CUT), ("equation", (0.1, 0.91, 0.4, 0.93), "x"), ("text", RIGHT, "cantly"))) == 2


def test_what_does_not_fill_its_column_or_is_no_column_does_not_go_on_in_the_next() -> None:
    lines = ("text", (0.1, 0.1, 0.48, 0.6), "Some text of many lines, which ends.")
    assert of_page(lines, ("text", (0.1, 0.7, 0.3, 0.72), CUT), ("text", RIGHT, "cantly"))[1:] == [CUT, "cantly"]
    assert of_page(lines, ("text", (0.1, 0.7, 0.47, 0.72), CUT), ("text", RIGHT, "cantly"))[1:] == [f"{CUT} cantly"]
    boxes = ((0.1, 0.7, 0.2, 0.8), (0.3, 0.5, 0.4, 0.6))
    assert of_page(("text", boxes[0], CUT), ("text", boxes[1], "cantly")) == [CUT, "cantly"]
    assert len(of_page(("text", LEFT, CUT), ("text", (0.52, 0.1, 0.99, 0.3), "cantly"))) == 2


def test_a_text_beside_a_picture_that_begins_with_a_capital_is_another() -> None:
    before = "The ground takes the rain that comes down in the month of May from the hills of Kew, Melbo"
    for rest, width, num_texts in (
        ("Alan Wilmer takes up the rain. " * 6, 0.2, 2),
        ("Kew in May.", 0.2, 1),
        ("takes it. " * 20, 0.2, 1),
    ):
        beside = ("text", (0.9 - width, 0.1, 0.9, 0.3), rest)
        assert len(of_page(("text", LEFT, before), ("image", (0.52, 0.1, 0.68, 0.3), None), beside)) == num_texts


def test_texts_that_begin_side_by_side_are_two_unless_the_second_begins_with_a_small_letter() -> None:
    left, right = (0.1, 0.3, 0.48, 0.4), (0.52, 0.295, 0.9, 0.4)
    for after, num_texts in (("The ground takes up the rain", 2), ("cantly another.", 1)):
        assert len(of_page(("text", left, CUT), ("text", right, after))) == num_texts
    column, below_a_figure = (0.1, 0.1, 0.48, 0.9), (0.52, 0.5, 0.9, 0.6)
    assert len(of_page(("text", column, CUT), ("text", below_a_figure, "cantly another."))) == 1


def test_a_line_that_ends_before_its_column_does_not_go_on_on_the_next_page() -> None:
    lines, last = (
        text("Some text of many lines, which ends."),
        "A supplier of fibres that take more than a watt at once",
    )
    for right, num_texts in ((0.6, 3), (0.88, 2)):
        blocks = (replace(lines, bbox=(0.1, 0.1, 0.9, 0.5)), Block("text", (0.1, 0.6, right, 0.62), 0, last))
        document = assemble("a", [page(0, *blocks), page(1, text("iX-Blue, which is French"))])
        assert len(said(document, "text")) == num_texts


def test_a_paragraph_goes_on_below_a_picture_in_its_column_if_it_goes_on_with_a_small_letter() -> None:
    picture = ("image", (0.1, 0.42, 0.48, 0.8), None)
    above, below = (0.1, 0.3, 0.48, 0.4), (0.1, 0.82, 0.48, 0.9)
    assert of_page(("text", above, CUT), picture, ("text", below, "cantly.")) == [f"{CUT} cantly."]
    for before, after in [
        (CUT, "Another text begins below the picture."),
        ("772/489-2168 Fax", "www.example.org"),
        (f"{CUT}cant, as\n\\[\nx = 1\n\\]", "where x is one"),
        (f"{CUT}cant, Pharmacol. 214, 133-", "Sakurai, T., 1992"),
    ]:
        assert of_page(("text", above, before), picture, ("text", below, after)) == [before, after]
