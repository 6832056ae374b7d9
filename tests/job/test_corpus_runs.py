"""The corpus through the command: every file has its expected outcome, and nothing ends the run or outlives it."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.support.corpus import Outcome, expected_outcomes
from tests.support.running import children, read_rows, run_command

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Ended:
    exit_code: int
    outcomes: dict[str, Outcome]
    report: dict[str, object]
    events: list[dict[str, object]]
    seconds: float
    files_left: set[str]
    processes_left: list[psutil.Process]


PARTS = ("images", "hostile")


@pytest.fixture(scope="module")
def ended(model: Path, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    folder = tmp_path_factory.mktemp("corpus")
    out = folder / "table.jsonl"
    options = ("--model", model, "--max-new-tokens", "64", "--page-timeout", "2", "--log-format", "json")
    started_s = time.monotonic()
    done = run_command(*(corpus / part for part in PARTS), "--out", out, *options)
    seconds = time.monotonic() - started_s
    assert out.exists(), done.stderr
    left = [process for process in psutil.process_iter(["cmdline"]) if str(out) in (process.info["cmdline"] or [])]
    report = json.loads(Path(f"{out}.report.json").read_text())
    events = [json.loads(line) for line in done.stderr.splitlines()]
    files = {path.name for path in folder.iterdir()}
    processes = [*left, *children()]
    return Ended(done.returncode, outcomes_in(out, corpus), report, events, seconds, files, processes)


def outcomes_in(out: Path, corpus: Path) -> dict[str, Outcome]:
    """The outcome of each file according to the table, in the form of expected.json."""
    outcomes: dict[str, Outcome] = {}
    failed: defaultdict[str, list[int]] = defaultdict(list)
    num_rows: defaultdict[str, int] = defaultdict(int)
    for row in read_rows(out):
        name = name_of(row.source, corpus)
        if row.page_index is None:
            outcomes[name] = {"document": row.error_kind} if row.status == "failed" else {"pages": row.page_count}
            continue
        assert row.page_index == num_rows[name]
        num_rows[name] += 1
        if row.status == "failed":
            failed[name].append(row.page_index)
    for name, count in num_rows.items():
        outcomes[name] = {"pages": count} | ({"failed": failed[name]} if name in failed else {})
    return outcomes


def name_of(source: str, corpus: Path) -> str:
    """The name in the corpus of the file with this source, which is its path where both parts have one of its name."""
    paths = [corpus / source, *(corpus / part / source for part in PARTS)]
    return str(next(path for path in paths if path.exists()).relative_to(corpus))


def test_every_file_ends_as_expected_unless_it_takes_too_long(corpus: Path, ended: Ended) -> None:
    expected = expected_outcomes(corpus)
    assert ended.outcomes.keys() == {name for name in expected if name.startswith(PARTS)}
    late = {name_of(str(entry["source"]), corpus) for entry in failures(ended) if entry["error_kind"] == "timeout"}
    assert len(late) < len(ended.outcomes) // 10
    for name in ended.outcomes.keys() - late:
        assert ended.outcomes[name] == expected[name], name


def failures(ended: Ended) -> list[dict[str, object]]:
    return [entry for entry in ended.events if entry["event"] == "page_failed"]


def test_every_failure_has_one_line_in_the_log(ended: Ended) -> None:
    items = ended.report["items"]
    assert isinstance(items, dict)
    assert len(failures(ended)) == items["failed"]
    assert [ended.events[0]["event"], ended.events[-1]["event"]] == ["run_started", "run_finished"]


def test_the_wall_time_is_bounded_by_the_page_timeout(ended: Ended) -> None:
    assert ended.seconds < 30 + 2 * len(ended.outcomes)


def test_the_run_ends_with_its_ledger_in_order_and_says_that_files_failed(ended: Ended) -> None:
    assert ended.exit_code == 3
    assert ended.report["ledger_adds_up"]
    assert ended.report["complete"]


def test_nothing_is_left_but_the_table_and_its_report(ended: Ended) -> None:
    assert ended.processes_left == []
    assert ended.files_left == {"table.jsonl" + suffix for suffix in ("", ".meta.json", ".report.json")}
