"""The command killed and stopped again and again, at seeded random moments: nothing lost, nothing done twice.

BATCHOCR_FULL=1 interrupts a job of 60 pages 20 times with each signal, and kills 20 of its engines and workers.
"""

from __future__ import annotations

import itertools
import json
import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from batchocr.errors import OutputError
from tests.support.jobs import FULL, PAGES_IN_FLIGHT, Job, make_job, started, wait_for_rows
from tests.support.process_template import PAGES_BEGUN
from tests.support.running import (
    children,
    engines_of,
    eventually,
    is_alive,
    journal,
    num_rows,
    read_rows,
    texts,
    workers_of,
)

pytestmark = pytest.mark.slow

NUM_PAGES = 60 if FULL else 12
EXIT_CODES = {signal.SIGKILL: -9, signal.SIGTERM: 75, signal.SIGINT: 130}
EXIT_REASONS = {signal.SIGTERM: "stopped", signal.SIGINT: "interrupted"}
NUM_INTERRUPTIONS = dict.fromkeys(EXIT_CODES, 20) if FULL else {signal.SIGKILL: 1}
NUM_KILLS = 20 if FULL else 3


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return make_job(tmp_path_factory.mktemp("job"), NUM_PAGES)


@pytest.fixture
def num_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many pages the workers of all runs have begun."""
    lines = tmp_path / "pages begun"
    lines.touch()
    monkeypatch.setenv(PAGES_BEGUN, str(lines))
    return lambda: lines.read_bytes().count(b"\n")


@pytest.mark.parametrize("number", list(NUM_INTERRUPTIONS), ids=lambda number: number.name)
def test_a_run_interrupted_at_random_moments_ends_with_the_table_of_one_that_was_not(
    job: Job, tmp_path: Path, num_begun: Callable[[], int], number: signal.Signals
) -> None:
    out, dice = tmp_path / "table.parquet", random.Random(NUM_PAGES)
    moments = sorted(dice.sample(range(NUM_PAGES - 2 * PAGES_IN_FLIGHT), NUM_INTERRUPTIONS[number]))
    for moment in moments:
        # As a row is written or as a page is begun: the rest of a page's life is between the two.
        look = dice.choice([lambda: num_rows(out), num_begun])
        own_moment = max(moment, look())  # of this run's own work, not of what the last one finished as it stopped
        if own_moment > max(moments):
            break
        Path(f"{out}.report.json").unlink(missing_ok=True)
        with started(job, out) as process:
            eventually(lambda look=look, after=own_moment: process.poll() is not None or look() > after)
            process.send_signal(number)
            said = process.communicate(timeout=120)[1]
        assert process.returncode == EXIT_CODES[number], said
        assert not out.exists()
        if number in EXIT_REASONS:
            require_honest_report(out, EXIT_REASONS[number])

    with journal(out).open("rb") as all_runs:
        report = job.run(out)
        assert len(all_runs.read().splitlines()[1:-1]) == NUM_PAGES, "a page was finished twice"
    assert texts(read_rows(out)) == texts(job.rows)
    assert (report.items.ok, report.items.found, report.complete) == (NUM_PAGES, NUM_PAGES, True)
    lost = len(moments) * PAGES_IN_FLIGHT if number == signal.SIGKILL else 0
    assert NUM_PAGES <= num_begun() <= NUM_PAGES + lost


@pytest.mark.long
def test_engines_and_workers_killed_at_random_moments_change_no_row(job: Job, tmp_path: Path) -> None:
    out, dice = tmp_path / "table.parquet", random.Random(NUM_PAGES)
    killed: list[psutil.Process] = []
    lost: Counter[str] = Counter()
    with started(job, out, "--device", "cpu,cpu") as process:
        run = psutil.Process(process.pid)
        find = {"engine": engines_of, "worker": workers_of}
        moments = sorted(dice.sample(range(NUM_PAGES - 2 * PAGES_IN_FLIGHT), NUM_KILLS))
        for moment, kind in zip(moments, itertools.cycle(find), strict=False):
            eventually(lambda moment=moment: process.poll() is not None or num_rows(out) > moment)
            living = eventually(lambda kind=kind: [each for each in find[kind](run) if each not in killed])
            killed.append(dice.choice(living))
            killed[-1].kill()
            lost[kind] += 1
        left = children(run)
        said = process.communicate(timeout=120)[1]
    assert process.returncode == 0, said
    assert texts(read_rows(out)) == texts(job.rows)
    report = json.loads(Path(f"{out}.report.json").read_text())
    assert (report["items"]["ok"], report["ledger_adds_up"]) == (NUM_PAGES, True)
    assert sum(engine["lost"] for engine in report["engines"]) == lost["engine"]
    assert left
    eventually(lambda: not any(is_alive(process) for process in [*killed, *left]))


def require_honest_report(out: Path, exit_reason: str) -> None:
    """The report of a run that was stopped counts what is done, what is left, and what it cannot count."""
    report = json.loads(Path(f"{out}.report.json").read_text())
    items = report["items"]
    assert (report["exit_reason"], report["ledger_adds_up"]) == (exit_reason, True)
    assert items["ok"] == report["pages_read"] + items["already_done"] <= num_rows(out)
    assert items["found"] == items["ok"] + items["not_reached"] <= NUM_PAGES
    assert items["not_reached"] or report["documents_not_opened"]


@pytest.mark.long
def test_a_second_ctrl_c_ends_at_once_and_the_run_can_go_on(job: Job, tmp_path: Path) -> None:
    out = tmp_path / "table.parquet"
    at_any_distance = "from batchocr.cli import signals; signals.SAME_KEYSTROKE_S = 0.0"
    with started(job, out, before=at_any_distance) as process:
        wait_for_rows(process, out, 2)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        while "Ctrl-C again to stop at once" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=120)[1]
    assert process.returncode == 130
    assert "stopped at once" in said
    assert not Path(f"{out}.report.json").exists(), "that was an orderly end"
    finished = num_rows(out)
    assert job.run(out).pages_read == NUM_PAGES - finished
    assert texts(read_rows(out)) == texts(job.rows)


def test_a_second_run_into_the_same_output_is_refused_while_the_first_lives_and_no_longer(
    job: Job, tmp_path: Path
) -> None:
    out = tmp_path / "table.parquet"
    with started(job, out) as first:
        wait_for_rows(first, out, 2)
        first.send_signal(signal.SIGSTOP)  # otherwise it might end first
        with pytest.raises(OutputError, match="another run is writing") as refused:
            job.run(out)
        assert refused.value.exit_code == 6
        first.kill()
    finished = num_rows(out)
    assert job.run(out).pages_read == NUM_PAGES - finished
    assert texts(read_rows(out)) == texts(job.rows)


@pytest.mark.long
def test_an_output_folder_that_is_removed_ends_the_run_with_a_sentence(job: Job, tmp_path: Path) -> None:
    out = tmp_path / "results" / "table.parquet"
    out.parent.mkdir()
    with started(job, out) as process:
        wait_for_rows(process, out, 2)
        shutil.rmtree(out.parent)
        said = process.communicate(timeout=120)[1]
    assert process.returncode == 6
    assert "was removed or replaced" in said or "No such file or directory" in said
    assert "Traceback" not in said
