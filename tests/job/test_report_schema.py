"""The report and the log's events of real runs are as the schemas in docs/ say."""

from __future__ import annotations

import json
import platform
from datetime import datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.conftest import ROOT
from tests.support.running import draw_pdf, read_rows, run_command

pytestmark = pytest.mark.slow


def valid(document: Any, schema: str) -> Any:
    jsonschema.validate(document, json.loads((ROOT / "docs" / schema).read_text(encoding="utf-8")))
    return document


def test_a_run_says_what_it_was_in_its_report_and_its_log_as_the_schemas_say(model: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    draw_pdf(tmp_path / "in" / "a.pdf", "one", "two")
    (tmp_path / "in" / "b.pdf").write_bytes(b"%PDF-1.7 nothing")
    out = tmp_path / "table.parquet"
    flags = ("--dpi", "72", "--max-page-error-rate", "1", "--max-degraded-rate", "1", "--password", "secret")
    done = run_command("in", "-o", out, "--model", model, *flags, "--log-format", "json", cwd=tmp_path)
    assert done.returncode == 0
    lines = [valid(json.loads(line), "events.schema.json") for line in done.stderr.splitlines()]
    assert {"run_started", "progress", "page_failed", "run_finished"} <= {line["event"] for line in lines}
    assert all(line["seconds_left"] is None for line in lines if line["event"] == "progress")
    report = valid(json.loads(Path(f"{out}.report.json").read_text()), "report.schema.json")
    assert valid(lines[-1]["report"], "report.schema.json") == report
    assert (report["table"], report["rows"], report["bytes"]) == (str(out), len(read_rows(out)), out.stat().st_size)
    assert (report["host"], report["inputs"]) == (platform.node(), ["in"])
    assert report["options"] == {"dpi": 72, "max_page_error_rate": 1.0, "max_degraded_rate": 1.0, "model": str(model)}
    took = datetime.fromisoformat(report["ended"]) - datetime.fromisoformat(report["started"])
    assert report["wall_seconds"] - 2 <= took.total_seconds() <= report["wall_seconds"] + 10
    assert report["ended"].endswith("+00:00")


@pytest.mark.long
def test_a_run_that_fails_has_a_report_as_the_schema_says(model: Path, tmp_path: Path) -> None:
    draw_pdf(tmp_path / "a.pdf", "one")
    (tmp_path / "model").mkdir()
    done = run_command("a.pdf", "-o", "t.jsonl", "--model", "model", "--log-format", "json", cwd=tmp_path)
    assert done.returncode == 5
    assert [valid(json.loads(line), "events.schema.json")["event"] for line in done.stderr.splitlines()] == [
        "run_failed"
    ]
