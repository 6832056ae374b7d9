"""A run that turns out to have no page to read starts no engine, and one that has starts it then, and not before."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from batchocr.config import Config, DType
from batchocr.job.session import Session
from batchocr.processes.engine_messages import DeviceFound
from batchocr.processes.engines import EngineProcess, Engines
from batchocr.tables.journal import Journal
from tests.support.documents import block, rows_of
from tests.support.running import QUICK_MODEL, draw_pdf, journal, raising, read_rows, said_by
from tests.support.tables import put_table

GPU = DeviceFound("cuda:0", ("cuda:0",), "cuda", 15 << 30, name="Tesla T4, sm_75", without_bfloat16=("cuda:0",))


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    folder = tmp_path / "documents"
    folder.mkdir()
    draw_pdf(folder / "a.pdf", "one", "two")
    return folder


@pytest.fixture
def without_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EngineProcess, "__init__", raising(AssertionError("an engine was started")))


def begun(documents: Path, kept_in: str, dtype: DType = "float32", num_pages: int = 2) -> Path:
    """What a run left that has read so many of the two pages: a journal or, if it was finished, a table."""
    out = documents.parent / ("table.jsonl" if kept_in == "lines" else "table.parquet")
    with closing(Session(Config(model=str(QUICK_MODEL), device="cpu", dtype=dtype))) as session:
        metadata = session.metadata
    rows = rows_of(documents / "a.pdf", "a.pdf", [block("text", "One")], [block("text", "Two")])[:num_pages]
    if kept_in == "journal":
        file = (documents / "a.pdf").stat()
        with Journal.open(out, metadata, resume=True, overwrite=False) as kept:
            for row in rows:
                kept.append(replace(row, file_bytes=file.st_size, file_mtime_ns=file.st_mtime_ns))
    else:
        put_table(out, rows, metadata)
    return out


def run(documents: Path, out: Path, *flags: str) -> tuple[int, str]:
    """The exit code of the command, and what it logged."""
    model = () if "--model" in flags else ("--model", QUICK_MODEL)
    code, _, log = said_by("run", documents, "--out", out, "--workers", "1", *model, *flags)
    return code, log


KEPT_IN = pytest.mark.parametrize("kept_in", ["journal", "table", "lines"])


@KEPT_IN
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.usefixtures("without_engines")
def test_a_run_with_nothing_to_do_starts_no_engine_whatever_its_rows_were_begun_in(
    documents: Path, kept_in: str, dtype: DType
) -> None:
    out = begun(documents, kept_in, dtype)
    code, log = run(documents, out)
    assert code == 0, log
    assert "nothing to do, all 2 rows are done" in log
    assert [row.blocks[0].content for row in read_rows(out)] == ["One", "Two"]
    settings = json.loads(out.with_name(f"{out.name}.report.json").read_text())["settings"]
    of_engines = ("device", "backend", "vit_batch_size", "llm_batch_size", "pages_in_flight")
    assert [settings[name] for name in of_engines] == [None] * len(of_engines)
    assert settings["dtype"] == dtype


@pytest.mark.usefixtures("without_engines")
def test_a_gpu_that_is_not_there_is_not_missed_where_nothing_is_to_be_done(documents: Path) -> None:
    code, log = run(documents, begun(documents, "table"), "--device", "cuda")
    assert code == 0, log


@pytest.mark.usefixtures("without_engines")
def test_a_run_whose_model_is_not_there_starts_no_engine(documents: Path, tmp_path: Path) -> None:
    code, log = run(documents, tmp_path / "table.parquet", "--model", str(tmp_path / "no-model"))
    assert code == 5, log
    assert str(tmp_path / "no-model") in log


@pytest.mark.usefixtures("without_engines")
def test_a_share_without_a_document_starts_no_engine(documents: Path, tmp_path: Path) -> None:
    """The others: that of the share with the document is started at once, while the workers start."""
    flags = ("--dtype", "float32", "--shard")
    logs = [run(documents, tmp_path / f"{index}.parquet", *flags, f"{index}/3")[1] for index in (1, 2, 3)]
    assert sum("an engine was started" in log for log in logs) == 1


@KEPT_IN
def test_an_engine_is_started_once_there_is_a_row_to_read(
    documents: Path, kept_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Path] = []
    out = begun(documents, kept_in)

    def start(*_: object, **__: object) -> None:
        seen.extend(out.parent.glob("*.journal"))
        raise OSError("no more")

    monkeypatch.setattr(EngineProcess, "__init__", start)
    draw_pdf(documents / "b.pdf", "three")
    code, log = run(documents, out)
    assert code == 1, log
    assert "an engine process cannot be started: no more" in log
    assert seen == [journal(out)], "the output was opened first"


@KEPT_IN
def test_a_device_without_the_data_type_of_the_rows_is_refused_once_there_is_one_to_read(
    documents: Path, kept_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[DeviceFound] = []

    def open_gpu(engines: Engines) -> DeviceFound:
        looked.append(GPU)
        engines.devices = GPU.alike
        return GPU

    monkeypatch.setattr(Engines, "open", open_gpu)
    monkeypatch.setattr(Engines, "load", raising(AssertionError("the model was loaded")))
    out = begun(documents, kept_in, "bfloat16")
    assert run(documents, out)[0] == 0
    assert looked == []
    draw_pdf(documents / "b.pdf", "three")
    before = out.read_bytes()
    code, log = run(documents, out)
    assert code == 6, log
    assert "the output was begun in bfloat16, and Tesla T4, sm_75 has no units for it" in log
    assert (looked, out.read_bytes()) == ([GPU], before)


RUN = """
import json, sys

started = []

def note(event, arguments):
    if event == "subprocess.Popen":
        started.append([str(argument) for argument in arguments[1]])

sys.addaudithook(note)
from batchocr.cli.main import run_app

code = run_app("text")
print(json.dumps([code, [command[3] for command in started], *({"torch", "obstore"} & sys.modules.keys())]))
"""


@pytest.mark.slow
def test_a_real_run_with_nothing_to_do_starts_only_its_workers_and_loads_neither_torch_nor_obstore(
    documents: Path,
) -> None:
    out = begun(documents, "table", "bfloat16")
    flags = ("--out", out, "--model", QUICK_MODEL, "--workers", "1")
    command = [sys.executable, "-P", "-c", RUN, "run", documents, *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert json.loads(done.stdout) == [0, ["batchocr.pages"]], done.stderr
