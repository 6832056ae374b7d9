"""What the documents say: their code runs, their tables are those of the code, their links lead somewhere."""

from __future__ import annotations

import ast
import json
import re
import shlex
import tomllib
from collections.abc import Callable
from dataclasses import asdict, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast, get_args

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer.main

from batchocr import Block, PageResult
from batchocr.cli.main import app
from batchocr.cli.verifier import Problem
from batchocr.config import Config, load_recipe
from batchocr.data import ErrorKind, Status
from batchocr.documents.export.formats import FORMATS
from batchocr.errors import BatchOcrError, ExitCode, ModelError
from batchocr.job.progress import EventName
from batchocr.pages.protocol.detected_layout import BLOCK_TYPES
from batchocr.planning.limits import engine_limits
from batchocr.tables.page_list import read_page_list
from batchocr.tables.schema import PAGE_SCHEMA, RunMetadata, encode_metadata
from tests.conftest import ROOT
from tests.support.mineru_shape import MINERU
from tests.support.running import draw_pdf, make_quick_model
from tests.support.tables import put_table

pytestmark = pytest.mark.usefixtures("quick_processes")

FOLDERS = "batchocr|tests|benchmarks|docs|recipes|sample_data"
PAGES = sorted([*ROOT.glob("*.md"), *(path for name in FOLDERS.split("|") for path in (ROOT / name).rglob("*.md"))])
CODE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
METADATA = RunMetadata("0", "a model", "0", "0", {"dpi": "200"})


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def code_in(page: str, language: str) -> list[str]:
    """The fenced blocks of a language in a document, in order."""
    return [code for found, code in CODE.findall(text_of(page)) if found == language]


def section(page: str, heading: str) -> str:
    """The text below a heading of the second level."""
    [text] = [part for part in re.split(r"^## ", text_of(page), flags=re.MULTILINE) if part.startswith(f"{heading}\n")]
    return text


def tables(page: str, heading: str) -> list[list[list[str]]]:
    """The cells of each table below a heading, without the tables' own headings."""
    lines = re.sub(r"^\|.*\n\| ---.*$", "", section(page, heading), flags=re.MULTILINE)
    found = re.findall(r"(?:^\|.*\n)+", lines, re.MULTILINE)
    return [[[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()] for table in found]


def first_column(page: str, heading: str) -> list[str]:
    """What is in code spans in the first column of the tables below a heading."""
    return [name for table in tables(page, heading) for row in table for name in re.findall(r"`([^`]+)`", row[0])]


# Code


def block(type: str, content: str | None, confidence: float | None = 0.9) -> Block:
    return Block(type, (0.251, 0.5, 0.747, 0.692), 0, content, confidence=confidence)


ROWS = [
    PageResult("b.pdf", 0, "ok", markdown="One ![image](#block-1)\n", blocks=(block("text", "One"),)),
    PageResult("b.pdf", 1, "failed", error_kind="timeout", error_message="it took too long"),
    PageResult("b.pdf", 2, "degraded", markdown="![chart](#block-12)\n", blocks=(block("table", "<table>x</table>"),)),
    PageResult("a.pdf", None, "failed", error_kind="damaged", error_message="it is damaged"),
    PageResult("c.pdf", None, "skipped"),
    PageResult("d.png", 0, "ok", markdown="", blocks=(block("image", None, None), block("table", "not a table"))),
]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[list[PageResult]], None]:
    """Writes `results.parquet` into the working directory."""
    monkeypatch.chdir(tmp_path)
    return lambda rows: put_table(Path("results.parquet"), rows, METADATA)


def test_the_sql_finds_what_it_says(write: Callable[[list[PageResult]], None]) -> None:
    write(ROWS)
    failed, documents, tables, worst = (duckdb.sql(sql).fetchall() for sql in code_in("docs/output.md", "sql"))
    assert [row[:3] for row in failed] == [("a.pdf", None, "damaged"), ("b.pdf", 2, "timeout")]
    assert tables == [("b.pdf", 3, "<table>x</table>")]
    assert [row[:3] for row in worst] == [("b.pdf", 3, "degraded"), ("b.pdf", 1, "ok"), ("d.png", 1, "ok")]
    pages = ["One ![image](#page-1-block-1)\n", "*Page 2 could not be read: timeout*", "![chart](#page-3-block-12)\n"]
    lost = "*This document could not be read: damaged*"
    assert documents == [("a.pdf", lost), ("b.pdf", "\n\n".join(pages)), ("d.png", "")]


def test_a_dataset_has_only_the_pages_that_are_fit(write: Callable[[list[PageResult]], None]) -> None:
    doubtful = PageResult("e.pdf", 0, "ok", markdown="Some", ink_outside=0.5)
    write([*ROWS, doubtful])
    for sql in code_in("docs/export.md", "sql"):
        duckdb.sql(sql)
    assert [(row["source"], row["page_index"]) for row in pq.read_table("fit.parquet").to_pylist()] == [
        ("b.pdf", 0),
        ("d.png", 0),
    ]


def test_the_pages_to_read_again_are_those_that_failed_or_are_degraded(
    write: Callable[[list[PageResult]], None],
) -> None:
    write(ROWS)
    [sql] = code_in("docs/compare.md", "sql")
    duckdb.sql(sql)
    assert read_page_list(Path("bad.parquet")) == {"b.pdf": {1, 2}, "a.pdf": None}


def test_a_table_as_csv_has_the_cells_as_they_were_read(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    exec(code_in("docs/output.md", "python")[1], names)
    rows = ['<td>no.</td><td colspan="2">sum</td>', "<td>007</td><td>1,250.50</td><td></td>"]
    names["write_csv"](f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>", tmp_path / "table.csv")
    assert (tmp_path / "table.csv").read_text() == '0,1,2\nno.,sum,sum\n007,"1,250.50",\n'


def test_what_made_a_table_can_be_read(
    write: Callable[[list[PageResult]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    write(ROWS)
    exec(code_in("docs/output.md", "python")[0], {})
    assert capsys.readouterr().out == 'a model {"dpi": "200"}\n'


@pytest.fixture
def scans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a letter, in the working directory, beside the model `./mineru`."""
    monkeypatch.chdir(tmp_path)
    make_quick_model(tmp_path / "mineru")
    (tmp_path / "scans").mkdir()
    draw_pdf(tmp_path / "scans" / "letter.pdf", "Dear reader")
    return tmp_path / "scans"


def end_of(program: str) -> object:
    """The exit code of a program in the documents. It reads with the model beside it, where it would take the Hub's."""
    code = program.replace('["./scans"]', '["./scans"], model="./mineru"')
    try:
        exec(code, {"__name__": "__main__"})
    except SystemExit as end:
        return end.code
    except (OSError, BatchOcrError):
        return 1  # a traceback
    return 0


@pytest.mark.slow
def test_the_python_of_the_readme_runs_and_ends_with_the_code_of_its_run(
    scans: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("a", "b"):
        (scans.parent / folder).mkdir()
        draw_pdf(scans.parent / folder / "letter.pdf", "Dear reader")
    program = code_in("README.md", "python")[0]
    assert end_of(program + "assert [len(first), len(second)] == [1, 1]") == 0
    assert capsys.readouterr().out.startswith("letter.pdf 0 ")
    assert pq.read_metadata("results.parquet").num_rows == 1
    (scans / "torn.pdf").write_bytes(b"%PDF-1.7 and no more")
    assert end_of(program) == ExitCode.TOO_MANY_FAILURES


@pytest.mark.slow
def test_a_step_of_a_pipeline_ends_with_the_code_of_its_run(scans: Path, capsys: pytest.CaptureFixture[str]) -> None:
    step = code_in("docs/python.md", "python")[0]
    assert end_of(step) == 0
    assert "1 pages read, 0 failed" in capsys.readouterr().out
    (scans / "torn.pdf").write_bytes(b"%PDF-1.7 and no more")
    assert end_of(step) == ExitCode.TOO_MANY_FAILURES
    for path in scans.iterdir():
        path.unlink()
    assert end_of(step) == ExitCode.NO_INPUT, "as if a disk were not mounted"
    assert "no document" in capsys.readouterr().err
    draw_pdf(scans / "letter.pdf", "Dear reader, it is another letter")
    (scans.parent / "mineru/config.json").unlink()
    assert end_of(step) == ExitCode.MODEL


@pytest.mark.slow
def test_the_worker_of_a_service_answers_with_text_or_says_why_not(scans: Path) -> None:
    names: dict[str, Any] = {}
    exec(code_in("docs/python.md", "python")[1], names)
    messages, answers = names["Queue"](), names["Queue"]()
    for message in (("a.pdf", (scans / "letter.pdf").read_bytes()), ("b.pdf", b"no PDF"), None):
        messages.put(message)
    names["work"](messages, answers)
    (good, text, none), (bad, nothing, why) = answers.get_nowait(), answers.get_nowait()
    assert (good, none, bad, nothing, len(why)) == ("a.pdf", [], "b.pdf", "", 1) and text
    (scans.parent / "mineru/config.json").unlink()
    messages.put(None)
    with pytest.raises(ModelError):
        names["work"](messages, answers)


def test_a_notebook_sees_what_was_read(
    write: Callable[[list[PageResult]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = code_in("docs/python.md", "python")[2]
    write(ROWS)
    assert end_of(notebook + "assert list(doubtful['source'])[:1]") == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("d.png ")


def is_whole(code: str) -> bool:
    """Whether it is a program, and not a function for one."""
    return not isinstance(ast.parse(code).body[-1], ast.FunctionDef)


@pytest.mark.parametrize("program", [code for page in PAGES for code in code_in(str(page), "python") if is_whole(code)])
def test_no_program_in_the_documents_ends_well_where_there_is_nothing(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert end_of(program) not in (0, None)


def test_every_command_in_the_documents_is_one() -> None:
    """Its options exist and take what they are given."""
    commands = cast(Any, typer.main.get_command(app)).commands
    consoles = "".join(code for page in PAGES for code in code_in(str(page), "console")).replace("\\\n", " ")
    lines = re.findall(r"^\$ batchocr (.+)$", consoles, re.MULTILINE)
    assert len(lines) > 20
    for line in lines:
        name, *arguments = shlex.split(line, comments=True)
        commands[name].make_context(name, arguments)


def test_the_row_in_the_readme_has_the_columns_of_a_table() -> None:
    [row] = map(json.loads, code_in("README.md", "json"))
    assert list(row) == PAGE_SCHEMA.names
    assert [list(found) for found in row["blocks"]] == [[field.name for field in fields(Block)]]
    pa.Table.from_pylist([row], PAGE_SCHEMA)


def test_the_recipe_in_the_documents_can_be_used(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(code_in("docs/options.md", "toml")[0])
    assert load_recipe(str(path))["llm_batch_size"] == 32


# Tables


FIELDS_OF_METADATA = [name.decode().removeprefix("batchocr.") for name in encode_metadata(METADATA)]


@pytest.mark.parametrize(
    ("page", "heading", "names"),
    [
        ("docs/output.md", "Columns", [*PAGE_SCHEMA.names, *get_args(Status)]),
        ("docs/output.md", "Blocks", [field.name for field in fields(Block)]),
        ("docs/output.md", "Error kinds", list(get_args(ErrorKind))),
        ("docs/output.md", "What made a table", FIELDS_OF_METADATA),
        ("docs/operating.md", "Events in the log", list(get_args(EventName))),
        ("docs/checking.md", "Verify", list(get_args(Problem))),
    ],
)
def test_a_table_names_what_there_is(page: str, heading: str, names: list[str]) -> None:
    assert sorted(first_column(page, heading)) == sorted(names)


@pytest.mark.parametrize("page", ["README.md", "docs/checking.md"])
def test_every_exit_code_is_explained(page: str) -> None:
    [rows] = tables(page, "Exit codes")
    assert sorted(int(code) for row in rows for code in row[0].split(",")) == sorted(ExitCode)


def test_the_documents_and_the_help_name_every_format_of_export() -> None:
    [rows] = re.findall(r"^\| `--format` .*\n\| ---.*\n((?:\|.*\n)+)", text_of("docs/export.md"), re.MULTILINE)
    assert [name for row in rows.splitlines() for name in re.findall(r"`([^`]+)`", row.split("|")[1])] == list(FORMATS)
    commands = cast(Any, typer.main.get_command(app)).commands
    [option] = [each for each in commands["export"].params if "--format" in each.opts]
    assert all(f"{name}: {what}" in option.help for name, what in FORMATS.items())


def test_the_default_batches_in_the_documents_are_those_of_a_run() -> None:
    names = re.findall(r"`--([a-z-]+)` \|", section("docs/gpus.md", "Memory"))
    [rows] = tables("docs/gpus.md", "Memory")

    def sizes_with(gib: float, *, on_gpu: bool) -> list[str]:
        config, memory_bytes = Config(memory_fraction=1.0), int(gib * 2**30)
        limits = engine_limits(config, MINERU, on_gpu=on_gpu, memory_bytes=memory_bytes, value_bytes=2)
        return [f"{asdict(limits)[name.replace('-', '_')]:,}" for name in names]

    for where, *sizes in rows:
        starts = [float(gib) for gib in re.findall(r"from ([\d.]+) GiB", where)]
        for gib in starts or [4.0]:
            assert sizes_with(gib, on_gpu="GPU" in where) == sizes_with(gib + 1, on_gpu="GPU" in where) == sizes
        assert all(sizes_with(gib - 0.1, on_gpu=True) != sizes for gib in starts)


# The map


def test_the_map_has_the_layers_of_the_contract() -> None:
    [contract, *_] = tomllib.loads(text_of("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    [said] = [code for _, code in CODE.findall(text_of("docs/architecture.md")) if code.startswith("cli >")]
    assert [" ".join(layer.split()) for layer in said.split(">")] == contract["layers"]


def test_the_map_names_every_wing() -> None:
    said = section("docs/architecture.md", "The wings")
    wings = [path.name for path in (ROOT / "batchocr").iterdir() if path.is_dir() and path.name != "__pycache__"]
    assert not [wing for wing in wings if f"| `{wing}/` |" not in said]


def test_every_file_that_a_document_names_exists() -> None:
    named = [(page, name) for page in PAGES for name in re.findall(rf"`((?:{FOLDERS})/[\w./-]+)`", page.read_text())]
    assert not [f"{page.name}: {name}" for page, name in named if not (ROOT / name).exists()]


OF_OTHERS = {"AutoProcessor", "helper", "is_fa3_supported", "max_", "memfd", "num_", "ui/safe", "vX.Y.Z"}
"""What the guides name that is not ours."""


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md", "tests/README.md", "SECURITY.md"])
def test_all_that_a_guide_names_is_there(page: str) -> None:
    """A file or folder goes by the end of its path, a module perhaps without its `.py`, or with names that are in it; a
    name of the code by itself."""
    paths = [path for name in FOLDERS.split("|") for path in (ROOT / name).rglob("*")] + list(ROOT.glob("*.*"))
    code = {path: path.read_text() for path in paths if path.suffix in (".py", ".toml")}
    words = {word for text in code.values() for word in re.findall(r"\w+", text)}

    def is_there(span: str) -> bool:
        if span.startswith("make "):
            return re.search(rf"^{span[5:]}:", text_of("Makefile"), re.MULTILINE) is not None
        if module := re.match(r"(?:python -m )?(benchmarks\.[\w.]+)", span):
            return is_there(module[1].replace(".", "/"))
        if re.fullmatch(r"[\w./-]+", span) and any(str(each).endswith(f"/{span.rstrip('/')}") for each in paths):
            return True
        if path := re.fullmatch(r"((?:\w+/)+\w+|\w+(?=\.py$))((?:\.\w+)*)", span):
            ends = tuple(f"/{path[1]}{rest}" for rest in (".py", "/__init__.py"))
            found = [set(re.findall(r"\w+", text)) for each, text in code.items() if str(each).endswith(ends)]
            return any({name for name in path[2].split(".") if name} <= names for names in found)
        return not re.fullmatch(r"[A-Za-z_]\w+(\.\w+)*(\(\))?", span) or set(re.findall(r"\w+", span)) <= words

    spans = re.findall(r"`([^`]+)`", re.sub(r"``.+?``", "", CODE.sub("", text_of(page))))
    assert [span for span in spans if span.removesuffix("()") not in OF_OTHERS and not is_there(span)] == []


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a document."""
    headings = re.findall(r"^#+ (.+)$", CODE.sub("", page.read_text()), re.MULTILINE)
    names = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
    assert len(set(names)) == len(names), f"{page}: two headings have one anchor"
    return set(names)


def test_every_link_between_documents_leads_somewhere() -> None:
    """Also to a heading, if it names one."""
    texts = {page: re.sub(r"`[^`]*`", "", CODE.sub("", page.read_text())) for page in PAGES}
    links = [(page, link) for page, text in texts.items() for link in re.findall(r"\]\(([^)\s]+)", text)]
    broken = []
    for page, link in links:
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if "://" not in link and (not target.exists() or (anchor and anchor not in anchors(target))):
            broken.append(f"{page.name}: {link}")
    assert not broken


# Sentences


NOT_YET_PLAIN = {
    *("README.md", "docs/architecture.md", "docs/gpus.md", "docs/output.md", "docs/python.md", "docs/tiers.md"),
}
"""Documents in which more than one sentence in ten is long. The list only shrinks."""
LONG = 25
"""Words of a sentence that has to be read twice."""


def sentences(page: str) -> list[str]:
    """The sentences of a document: of its text, its lists and the cells of its tables. A code span is a word."""
    text = re.sub(r"^#.*$", "", CODE.sub("", text_of(page)), flags=re.MULTILINE)
    text = re.sub(r"`[^`]*`", "code", re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text))
    text = re.sub(r"^\|.*$", lambda row: row[0].replace("|", "\n\n"), text, flags=re.MULTILINE)
    paragraphs = re.split(r"\n\s*\n|\n(?=\s*(?:-|\d+\.) )", text)
    found = [sentence for each in paragraphs for sentence in re.split(r"(?<=[.!?])[)*\"]*\s+", " ".join(each.split()))]
    return [sentence for sentence in found if len(sentence.split()) > 3]


def test_nine_of_ten_sentences_of_a_document_are_short() -> None:
    pages = ["README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
    shares = {page: [len(sentence.split()) >= LONG for sentence in sentences(page)] for page in pages}
    assert {page for page, are_long in shares.items() if sum(are_long) > len(are_long) / 10} == NOT_YET_PLAIN


def test_the_tests_to_read_first_are_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)`, `(test_\w+)", section("tests/README.md", "Ten to read first"))
    assert len(named) == 10
    assert [name for path, name in named if f"def {name}" not in text_of(path)] == []


def test_the_readme_is_read_in_five_minutes() -> None:
    assert len(text_of("README.md").splitlines()) <= 170


def test_no_command_in_the_readme_needs_root() -> None:
    commands = re.findall(r"^\$ (.+)$", "".join(code_in("README.md", "console")), re.MULTILINE)
    assert commands and not [line for line in commands if re.search(r"\bsudo\b|\bapt\b|/opt/|/usr/", line)]


# Versions


def test_the_tested_versions_are_of_all_that_a_run_needs() -> None:
    lines = [line for line in text_of("constraints.txt").splitlines() if not line.startswith("#")]
    tested = dict(line.split("==") for line in lines)
    required = tomllib.loads(text_of("pyproject.toml"))["project"]["dependencies"]
    assert {re.split("[<>=]", line)[0] for line in required} <= tested.keys()
    installed = {name: version(name).partition("+")[0] for name in tested}
    if installed != tested:
        pytest.skip("other versions are installed: constraints.txt is renewed before a release")


def test_of_every_python_that_is_claimed_it_is_said_whether_the_versions_were_run_with_it() -> None:
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    claimed = [line.partition(":: 3.")[2] for line in project["classifiers"] if ":: 3." in line]
    run, resolved = text_of("constraints.txt").split("pip install")[0].split("With Python")
    assert [re.findall(r"3\.(\d+)", run), re.findall(r"3\.(\d+)", resolved)] == [claimed[:1], claimed[1:]]
    assert project["requires-python"] == f">=3.{claimed[0]},<3.{int(claimed[-1]) + 1}"


def test_the_classes_of_detectors_are_those_of_the_code() -> None:
    [rows] = tables("docs/tiers.md", "`--layout`: a detector")
    assert {label.strip("`"): type.strip("`") for label, type in rows} == BLOCK_TYPES
