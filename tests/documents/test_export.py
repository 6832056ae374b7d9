"""Whole documents, from a table and the files that were read to files in a folder."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pymupdf
import pytest
from PIL import Image

from batchocr.config import Config
from batchocr.data import Block, PageResult
from batchocr.documents.assembly.assemble import open_table
from batchocr.documents.export import figures
from batchocr.documents.export.export import Export, Exported
from batchocr.documents.export.folder import ExportFolder
from batchocr.documents.export.formats import FORMATS, FormatOptions
from batchocr.documents.export.names import Names
from batchocr.pages.input.folders import EXPORT_RECORD
from batchocr.pages.parts import pixel_box
from batchocr.processes.source_files import SourceFiles, drawing
from tests.support.documents import DPI, block, draw, page_of, rows_of, text_row, write_table

pytestmark = pytest.mark.usefixtures("quick_processes")

FIGURE = block("image", None, (0.2, 0.25, 0.6, 0.5))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("documents")


@pytest.fixture(scope="module")
def sources(root: Path) -> Iterator[SourceFiles]:
    with SourceFiles([str(root)], Config(model="none", dpi=DPI)) as found:
        yield found


class Desk:
    """A table, its documents, and where they are exported to."""

    def __init__(self, folder: Path, root: Path, sources: SourceFiles, to: str = "out") -> None:
        self.to = folder / to
        self.name = folder.name
        self._table = folder / "t.parquet"
        self._root = root
        self._sources = sources

    def read(self, name: str, *pages: list[Block]) -> list[PageResult]:
        """A drawn document and what was read of it."""
        source = f"{self.name}/{name}"
        return rows_of(draw(self._root / source, len(pages)), source, *pages)

    def path_of(self, name: str) -> Path:
        return self._root / self.name / name

    def export(self, rows: list[PageResult], *formats: str, options: FormatOptions | None = None) -> Exported:
        table = open_table(write_table(self._table, rows))
        with ExportFolder(self.to) as folder:
            export = Export(table, folder, formats or ("md",), options or FormatOptions(), self._sources)
            return export.run(Names(row.source for row in table.rows()))

    @property
    def files(self) -> dict[str, bytes]:
        """What is in the folder, below that of this test's documents."""
        below = self.to / self.name
        return {str(path.relative_to(below)): path.read_bytes() for path in sorted(below.rglob("*")) if path.is_file()}


@pytest.fixture
def desk(tmp_path: Path, root: Path, sources: SourceFiles) -> Desk:
    return Desk(tmp_path, root, sources)


def test_a_figure_is_the_page_s_own_pixels(desk: Desk) -> None:
    chart = block("chart", None, (0.1, 0.05, 0.333, 0.777))
    done = desk.export(desk.read("a.pdf", [FIGURE, chart], [chart]))
    assert (done.written, done.exit_code, list(desk.files)[:3]) == (
        *(1, 0),
        [f"a.images/page-{name}.png" for name in ("1-block-0", "1-block-1", "2-block-0")],
    )
    for name, page_index, figure in [("1-block-0", 0, FIGURE), ("1-block-1", 0, chart), ("2-block-0", 1, chart)]:
        page = page_of(desk.path_of("a.pdf"), page_index)
        with Image.open(io.BytesIO(desk.files[f"a.images/page-{name}.png"])) as picture:
            assert picture.tobytes() == page.crop(pixel_box(figure.bbox, *page.size)).tobytes()


@pytest.mark.parametrize("angle", [90, 180, 270])
def test_a_figure_that_lies_turned_is_cut_out_upright(desk: Desk, angle: int) -> None:
    desk.export(desk.read("a.pdf", [replace(FIGURE, angle=angle)]))
    page = page_of(desk.path_of("a.pdf"))
    upright = page.crop(pixel_box(FIGURE.bbox, *page.size)).rotate(angle, expand=True)
    with Image.open(io.BytesIO(desk.files["a.images/page-1-block-0.png"])) as picture:
        assert (picture.size, picture.tobytes()) == (upright.size, upright.tobytes())


def test_the_second_time_only_what_is_new_is_written(desk: Desk) -> None:
    a, b = desk.read("a.pdf", [FIGURE]), desk.read("b.pdf", [block("text", "One.")])
    desk.export(a + b)
    before = {path: path.stat().st_mtime_ns for path in desk.to.rglob("*.*")}
    assert desk.export(a + b).up_to_date == 2
    done = desk.export([*a, replace(b[0], blocks=(block("text", "Two."),))])
    assert (done.written, done.up_to_date) == (1, 1)
    after = {path: path.stat().st_mtime_ns for path in desk.to.rglob("*.*")}
    assert {path.name for path in before if before[path] != after[path]} == {"b.md", EXPORT_RECORD}
    assert desk.export(a + b, options=FormatOptions(page_breaks=True)).written == 2
    assert desk.export(a + b, "md", "mineru", options=FormatOptions(page_breaks=True)).written == 2


def test_a_file_that_is_gone_still_gives_its_text(desk: Desk) -> None:
    rows = desk.read("a.pdf", [block("text", "One."), FIGURE])
    moved = desk.path_of("a.pdf").rename(desk.path_of("elsewhere"))
    done = desk.export(rows)
    assert (done.missing_figures, done.exit_code, done.written) == ({"not_found": 1}, 3, 1)
    assert desk.export(rows).up_to_date == 1
    assert desk.files["a.md"].startswith(b"One.\n\n**Here is a figure of page 1 that could not be cut out:**")
    moved.rename(desk.path_of("a.pdf"))
    assert desk.export(rows).exit_code == 0
    assert list(desk.files) == ["a.images/page-1-block-1.png", "a.md"]


def test_figures_that_an_earlier_export_cut_stay_while_their_file_is_away(desk: Desk) -> None:
    rows = desk.read("a.pdf", [block("text", "One."), FIGURE])
    desk.export(rows)
    before = desk.files
    moved = desk.path_of("a.pdf").rename(desk.path_of("elsewhere"))
    done = desk.export(rows, "md", options=FormatOptions(page_breaks=True))
    assert (done.written, done.missing_figures, done.exit_code) == (1, {}, 0)
    picture = "a.images/page-1-block-1.png"
    assert desk.files[picture] == before[picture]
    assert desk.files["a.md"] == before["a.md"] + b"\n*End of page 1*\n"
    assert desk.export(rows, "html", "mineru").missing_figures == {}
    [jpeg] = (data for path, data in desk.files.items() if path.endswith(".jpg"))
    assert desk.files["a.html.images/page-1-block-1.png"] == before[picture]
    desk.export(rows, "mineru", options=FormatOptions(page_breaks=True))
    assert [data for path, data in desk.files.items() if path.endswith(".jpg")] == [jpeg]

    moved.rename(desk.path_of("a.pdf"))
    assert desk.export(rows, "md", "html", "mineru").written == 1
    assert [data for path, data in desk.files.items() if path.endswith(".jpg")] == [jpeg]
    assert desk.files[picture] == before[picture]


def test_only_a_figure_of_the_same_box_and_version_stays_if_nobody_changed_it(desk: Desk) -> None:
    other = block("image", None, (0.2, 0.6, 0.6, 0.8))
    rows = desk.read("a.pdf", [FIGURE, other], [FIGURE], [FIGURE])
    desk.export(rows)
    desk.path_of("a.pdf").unlink()
    with (desk.to / desk.name / "a.images/page-2-block-0.png").open("ab") as file:
        file.write(b"mine")
    larger = replace(other, bbox=(0.2, 0.6, 0.6, 0.81))
    rows = [replace(rows[0], blocks=(FIGURE, larger)), rows[1], replace(rows[2], doc_id="0" * 64)]
    assert desk.export(rows).missing_figures == {"not_found": 3}
    assert list(desk.files) == ["a.images/page-1-block-0.png", "a.images/page-2-block-0.png", "a.md"]


def test_headings_have_the_levels_of_the_outline_as_soon_as_the_file_is_there(desk: Desk) -> None:
    titles = [block("title", text, (0.1, y, 0.9, y + 0.02)) for text, y in (("Part", 0.1), ("Sub", 0.2), ("Rest", 0.3))]
    path = draw(desk.path_of("a.pdf"))
    with pymupdf.open(path) as document:
        document.set_toc([[1, "Part", 1], [2, "Sub", 1], [1, "Rest", 1]])
        document.saveIncr()
    rows = rows_of(path, f"{desk.name}/a.pdf", titles)
    moved = path.rename(desk.path_of("elsewhere"))
    assert desk.export(rows).written == 1
    assert desk.export(rows).up_to_date == 1
    moved.rename(path)
    assert desk.export(rows).written == 1
    assert desk.files["a.md"] == b"# Part\n\n## Sub\n\n# Rest\n"
    assert desk.export(rows).up_to_date == 1


def test_a_file_that_has_changed_or_lost_pages_gives_no_other_figure(desk: Desk) -> None:
    rows = desk.read("a.pdf", [FIGURE], [FIGURE])
    draw(desk.path_of("a.pdf"), 1)
    assert desk.export(rows).missing_figures == {"changed": 2}
    assert list(desk.files) == ["a.md"]


@pytest.mark.parametrize(
    "bbox", [(0.5, 0.5, 0.5, 0.9), (0.9, 0.1, 0.2, 0.2), (1.5, 0, 2, 1), (0.1, 0.1, 0.1001, 0.1001)]
)
def test_a_figure_without_area_leaves_a_mark_and_is_nobody_s_fault(desk: Desk, bbox: tuple[float, ...]) -> None:
    rows = desk.read("a.pdf", [block("image", None, bbox), block("text", "Two.")])
    assert desk.export(rows, "md", "mineru").exit_code == 0
    assert b"could not be cut out:** its box has no area\n\nTwo." in desk.files["a.md"]
    assert desk.export(rows, "md", "mineru").up_to_date == 1


def test_a_file_of_somebody_else_keeps_its_place_and_the_rest_is_exported(desk: Desk) -> None:
    rows = [*desk.read("a.pdf", [block("text", "1")]), *desk.read("b.pdf", [block("text", "2")])]
    theirs = desk.to / desk.name / "a.md"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("mine")
    done = desk.export(rows)
    assert (done.written, done.refused, done.exit_code) == (1, 1, 3)
    assert desk.files == {"a.md": b"mine", "b.md": b"2\n"}


def test_a_document_that_is_gone_from_the_table_is_counted_and_stays(desk: Desk) -> None:
    a, b = desk.read("a.pdf", [block("text", "1")]), desk.read("b.pdf", [block("text", "2")])
    desk.export(a + b)
    assert desk.export(a).vanished == 1
    assert list(desk.files) == ["a.md", "b.md"]


def test_a_dataset_is_made_anew_of_all_documents_that_are_in_the_table(desk: Desk) -> None:
    a, b = desk.read("a.pdf", [block("text", "One.")]), desk.read("b.pdf", [block("text", "Two.")])

    def texts() -> list[str]:
        lines = gzip.decompress((desk.to / "documents/00000.jsonl.gz").read_bytes()).splitlines()
        return [json.loads(line)["text"] for line in lines]

    assert (desk.export(a + b, "md", "dolma").written, texts()) == (2, ["One.", "Two."])
    assert (desk.export(a + b, "md", "dolma").exit_code, texts()) == (0, ["One.", "Two."])
    assert (desk.export(b, "dolma").vanished, texts()) == (0, ["Two."])
    assert (desk.export(b + a + b, "dolma").refused, texts()) == (1, ["Two.", "One."])
    gone = PageResult("c.pdf", None, "failed", error_kind="damaged", error_message="it is damaged")
    assert (desk.export([gone], "dolma").without_pages, (desk.to / "documents").exists()) == (1, False)


def test_headings_of_a_dataset_and_of_pages_have_the_levels_of_the_outline(desk: Desk) -> None:
    path = draw(desk.path_of("a.pdf"))
    with pymupdf.open(path) as file:
        file.set_toc([[1, "Part", 1], [2, "Sub", 1]])
        file.saveIncr()
    desk.export(rows_of(path, f"{desk.name}/a.pdf", [block("title", "Sub")]), "dolma", "pages")
    assert b'"text": "## Sub"' in gzip.decompress((desk.to / "documents/00000.jsonl.gz").read_bytes())
    assert desk.files["a-page-1.md"] == b"## Sub\n"


def test_a_document_in_two_places_of_the_table_is_exported_once(desk: Desk) -> None:
    a, b = desk.read("a.pdf", [block("text", "1")]), desk.read("b.pdf", [block("text", "2")])
    done = desk.export([*a, *b, replace(a[0], page_index=1)])
    assert (done.written, done.refused, done.exit_code) == (2, 1, 3)


def test_equal_boxes_of_a_page_are_cut_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(figures, "drawing", lambda *drawn: asked.append(len(drawn[2])) or drawing(*drawn))
    whole = [block("image", None, (0, 0, 1, 1)) for _ in range(3)]
    desk.export(desk.read("a.pdf", [*whole, FIGURE], whole[:1]))
    assert (len(desk.files), asked) == (6, [2, 1])
    assert desk.files["a.images/page-1-block-0.png"] == desk.files["a.images/page-1-block-2.png"]


def test_the_files_are_the_same_bytes_with_any_number_of_workers(desk: Desk, root: Path, tmp_path: Path) -> None:
    chart, equation = block("chart", None, (0.1, 0.05, 0.3, 0.7)), block("equation", "x", (0.1, 0.8, 0.9, 0.9))
    pages = [[FIGURE, block("title", "One")], [], [chart, FIGURE, equation]]
    rows = [row for number in range(4) for row in desk.read(f"{number}.pdf", *pages[: 1 + number % 3])]
    desk.export(rows, *FORMATS)
    files = desk.files
    with SourceFiles([str(root)], Config(model="none", dpi=DPI), workers=3) as others:
        beside = Desk(tmp_path, root, others, to="beside")
        assert beside.export(rows, *FORMATS).written == 4
    assert (beside.files, len(files)) == (files, 70)


def test_no_more_documents_are_read_ahead_than_have_a_few_pages(desk: Desk, tmp_path: Path) -> None:
    """One behind that which is written, however many pages it has."""
    taken: list[tuple[int, str]] = []
    pages = (1, 1, 1, 9, 9)
    rows = [text_row(f"{number}.pdf", index) for number, most in enumerate(pages) for index in range(most)]
    table = open_table(write_table(tmp_path / "t.parquet", rows))
    begun = SimpleNamespace(name_of=lambda source: taken.append((len(written), source)) or source)
    written: list[int] = []
    with ExportFolder(desk.to) as folder, SourceFiles([], Config()) as sources:
        Export(table, folder, ["md"], FormatOptions(), sources, on_document=written.append).run(cast(Names, begun))
    assert taken == [(0, "0.pdf"), (0, "1.pdf"), (0, "2.pdf"), (1, "3.pdf"), (3, "4.pdf")]


def test_a_page_that_was_read_of_another_version_gives_no_figure(desk: Desk) -> None:
    rows = desk.read("a.pdf", [FIGURE], [FIGURE], [FIGURE])
    done = desk.export([replace(rows[0], doc_id="0" * 64), *rows[1:]])
    assert done.missing_figures == {"changed": 1}
    assert list(desk.files) == ["a.images/page-2-block-0.png", "a.images/page-3-block-0.png", "a.md"]
