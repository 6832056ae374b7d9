"""Documents within files are read, found again and checked as those of a folder are."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import batchocr
from batchocr.api import find_inputs
from batchocr.config import Config, make_config
from batchocr.data import Document, Failure, PageResult
from batchocr.errors import DamagedError, NoInputError, OutputMismatchError, TooLargeError, UsageError
from batchocr.pages.input import containers
from batchocr.pages.input import sources as input_sources
from batchocr.pages.input.containers import Containers
from batchocr.pages.input.sources import find_documents
from batchocr.processes import source_files
from batchocr.processes.members import Within, list_within
from batchocr.processes.messages import ListMembers, Setup
from batchocr.processes.pool import WorkerPool
from batchocr.processes.source_files import SourceFile, SourceFiles
from batchocr.processes.worker import Arrived, Loss, Worker
from batchocr.ray.reader import Reader
from batchocr.storage import unpacked
from batchocr.storage.members import WholeContainer
from batchocr.tables.known_members import known_within
from batchocr.tables.target import Target
from tests.support.containers import MAKERS, make_table, make_tar, make_zip
from tests.support.listing import make, problem_kind, sources
from tests.support.object_store import ObjectStore
from tests.support.running import draw_pdf, raising, read_rows, said_by, texts

pytestmark = pytest.mark.slow

ALLOWED = ("--max-page-error-rate", "1", "--max-degraded-rate", "1")
NAMES = ("a.pdf", "b/two pages.pdf", "b/broken.pdf", "c.png")


def long(container: str) -> Any:
    """A container that only the long tests look at."""
    return pytest.param(container, marks=pytest.mark.long)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documents")
    (folder / "b").mkdir()
    draw_pdf(folder / "a.pdf", "first")
    draw_pdf(folder / "b" / "two pages.pdf", "second", "third")
    (folder / "b" / "broken.pdf").write_bytes(b"%PDF-1.4 broken")
    Image.new("RGB", (60, 40), "white").save(folder / "c.png")
    return folder


@pytest.fixture(autouse=True)
def current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def work_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("work"))


@pytest.fixture(scope="module")
def options(model: Path, work_dir: str) -> dict[str, Any]:
    small = {"dpi": 72, "workers": 2, "max_new_tokens": 8, "max_degraded_rate": 1, "max_page_error_rate": 1}
    return {"model": model, "dtype": "float32", "device": "cpu", "work_dir": work_dir, **small}


@pytest.fixture(scope="module")
def rows(folder: Path, options: dict[str, Any]) -> dict[str, list[PageResult]]:
    """Those of the files in the folder, by their names."""
    found: dict[str, list[PageResult]] = {name: [] for name in NAMES}
    for row in batchocr.process(folder, **options):
        found[row.source].append(row)
    return found


def expected(container: str, rows: dict[str, list[PageResult]]) -> list[PageResult]:
    return texts(replace(row, source=f"{container}/{name}") for name in NAMES for row in rows[name])


@pytest.mark.parametrize("container", ["x.zip", *(long(other) for other in MAKERS if other != "x.zip")])
def test_an_archive_has_the_rows_of_its_folder_and_a_run_with_nothing_new_reads_nothing(
    container: str, folder: Path, options: dict[str, Any], rows: dict[str, list[PageResult]]
) -> None:
    MAKERS[container](folder, container, NAMES)
    batchocr.run(container, out="out.parquet", **options)
    read = read_rows(Path("out.parquet"))
    assert texts(read) == expected(container, rows)
    sizes = {f"{container}/{name}": (folder / name).stat().st_size for name in NAMES}
    if container == "x.parquet":
        sizes = dict.fromkeys(sizes, Path(container).stat().st_size)
    assert {row.source: row.file_bytes for row in read} == sizes
    assert batchocr.run(container, out="out.parquet", **options).pages_read == 0
    if container.startswith("x.tar."):
        return  # as below, in a folder of the user's
    code, shown, _ = said_by("verify", *ALLOWED, "out.parquet", container)
    assert code == 0
    assert shown.splitlines()[-1].startswith("5 rows expected: 1 failed; 4 degraded")


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The containers that were listed since."""
    found: list[str] = []

    def list_them(containers: Sequence[Document], pool: WorkerPool) -> list[Within]:
        found.extend(os.path.basename(each.path) for each in containers)
        return list_within(containers, pool)

    monkeypatch.setattr(input_sources, "list_within", list_them)
    return found


@pytest.mark.parametrize("out", ["out.parquet", "parts/"])
def test_an_archive_of_which_the_table_has_all_is_not_listed_again(
    out: str, folder: Path, options: dict[str, Any], listed: list[str]
) -> None:
    make_zip(folder, "x.zip", NAMES[:3])
    make_table(folder, "x.parquet", NAMES[:3])
    inputs = ["x.zip", "x.parquet", str(folder / "c.png")]
    batchocr.run(inputs, out=out, **options)
    assert sorted(listed) == ["x.parquet", "x.zip"]
    written = {path: path.stat().st_ino for path in Path().rglob("*") if "report" not in path.name}
    listed.clear()
    report = batchocr.run(inputs, out=out, **options)
    assert (report.pages_read, report.items.already_done, listed) == (0, 9, [])
    assert {path: path.stat().st_ino for path in written} == written
    make_zip(folder, "x.zip", NAMES[:2])
    batchocr.run(inputs, out=out, **options)
    assert listed == ["x.zip"]


def is_known(container: str, out: str = "out.parquet", **asked: Any) -> bool:
    """Whether a run that asks for this need not list the container."""
    return bool(known_within(Path(out), make_config(asked), [Document(container, container)]))


def test_an_archive_is_listed_again_if_more_is_asked_of_it(folder: Path, options: dict[str, Any]) -> None:
    make_table(folder, "x.parquet", NAMES)
    batchocr.run("x.parquet", out="out.parquet", pages="1", **options)
    assert is_known("x.parquet", pages="1")
    more: list[dict[str, Any]] = [{"pages": "1-2"}, {"retry_failed": True}, {"overwrite": True}, {"only": "x.jsonl"}]
    more += [{"pages": "1", "document_column": "pdf"}, {"pages": "1", "name_column": "number"}]
    assert [asked for asked in more if is_known("x.parquet", **asked)] == []
    Path("out.parquet.journal").touch()
    assert not is_known("x.parquet", pages="1")


def test_an_archive_is_listed_again_after_a_version_that_may_have_named_it_otherwise(
    folder: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_zip(folder, "x.zip", NAMES[:1])
    with monkeypatch.context() as patched:
        patched.setattr(input_sources, "WholeContainer", lambda *known: WholeContainer(*known[:5]))
        batchocr.run("x.zip", out="out.parquet", **options)
    assert not is_known("x.zip")
    batchocr.run("x.zip", out="out.parquet", **options)
    assert is_known("x.zip")


def test_a_column_that_is_not_there_is_wrong_usage_unless_something_else_can_be_read(
    folder: Path, options: dict[str, Any]
) -> None:
    make_table(folder, "x.parquet", NAMES[:1])
    make_zip(folder, "x.zip", NAMES[:1])
    for inputs in (["x.parquet"], ["x*.parquet"], ["x.parquet", "missing.pdf"]):
        with pytest.raises(UsageError, match=r"^--document-column has to name"):
            find_inputs(make_config({"document_column": "nothing"}), inputs)
    assert len(find_inputs(make_config({"document_column": "nothing"}), ["x.parquet", "x.zip"]).documents) == 2


def test_rows_of_documents_that_are_gone_do_not_stand_for_those_that_are_there(
    folder: Path, options: dict[str, Any]
) -> None:
    make_zip(folder, "x.zip", ("a.pdf", "c.png"))
    batchocr.run("x.zip", out="out.parquet", **options)
    make_zip(folder, "x.zip", ("c.png", "b/broken.pdf"))
    batchocr.run("x.zip", out="out.parquet", **options)
    assert not is_known("x.zip", retry_failed=True)
    batchocr.run("x.zip", out="out.parquet", prune=True, retry_failed=True, **options)
    assert {row.source for row in read_rows(Path("out.parquet"))} == {"x.zip/b/broken.pdf", "x.zip/c.png"}


OLD_NAMES = {name.encode().decode("cp437"): name for name in ("合同/一.pdf", "合同/坏.pdf", "合同/二.pdf")}
"""What members were called whose names are UTF-8 and do not say so, and what they are called."""


def zip_of(folder: Path, path: str, names: dict[str, str]) -> None:
    """Two equal documents with two pages each, and one that cannot be opened, under these names."""
    files = ("b/two pages.pdf", "b/broken.pdf", "b/two pages.pdf")
    with zipfile.ZipFile(path, "w") as archive:
        for name, file in zip(names, files, strict=True):
            archive.write(folder / file, name)


def test_a_document_with_another_name_in_its_archive_is_not_read_again_and_has_no_rows_under_both(
    folder: Path, options: dict[str, Any]
) -> None:
    zip_of(folder, "x.zip", OLD_NAMES)
    batchocr.run("x.zip", out="out.parquet", **options)
    before = texts(read_rows(Path("out.parquet")))
    zip_of(folder, "x.zip", dict.fromkeys(OLD_NAMES.values(), ""))
    report = batchocr.run("x.zip", out="out.parquet", pages="1", **options)
    assert (report.pages_read, report.rows_gone) == (0, 2)
    assert len(read_rows(Path("out.parquet"))) == 5, "pages that are not asked for stay"
    report = batchocr.run("x.zip", out="out.parquet", **options)
    assert (report.pages_read, report.rows_gone) == (0, 0)
    named = [replace(row, source=f"x.zip/{OLD_NAMES[row.source.removeprefix('x.zip/')]}") for row in before]
    assert texts(read_rows(Path("out.parquet"))) == named
    assert said_by("verify", *ALLOWED, "--strict", "out.parquet", "x.zip")[0] == 0


def test_a_table_keeps_the_encoding_of_names_in_zips(folder: Path, options: dict[str, Any]) -> None:
    name = "文一.pdf".encode("gbk")
    with zipfile.ZipFile("x.zip", "w") as archive:
        archive.write(folder / "a.pdf", "~" * len(name))
    Path("x.zip").write_bytes(Path("x.zip").read_bytes().replace(b"~" * len(name), name))
    batchocr.run("x.zip", out="out.jsonl", zip_encoding="GBK", **options)
    assert [row.source for row in read_rows(Path("out.jsonl"))] == ["x.zip/文一.pdf"]
    with pytest.raises(OutputMismatchError, match=r"zip_encoding gbk there, not set here"):
        batchocr.run("x.zip", out="out.jsonl", **options)
    for command in (["verify", *ALLOWED, "out.jsonl", "x.zip"], ["view", "out.jsonl"]):
        assert said_by(*command)[0] == 0
    assert said_by("export", "out.jsonl", "--to", "texts", "--format", "pdf")[0] == 0
    assert is_known("x.zip", "out.jsonl", zip_encoding="gbk")
    assert not is_known("x.zip", "out.jsonl")


def test_rows_of_an_archive_that_is_cut_are_not_removed(folder: Path, options: dict[str, Any]) -> None:
    make_zip(folder, "x.zip", NAMES)
    inputs = ["x.zip", str(folder / "c.png")]
    batchocr.run(inputs, out="out.parquet", **options)
    before = {row.source for row in read_rows(Path("out.parquet"))}
    Path("x.zip").write_bytes(Path("x.zip").read_bytes()[:700])
    batchocr.run(inputs, out="out.parquet", prune=True, **options)
    assert {row.source for row in read_rows(Path("out.parquet"))} == before | {"x.zip"}


def test_an_archive_of_which_not_all_was_asked_for_is_listed_again(folder: Path, options: dict[str, Any]) -> None:
    make_zip(folder, "x.zip", ("c.png", "b/broken.pdf"))
    for name in ("limit", "sample_documents"):
        batchocr.run("x.zip", out=f"{name}.parquet", **options, **{name: 1})
        assert not is_known("x.zip", f"{name}.parquet")
    batchocr.run("x.zip", out="limit.parquet", **options)
    assert is_known("x.zip", "limit.parquet")
    batchocr.run("x.zip", out="shard.parquet", shard=(1, 2), **options)
    assert is_known("x.zip", "shard.parquet", shard=(1, 2))


def test_by_time_verify_lists_no_archive_of_which_the_table_has_all(
    folder: Path, options: dict[str, Any], listed: list[str]
) -> None:
    make_zip(folder, "x.zip", NAMES)
    batchocr.run("x.zip", out="out.parquet", **options)
    batchocr.run("x.zip", out="shard.parquet", shard=(1, 2), **options)
    listed.clear()

    def found(*arguments: str) -> tuple[int, dict[str, int], int, int]:
        code, shown, _ = said_by("verify", *arguments, "x.zip", "--by-time", "--json", *ALLOWED)
        told = json.loads(shown)
        return code, told["counts"], told["documents_not_opened"], len(listed)

    assert found("out.parquet") == (0, {"failed": 1}, 4, 0)
    of_shard = {row.source for row in read_rows(Path("shard.parquet"))}
    assert 0 < len(of_shard) < 4
    assert found("shard.parquet", "--shard", "1/2")[::2] == (0, len(of_shard))
    assert listed == []
    code, counts, _, num_listed = found("shard.parquet")
    assert (code, counts["missing"], num_listed) == (3, 4 - len(of_shard), 1), "the other shard's are not passed over"


@pytest.mark.parametrize("container", ["x.parquet", long("x.zip"), long("x.tar")])
def test_of_an_archive_that_has_grown_only_what_is_new_is_read(
    container: str, folder: Path, options: dict[str, Any], rows: dict[str, list[PageResult]]
) -> None:
    MAKERS[container](folder, container, NAMES[:2])
    batchocr.run(container, out="out.parquet", **options)
    MAKERS[container](folder, container, NAMES)
    assert batchocr.run(container, out="out.parquet", **options).pages_read == 1
    assert texts(read_rows(Path("out.parquet"))) == expected(container, rows)


def test_a_part_of_an_archive_can_be_asked_for(folder: Path, options: dict[str, Any]) -> None:
    make_zip(folder, "x.zip", NAMES)
    Path("only.jsonl").write_text(json.dumps({"source": "x.zip/b/two pages.pdf", "page_index": 1}) + "\n")
    batchocr.run("x.zip", out="only.parquet", only="only.jsonl", **options)
    assert [(row.source, row.page_index) for row in read_rows(Path("only.parquet"))] == [("x.zip/b/two pages.pdf", 1)]
    shards = [find_documents(["x.zip"], shard=(index, 2)).documents for index in (1, 2)]
    assert sorted(each.source for shard in shards for each in shard) == sorted(f"x.zip/{name}" for name in NAMES)


@pytest.mark.parametrize("container", ["x.zip", long("x.parquet")])
def test_what_an_actor_has_read_of_a_container_is_not_read_again(
    container: str, folder: Path, options: dict[str, Any], rows: dict[str, list[PageResult]]
) -> None:
    MAKERS[container](folder, container, NAMES[:2])
    config = make_config(options)
    (Path("out") / ".batchocr").mkdir(parents=True)
    (Path("out") / ".batchocr" / "run.json").touch()
    reader = Reader(config, Target("out", 1), (), cpus=2, per_node=1, max_pages=1000, begun_in=None)
    reader.load()
    assert reader._session is not None
    with closing(reader._session):
        reader.read([*find_inputs(config, container).documents])
    MAKERS[container](folder, container, NAMES)
    report = batchocr.run(container, out="out", **options)
    assert texts(batchocr.open_table("out").rows()) == expected(container, rows)
    assert report.pages_read == 1


def test_rows_from_an_archive_come_in_its_order_beside_files(folder: Path, options: dict[str, Any]) -> None:
    make_tar(folder, "x.tar", ("c.png", "a.pdf"))
    read = list(batchocr.process(["x.tar", folder / "c.png", ("x.zip", (folder / "a.pdf").read_bytes())], **options))
    assert [row.source for row in read] == ["x.tar/c.png", "x.tar/a.pdf", str(folder / "c.png"), "x.zip"]
    assert {row.status for row in read} <= {"ok", "degraded"}


@pytest.mark.parametrize("container", [long("x.zip"), long("x.parquet"), "x.tar.gz"])
def test_a_container_in_a_store_has_the_same_rows(
    container: str,
    folder: Path,
    store: ObjectStore,
    options: dict[str, Any],
    rows: dict[str, list[PageResult]],
    work_dir: str,
) -> None:
    MAKERS[container](folder, container, NAMES)
    store.put("bucket", {f"in/{container}": Path(container).read_bytes()})
    uri = f"s3://bucket/in/{container}"
    assert texts(batchocr.process(uri, **options)) == expected(uri, rows)
    doc_id = hashlib.sha256((folder / "a.pdf").read_bytes()).hexdigest()
    for root, source in (("", f"{uri}/a.pdf"), ("s3://bucket/in", f"{container}/a.pdf")):
        with SourceFiles([root], Config(dpi=72, work_dir=work_dir)) as files:
            assert isinstance(files.find(source, doc_id), SourceFile)


def test_of_a_large_zip_in_a_store_only_what_is_read_is_fetched(folder: Path, store: ObjectStore) -> None:
    with zipfile.ZipFile("x.zip", "w") as archive:
        archive.write(folder / "a.pdf", "a.pdf")
        archive.writestr("large.bin", os.urandom(20_000_000))
        archive.write(folder / "c.png", "c.png")
    store.put("bucket", {"x.zip": Path("x.zip").read_bytes()})
    found = find_documents(["s3://bucket/x.zip"]).documents
    copy = io.BytesIO()
    store.forget()
    Containers().copy(found[1].path, copy, timeout_s=10)
    assert copy.getvalue() == (folder / "c.png").read_bytes()
    assert [method for method, _, _ in store.requests].count("GET") == 1
    assert store.fetched.total() < len(copy.getvalue()) + 1000


@pytest.mark.parametrize("container", [long("x.zip"), "x.parquet", long("x.tar.gz")])
def test_a_page_from_an_archive_is_drawn_again(
    container: str, folder: Path, current: Path, work_dir: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    MAKERS[container](folder, container, NAMES)
    monkeypatch.chdir(folder)
    doc_id = hashlib.sha256((folder / "b" / "two pages.pdf").read_bytes()).hexdigest()
    source = f"{container}/b/two pages.pdf"
    with SourceFiles([str(current)], Config(dpi=72, work_dir=work_dir)) as files:
        file = files.find(source, doc_id)
        assert isinstance(file, SourceFile), file
        row = PageResult(source, 1, "ok", doc_id, width=150, height=200)
        assert isinstance(files.page_image(file, row), Image.Image)
        (current / "moved").mkdir()
        moved = str(shutil.copy(current / container, current / "moved"))
        with SourceFiles([moved], Config(dpi=72, work_dir=work_dir)) as named:
            assert isinstance(named.find(f"elsewhere/{source}", doc_id), SourceFile)
        monkeypatch.setattr(source_files, "list_within", raising(AssertionError("it is listed once")))
        assert isinstance(files.find(f"{container}/a.pdf", "other"), Failure)
        assert isinstance(files.find(f"{current}/{container}/b/broken.pdf", None), Failure)


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param("", marks=pytest.mark.long, id="Python"),
        pytest.param("from batchocr.cli.signals import leave; leave(0)", id="command"),
    ],
)
def test_a_compressed_tar_is_unpacked_once_and_that_is_removed_at_the_end(ending: str, folder: Path) -> None:
    make_tar(folder, "x.tar.gz", NAMES)
    program = Path("program.py")
    program.write_text(
        "from pathlib import Path\n"
        "from batchocr.config import Config\n"
        "from batchocr.pages.input.sources import find_documents\n"
        "from batchocr.processes.messages import Setup\n"
        "open('bad.tar.gz', 'w').write('no')\n"
        "setup = Setup.of(Config(work_dir='work'))\n"
        "print(find_documents(['x.tar.gz', 'bad.tar.gz'], setup=setup).documents[-1].problem)\n"
        "for _ in range(2):\n"
        "    find_documents(['x.tar.gz'], setup=setup)\n"
        "    print([(path.name, path.stat().st_ino) for path in Path('work').glob('*/*.tar')])\n"
        f"{ending}\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60, check=True)
    bad, first, second = done.stdout.splitlines()
    assert "Not a gzipped file" in bad
    assert first == second
    assert ".tar'" in first
    assert os.listdir("work") == []


def whole_list(listing: Containers, path: str) -> list[str]:
    """The names of the documents in a file."""
    listed = listing.list(ListMembers(1, path))
    while not listed.is_last:
        listed = listing.list(ListMembers(1, path, goes_on=True))
    return [member.name for member in listed.members]


LISTING = """
import os, signal, sys
from batchocr.config import Config
from batchocr.pages.input.sources import find_documents
from batchocr.processes.messages import Setup
ending, *inputs = sys.argv[1:]
find_documents(inputs, setup=Setup.of(Config(work_dir="work")))
print("listed", flush=True)
if ending == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
sys.stdin.read()
"""
"""A run that has listed a tar, and then is killed or goes on until its standard input ends."""


def listed_in_another_process(ending: str, *inputs: str) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", LISTING, ending, *(inputs or ["x.tar.gz"])]
    other = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "listed\n"
    return other


def unpacked_tars() -> dict[int, Path]:
    """The tars that are unpacked below `work`, by their inodes."""
    return {path.stat().st_ino: path for path in Path("work").glob("*/*.tar")}


def test_a_run_leaves_alone_what_another_that_is_at_work_has_unpacked(folder: Path) -> None:
    make_tar(folder, "x.tar.gz", NAMES)
    with listed_in_another_process("at work") as other:
        [before] = unpacked_tars().items()
        with listed_in_another_process("at work") as beside:
            assert len(unpacked_tars()) == 2
            beside.communicate("")
        assert list(unpacked_tars().items()) == [before]
        other.communicate("")
    assert os.listdir("work") == []


def test_what_a_killed_run_has_unpacked_is_taken_over_and_what_else_it_left_is_deleted(folder: Path) -> None:
    make_tar(folder, "x.tar.gz", NAMES)
    listed_in_another_process("killed").communicate()
    [(inode, left)] = unpacked_tars().items()
    (left.parent / f"{'0' * 32}.tar.part").write_bytes(b"not all of it")
    with listed_in_another_process("at work") as other:
        assert list(unpacked_tars()) == [inode]
        assert len(os.listdir("work")) == 1
        other.communicate("")


@pytest.mark.long
def test_all_tars_that_a_killed_run_has_unpacked_are_taken_over(folder: Path) -> None:
    for path in ("x.tar.gz", "other.tar.gz"):
        make_tar(folder, path, NAMES)
    listed_in_another_process("killed", "x.tar.gz", "other.tar.gz").communicate()
    inodes = unpacked_tars().keys()
    assert len(inodes) == 2
    with listed_in_another_process("at work", "other.tar.gz") as other:
        assert unpacked_tars().keys() == inodes
        other.communicate("")


def test_a_tar_that_cannot_be_unpacked_leaves_nothing_behind() -> None:
    Path("x.tar.gz").write_bytes(b"no")
    with listed_in_another_process("at work", "x.tar.gz", str(Path(__file__))) as other:
        other.communicate("")
    assert os.listdir("work") == []


def test_what_a_killed_run_has_unpacked_in_part_is_unpacked_anew(folder: Path) -> None:
    make_tar(folder, "x.tar.gz", NAMES)
    listed_in_another_process("killed").communicate()
    [(inode, left)] = unpacked_tars().items()
    left.rename(left.with_name(f"{left.name}.part")).write_bytes(b"not all of it")
    with listed_in_another_process("at work") as other:
        assert inode not in unpacked_tars()
        other.communicate("")


@pytest.mark.parametrize("mine", ["notes.txt", "book.tar", f"{'0' * 32}.tar"])
def test_a_folder_of_the_user_that_is_called_alike_stays_as_it_is(folder: Path, mine: str) -> None:
    make_tar(folder, "x.tar.gz", NAMES)
    for name in ("book.tar", "sub/page.tar", mine):
        Path("work/unpacked-mine", name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        Path("work/unpacked-mine", name).touch()
    Path("work/unpacked-other", f"{'0' * 32}.tar").mkdir(mode=0o700, parents=True)
    Path("work/unpacked-other/lock").touch()
    before = sorted(Path("work").rglob("*"))
    with listed_in_another_process("at work") as other:
        other.communicate("")
    assert sorted(Path("work").rglob("*")) == before


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_nothing_is_taken_over_that_others_may_have_made(folder: Path, mode: int) -> None:
    """A tar under the name that a run would give it, in a folder that is open to others, or behind a link."""
    make_tar(folder, "x.tar.gz", NAMES)
    listed_in_another_process("killed").communicate()
    [left] = unpacked_tars().values()
    made = left.parent.rename(left.parents[1] / "unpacked-by another")
    for tar in made.glob("*.tar"):
        tar.write_bytes(b"forged")
    made.chmod(mode)
    Path("work/unpacked-link").symlink_to(made, target_is_directory=True)
    listing = Containers(replace(Setup.of(Config(work_dir="work")), folder_name="unpacked-own"))
    assert whole_list(listing, "x.tar.gz") == list(NAMES)
    assert sorted(os.listdir("work")) == ["unpacked-by another", "unpacked-link", "unpacked-own"]


def test_where_no_folder_can_be_kept_from_others_a_tar_is_unpacked_among_temporary_files(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a file system has neither owners nor modes."""
    make_tar(folder, "x.tar.gz", NAMES)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(unpacked, "is_private", lambda path: "work" not in path.parts)
    assert whole_list(
        Containers(replace(Setup.of(Config(work_dir="work")), folder_name="unpacked-own")), "x.tar.gz"
    ) == list(NAMES)
    assert os.listdir("work") == []
    assert len(list(tmp_path.glob("temporary/unpacked-own/*.tar"))) == 1


def test_a_compressed_tar_without_room_or_an_end_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tar(folder, "x.tar.gz", NAMES)
    listing = Containers(Setup.of(Config(work_dir="work")))
    with monkeypatch.context() as patched, pytest.raises(TooLargeError, match="--work-dir"):
        patched.setattr(containers, "_LEAST_FREE_BYTES", 1 << 60)
        listing.list(ListMembers(1, "x.tar.gz"))
        listing.list(ListMembers(1, "x.tar.gz", goes_on=True))
    Path("x.tar.gz").write_bytes(Path("x.tar.gz").read_bytes()[:-50])
    with pytest.raises(DamagedError):
        for goes_on in (False, True, True):
            listing.list(ListMembers(1, "x.tar.gz", goes_on=goes_on))


def test_where_a_compressed_tar_cannot_be_unpacked_is_said(folder: Path) -> None:
    make_tar(folder, "x.tar.gz", NAMES)
    Path("file").touch()
    found = find_documents(["x.tar.gz", str(folder / "a.pdf")], setup=Setup.of(Config(work_dir="file"))).documents[0]
    assert found.problem is not None
    assert found.problem.message.startswith("it cannot be unpacked into file ")
    assert found.problem.message.endswith("(Not a directory): --work-dir names another place")


def test_archives_are_found_by_their_names_and_in_folders_only_counted(folder: Path) -> None:
    make_zip(folder, "one.zip", ("a.pdf",))
    make_zip(folder, "TWO.CBZ", ("c.png",))
    make("d/scan.pdf", "d/three.zip")
    Path("list.txt").write_text("TWO.CBZ\n")
    assert sources("*.zip", "@list.txt", "one.zip") == ["one.zip/a.pdf", "TWO.CBZ/c.png"]
    found = find_documents(["d"])
    assert ([document.source for document in found.documents], found.skipped) == (["scan.pdf"], {".zip": 1})


def test_two_members_of_a_name_have_names_of_their_own() -> None:
    with tarfile.open("x.tar", "w") as archive:
        for name in ("a.pdf", "./a.pdf", "a.pdf", "a.pdf (2)"):
            archive.addfile(tarfile.TarInfo(name if name != "a.pdf (2)" else "a.pdf (2)/b.pdf"))
    assert sources("x.tar") == ["x.tar/a.pdf", "x.tar/a.pdf (1)", "x.tar/a.pdf (2)", "x.tar/a.pdf (2)/b.pdf"]


def test_an_archive_and_a_folder_of_its_name_are_refused(folder: Path) -> None:
    make("d/x.zip/a.pdf")
    make_zip(folder, "x.zip", ("a.pdf",))
    with pytest.raises(UsageError, match="rename one"):
        find_documents(["d", "x.zip"])


def test_a_place_in_a_table_with_nothing_in_it_is_skipped_and_not_failed(folder: Path, options: dict[str, Any]) -> None:
    pq.write_table(pa.table({"pdf": [(folder / "a.pdf").read_bytes(), None]}), "x.parquet")
    report = batchocr.run("x.parquet", out="out.parquet", **(options | {"max_page_error_rate": 0}))
    assert (report.exit_code, report.items.skipped, report.items.failed) == (0, 1, 0)
    row = read_rows(Path("out.parquet"))[1]
    assert (row.source, row.status, row.error_kind) == ("x.parquet/1", "skipped", "absent")
    assert batchocr.run("x.parquet", out="out.parquet", **options).items.already_done == 2
    assert said_by("verify", "out.parquet", "x.parquet", "--max-degraded-rate", "1")[0] == 0


def test_a_table_that_has_nothing_in_any_place_is_not_read_well(options: dict[str, Any]) -> None:
    """As a column of Hugging Face's structs whose files lie elsewhere."""
    nowhere = pa.array([{"bytes": None, "path": "a.png"}], pa.struct({"bytes": pa.binary(), "path": pa.string()}))
    pq.write_table(pa.table({"image": nowhere}), "x.parquet")
    report = batchocr.run("x.parquet", out="out.parquet", **options)
    assert (report.exit_code, report.exceeded) == (3, ["nothing was read: 1 row skipped, and no other"])
    assert said_by("verify", "out.parquet", "x.parquet")[0] == 3
    pq.write_table(pa.table({"pdf": [None, None, b"no PDF"]}), "x.parquet")
    rates = {"max_page_error_rate": 0.9}
    assert batchocr.run("x.parquet", out="other.parquet", **options | rates).exit_code == 3  # of the one that there is


def test_what_cannot_be_listed_is_a_row_of_the_archive_itself(folder: Path) -> None:
    make_tar(folder, "x.tar", NAMES)
    data = Path("x.tar").read_bytes()
    Path("x.tar").write_bytes(data[: data.index(b"b/broken.pdf") + 100])
    documents = find_documents(["x.tar"]).documents
    assert [document.source for document in documents] == ["x.tar/a.pdf", "x.tar/b/two pages.pdf", "x.tar"]
    assert [problem_kind(document) for document in documents] == [None, None, "damaged"]


def test_an_archive_that_cannot_be_listed_is_a_row_though_it_is_the_only_input(options: dict[str, Any]) -> None:
    Path("x.zip").write_bytes(b"no")
    assert batchocr.run("x.zip", out="out.parquet", **(options | {"max_page_error_rate": 0})).exit_code == 3
    assert [(row.source, row.error_kind) for row in read_rows(Path("out.parquet"))] == [("x.zip", "damaged")]


def test_an_archive_whose_worker_is_killed_is_listed_once_more(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_zip(folder, "x.zip", NAMES)
    make_zip(folder, "y.zip", NAMES)
    expected = sources("x.zip", "y.zip")
    killed: list[int] = []
    ended = WorkerPool.ended

    def kill_first(pool: WorkerPool, timeout_s: float) -> Iterator[tuple[Worker, Arrived | Loss]]:
        if not killed:
            killed.append(pool.workers[0].pid)
            os.kill(killed[0], signal.SIGKILL)  # it has just been started, and given something to do
        return ended(pool, timeout_s)

    monkeypatch.setattr(WorkerPool, "ended", kill_first)
    assert sources("x.zip", "y.zip") == expected
    assert killed


def test_an_archive_that_holds_no_document_is_no_input(caplog: pytest.LogCaptureFixture) -> None:
    with zipfile.ZipFile("x.zip", "w") as archive:
        archive.writestr("notes.txt", "")
    with caplog.at_level("INFO"), pytest.raises(NoInputError, match=r"1 \.txt"):
        find_documents(["x.zip"])
    assert "x.zip holds no document" in caplog.text


def test_an_archive_that_changes_while_it_is_read_is_said_to_have_changed(
    folder: Path, options: dict[str, Any]
) -> None:
    make_zip(folder, "x.zip", ("a.pdf",))
    rows = batchocr.process("x.zip", **options)
    os.utime("x.zip", ns=(0, 0))
    assert [(row.status, row.error_kind) for row in rows] == [("failed", "changed")]
