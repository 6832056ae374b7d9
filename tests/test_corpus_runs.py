"""The corpus through the command: every file ends as it opens, and nothing ends the run or outlives it."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from running import make_quick_model, read_rows, run_command
from test_corpus_opens import BETTER, Outcome


@dataclass(frozen=True)
class Ended:
    exit_code: int
    outcomes: dict[str, Outcome]
    report: dict[str, object]
    processes_left: list[psutil.Process]


@pytest.fixture(scope="module", params=["images", "hostile"])
def part(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def ended(part: str, corpus: Path, sample_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    folder = tmp_path_factory.mktemp(part)
    model, out = make_quick_model(sample_data, folder / "model"), folder / "table.jsonl"
    done = run_command(corpus / part, "--out", out, "--model", model, "--max-new-tokens", "64")
    assert out.exists(), done.stderr
    left = [process for process in psutil.process_iter(["cmdline"]) if str(out) in (process.info["cmdline"] or [])]
    report = json.loads(Path(f"{out}.report.json").read_text())
    return Ended(done.returncode, outcomes_in(out, part), report, [*left, *psutil.Process().children()])


def outcomes_in(out: Path, part: str) -> dict[str, Outcome]:
    """What the table says became of each file, as expected.json puts it."""
    outcomes: dict[str, Outcome] = {}
    failed: defaultdict[str, list[int]] = defaultdict(list)
    num_rows: defaultdict[str, int] = defaultdict(int)
    for row in read_rows(out):
        name = f"{part}/{row.source}"
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


def test_every_file_ends_as_expected(corpus: Path, part: str, ended: Ended) -> None:
    expected: dict[str, Outcome] = json.loads((corpus / "expected.json").read_text()) | BETTER
    assert ended.outcomes == {name: outcome for name, outcome in expected.items() if name.startswith(f"{part}/")}


def test_the_run_ends_with_its_ledger_in_order_and_says_that_files_failed(ended: Ended) -> None:
    assert ended.exit_code == 3
    assert ended.report["ledger_adds_up"]
    assert ended.report["complete"]


def test_no_process_is_left(ended: Ended) -> None:
    assert ended.processes_left == []
