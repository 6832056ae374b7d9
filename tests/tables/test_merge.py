"""`batchocr merge`: shards become the table that one run would have written, or nothing is written."""

from __future__ import annotations

import json
import os
import random
import resource
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import batchocr
from batchocr.data import Block, PageResult, Status
from batchocr.documents.assembly.assemble import open_table
from batchocr.errors import OutputError, OutputMismatchError
from batchocr.pages.input.globs import path_key
from batchocr.pages.input.sources import find_documents, in_shard
from batchocr.tables import parquet, together
from batchocr.tables.files import journal_path, record_path, report_path
from batchocr.tables.known import Kept
from batchocr.tables.merge import merged
from batchocr.tables.opened import open_rows
from batchocr.tables.schema import PAGE_SCHEMA, SCHEMA_VERSION, RunMetadata, continued, require_same_shard
from batchocr.tables.table import table_for
from tests.support.running import draw_pdf, read_rows, run_app, said_by
from tests.support.tables import put_table

pytestmark = pytest.mark.usefixtures("quick_processes")

METADATA = RunMetadata(
    "0.1.0", "acme/reader", "f" * 64, "a" * 64, {"dpi": "200"}, model_revision="c0ffee", input_roots=("/documents",)
)
NAMES = ["a/2.pdf", "a/10.pdf", "a/10/1.pdf", "a-b/1.pdf", "A.pdf", "b 2.pdf", "b 10.pdf", "ä.png", "z/z.pdf"]


def rows_of(source: str) -> list[PageResult]:
    if source.endswith(".png"):
        return [PageResult(source, None, "failed", error_kind="damaged", error_message="no")]
    block = Block("text", (0.1, 0.2, 0.3, 0.4), 0, source)
    return [
        PageResult(source, index, "ok", "d", 12, markdown=f"{source} {index}", blocks=(block,)) for index in (0, 11)
    ]


def write(path: Path, sources: Sequence[str], metadata: RunMetadata = METADATA) -> str:
    put_table(path, (row for source in sources for row in rows_of(source)), metadata)
    return str(path)


def merge(parts: Sequence[str], out: Path, *options: str) -> list[PageResult]:
    return merged_and_said(parts, out, *options)[0]


def merged_and_said(parts: Sequence[str], out: Path, *options: str) -> tuple[list[PageResult], str]:
    code, _, log = said_by("merge", *parts, "--out", out, *options)
    assert code == 0, log
    return read_rows(out), log


def refusal(parts: Sequence[str], out: Path, *options: str) -> str:
    """What is said of parts that are not merged."""
    code, _, log = said_by("merge", *parts, "--out", out, *options)
    assert code == 6
    return log


def write_shards(folder: Path, sources: Sequence[str], count: int = 3) -> list[str]:
    return [
        write(
            folder / f"part-{index}.{'parquet' if index % 2 else 'jsonl'}",
            [source for source in sources if in_shard(source, index, count)],
        )
        for index in range(1, count + 1)
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of documents, which are listed and never opened."""
    random.Random(1).shuffle(names := [*NAMES])
    for name in names:
        (tmp_path / "input" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "input" / name).touch()
    return tmp_path / "input"


@pytest.mark.parametrize("name", ["all.parquet", "all.jsonl"])
def test_merged_shards_are_the_table_of_one_run(tmp_path: Path, folder: Path, name: str) -> None:
    sources = [document.source for document in find_documents([str(folder)]).documents]
    parts = write_shards(tmp_path, sources)
    merged = merge(parts[::-1], out := tmp_path / name)
    assert merged == [row for source in sources for row in rows_of(source)]
    whole = write(tmp_path / f"one-{name}", sources)
    assert out.read_bytes() == Path(whole).read_bytes()
    assert table_for(out).read_metadata(out) == METADATA


def of_shards(path: Path) -> str | None:
    """Those of which a table says that it is."""
    metadata = table_for(path).read_metadata(path)
    assert metadata is not None and metadata.selection is not None
    return metadata.selection.get("shard")


def test_a_table_of_some_shards_says_which_until_the_others_are_merged_too(tmp_path: Path) -> None:
    parts = [
        write(tmp_path / f"part-{index}.jsonl", [f"{index}.pdf"], replace(METADATA, selection={"shard": f"{index}/12"}))
        for index in range(1, 13)
    ]
    some, all_but_one, whole = (tmp_path / name for name in ("some.parquet", "more.jsonl", "whole.parquet"))
    _, said = merged_and_said([parts[1], *parts[9:]], some)
    assert "no part is of shard 1/12, 3/12, 4/12, 5/12, 6/12, 7/12, 8/12, 9/12: " in said
    assert of_shards(some) == "2/12,10/12,11/12,12/12"
    _, said = merged_and_said([str(some), *parts[2:9]], all_but_one)
    assert f"no part is of shard 1/12: {all_but_one} lacks their documents, and says so" in said
    rows, said = merged_and_said([str(all_but_one), parts[0]], whole)
    assert (len(rows), said, of_shards(whole)) == (24, f"batchocr: the table, of 2 parts, is {whole}\n", None)
    merge(parts[:1], alone := tmp_path / "alone.parquet")
    assert of_shards(alone) == "1/12"


def test_what_a_night_has_left_to_be_judged_is_kept_of_every_part(tmp_path: Path) -> None:
    parts = [
        write(tmp_path / f"{name}.jsonl", [f"{name}.pdf"], replace(METADATA, newest=(f"{name}.pdf",))) for name in "ab"
    ]
    merge(parts, out := tmp_path / "all.jsonl")
    metadata = table_for(out).read_metadata(out)
    assert metadata is not None and metadata.newest == ("a.pdf", "b.pdf")


def test_tables_of_shards_of_different_numbers_are_not_all(tmp_path: Path) -> None:
    metadata = [replace(METADATA, selection={"shard": shard, "pages": "1"}) for shard in ("1/2", "1/3")]
    parts = [write(tmp_path / f"{number}.jsonl", [f"{number}.pdf"], each) for number, each in enumerate(metadata)]
    _, said = merged_and_said(parts, out := tmp_path / "all.jsonl")
    assert "no part is of shard 2/2, 2/3, 3/3: " in said
    assert of_shards(out) == "1/2,1/3"
    code, shown, _ = said_by("compare", parts[0], out)
    assert (code, shown.splitlines()[0]) == (0, "setting   shard: 1/2 → 1/2,1/3")
    write(tmp_path / "2.jsonl", ["2.pdf"], replace(METADATA, selection={"pages": "1"}))
    code, shown, _ = said_by("compare", out, tmp_path / "2.jsonl", "--json")
    assert json.loads(shown)["settings"] == {"shard": ["1/2,1/3", None]}
    merge([*parts, str(tmp_path / "2.jsonl")], whole := tmp_path / "whole.jsonl")
    assert of_shards(whole) is None


def test_a_run_over_all_completes_a_table_of_several_shards(tmp_path: Path) -> None:
    some, all_of_it = replace(METADATA, selection={"shard": "1/4,3/4"}), replace(METADATA, selection={})
    require_same_shard(tmp_path, some, all_of_it)
    assert continued(some, all_of_it).selection == {}
    for one_shard in ("1/4", "2/4"):
        with pytest.raises(OutputMismatchError, match=f"is of --shard 1/4,3/4, and this run reads {one_shard}"):
            require_same_shard(tmp_path, some, replace(METADATA, selection={"shard": one_shard}))
    with pytest.raises(OutputMismatchError, match="is of --shard 1/4, and this run reads 1/1"):
        require_same_shard(tmp_path, replace(METADATA, selection={"shard": "1/4"}), all_of_it)


def test_several_inputs_give_their_order(tmp_path: Path, folder: Path) -> None:
    inputs = [str(folder / "z"), str(folder / "a"), str(folder / "b 10.pdf")]
    sources = [document.source for document in find_documents(inputs).documents]
    parts = write_shards(tmp_path, sources, count=2)
    expected = [row for source in sources for row in rows_of(source)]
    given = [option for name in inputs for option in ("--input", name)]
    merged, said = merged_and_said(parts, tmp_path / "all.jsonl", *given)
    assert (merged, "not in the order" in said) == (expected, False)
    assert sorted(map(repr, merge(parts, tmp_path / "by-path.jsonl"))) == sorted(map(repr, expected))


def test_parts_in_another_order_keep_it_and_it_is_said(tmp_path: Path) -> None:
    parts = [write(tmp_path / "1.jsonl", ["z.pdf", "a.pdf"]), write(tmp_path / "2.jsonl", ["y.pdf", "b.pdf"])]
    merged, said = merged_and_said(parts, tmp_path / "all.jsonl")
    assert [row.source for row in merged[::2]] == ["y.pdf", "b.pdf", "z.pdf", "a.pdf"]
    assert "name the INPUTs of the runs with --input" in said


def test_pages_of_one_document_from_two_parts_are_put_together(tmp_path: Path) -> None:
    rows = [PageResult("a.pdf", index, "ok", "d", 4, markdown="") for index in range(4)]
    put_table(tmp_path / "1.jsonl", rows[::2], METADATA)
    put_table(tmp_path / "2.jsonl", rows[1::2], METADATA)
    assert merge([str(tmp_path / "[12].jsonl")], tmp_path / "all.jsonl") == rows


def open_parts(folder: Path) -> set[str]:
    """The names of the files in the folder that this process has open."""
    targets = [Path(os.readlink(link)) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return {target.name for target in targets if target.parent == folder}


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_of_parts_that_do_not_overlap_one_is_open_at_a_time(tmp_path: Path, suffix: str) -> None:
    for number in range(5):
        write(tmp_path / f"{number}.{suffix}", [f"{number}-a.pdf", f"{number}-b.pdf"])
    seen: list[tuple[str, set[str]]] = []
    with merged(Path("all.parquet"), open_table(tmp_path).parts) as table:
        assert not open_parts(tmp_path), "all have been looked at"
        for row in range(20):
            seen += [(table.kept(Kept(row, row + 1))["source"][0].as_py()[0], open_parts(tmp_path))]
    a_part = (*[{suffix}] * 3, set())  # closed after its last row
    assert seen == [(number, {f"{number}.{each}" for each in is_open}) for number in "01234" for is_open in a_part]


def test_more_shards_than_files_may_be_open_are_merged(tmp_path: Path) -> None:
    sources = [f"{number:03}.pdf" for number in range(400)]
    for shard in range(200):
        write(tmp_path / f"{shard:03}.jsonl", sources[shard::200])
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (150, before[1]))
    try:
        merged = merge([str(tmp_path)], tmp_path / "all.parquet")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert [row.source for row in merged[::2]] == sources


@pytest.mark.parametrize(
    ("first", "second"), [(["a.pdf", "b.pdf"], ["b.pdf", "c.pdf"]), (["b.pdf", "a.pdf"], ["c.pdf", "b.pdf"])]
)
def test_an_overlap_is_refused_by_name(tmp_path: Path, first: list[str], second: list[str]) -> None:
    parts = [write(tmp_path / "1.jsonl", first), write(tmp_path / "2.parquet", second)]
    assert "b.pdf" in refusal(parts, tmp_path / "all.parquet")
    assert not list(tmp_path.glob("all*"))


def test_a_document_that_one_part_could_not_open_overlaps_with_its_pages(tmp_path: Path) -> None:
    rows = [PageResult("a.pdf", None, "failed", error_kind="encrypted"), *rows_of("a.pdf")]
    put_table(tmp_path / "1.jsonl", rows[:1], METADATA)
    put_table(tmp_path / "2.jsonl", rows[1:], METADATA)
    assert "a.pdf, as a whole" in refusal([str(tmp_path / "[12].jsonl")], tmp_path / "all.jsonl")


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    parts = [write(tmp_path / "1.jsonl", ["a.pdf"]), write(tmp_path / "2.jsonl", ["b.pdf"])]
    out = tmp_path / "all.jsonl"
    out.write_text("somebody's")
    assert "--overwrite" in refusal(parts, out)
    assert "not written by batchocr" in refusal(parts, out, "--overwrite")
    assert out.read_text() == "somebody's"
    write(out, ["c.pdf"])
    report_path(out).write_text("somebody's")
    assert "is no report" in refusal(parts, out, "--overwrite")
    assert report_path(out).read_text() == "somebody's"
    report_path(out).write_bytes(b"")
    assert len(merge(parts, out, "--overwrite")) == 4
    assert not report_path(out).exists()
    assert "one of the parts" in refusal(parts, tmp_path / "2.jsonl", "--overwrite")
    journal_path(out).write_text("begun")
    assert "unfinished" in refusal(parts, out, "--overwrite")


@pytest.mark.parametrize("options", [(), ("--overwrite",)])
def test_metadata_of_someone_else_are_never_overwritten(tmp_path: Path, options: tuple[str, ...]) -> None:
    part, out = write(tmp_path / "1.parquet", ["a.pdf"]), tmp_path / "all.jsonl"
    record_path(out).write_text("somebody's")
    assert "all.jsonl.meta.json was not written by batchocr" in refusal([part], out, *options)
    assert record_path(out).read_text() == "somebody's"
    assert not out.exists()


@pytest.mark.parametrize("name", ["", "/part-*.jsonl", "/part-2.jsonl"])
def test_a_part_of_which_there_is_only_the_journal_is_not_left_out_unseen(tmp_path: Path, name: str) -> None:
    (folder := tmp_path / "parts").mkdir()
    write(folder / "part-1.jsonl", ["a.pdf"])
    journal_path(folder / "part-2.jsonl").touch()
    out = tmp_path / "all.jsonl"
    assert "part-2.jsonl is unfinished" in refusal([f"{folder}{name}"], tmp_path / "all.jsonl")
    assert not out.exists()
    write(folder / "part-2.jsonl", ["b.pdf"])  # its journal stays while pages that failed may be tried again
    assert merge([f"{folder}{name}"], out)


def test_a_damaged_part_leaves_no_table(tmp_path: Path) -> None:
    parts = [write(tmp_path / "1.jsonl", ["a.pdf"]), write(tmp_path / "2.parquet", ["b.pdf"])]
    data = bytearray(Path(parts[1]).read_bytes())
    data[len(data) // 2] ^= 1
    Path(parts[1]).write_bytes(data)
    assert "damaged" in refusal(parts, tmp_path / "all.jsonl")
    assert not (tmp_path / "all.jsonl").exists() and not record_path(tmp_path / "all.jsonl").exists()


def test_a_journal_that_is_newer_than_its_table_is_named(tmp_path: Path) -> None:
    parts = [write(tmp_path / f"{name}.jsonl", [f"{name}.pdf"]) for name in "abc"]
    for part, seconds in zip(parts, (-1, 1), strict=False):
        changed_s = Path(part).stat().st_mtime + seconds
        journal_path(Path(part)).touch()
        os.utime(journal_path(Path(part)), (changed_s, changed_s))
    merged, said = merged_and_said(parts, tmp_path / "all.parquet")
    assert len(merged) == 6
    [line] = [line for line in said.splitlines() if "is newer than its table" in line]
    assert line.startswith(f"batchocr: warning: {journal_path(Path(parts[1]))} is newer")


def test_parts_of_the_version_before_become_a_table_of_this_one(tmp_path: Path) -> None:
    old = replace(METADATA, schema_version=6, input_roots=("/more",))
    parts = [write(tmp_path / "1.jsonl", ["a.pdf"]), write(tmp_path / "2.jsonl", ["b.pdf"], old)]
    merge(parts, out := tmp_path / "all.parquet")
    expected = replace(METADATA, schema_version=SCHEMA_VERSION, input_roots=("/documents", "/more"))
    assert table_for(out).read_metadata(out) == expected


def test_rows_of_a_part_with_fewer_columns_come_out_with_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fewer = pa.schema([field for field in PAGE_SCHEMA if field.name != "layout_confidence"])
    with monkeypatch.context() as patch:
        patch.setattr(parquet, "PAGE_SCHEMA", fewer)
        old = write(tmp_path / "old.parquet", ["a.pdf"])
    assert merge([old, write(tmp_path / "new.parquet", ["b.pdf"])], out := tmp_path / "all.parquet") == [
        row for source in ("a.pdf", "b.pdf") for row in rows_of(source)
    ]
    assert pq.read_schema(out).equals(PAGE_SCHEMA)


@pytest.mark.slow
def test_a_run_into_a_merged_table_finds_everything_done(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "input").mkdir()
    for name in ("10.pdf", "2.pdf", "b.pdf"):
        draw_pdf(tmp_path / "input" / name, f"A page of {name}")
    whole, merged = tmp_path / "whole.parquet", tmp_path / "merged.parquet"
    with batchocr.Ocr(model=model, dpi=72, workers=1) as ocr:
        ocr.run(tmp_path / "input", out=whole)
        rows, metadata = read_rows(whole), table_for(whole).read_metadata(whole)
        assert metadata is not None
        for index in (1, 2):
            shard = [row for row in rows if in_shard(row.source, index, 2)]
            put_table(tmp_path / f"part-{index}.parquet", shard, metadata)
        assert run_app(monkeypatch, "merge", tmp_path / "part-*.parquet", "--out", merged) == 0
        assert merged.read_bytes() == whole.read_bytes()
        assert ocr.run(tmp_path / "input", out=merged).nothing_to_do
    assert merged.read_bytes() == whole.read_bytes()
    assert run_app(monkeypatch, "compare", merged, whole, "--max-change", "0", "--json") == 0
    assert json.loads(capsys.readouterr().out)["differing"] == 0


def test_a_part_that_is_replaced_while_it_is_merged_ends_the_merge(tmp_path: Path) -> None:
    paths = [tmp_path / "1.parquet", tmp_path / "2.parquet"]
    write(paths[0], ["a.pdf"])
    write(paths[1], ["x.pdf", "y.pdf", "z.pdf"])
    with merged(Path("all.parquet"), open_rows(str(tmp_path), ours=True).parts) as table:
        assert table.kept(Kept(0, 2))["source"].to_pylist() == ["a.pdf"] * 2
        write(paths[1], ["y.pdf", "z.pdf"])
        with pytest.raises(OutputError, match=r"2\.parquet was replaced while it was read"):
            table.kept(Kept(2, 4))


def made_up_rows(dice: random.Random) -> list[PageResult]:
    """Rows of documents with up to nine pages, in the order of one run."""
    rows: list[PageResult] = []
    for source in sorted(NAMES, key=path_key):
        status: Status = dice.choice(["ok", "ok", "degraded", "failed"])
        content = f'{source} "\\\n\0\u2028 😀 2026-01-31'
        block = Block("text", (0.1, 0.0, 1.0, 1e-7), 0, content, confidence=dice.random(), min_logprob=-1e300)
        page = PageResult(source, None, "failed", "d", error_kind="damaged")
        if count := dice.randrange(10):
            pages = sorted(dice.sample(range(12), count))
            rows += [replace(page, page_index=index, status=status, page_count=12, blocks=(block,)) for index in pages]
        else:
            rows.append(page)
    return rows


@pytest.mark.parametrize("name", ["all.parquet", "all.jsonl", "all/"])
@pytest.mark.parametrize("seed", range(5))
def test_rows_are_dealt_to_any_parts_and_come_back_as_one_run_gave_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, name: str
) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_PAGES", 5)
    monkeypatch.setattr(parquet, "_ROWS_DECODED_AT_ONCE", 2)
    monkeypatch.setattr(together, "_ROWS_AT_ONCE", 7)
    monkeypatch.setattr(together, "allow_open_files", lambda number: together._OTHER_FILES + 2)
    dice = random.Random(seed)
    rows = made_up_rows(dice)
    again = [row for row in rows if row.page_index is not None and dice.random() < 0.4]
    read_again = [replace(row, status=dice.choice(["ok", "failed"]), markdown="again") for row in again]
    pages = {(row.source, row.page_index): row for row in rows}
    pages |= {(row.source, row.page_index): row for row in read_again if row.status == "ok"}
    dealt: dict[str, list[PageResult]] = {}
    for row in rows:
        dealt.setdefault(dice.choice(["1.parquet", "2.jsonl", "3.parquet", "4.parquet"]), []).append(row)
    for part, of_part in dealt.items():
        put_table(tmp_path / part, of_part, METADATA)
    put_table(tmp_path / "again.parquet", read_again, METADATA)
    parts, preferred = [str(tmp_path / part) for part in dealt], str(tmp_path / "again.parquet")
    out = f"{tmp_path}/merged/{name}"
    (tmp_path / "merged").mkdir()
    code, _, log = said_by("merge", *parts, "--prefer", preferred, "--out", out, "--rows-per-part", "6")
    assert code == 0, log
    path = Path(out)
    assert [*table_for(path).read_rows(path)] == [pages[row.source, row.page_index] for row in rows]
