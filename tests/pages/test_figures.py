"""Figures that are read: MinerU's image analysis, and what Markdown shows of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from PIL import Image

from batchocr.data import Block, Page, Reading
from batchocr.documents.markup.html import block_html
from batchocr.pages.protocol.families.mineru import MinerUProtocol
from batchocr.pages.protocol.markdown import figure_parts, to_markdown
from tests.pages.test_mineru_protocol import mineru_reads
from tests.support.page_reading import Reader, line

PROTOCOL = MinerUProtocol(max_new_tokens=512, penalties=True, read_figures=True)
CHART = "| Year | Tons |\n| --- | --- |\n| 2024 | 3 < 4 |\n| 2025 | 5 |"


def figure(kind: str, caption: str, content: str = "", sub_class: str = "") -> str:
    fields = {"class": kind, "sub_class": sub_class, "caption": caption, "content": content}
    return "".join(f"<|{name}_start|>{value}<|{name}_end|>" for name, value in fields.items())


ANSWERS = {
    "photograph": figure("natural_image", "A dog on a lawn."),
    "chart": figure("chart", "Tons a year.", CHART, "bar"),
    "flowchart": figure("flowchart", "How it flows.", "graph TD\n    A[in] --> B[out]"),
    "text": figure("text_image", "A sign.", "NO ENTRY"),
    "table": figure("pure_table", "Two cells.", "<fcel>a<fcel>b<nl>"),
    "no table": figure("pure_table", "Two cells.", "a and b"),
    "formula": figure("pure_formula", "A sum.", "a + b"),
    "nothing": "what?",
}
LAYOUT = "".join(
    line(f"100 {100 * number:03d} 900 {100 * number + 90:03d}", "chart" if name == "chart" else "image")
    for number, name in enumerate(ANSWERS, start=1)
)


def page() -> Page:
    """Every block has ink in it."""
    image = Image.new("RGB", (800, 1000), "white")
    image.paste("black", (200, 0, 300, 1000))
    return Page(image, 72)


def read(answers: Sequence[str], layout: str = LAYOUT) -> tuple[Reader, Reading]:
    reader = Reader(layout, lambda number, prompt: answers[number])
    return reader, reader.read(page(), PROTOCOL)


@pytest.fixture(scope="module")
def blocks() -> dict[str, Block]:
    return dict(zip(ANSWERS, read([*ANSWERS.values()])[1].blocks, strict=True))


def test_the_blocks_are_those_of_minerus_client(blocks: dict[str, Block], monkeypatch: pytest.MonkeyPatch) -> None:
    read_by_mineru, asked = mineru_reads(
        page(), LAYOUT, lambda number, prompt: [*ANSWERS.values()][number], monkeypatch, image_analysis=True
    )
    theirs = dict(zip(ANSWERS, read_by_mineru, strict=True))
    assert {each.prompt for each in asked[1:]} == {"\nImage Analysis:"}
    left_empty = {"no table"}  # by MinerU; we keep what the model wrote
    for name in ANSWERS.keys() - left_empty:
        ours, right = blocks[name], theirs[name]
        expected = (right["type"], right["content"] or "", right.get("sub_type") or None)
        assert (ours.type, ours.content or "", ours.sub_type) == expected, name


def test_each_kind_of_figure_says_what_it_shows(blocks: dict[str, Block]) -> None:
    found = {name: (block.type, block.sub_type, block.description, block.content) for name, block in blocks.items()}
    assert found == {
        "photograph": ("image", "natural_image", "A dog on a lawn.", "A dog on a lawn."),
        "chart": ("chart", "bar", "Tons a year.", CHART),
        "flowchart": ("image", "flowchart", "How it flows.", found["flowchart"][3]),
        "text": ("image", "text_image", "A sign.", "NO ENTRY"),
        "table": ("table", None, "Two cells.", "<table><tr><td>a</td><td>b</td></tr></table>"),
        "no table": ("table", None, "Two cells.", "a and b"),
        "formula": ("equation", None, "A sum.", "\\[\na + b\n\\]"),
        "nothing": ("image", None, None, ""),
    }
    assert "A[" in str(found["flowchart"][3]) and str(found["flowchart"][3]).startswith("```mermaid\n")


def test_a_figure_that_was_not_understood_makes_its_page_degraded() -> None:
    assert read([*ANSWERS.values()])[1].error_message == (
        "table 5 could not be parsed; nothing was read in block 7, though there is ink"
    )


def test_markdown_has_the_description_as_alternative_text_and_what_was_read_below(blocks: dict[str, Block]) -> None:
    shown = [blocks[name] for name in ("photograph", "chart", "flowchart", "text")]
    photograph, chart, table, flowchart, code, sign, text = to_markdown(shown).strip().split("\n\n")
    assert photograph == "![A dog on a lawn.](#block-0)"
    assert chart == "![Tons a year.](#block-1)"
    assert table.startswith("<table><tr><th>Year</th><th>Tons</th></tr><tr><td>2024</td><td>3 &lt; 4</td></tr>")
    assert flowchart == "![How it flows.](#block-2)" and code.startswith("```\ngraph TD")
    assert (sign, text) == ("![A sign.](#block-3)", "NO ENTRY")


def test_nothing_in_a_description_acts_in_a_browser_or_ends_it() -> None:
    block = Block("image", (0, 0, 1, 1), 0, "a](x) <b>", sub_type="natural_image", description="a](x) <b>\n\n# b")
    assert to_markdown([block]) == "![a\\] (x) &lt;b> # b](#block-0)\n\na] (x) &lt;b>\n"


@pytest.mark.parametrize("text", ["", "a | b", "| a |\n| b |", "a\n---\nb", "<nl>", "a<fcel>b"])
def test_what_is_no_table_stays_text(text: str) -> None:
    assert figure_parts(text) == ([("text", text)] if text else [])


def test_a_charts_table_is_taken_out_of_the_text_around_it() -> None:
    def html(*rows: str) -> str:
        head, *body = (f"<tr>{''.join(f'<td>{cell}</td>' for cell in row.split(','))}</tr>" for row in rows)
        return f"<table>{head.replace('td', 'th')}{''.join(body)}</table>"

    table = html("Year,Tons", "2024,3 &lt; 4", "2025,5")
    ragged = "| Year | Tons |\n|---|---|\n| 2024 |\n| 2025 | 5 | about |"
    otsl = "<fcel>Year<fcel>Tons<nl><fcel>2024<ecel><nl><fcel>2025<fcel>3 < 4<lcel><nl>"
    for content, parts in [
        (CHART, [("table", table)]),
        (
            f"Above:\n{CHART}\n\nSource: the author.",
            [("text", "Above:"), ("table", table), ("text", "Source: the author.")],
        ),
        (f"{CHART}\n\n{CHART}", [("table", table), ("table", table)]),
        (ragged, [("table", html("Year,Tons,", "2024,,", "2025,5,about"))]),
        (otsl, [("table", html("Year,Tons,", "2024,,", "2025,3 &lt; 4,"))]),
        (
            f"Tons: {otsl}about",
            [("text", "Tons:"), ("table", html("Year,Tons,", "2024,,", "2025,3 &lt; 4,", "about,,"))],
        ),
    ]:
        assert figure_parts(content) == parts, content
    block = Block("chart", (0, 0, 1, 1), 0, f"{CHART}\n<b>Source</b>", sub_type="bar", description="Tons")
    picture, shown, source = to_markdown([block]).strip().split("\n\n")
    assert (picture, shown[:7], source) == ("![Tons](#block-0)", "<table>", "&lt;b>Source&lt;/b>")
    assert block_html("chart", block.content).endswith('</table><p dir="auto">&lt;b&gt;Source&lt;/b&gt;</p>')
