"""The review page in a real browser: what it shows, how it is used, and that nothing a model wrote acts in it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pymupdf
import pytest
from playwright.sync_api import Browser, Page, expect

from batchocr.config import Config
from batchocr.data import Block, PageResult
from batchocr.processes.source_files import SourceFiles
from tests.support.browser import Watched, chromium, opened
from tests.support.review_pages import block, failed, reviewed, row

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_processes")]

WIDTH, HEIGHT, DPI = 360, 540, 200
BARS = {"red": (40, 60, 320, 80), "green": (60, 140, 160, 300), "blue": (200, 140, 321, 460)}
"""What is on the first page, in points."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def review(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A document of two pages, one that is gone, one that failed, and a degraded page."""
    folder = tmp_path_factory.mktemp("review")
    drawn = folder / "drawn.pdf"
    with pymupdf.open() as document:
        document.new_page(width=WIDTH, height=HEIGHT)
        document.new_page(width=WIDTH, height=HEIGHT).draw_circle((180, 445), 50, fill=(0, 0, 0))
        document.save(drawn)
    rows = [
        page_of(
            drawn, 0, *(Block("text", share(bar), 0, f"A {name} bar.", confidence=0.99) for name, bar in BARS.items())
        ),
        page_of(
            drawn,
            1,
            Block("title", (0.1, 0.1, 0.9, 0.2), 0, "Heading", confidence=0.5),
            Block("equation", (0.1, 0.3, 0.9, 0.4), 0, r"\[ \frac{a}{b} \]", confidence=0.99),
            Block(
                "table", (0.1, 0.5, 0.9, 0.6), 0, "<table><tr><td>cell</td></tr></table>", finish_reason="repetition"
            ),
            Block("image", (0.1, 0.7, 0.9, 0.95), 0, None),
        ),
        row("gone.pdf", 0, block("text", "Lost and found"), status="degraded", error_message="block 0 is odd"),
        failed("broken.pdf"),
    ]
    with SourceFiles([str(folder)], Config(dpi=DPI)) as files:
        path, written = reviewed(folder, rows, files, sort="worst")
    assert (written.pages, written.documents, written.missing) == (3, 1, 1)
    return path


@pytest.fixture
def open_review(browser: Browser, review: Path) -> partial[AbstractContextManager[Watched]]:
    return partial(opened, browser, review)


@pytest.fixture
def page(open_review: Any) -> Iterator[Page]:
    """The review page, which in the end has asked for nothing but itself and has had no problem."""
    with open_review() as watched:
        yield watched.page
        assert (set(watched.requests), watched.problems, watched.dialogs) == ({watched.page.url}, [], [])


def page_of(path: Path, page_index: int, *blocks: Block) -> PageResult:
    size = {"width": round(WIDTH * DPI / 72), "height": round(HEIGHT * DPI / 72), "dpi": float(DPI), "page_count": 2}
    doc_id = hashlib.sha256(path.read_bytes()).hexdigest()
    return row(path.name, page_index, *blocks, **(size | {"doc_id": doc_id}))


def share(box: tuple[int, int, int, int]) -> tuple[float, float, float, float]:
    return box[0] / WIDTH, box[1] / HEIGHT, box[2] / WIDTH, box[3] / HEIGHT


def listed(page: Page) -> list[str]:
    return [text.split("\n")[0] for text in page.locator("#list li").all_inner_texts()]


def shown(page: Page) -> str:
    return page.locator("#page-title").inner_text()


def show(page: Page, source: str, metadata: str = "") -> None:
    page.locator("#list button", has_text=source).filter(has_text=metadata).click()


# ---- What it shows --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "scheme"), [((1440, 900), "light"), ((390, 844), "dark")])
def test_boxes_lie_on_what_they_are_about(open_review: Any, size: tuple[int, int], scheme: str) -> None:
    with open_review(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme) as watched:
        page = watched.page
        for _ in range(3):
            page.keyboard.press("j")
        assert (shown(page), page.locator("#page-facts").inner_text()[:6]) == ("drawn.pdf", "page 1")
        expect(page.locator("#sheet img")).to_have_js_property("complete", True)
        sheet = page.locator("#sheet img").bounding_box()
        for number, bar in enumerate(BARS.values()):
            box = page.locator(".box").nth(number).bounding_box()
            assert sheet and box
            x, y = box["x"] - sheet["x"], box["y"] - sheet["y"]
            edges = (x, y, x + box["width"], y + box["height"])
            lengths = (sheet["width"], sheet["height"]) * 2
            assert [edge / length for edge, length in zip(edges, lengths, strict=True)] == pytest.approx(
                share(bar), abs=0.005
            )
        assert (len(watched.requests), watched.problems) == (1, [])


def test_it_opens_on_the_first_page_that_has_a_picture(page: Page) -> None:
    assert (listed(page)[0], shown(page)) == ("broken.pdf", "drawn.pdf")
    assert page.locator("#place").inner_text() == "3 / 4"
    assert page.locator("#sheet img").count() == 1


def test_the_report_closes_with_escape_and_with_a_click_outside_it_and_its_settings_use_the_width(page: Page) -> None:
    for close in (lambda: page.keyboard.press("Escape"), lambda: page.mouse.click(700, 880)):
        page.locator(".report summary").click()
        expect(page.locator(".report-body")).to_be_visible()
        page.locator(".report-body h2").first.click()
        expect(page.locator(".report-body")).to_be_visible()
        close()
        expect(page.locator(".report-body")).not_to_be_visible()
    page.locator(".report summary").click()
    section, body = page.locator(".report-body section:last-child").bounding_box(), page.viewport_size
    assert section and body and section["width"] > 0.9 * body["width"]


def test_the_worst_page_is_first_and_a_missing_file_leaves_an_empty_sheet_of_its_shape(page: Page) -> None:
    assert listed(page) == ["broken.pdf", "gone.pdf", "drawn.pdf", "drawn.pdf"]
    show(page, "broken.pdf")
    assert page.locator("#message").inner_text() == "damaged: it is no PDF"
    show(page, "gone.pdf")
    assert "gone.pdf is not there" in page.locator("#missing").inner_text()
    assert page.locator("#message").inner_text() == "block 0 is odd"
    sheet, box = page.locator("#sheet").bounding_box(), page.locator(".box").bounding_box()
    assert sheet and box
    assert page.locator("#sheet img").count() == 0
    assert sheet["height"] / sheet["width"] == pytest.approx(1100 / 850, abs=0.01)
    assert (box["x"] - sheet["x"]) / sheet["width"] == pytest.approx(0.1, abs=0.005)


def test_formulas_are_mathml_tables_are_drawn_and_figures_cut_out(page: Page) -> None:
    show(page, "drawn.pdf", "page 2")
    cards = page.locator(".card")
    fraction = cards.nth(1).locator("math mfrac").bounding_box()
    assert fraction and fraction["height"] > fraction["width"]
    assert cards.nth(2).locator("table td").inner_text() == "cell"
    assert "went in circles" in cards.nth(2).locator(".head").inner_text()
    page.wait_for_selector(".card canvas")
    dark = page.evaluate(
        """() => { const figure = document.querySelector(".card canvas");
        return [...figure.getContext("2d").getImageData(figure.width / 2, figure.height / 2, 1, 1).data]; }"""
    )
    assert max(dark[:3]) < 60  # the middle of the black disc


# ---- How it is used -------------------------------------------------------------------------------------------------


def test_hovering_or_clicking_one_shows_the_other(page: Page) -> None:
    show(page, "drawn.pdf", "page 1")
    page.locator(".box").nth(1).hover()
    assert "hovered" in (page.locator(".card").nth(1).get_attribute("class") or "")
    page.locator(".card").nth(2).hover()
    assert [number for number in range(3) if "hovered" in page.locator(".box").nth(number).get_attribute("class")] == [
        2
    ]
    page.locator(".box").nth(0).click()
    page.mouse.move(5, 5)
    assert page.locator(".selected").evaluate_all("all => all.map((one) => one.dataset.block)") == ["0", "0"]
    assert page.locator(".head[aria-pressed=true] .number").inner_text() == "0"
    page.locator(".card").nth(1).locator(".head").click()
    assert page.locator(".box.selected").get_attribute("data-block") == "1"


def test_the_keys_do_what_the_help_says(page: Page) -> None:
    page.keyboard.press("?")
    assert page.locator("#help[open]").count() == 1
    page.keyboard.press("Escape")
    for key, expected in [
        ("k", "gone.pdf"),
        ("k", "broken.pdf"),
        ("k", "broken.pdf"),
        ("j", "gone.pdf"),
        ("j", "drawn.pdf"),
    ]:
        page.keyboard.press(key)
        assert shown(page) == expected
    for key, expected in [("n", "0"), ("n", "1"), ("p", "0"), ("p", "0")]:
        page.keyboard.press(key)
        assert page.locator(".card.selected .number").inner_text() == expected
    narrow = page.locator("#sheet").bounding_box()
    page.keyboard.press("z")
    wide = page.locator("#sheet").bounding_box()
    assert narrow and wide and wide["width"] > 1.5 * narrow["width"]
    page.keyboard.press("r")
    assert page.locator(".card").nth(1).locator(".content").inner_text() == r"\[ \frac{a}{b} \]"
    page.keyboard.press("/")
    page.keyboard.type("jk")
    assert page.locator("#text-filter").input_value() == "jk"


def test_filters_leave_the_pages_that_were_asked_for(page: Page) -> None:
    page.locator("#status-filter button", has_text="degraded").click()
    assert (listed(page), shown(page)) == (["gone.pdf"], "gone.pdf")
    page.locator("#status-filter button", has_text="ok").click()
    assert listed(page) == ["gone.pdf", "drawn.pdf", "drawn.pdf"]
    page.locator("#type-filter").select_option("table")
    assert listed(page) == ["drawn.pdf"]
    assert page.locator(".card.match .type").all_inner_texts() == ["table"]
    page.locator("#type-filter").select_option("")
    page.locator("#source-filter").select_option(label="gone.pdf")
    assert listed(page) == ["gone.pdf"]
    page.locator("#source-filter").select_option("")
    page.locator("#text-filter").fill("GREEN bar")
    expect(page.locator("#list li")).to_have_count(1)
    assert page.locator(".card.match .number").all_inner_texts() == ["1"]
    assert page.evaluate("[...CSS.highlights.get('found')].map(String)") == ["green bar"]
    page.locator("#text-filter").fill("nowhere")
    page.keyboard.press("Escape")  # leaves the field, and what is in it
    assert page.locator("#text-filter").input_value() == "nowhere"
    expect(page.locator("#list li")).to_have_count(0)
    assert (shown(page), page.locator("#place").inner_text()) == ("No page matches the filters", "0 / 0")
    assert page.locator("#listed").inner_text() == "0 of 3 pages and 1 document without one."
    for key in "jknpgbrzhd":
        page.locator("#desk").press(key)
    page.locator("#text-filter").fill("")
    expect(page.locator("#list li")).to_have_count(3)
    page.locator("#sort").select_option("order")
    assert listed(page) == ["drawn.pdf", "drawn.pdf", "gone.pdf"]


def test_marks_outlive_the_page_and_are_downloaded(page: Page) -> None:
    show(page, "broken.pdf")
    page.keyboard.press("b")
    page.keyboard.press("j")
    page.locator("#good").click()
    page.keyboard.press("j")
    page.keyboard.press("g")
    page.keyboard.press("g")  # taken back
    page.reload()
    assert page.locator("#num-marks").inner_text().strip() == "(2)"
    page.locator("#mark-filter").select_option("good")
    assert (listed(page), page.locator("#good").get_attribute("aria-pressed")) == (["gone.pdf"], "true")
    with page.expect_download() as download:
        page.locator("#download").click()
    lines = [json.loads(line) for line in Path(download.value.path()).read_text().splitlines()]
    assert download.value.suggested_filename == "marks.jsonl"
    doc_id = row("gone.pdf").doc_id
    assert lines == [
        {"source": "broken.pdf", "page_index": None, "doc_id": None, "status": "failed", "mark": "bad"},
        {"source": "gone.pdf", "page_index": 0, "doc_id": doc_id, "status": "degraded", "mark": "good"},
    ]
    page.evaluate("localStorage.clear()")


def test_marks_given_in_two_tabs_are_all_kept_and_seen_in_both(page: Page) -> None:
    other = page.context.new_page()
    other.goto(page.url)
    page.keyboard.press("g")
    page.keyboard.press("j")
    page.keyboard.press("g")
    expect(other.locator("#num-marks")).to_have_text(" (2)")
    for key in "kb":
        other.keyboard.press(key)
    expect(page.locator("#num-marks")).to_have_text(" (3)")
    page.keyboard.press("g")  # taken back
    expect(other.locator("#num-marks")).to_have_text(" (2)")
    for tab in (page, other):
        tab.reload()
        assert tab.locator("#num-marks").inner_text().strip() == "(2)"
    other.evaluate("localStorage.clear()")
    expect(page.locator("#num-marks")).to_have_text("")


@pytest.mark.parametrize(
    "before",
    [
        "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('denied'); } })",
        "Object.defineProperty(window, 'localStorage', { value: null })",
        "Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); }",
        'Storage.prototype.getItem = () => \'["odd", {"a": 1}\'',
    ],
)
def test_marks_work_without_a_place_to_keep_them(open_review: Any, before: str) -> None:
    with open_review(before=before) as watched:
        watched.page.keyboard.press("g")
        assert watched.page.locator("#num-marks").inner_text().strip() == "(1)"
        assert watched.problems == []


def test_a_phone_shows_the_page_above_its_blocks_and_the_list_when_asked(open_review: Any) -> None:
    with open_review(viewport={"width": 390, "height": 844}, has_touch=True) as watched:
        page = watched.page
        assert not page.locator("#list").is_visible()
        page.locator("#list-button").tap()
        page.locator("#list button", has_text="drawn.pdf").filter(has_text="page 2").tap()
        assert not page.locator("#list").is_visible()
        page.locator(".box").nth(2).tap()
        expect(page.locator(".card.selected")).to_be_in_viewport()
        card, pane, desk = (page.locator(of).bounding_box() for of in (".card.selected", "#blocks", "#desk"))
        assert card and pane and desk
        assert desk["y"] + desk["height"] <= pane["y"] <= card["y"] < pane["y"] + pane["height"] <= 844
        assert page.evaluate("[document.scrollingElement.scrollTop, document.body.scrollWidth]") == [0, 390]


@pytest.mark.parametrize(("button", "panel"), [("#list-button", "#list-pane"), (".report summary", ".report-body")])
def test_no_box_lies_over_a_panel(open_review: Any, button: str, panel: str) -> None:
    with open_review(viewport={"width": 800, "height": 700}) as watched:
        page = watched.page
        while page.locator(".box").count() != len(BARS):
            page.keyboard.press("j")
        page.locator(button).click()
        expect(page.locator(panel)).to_be_visible()
        on_top = page.evaluate(
            """(panel) => {
              const around = document.querySelector(panel), { right, bottom } = around.getBoundingClientRect();
              const corners = [...document.querySelectorAll(".box")].map((box) => box.getBoundingClientRect());
              return corners.filter(({ left, top }) => left + 2 < right && top + 2 < bottom)
                .map(({ left, top }) => around.contains(document.elementFromPoint(left + 2, top + 2)));
            }""",
            panel,
        )
        assert on_top and all(on_top)


# ---- Hostile text ---------------------------------------------------------------------------------------------------

PAYLOADS = (
    "<script>window.owned = 1</script>",
    "</script><script>window.owned = 1</script>",
    "<img src=x onerror='window.owned = 1'><svg onload='window.owned = 1'>",
    "<a href='javascript:window.owned = 1' autofocus onfocus='window.owned = 1'>a</a>",
    "<iframe srcdoc='<script>parent.owned = 1</script>'></iframe><object data='//evil.example'></object>",
    "<table><tr><td><svg><style><img src=x onerror=window.owned=1></style></svg></td></tr></table>",
    "<table><tr><td><math><mtext><table><mglyph><style><!--</style>"
    "<img title='--&gt;&lt;img src=x onerror=window.owned=1&gt;'>",
    "<table><form id=list><input name=list><td id=blocks><img src='https://evil.example/x'></table></div></li></main>",
    "<table style='position:fixed;inset:0'><tr><td class='card' style='background:url(//evil.example)'>x</td></table>",
    r"\[ \href{javascript:window.owned=1}{x} \class{top}{y} \unicode{x3c}script> \]",
    r"\( \text{<img src=x onerror=window.owned=1>} \) </textarea></title></style>"
    "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "<noscript><p title='</noscript><img src=x onerror=window.owned=1>'></noscript><base href='//evil.example'>",
    "\u2028\u2029\x00\x08\x1b[2J\ud800\udfff\u202e\u2066 gpj.exe \ufeff\U000e0001 <!-- <![CDATA[ ]]> {{7*7}} ${7*7}",
    "x" * 200_000,
    "(" * 5_000 + "\\(" * 5_000 + "<table>" * 2_000,
)
TYPES = ("text", "title", "table", "equation", "code", "list", "image_caption", "image", "<b>odd</b> onmouseover=x")


@pytest.fixture(scope="module")
def hostile_review(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = [payload.encode("utf-8", "backslashreplace").decode() for payload in PAYLOADS]
    rows = [
        row(
            text[:300],
            number,
            *(Block(type, (0.1, 0.1, 0.9, 0.2), 0, text) for type in TYPES),
            error_message=text[:300],
        )
        for number, text in enumerate(texts)
    ]
    rows.append(
        row("many blocks.pdf", 0, *(block("text", f"block {number}", (number % 900) / 1000) for number in range(2_000)))
    )
    rows.append(row("large table.pdf", 0, block("table", "<table>" + ("<tr>" + "<td>1</td>" * 50) * 50 + "</table>")))
    return reviewed(tmp_path_factory.mktemp("hostile"), rows)[0]


LEFT_ITS_PLACE = """() => document.querySelectorAll(
    "script:not([id]), iframe, object, embed, base, link:not([rel=icon]), form:not(#filters, dialog form), "
    + "input:not(#text-filter), #blocks :is(svg, style, img, meta, a[href], [id], [style], [onerror], [onload], "
    + "[onfocus], [name])").length"""


def test_nothing_that_a_model_wrote_acts_or_leaves_its_place(browser: Browser, hostile_review: Path) -> None:
    with opened(browser, hostile_review) as watched:
        page = watched.page
        outline = (
            "[...document.body.children].map((one) => one.localName + (one.id.startsWith('p') ? '' : one.id)).join()"
        )
        before = page.evaluate(outline)
        for _ in range(len(PAYLOADS) + 2):
            for key in "nr":
                page.keyboard.press(key)
            assert page.evaluate(LEFT_ITS_PLACE) == 1  # the page's own script
            page.keyboard.press("r")
            page.keyboard.press("j")
        assert page.evaluate("window.owned") is None
        assert page.evaluate(outline) == before
        cards, pane = page.locator(".card"), page.locator("#block-pane").bounding_box()
        assert shown(page) == "large table.pdf"
        assert cards.locator("td").count() == 2_500
        page.keyboard.press("k")
        assert (cards.count(), page.locator(".box").count()) == (2_000, 2_000)
        for number in range(3):
            card = cards.nth(number).bounding_box()
            assert card and pane and pane["x"] <= card["x"] < card["x"] + card["width"] <= pane["x"] + pane["width"]
        page.keyboard.press("b")
        assert page.locator("#num-marks").inner_text().strip() == "(1)"
        assert (len(watched.requests), watched.problems, watched.dialogs) == (1, [], [])


def test_even_markup_that_was_not_sanitised_could_not_act(open_review: Any) -> None:
    with open_review() as watched:
        page = watched.page
        failures: dict[str, str | None] = {}
        page.on("requestfailed", lambda request: failures.update({request.url: request.failure}))
        page.evaluate(
            """() => { document.querySelector("#blocks").innerHTML = `<img src=x onerror="window.owned = 1">
            <img src="https://evil.example/x.png"><iframe src="https://evil.example"></iframe>
            <a id="go" href="javascript:window.owned = 1">go</a><p style="position: fixed">`; }"""
        )
        page.locator("#go").click()
        page.evaluate(
            """() => { const script = document.createElement("script"); script.textContent = "window.owned = 1";
            document.body.append(script); return fetch("https://evil.example").catch(() => 0); }"""
        )
        assert page.evaluate("window.owned") is None
        assert page.evaluate("getComputedStyle(document.querySelector('#blocks p')).position") == "static"
        asked = [request for request in watched.requests if "evil.example" in request]
        assert {failures[request] for request in asked} <= {"csp"}
        assert len(watched.problems) >= 5  # what the policy refused


def test_without_a_row_the_page_says_so(browser: Browser, tmp_path: Path) -> None:
    path, _ = reviewed(tmp_path, [])
    with opened(browser, path) as watched:
        assert shown(watched.page) == "The table has no row"
        assert watched.page.locator("#listed").inner_text() == "0 pages."
        assert watched.problems == []
