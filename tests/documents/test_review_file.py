"""The review page is one file that holds what it should, says what it leaves out, and nothing else."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import html5lib
import pytest
from PIL import Image

from batchocr.documents.assembly.assemble import open_table
from batchocr.documents.audit.audit_table import AuditedPage, AuditJournal, read_pages
from batchocr.documents.findings import AuditFinding
from batchocr.documents.review.choose import choose, text_hash
from batchocr.documents.review.page import MAX_BLOCKS, MAX_PAGE_CHARACTERS, page_data
from batchocr.documents.review.review import require_replaceable, write_review
from batchocr.documents.review.summary import groups
from batchocr.errors import OutputError
from batchocr.option_values import parse_page_spec
from batchocr.tables import parquet
from batchocr.tables.files import report_path
from tests.support.review_pages import METADATA, WhitePages, block, failed, reviewed, row, saved

ENDS_A_SCRIPT = "</script><script>x=1</script><!-- <script> ]]> \u2028 \ud800 \x00"


class Parsed:
    """A review page as a parser of another author reads it."""

    def __init__(self, path: Path) -> None:
        self.html = path.read_text()
        self.tree = html5lib.parse(self.html, namespaceHTMLElements=False)

    def script(self, id: str) -> str:
        found = self.tree.find(f".//script[@id='{id}']")
        assert found is not None, id
        return found.text or ""

    @property
    def index(self) -> Any:
        return json.loads(self.script("index"))

    def page(self, number: int) -> Any:
        return json.loads(self.script(f"page-{number}"))

    def picture(self, number: int) -> Image.Image | None:
        data = base64.b64decode(self.script(f"picture-{number}"))
        return Image.open(io.BytesIO(data)) if data else None

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.tree.find("body").itertext()).split())


def test_each_page_has_its_blocks_and_a_picture_as_large_as_it_is_read(tmp_path: Path) -> None:
    rows = [
        row(
            "b.pdf",
            0,
            block("text", "one < two", confidence=0.5),
            block("image", None),
            width=1700,
            height=2200,
            dpi=200.0,
        ),
        row("a.pdf", 3, block("table", "<table><tr><td>7</td></tr></table>"), width=3000, height=300, dpi=None),
    ]
    path, written = reviewed(tmp_path, rows)
    page = Parsed(path)
    assert (written.pages, written.missing, written.size_bytes) == (2, 0, path.stat().st_size)
    assert [(page.index["sources"][entry["document"]], entry["page"]) for entry in page.index["pages"]] == [
        ("b.pdf", 0),
        ("a.pdf", 3),
    ]
    first = page.page(0)["blocks"]
    assert [(block["type"], block["text"], block["confidence"]) for block in first] == [
        ("text", "one < two", 0.5),
        ("image", None, None),
    ]
    assert first[0]["box"] == [0.1, 0.1, 0.9, 0.15]
    assert "<td>7</td>" in page.page(1)["blocks"][0]["html"]
    sizes = [picture.size for number in (0, 1) if (picture := page.picture(number))]
    assert sizes == [(935, 1210), (1600, 160)]


def test_the_policy_lets_nothing_act_but_the_style_and_the_script_in_the_file(tmp_path: Path) -> None:
    html = reviewed(tmp_path, [row("a.pdf", 0)])[0].read_text()
    [policy] = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    hashes = {
        name: base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        for name, content in re.findall(r"<(style|script)>(.*?)</\1>", html, re.DOTALL)
    }
    assert policy.replace("&#39;", "'").split("; ") == [
        "default-src 'none'",
        f"script-src 'sha256-{hashes['script']}'",
        f"style-src 'sha256-{hashes['style']}'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    assert not re.search(r"https?:|//[a-z]|@import|url\(", html.replace("data:,", ""))


def test_nothing_in_a_table_ends_the_script_it_stands_in(tmp_path: Path) -> None:
    hostile = ENDS_A_SCRIPT.encode("utf-8", "backslashreplace").decode()
    benign, _ = reviewed(tmp_path, [row("a.pdf", 0, block("text", "a")), failed("b.pdf")])
    elements = [element.tag for element in Parsed(benign).tree.iter() if isinstance(element.tag, str)]
    path, _ = reviewed(tmp_path, [row(hostile, 0, block(hostile, hostile)), failed(hostile + "b", message=hostile)])
    page = Parsed(path)
    assert [element.tag for element in page.tree.iter() if isinstance(element.tag, str)] == elements
    assert page.page(0)["blocks"][0]["text"] == hostile
    assert hostile in page.page(1)["message"]


def test_a_file_that_is_gone_leaves_a_reason_and_an_empty_sheet_of_its_shape(tmp_path: Path) -> None:
    rows = [row("gone.pdf", index, block("text", "a")) for index in (0, 1)] + [row("here.pdf", 0), failed("b.pdf", 2)]
    files = WhitePages(gone=["gone.pdf"])
    path, written = reviewed(tmp_path, rows, files)
    page = Parsed(path)
    assert written.missing == 2
    assert page.page(0)["missing"] == "No picture: gone.pdf is not there"
    assert (page.page(0)["shape"], page.picture(0)) == ([850, 1100], None)
    assert page.page(3) == {
        "shape": None,
        "message": "damaged: it is no PDF",
        "missing": "",
        "blocks": [],
        "more": 0,
        "findings": [],
    }
    assert files.found == ["gone.pdf", "here.pdf"]  # each once, and none that was never opened


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    rows = [row(f"{number}.pdf", index) for number in range(6) for index in range(2)]
    path, _ = reviewed(tmp_path, rows, sort="worst", limit=5)
    assert "5 of 12 rows: the worst." in Parsed(path).text
    path, _ = reviewed(tmp_path, rows, limit=5, pages=parse_page_spec("1"))
    assert "5 of 12 rows, 6 of which were asked for: the first." in Parsed(path).text
    path, _ = reviewed(tmp_path, rows)
    assert "rows" not in Parsed(path).text.split("Keys")[0].split("12 ok")[1]


def test_pages_of_any_size_are_cut_to_what_a_browser_can_show_and_say_so(tmp_path: Path) -> None:
    many = row("many.pdf", 0, *(block("text", "a") for _ in range(MAX_BLOCKS + 5)))
    long = row("long.pdf", 0, *(block("text", "word " * 200_000) for _ in range(6)))
    page = Parsed(reviewed(tmp_path, [many, long])[0])
    assert (len(page.page(0)["blocks"]), page.page(0)["more"]) == (MAX_BLOCKS, 5)
    blocks = page.page(1)["blocks"]
    assert sum(len(block["text"]) for block in blocks) == MAX_PAGE_CHARACTERS
    assert all(block["cut"] + len(block["text"]) == 1_000_000 for block in blocks)


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (None, []),
        ("{", []),
        ("[1]", []),
        ('{"settings": [], "errors": 3, "pages_per_second": true, "bottleneck": null}', []),
        ('{"ink_outside": {"pages": 3, "median": "x"}, "text_layer_agreement": [1]}', []),
        ('{"bottleneck": "x", "ink_outside": {"pages": 3, "worst_tenth": 0.125}}', ["Ink outside of blocks", "12.5%"]),
        ('{"pages_per_second": 0.5, "bottleneck": "<b>x", "errors": {"timeout": 3}}', ["0.5", "<b>x", "timeout 3"]),
    ],
)
def test_the_report_beside_the_table_is_at_the_top(tmp_path: Path, report: str | None, expected: list[str]) -> None:
    if report is not None:
        report_path(tmp_path / "table.parquet").write_text(report)
    text = Parsed(reviewed(tmp_path, [row("a.pdf", 0), failed("b.pdf")])[0]).text
    assert "1 ok 1 failed" in text
    assert "acme/reader" in text
    assert [part for part in expected if part in text] == expected
    assert ("Bottleneck" in text) == bool(expected)


def test_a_report_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    parquet.write(tmp_path / "a.parquet", [row("a.pdf")], METADATA)
    before = groups(open_table(tmp_path))
    os.mkfifo(tmp_path / "report.json")
    os.mkfifo(report_path(tmp_path / "a.parquet"))
    assert groups(open_table(tmp_path / "a.parquet")) == before


def test_only_a_review_page_is_replaced(tmp_path: Path) -> None:
    path, _ = reviewed(tmp_path, [row("a.pdf", 0)])
    require_replaceable(path)
    require_replaceable(tmp_path / "new.html")
    other = tmp_path / "other.html"
    other.write_text("<!doctype html><p>mine")
    with pytest.raises(OutputError, match="not a review page"):
        require_replaceable(other)


ROWS = [row("a.pdf", number, block("text", "Some text")) for number in range(4)]


def audited(position: int, weight: float, *findings: AuditFinding) -> AuditedPage:
    text = text_hash(ROWS[position])
    return AuditedPage(position, "a.pdf", position, None, text, "compared", None, 100, weight=weight, findings=findings)


@pytest.mark.parametrize(("named", "shown"), [(0, 0), (-5, None), (10**9, None), (None, None)])
def test_a_finding_in_a_block_that_is_not_shown_is_in_none(named: int | None, shown: int | None) -> None:
    finding = AuditFinding("number", named, (0.1, 0.1, 0.9, 0.15), "1", "2", 1, 1.0)
    [found] = cast("list[dict[str, object]]", page_data(row("a.pdf", 0, block("text", "a")), "", [finding])["findings"])
    assert found["block"] == shown


def test_audited_pages_come_by_weight_with_both_texts(tmp_path: Path) -> None:
    table = saved(tmp_path, ROWS)
    number = AuditFinding("number", 0, (0.1, 0.1, 0.9, 0.15), "</script>1432", "1482", 1, 10.0)
    omitted = AuditFinding("omitted", None, (0.1, 0.5, 0.9, 0.55), "", "Nobody asked the miller", 20, 20.0)
    journal = AuditJournal(tmp_path / "audit.parquet", {"table": "t"})
    for page in (audited(0, 0.0), audited(1, 10.0, number), audited(3, 30.0, number, omitted)):
        journal.append(page)
    journal.finish()
    journal.close()
    audit = {page.key: page for page in read_pages(tmp_path / "audit.parquet")}
    weights = {key: page.weight for key, page in audit.items()}
    choice = choose(table.rows(), "audit", 10, weights=weights)
    assert [chosen.row.page_index for chosen in choice.rows] == [3, 1, 0]
    out = tmp_path / "review.html"
    findings = {key: page.findings for key, page in audit.items()}
    write_review(out, choice, table, WhitePages(), findings=findings)  # type: ignore[arg-type]
    written = out.read_text()
    kinds = re.findall('"kind":"([a-z]+)"', written)
    assert kinds == ["omitted", "number", "number"], "of the first page the weightiest first, and of the second page"
    assert "Nobody asked the miller" in written
    assert "</script>1432" not in written
    read_again = choose([ROWS[0], replace(ROWS[1], markdown="Better"), *ROWS[2:]], "audit", 10, weights=weights)
    assert [chosen.row.page_index for chosen in read_again.rows] == [3, 0], "what was found is no longer true of it"
