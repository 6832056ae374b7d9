"""The command from documents to a table, with the quick model: interrupted, resumed, finished, and refused."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from tests.support import running
from tests.support.running import make_quick_model

pytestmark = pytest.mark.slow

DOCUMENTS = ("article.pdf", "encrypted.pdf")
"""2 + 1 pages."""


@dataclass(frozen=True)
class Runs:
    """Three runs into one output. read_before: rows in the journal that the first one left behind."""

    out: Path
    model: Path
    interrupted: int
    finished: int
    with_a_broken_one: int
    read_before: int
    table_before_the_end: bool
    report_when_finished: dict[str, object]


def command(sample_data: Path, model: Path, out: Path, documents: tuple[str, ...], *arguments: str) -> list[str | Path]:
    paths = [str(sample_data / "documents" / name) for name in documents]
    options = ("--model", str(model), "--password", "batchocr", "--dpi", "72")
    return running.command(*paths, "--out", out, *options, *arguments)


def exit_code(command: list[str | Path]) -> int:
    return subprocess.run(command, capture_output=True, timeout=120).returncode


def interrupted_at_work(command: list[str | Path]) -> int:
    """The exit code of the command, interrupted with Ctrl-C once it has begun to read pages."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while not re.search("opening the documents|pages", line := process.stderr.readline()):
            assert line, "it ended before it began to read pages"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    return process.returncode


@pytest.fixture(scope="module")
def runs(sample_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    out = tmp_path_factory.mktemp("runs") / "table.parquet"
    journal = out.with_name(out.name + ".journal")
    model = make_quick_model(tmp_path_factory.mktemp("model") / "quick")
    interrupted = interrupted_at_work(command(sample_data, model, out, DOCUMENTS, "--pages-in-flight", "1"))
    # A run that is stopped before its first row is finished leaves no journal.
    read_before = len(journal.read_text().splitlines()) - 1 if journal.exists() else 0
    table_before_the_end = out.exists()
    finished = exit_code(command(sample_data, model, out, DOCUMENTS))
    report = json.loads(out.with_name(out.name + ".report.json").read_text())
    with_a_broken_one = exit_code(command(sample_data, model, out, (*DOCUMENTS, "broken.pdf")))
    return Runs(out, model, interrupted, finished, with_a_broken_one, read_before, table_before_the_end, report)


def test_ctrl_c_ends_with_130_before_there_is_a_table(runs: Runs) -> None:
    assert runs.interrupted == 130
    assert not runs.table_before_the_end


def test_the_same_command_again_goes_on_to_the_end_and_reads_nothing_twice(runs: Runs) -> None:
    assert runs.finished == 0
    report = runs.report_when_finished
    assert report["pages_read"] == 3 - runs.read_before
    assert report["items"] == {
        "found": 3,
        "ok": 3,
        "degraded": 0,
        "failed": 0,
        "skipped": 0,
        "not_reached": 0,
        "already_done": runs.read_before,
    }


def test_a_failed_document_is_a_row_and_exit_code_3(runs: Runs) -> None:
    assert runs.with_a_broken_one == 3
    *_, last = pq.read_table(runs.out).to_pylist()
    assert (last["page_index"], last["status"], last["error_kind"]) == (None, "failed", "damaged")


def test_pyarrow_and_duckdb_read_the_same_rows_in_input_order(runs: Runs) -> None:
    rows = [(row["source"].split("/")[-1], row["page_index"]) for row in pq.read_table(runs.out).to_pylist()]
    pages = [("article.pdf", 0), ("article.pdf", 1), ("encrypted.pdf", 0)]
    assert rows == [*pages, ("broken.pdf", None)]
    query = f"select regexp_extract(source, '[^/]*$'), page_index from '{runs.out}' where len(blocks) > 0"
    assert duckdb.sql(query).fetchall() == pages


def test_an_output_of_other_settings_is_exit_code_6_and_stays_as_it_is(sample_data: Path, runs: Runs) -> None:
    before = runs.out.read_bytes()
    assert exit_code(command(sample_data, runs.model, runs.out, DOCUMENTS, "--max-new-tokens", "7")) == 6
    assert runs.out.read_bytes() == before
