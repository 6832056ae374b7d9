"""`batchocr verify`: everything wrong with a table has its own line, and shows in the exit code."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from batchocr.data import PageResult
from batchocr.option_values import parse_page_spec
from batchocr.planning.checkpoint_files import fingerprints
from batchocr.tables.files import record_path
from batchocr.tables.schema import RunMetadata
from tests.support.checkpoints import make_checkpoint
from tests.support.documents import METADATA, block
from tests.support.documents import write_table as write
from tests.support.pdf_files import stream, text_pages
from tests.support.running import draw_pdf, said_by

pytestmark = pytest.mark.slow


def page(source: str, content: bytes, page_index: int, page_count: int) -> PageResult:
    doc_id = hashlib.sha256(content).hexdigest()
    return PageResult(source, page_index, "ok", doc_id, page_count, 100, 100, 200.0, markdown="text")


THREE_PAGES = text_pages(*[stream(b"")] * 3)


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    """Two documents, one of three pages and one that cannot be opened."""
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "a.pdf").write_bytes(THREE_PAGES)
    (folder / "b.pdf").write_bytes(b"encrypted")
    return folder


ROWS = [
    *(page("a.pdf", THREE_PAGES, index, 3) for index in range(3)),
    PageResult("b.pdf", None, "failed", hashlib.sha256(b"encrypted").hexdigest(), error_kind="encrypted"),
]


def verify(*arguments: Path | str) -> tuple[int, list[str]]:
    """The exit code, and the lines that were printed."""
    code, shown, _ = said_by("verify", *arguments)
    return code, shown.splitlines()


TOO_MANY = "{} failed, more than --max-page-error-rate 0.05 allows"


@pytest.mark.parametrize("name", ["table.parquet", "table.jsonl"])
def test_a_table_that_holds_every_page_is_right_but_for_what_failed(tmp_path: Path, documents: Path, name: str) -> None:
    out = write(tmp_path / name, ROWS)
    assert verify(out, documents) == (
        3,
        ["failed    b.pdf: encrypted", "4 rows expected: 1 failed; " + TOO_MANY.format("1 of 4 rows")],
    )
    assert verify(out, documents, "--max-page-error-rate", "0.25")[0] == 0
    recipe = tmp_path / "job.toml"
    recipe.write_text("max-page-error-rate = 0.25\ndpi = 300\n")
    assert verify(out, documents, "--recipe", str(recipe))[0] == 0
    assert verify(out, documents, "--recipe", str(recipe), "--max-page-error-rate", "0")[0] == 3


def test_more_degraded_pages_than_allowed_among_those_read_are_an_exit_code(tmp_path: Path, documents: Path) -> None:
    rows = [replace(ROWS[0], status="degraded", error_message="block 0 looped"), *ROWS[1:]]
    out = write(tmp_path / "table.parquet", rows)
    allowed = ("--max-page-error-rate", "1", "--max-degraded-rate")
    assert verify(out, documents, *allowed, "0.34") == (
        *(0, ["failed    b.pdf: encrypted", "4 rows expected: 1 failed; 1 degraded"]),
    )
    code, lines = verify(out, documents, *allowed, "0.33")
    assert code == 3
    assert lines[-1].endswith("; 1 of 3 pages came out incomplete, more than --max-degraded-rate 0.33 allows")


def claims_two_pages(rows: list[PageResult], _: Path) -> None:
    rows[:3] = [replace(row, page_count=2) for row in rows[:2]]


def has_too_many(rows: list[PageResult], _: Path) -> None:
    rows.insert(0, PageResult("a.pdf", None, "failed", None, error_kind="timeout"))
    rows.insert(4, page("a.pdf", THREE_PAGES, 3, 3))


def is_one_row(rows: list[PageResult], _: Path) -> None:
    rows[:3] = [replace(rows[0], page_index=None, page_count=None, status="skipped", markdown=None)]


SURPLUS = "has a row that should not be there"
MISSING = [f"missing   a.pdf page {number}: has no row" for number in (1, 2, 3)]


@pytest.mark.parametrize(
    ("harm", "lines"),
    [
        (lambda rows, _: rows.pop(1), [MISSING[1]]),
        (lambda rows, _: rows.append(rows[0]), ["duplicate a.pdf page 1: has more than one row"]),
        (
            lambda _, documents: (documents / "a.pdf").write_bytes(b"three other pages"),
            ["stale     a.pdf: has changed since it was read"],
        ),
        (
            lambda rows, _: rows.__setitem__(1, page("a.pdf", b"as it was", 1, 2)),
            ["stale     a.pdf page 2: was read before the file changed"],
        ),
        (
            lambda _, documents: (documents / "new\n.pdf").write_bytes(b"never read"),
            [r"missing   new\n.pdf: has no row"],
        ),
        (claims_two_pages, [MISSING[2]]),
        (is_one_row, [*MISSING, f"surplus   a.pdf: {SURPLUS}"]),
        (has_too_many, [f"surplus   a.pdf: {SURPLUS}", f"surplus   a.pdf page 4: {SURPLUS}"]),
    ],
)
def test_each_kind_of_harm_has_its_line(
    tmp_path: Path, documents: Path, harm: Callable[[list[PageResult], Path], object], lines: list[str]
) -> None:
    rows = list(ROWS)
    harm(rows, documents)
    code, shown = verify(write(tmp_path / "table.parquet", rows), documents, "--max-page-error-rate", "1")
    assert (code, [line for line in shown[:-1] if not line.startswith("failed")]) == (3, lines)


def test_rows_of_a_document_that_is_gone_are_no_error_unless_it_is_asked_for(tmp_path: Path, documents: Path) -> None:
    (documents / "a.pdf").unlink()
    out = write(tmp_path / "table.parquet", ROWS)
    for flags, expected in (((), 0), (("--strict",), 3)):
        code, lines = verify(out, documents, "--max-page-error-rate", "1", *flags)
        assert code == expected
        assert "gone      a.pdf: is in the table but not in the input" in lines


@pytest.mark.parametrize(
    ("selection", "flags", "missing"),
    [
        ({"pages": "1"}, (), []),
        ({"limit": "2"}, (), []),
        ({}, (), ["missing   a.pdf page 2: has no row", "missing   a.pdf page 3: has no row"]),
        ({"pages": "1"}, ("--pages", "2"), ["missing   a.pdf page 2: has no row"]),
    ],
)
def test_a_table_knows_what_its_run_was_asked_for(
    tmp_path: Path, documents: Path, selection: dict[str, str], flags: tuple[str, ...], missing: list[str]
) -> None:
    rows = [ROWS[0], *ROWS[3:]] if "limit" not in selection else list(ROWS[:2])
    out = write(tmp_path / "table.parquet", rows, replace(METADATA, selection=selection))
    _, lines = verify(out, documents, *flags)
    assert [line for line in lines if line.startswith("missing   a.pdf")] == missing
    checked = selection | ({"pages": "2"} if flags else {})
    assert json.loads("\n".join(verify(out, documents, *flags, "--json")[1]))["checked"] == checked
    said = " (checked: only " + "".join(f"--{name} {value})" for name, value in checked.items()) if checked else ""
    assert f"rows expected{said}: " in lines[-1]


def test_ok_rows_without_text_say_what_they_have(tmp_path: Path, documents: Path) -> None:
    blocks = block("image", None), block("header", "12"), block("image", None)
    rows = [replace(ROWS[0], markdown=" \n"), *(replace(row, markdown="", blocks=blocks) for row in ROWS[1:3])]
    code, [said] = verify(write(tmp_path / "table.parquet", rows), documents, "--shard", "3/3")
    assert code == 0
    has = "2 with header, 2 with image, 1 with no block (blank, or not read)"
    assert said.endswith(f": nothing wrong; 3 ok rows without text in the body of the page: {has}")


def test_documents_whose_pages_cannot_be_counted_are_told(tmp_path: Path, documents: Path) -> None:
    row = page("b.pdf", b"encrypted", 0, 1)
    said = "4 rows expected: nothing wrong; pages not counted in 1 document that cannot be opened"
    assert verify(write(tmp_path / "table.parquet", [*ROWS[:3], row]), documents) == (0, [said])


@pytest.mark.long
def test_a_document_that_takes_for_ever_holds_nothing_up(tmp_path: Path, documents: Path) -> None:
    os.truncate(documents / "b.pdf", 100 << 30)  # holes: nothing on the disk, and a minute and more to hash
    limits = ("--page-timeout", "1", "--max-page-error-rate", "1")
    gave_up = replace(ROWS[3], doc_id=None, error_kind="timeout")
    out = write(tmp_path / "table.parquet", [*ROWS[:3], gave_up])
    assert verify(out, documents, *limits) == (0, ["failed    b.pdf: timeout", "4 rows expected: 1 failed"])
    code, lines = verify(write(out, ROWS), documents, *limits)
    assert (code, lines[0]) == (
        *(3, "unchecked b.pdf: cannot be compared with its rows: it took longer than 1 s to open (--page-timeout)"),
    )


def test_a_table_of_another_model_is_stale(tmp_path: Path, documents: Path) -> None:
    model = make_checkpoint(tmp_path / "model")
    options = ("--max-page-error-rate", "1", "--model", str(model))
    out = write(tmp_path / "table.parquet", ROWS)
    code, lines = verify(out, documents, *options)
    assert (code, lines[0].split(":")[0]) == (3, f"stale     {out}")
    (model / "configuration.json").write_text("{}")
    for form in fingerprints(model):
        write(out, ROWS, replace(METADATA, model_fingerprint=form))
        assert verify(out, documents, *options)[0] == 0


def test_the_tables_of_all_shards_are_compared_together(tmp_path: Path, documents: Path) -> None:
    write(tmp_path / "part-1.parquet", ROWS[:3])
    assert "missing   b.pdf: has no row" in verify(tmp_path / "part-*.parquet", documents)[1]
    write(tmp_path / "part-2.parquet", ROWS[3:])
    assert verify(tmp_path / "part-*.parquet", documents, "--max-page-error-rate", "1")[0] == 0
    write(tmp_path / "part-2.parquet", ROWS[3:], replace(METADATA, settings_fingerprint="b" * 64))
    code, lines = verify(tmp_path / "part-*.parquet", documents, "--max-page-error-rate", "1")
    assert code == 3
    assert lines[0].startswith("settings ")


def of_run(**selection: str) -> RunMetadata:
    """The metadata of a run with these options."""
    return replace(METADATA, selection=selection)


@pytest.mark.parametrize(
    ("tables", "of_shard"),
    [
        ({"part-1": "1/4"}, "2/4, 3/4, 4/4"),
        ({"part-1": "1/4", "part-2": "2/4", "part-4": "4/4"}, "3/4"),
        ({"part-1": "1/4,2/4,4/4"}, "3/4"),  # as merged
        ({"part-1": "1/2", "part-2": "1/3"}, "2/2, 2/3, 3/3"),
        ({"part-1": "1/99"}, "2/99, 3/99, 4/99, 5/99, 6/99, 7/99, 8/99, 9/99, 10/99, 11/99, …"),
    ],
)
@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_what_no_table_has_is_missing_whatever_shards_there_are(
    tmp_path: Path, documents: Path, suffix: str, tables: dict[str, str], of_shard: str
) -> None:
    for name, shard in tables.items():  # b.pdf is in the first shard of each number but 2; a.pdf is not
        rows = ROWS[3:] if name == "part-1" else []
        write(tmp_path / f"{name}.{suffix}", rows, of_run(shard=shard))
    code, lines = verify(tmp_path / f"part-*.{suffix}", documents, "--max-page-error-rate", "1")
    assert (code, lines[0]) == (3, "missing   a.pdf: has no row")
    assert lines[-1] == f"2 rows expected: 1 missing, 1 failed; no table is of shard {of_shard}"
    asked = verify(tmp_path / f"part-*.{suffix}", documents, "--max-page-error-rate", "1", "--shard", "1/4")
    assert asked == (0, ["failed    b.pdf: encrypted", "1 row expected (checked: only --shard 1/4): 1 failed"])


def test_a_shard_twice_is_one_shard_and_its_rows_are_duplicates(tmp_path: Path, documents: Path) -> None:
    for name in ("part-1", "part-2"):
        write(tmp_path / f"{name}.parquet", ROWS[3:], of_run(shard="1/4"))
    code, lines = verify(tmp_path / "part-*.parquet", documents)
    assert (code, lines[:2]) == (3, ["duplicate b.pdf: has more than one row", "missing   a.pdf: has no row"])


def test_a_limit_of_a_shard_is_none_of_the_whole(tmp_path: Path, documents: Path) -> None:
    out = write(tmp_path / "part-1.parquet", ROWS[:2], of_run(shard="3/4", limit="2"))
    assert verify(out, documents)[1][:2] == [MISSING[2], "missing   b.pdf: has no row"]
    said = "2 rows expected (checked: only --limit 2 --shard 3/4): nothing wrong"
    for shard in ("3/4", "03/4"):
        assert verify(out, documents, "--shard", shard) == (0, [said])
    write(tmp_path / "part-2.parquet", ROWS[3:], of_run(shard="1/4", limit="2"))
    code, lines = verify(tmp_path / "part-*.parquet", documents, "--max-page-error-rate", "1")
    assert (code, lines[0]) == (3, MISSING[2])


def test_tables_of_runs_that_were_asked_for_something_else_are_a_finding(tmp_path: Path, documents: Path) -> None:
    write(tmp_path / "part-1.parquet", ROWS[:1], of_run(pages="1", shard="3/4"))
    write(tmp_path / "part-2.parquet", ROWS[3:], of_run(shard="1/4"))
    code, lines = verify(tmp_path / "part-*.parquet", documents, "--max-page-error-rate", "1")
    said = f"settings  {tmp_path}/part-2.parquet: was asked for all, and {tmp_path}/part-1.parquet for --pages 1"
    assert (code, lines[:3]) == (3, [said, *MISSING[1:]])
    write(tmp_path / "part-2.parquet", ROWS[3:], of_run(pages="1", shard="1/4"))
    code, lines = verify(tmp_path / "part-*.parquet", documents, "--max-page-error-rate", "1")
    assert (code, lines[-1]) == (0, "2 rows expected (checked: only --pages 1): 1 failed")


def test_the_table_of_one_shard_is_compared_with_its_documents_alone(tmp_path: Path, documents: Path) -> None:
    out = write(tmp_path / "part.parquet", ROWS[:3])
    said = "3 rows expected (checked: only --shard 3/3): nothing wrong"  # it has only a.pdf
    assert verify(out, documents, "--shard", "3/3") == (0, [said])
    code, lines = verify(out, documents, "--shard", "1/3")
    assert (code, lines[0], lines[1]) == (
        *(3, "missing   b.pdf: has no row"),
        "gone      a.pdf: is in the table but not in the input",
    )
    assert "no table is of shard" not in lines[-1]
    assert verify(out, documents, "--shard", "4/3")[0] == 2


def test_a_named_file_that_is_gone_is_stale(tmp_path: Path, documents: Path) -> None:
    gone, kept = (str(documents / name) for name in ("a.pdf", "b.pdf"))
    rows = [replace(row, source=str(documents / row.source)) for row in ROWS]
    out = write(tmp_path / "table.parquet", rows)
    Path(gone).unlink()
    code, lines = verify(out, gone, kept, "--max-page-error-rate", "1")
    assert (code, lines[0]) == (3, f"stale     {gone}: cannot be read any more: {gone} does not exist")


def test_a_document_too_short_for_the_pages_asked_for_is_not_missing(tmp_path: Path, documents: Path) -> None:
    draw_pdf(documents / "short.pdf", "one page")
    out = write(tmp_path / "table.parquet", ROWS[1:])
    assert verify(out, documents, "--max-page-error-rate", "1", "--pages", "2-3")[0] == 0


@pytest.mark.parametrize("pages", ["2-3", "r1", "2,99"])
def test_a_document_that_has_the_pages_asked_for_and_no_row_is_missing(
    tmp_path: Path, documents: Path, pages: str
) -> None:
    draw_pdf(documents / "long.pdf", "one", "two")
    wanted = [row for row in ROWS[:3] if row.page_index in parse_page_spec(pages).pages(3)]
    out = write(tmp_path / "table.parquet", [*wanted, ROWS[3]])
    code, lines = verify(out, documents, "--max-page-error-rate", "1", "--pages", pages)
    assert (code, lines[1]) == (3, "missing   long.pdf: has no row")


def test_the_table_itself_is_no_part_of_the_input(tmp_path: Path, documents: Path) -> None:
    out = write(documents / "table.jsonl", [replace(row, source=f"{documents}/{row.source}") for row in ROWS])
    assert verify(out, f"{documents}/*", "--max-page-error-rate", "1")[0] == 0


def test_a_document_whose_pages_cannot_be_counted_is_missing_whatever_pages_were_asked_for(
    tmp_path: Path, documents: Path, sample_data: Path
) -> None:
    shutil.copy(sample_data / "documents" / "encrypted.pdf", documents / "c.pdf")
    out = write(tmp_path / "table.parquet", ROWS[1:])
    options = ("--max-page-error-rate", "1", "--pages", "2-3")
    code, lines = verify(out, documents, *options)
    assert (code, lines[1:]) == (3, ["missing   c.pdf: has no row", lines[-1]])
    assert lines[-1].endswith(": 1 failed, 1 missing")
    assert verify(out, documents, *options, "--password", "batchocr")[0] == 0, "it has one page"


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_tables_that_the_shell_lists_are_tables_and_their_side_files_nothing(
    tmp_path: Path, documents: Path, suffix: str
) -> None:
    parts = [write(tmp_path / f"part-{n}.{suffix}", [row]) for n, row in enumerate(ROWS)]
    (tmp_path / f"part-2.{suffix}.report.json").touch()
    (tmp_path / f"part-2.{suffix}.journal").touch()
    expanded = sorted(tmp_path.glob("part-*"))
    code, shown, said = said_by("verify", *expanded, documents, "--max-page-error-rate", "1")
    lines = shown.splitlines()
    assert (code, lines[1:]) == (0, ["4 rows expected: 1 failed"])
    assert "taken for tables and not for INPUTs" in said
    assert all(str(part) in said for part in parts[1:])
    pattern = str(tmp_path / f"part-*.{suffix}")
    assert verify(pattern, parts[1], documents, "--max-page-error-rate", "1") == (0, lines)


def test_tables_without_an_input_are_wrong_usage_that_says_what_to_do(tmp_path: Path) -> None:
    parts = [write(tmp_path / f"part-{n}.parquet", [row]) for n, row in enumerate(ROWS)]
    code, shown, said = said_by("verify", *parts)
    assert (code, shown) == (2, "")
    assert "no INPUT is left to compare with" in said
    assert "batchocr verify 'part-*.parquet' FOLDER" in said


def test_a_file_with_the_suffix_of_a_table_that_batchocr_did_not_write_stays_an_input(
    tmp_path: Path, documents: Path
) -> None:
    out = write(tmp_path / "table.parquet", ROWS)
    (tmp_path / "other.parquet").write_bytes(b"not ours")
    (tmp_path / "lines.jsonl").write_text("{}\n")
    code, lines = verify(out, documents, tmp_path / "other.parquet", tmp_path / "lines.jsonl")
    assert code == 3
    assert all(f"{name}: has no row" in "\n".join(lines) for name in ("other.parquet", "lines.jsonl"))


def test_the_findings_as_json_are_one_object(tmp_path: Path, documents: Path) -> None:
    out = write(tmp_path / "table.parquet", [ROWS[0], ROWS[2], replace(ROWS[3], source="new\nline.pdf")])
    code, lines = verify(out, documents, "--json")
    found = json.loads("\n".join(lines))
    assert code == found["exit_code"] == 3
    assert (found["rows_expected"], found["counts"]) == (4, {"missing": 2, "gone": 1})
    assert found["findings"][0] == {
        "problem": "missing",
        "where": "a.pdf",
        "page_index": 1,
        "message": "has no row",
    }
    assert found["findings"][2]["where"] == "new\nline.pdf"
    code, lines = verify(write(tmp_path / "sound.jsonl", ROWS[:3]), documents, "--shard", "3/3", "--json")
    assert code == 0
    assert json.loads("\n".join(lines)) == {
        "findings": [],
        "checked": {"shard": "3/3"},
        "rows_expected": 3,
        "counts": {},
        "exit_code": 0,
        "degraded": 0,
        "traits": {},
        "ok_without_text": 0,
        "documents_not_counted": 0,
        "documents_not_opened": 0,
    }


def test_of_a_table_that_cannot_be_relied_on_nothing_is_believed_or_shown(tmp_path: Path, documents: Path) -> None:
    edited, alone = write(tmp_path / "edited.jsonl", ROWS), write(tmp_path / "alone.jsonl", ROWS)
    edited.write_text(edited.read_text().replace("ok", "OK", 1))
    record_path(alone).unlink()
    for table, said in (
        (edited, f"{edited} is not the table that"),
        (alone, "alone.jsonl has no alone.jsonl.meta.json beside it: put that back"),
    ):
        code, shown, log = said_by("verify", table, documents)
        assert (code, shown, said in log) == (6, "", True)
        assert verify(table, documents, "--json") == (6, []), "no half of an object"


def test_quiet_prints_nothing_but_errors(tmp_path: Path, documents: Path) -> None:
    out = write(tmp_path / "table.parquet", ROWS)
    assert said_by("verify", out, documents, "--quiet") == (3, "", "")
    assert said_by("verify", out, documents, "--quiet", "--max-page-error-rate", "1") == (0, "", "")
    code, shown, log = said_by("verify", tmp_path / "none.parquet", documents, "--quiet")
    assert (code, shown, "there is no table" in log) == (6, "", True)


@pytest.mark.parametrize(
    "form", [pytest.param((), id="text"), pytest.param(("--json",), marks=pytest.mark.long, id="json")]
)
def test_a_standard_output_that_is_full_is_an_error_that_says_so(
    tmp_path: Path, documents: Path, form: tuple[str, ...]
) -> None:
    command = [sys.executable, "-m", "batchocr", "verify", str(write(tmp_path / "table.jsonl", ROWS)), str(documents)]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*command, *form], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 6
    assert "cannot write to standard output: No space left on device" in done.stderr


def with_times(rows: Sequence[PageResult], folder: Path) -> list[PageResult]:
    """The rows as a run writes them, with size and time of their files."""
    files = {row.source: (folder / row.source).stat() for row in rows}
    of_file = {name: {"file_bytes": file.st_size, "file_mtime_ns": file.st_mtime_ns} for name, file in files.items()}
    return [replace(row, **of_file[row.source]) for row in rows]


def put_another(path: Path, *, later_ns: int = 0) -> None:
    """Put a file of the same size in the place of one; as old as it, or later."""
    file = path.stat()
    path.write_bytes(b"x" * file.st_size)
    os.utime(path, ns=(file.st_atime_ns, file.st_mtime_ns + later_ns))


ALLOWED = ("--max-page-error-rate", "1")


def test_by_time_opens_only_what_has_another_size_or_time_than_its_rows(tmp_path: Path, documents: Path) -> None:
    out = write(tmp_path / "table.parquet", with_times(ROWS, documents))
    put_another(documents / "a.pdf")
    said = "4 rows expected: 1 failed; 2 documents taken by size and time, not opened"
    assert verify(out, documents, *ALLOWED, "--by-time") == (0, ["failed    b.pdf: encrypted", said])
    stale = "stale     a.pdf: has changed since it was read"
    assert verify(out, documents, *ALLOWED)[1][0] == stale
    put_another(documents / "a.pdf", later_ns=1)
    code, lines = verify(out, documents, *ALLOWED, "--by-time")
    assert (code, lines[0]) == (3, stale)
    assert lines[-1].endswith("; 1 document taken by size and time, not opened")
    found = json.loads("\n".join(verify(out, documents, "--by-time", "--json")[1]))
    assert found["documents_not_opened"] == 1


def lose_times(rows: list[PageResult]) -> None:
    """As rows of documents in memory are."""
    rows[:3] = [replace(row, file_bytes=None, file_mtime_ns=None) for row in rows[:3]]


def be_of_two_files(rows: list[PageResult]) -> None:
    rows[1] = replace(rows[1], doc_id="0" * 64)


@pytest.mark.parametrize("harm", [lose_times, be_of_two_files])
def test_by_time_a_document_whose_rows_are_not_of_one_file_with_a_time_is_hashed(
    tmp_path: Path, documents: Path, harm: Callable[[list[PageResult]], None]
) -> None:
    rows = with_times(ROWS, documents)
    harm(rows)
    put_another(documents / "a.pdf")
    out = write(tmp_path / "table.parquet", rows)
    code, lines = verify(out, documents, *ALLOWED, "--by-time")
    assert (code, lines[0]) == (3, "stale     a.pdf: has changed since it was read")


def test_by_time_what_is_missing_is_found_all_the_same(tmp_path: Path, documents: Path) -> None:
    rows = with_times(ROWS, documents)
    (documents / "new.pdf").write_bytes(b"never read")
    (documents / "b.pdf").unlink()
    code, lines = verify(write(tmp_path / "table.parquet", [rows[0], *rows[2:]]), documents, "--by-time")
    gone = "gone      b.pdf: is in the table but not in the input"
    assert (code, lines[:-1]) == (3, [MISSING[1], "missing   new.pdf: has no row", gone])


def test_links_that_lead_out_are_compared_where_the_run_followed_them(tmp_path: Path, documents: Path) -> None:
    (tmp_path / "outside.pdf").write_bytes(b"elsewhere")
    (documents / "link.pdf").symlink_to("../outside.pdf")
    out = write(tmp_path / "table.parquet", [*ROWS, page("link.pdf", b"elsewhere", 0, 1)])
    assert verify(out, documents, "--max-page-error-rate", "1", "--strict")[0] == 3
    assert verify(out, documents, "--max-page-error-rate", "1", "--strict", "--follow-symlinks")[0] == 0
