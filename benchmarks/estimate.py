"""What `batchocr inspect` says about a run's time, against the run itself.

    python -m benchmarks.estimate sample_data/documents --model sample_data/model --password batchocr
    python -m benchmarks.estimate FOLDER --model tests/support/quick_model/checkpoint --like 20

The estimate is made just before the run, as other work on the machine changes both. With --like N it is made from the
report of a run that ends after N pages.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.record import ROOT, Record, benchmark_parser

TARGET = 1.5
"""The estimate should be within this factor of the run's time."""


def batchocr(*arguments: str) -> str:
    """What the command writes to standard output."""
    command = [sys.executable, "-m", "batchocr", *arguments]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


def run(given: argparse.Namespace, out: Path, *flags: str) -> dict[str, Any]:
    """The report of a run over the inputs."""
    batchocr("run", *given.inputs, *options(given), *flags, "--max-page-error-rate", "1", "-q", "--out", str(out))
    report: dict[str, Any] = json.loads(out.with_name(f"{out.name}.report.json").read_text())
    return report


def options(given: argparse.Namespace) -> list[str]:
    return ["--model", given.model, *(["--password", given.password] if given.password else [])]


def measure(record: Record, given: argparse.Namespace, folder: Path) -> None:
    how = []
    if given.like:
        run(given, folder / "first.parquet", "--limit", str(given.like))
        how = ["--like", str(folder / "first.parquet.report.json")]
    said = json.loads(batchocr("inspect", *given.inputs, *options(given), *how, "--json"))
    report = run(given, folder / "all.parquet")
    wall_s, estimate_s = report["wall_seconds"] - report["table_seconds"], said["estimate"]["seconds"]
    record.add(
        {
            "model": given.model,
            "basis": said["estimate"]["basis"],
            "pages": report["pages_read"],
            "patches a page": report["per_page"]["patches"],
            "estimated": said["per_page"]["patches"],
            "tokens a page": report["per_page"]["output_tokens"],
            "estimated tokens": said["per_page"]["output_tokens"],
            "run s": wall_s,
            "estimated s": estimate_s,
            "factor": estimate_s / wall_s,
        }
    )
    record.figure("factor", estimate_s / wall_s)
    record.note("within the target", max(estimate_s / wall_s, wall_s / estimate_s) <= TARGET)


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("inputs", nargs="+")
    parser.add_argument("--model", default="sample_data/model")
    parser.add_argument("--password")
    parser.add_argument("--like", type=int, default=0, metavar="N")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        measure(Record("estimate", given), given, Path(folder))


if __name__ == "__main__":
    main()
