"""The jobs in `recipes/benchmarks`: what is downloaded is read, exported under the names that the scorer looks for, and
scored. Downloads and scorers are stand-ins; olmOCR's and what it says of the sample model are in RESULTS.md."""

from __future__ import annotations

from typing import Any, cast

import pytest
import typer.main

from batchocr.cli.main import app
from batchocr.errors import ExitCode
from tests.support.recipes import Machine

NAMES = {"olmocr-bench": "{stem}_pg{page}_repeat1.md", "omnidocbench": "{stem}.md"}
SCORED = {"olmocr-bench": "olmocr.bench.benchmark --dir", "omnidocbench": "pdf_validation.py --config batchocr.yaml"}
NOTE = 'printf "%s %s\\n" "${0##*/}" "$*" >> '


def done_with(machine: Machine, name: str, code: int) -> tuple[int, list[str]]:
    """The exit code of the recipe if reading ends with this one, and the commands that it has run."""
    note = f"{NOTE}{machine.root}/calls"
    for command in ("hf", "git"):
        machine.install(command, f'{note}; for to; do :; done; mkdir -p "$to"')
    made = 'for name in pip playwright python; do cp "$0" "$3/bin/$name"; done'
    for python in ("python3", "python3.10"):
        machine.install(python, f'{note}; case $2 in venv) mkdir -p "$3/bin"; {made} ;; esac')
    (machine.root / "data" / "olmocr-bench" / "bench_data").mkdir(parents=True)  # left by a download that was cut off
    machine.install("batchocr", f'{note}; [ "$1" = run ] && exit {code}; exit 0')
    path = machine.root / "read.sh"
    path.write_text(machine.prepared(f"benchmarks/{name}.sh"))
    done = machine.run(["bash", "-u", str(path)])
    return done.returncode, (machine.root / "calls").read_text().splitlines()


@pytest.mark.parametrize("code", [ExitCode.DONE, ExitCode.TOO_MANY_FAILURES])
@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_is_downloaded_read_exported_and_scored(machine: Machine, name: str, code: int) -> None:
    exit_code, calls = done_with(machine, name, code)
    assert exit_code == code, calls
    commands = cast(Any, typer.main.get_command(app)).commands
    ours = [call.split()[1:] for call in calls if call.startswith("batchocr ")]
    (_, run), (_, export) = [(asked, commands[asked].make_context(asked, rest).params) for asked, *rest in ours]
    assert calls[0].startswith("hf download ")
    assert export["table"] == run["out"]
    assert (export["formats"], export["page_names"]) == ("pages", NAMES[name])
    assert SCORED[name] in calls[-1]
    assert str(machine.root) in export["to"]


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_that_was_not_read_is_not_scored(machine: Machine, name: str) -> None:
    exit_code, calls = done_with(machine, name, ExitCode.STOPPED)
    assert exit_code != 0
    assert calls[-1].startswith("batchocr run ")
