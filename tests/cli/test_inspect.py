"""`batchocr inspect`: what it prints, what it reads, and what it does not load."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from PIL import Image

from batchocr.cli.inspect import _look, _time
from batchocr.config import Config
from batchocr.job.survey.estimate import Estimate
from batchocr.job.survey.survey import Survey
from batchocr.pages.input.sources import Found
from tests.conftest import ROOT
from tests.support.running import children, command, draw_pdf, eventually, is_alive, said_by

pytestmark = pytest.mark.slow

DOCUMENTS = str(ROOT / "sample_data" / "documents")
HOW = "--read N reads N pages to tell, --like REPORT takes the rate of an earlier run"


def inspected(*arguments: str | Path) -> tuple[list[str], dict[str, Any], str]:
    """The lines, the JSON, and what was logged with the lines."""
    code, out, log = said_by("inspect", *arguments)
    as_json, printed, _ = said_by("inspect", *arguments, "--json")
    assert (code, as_json) == (0, 0)
    return out.splitlines(), json.loads(printed), log


def line(lines: list[str], name: str) -> str:
    [found] = [line for line in lines if line.startswith(f"{name} ")]
    return found[12:]


def test_the_sample_documents_for_people() -> None:
    lines = said_by("inspect", DOCUMENTS, "--password", "batchocr")[1].splitlines()
    assert lines[:4] == [
        "files       6: 3 PDF, 1 PNG, 1 TIFF, 1 damaged",
        "pages       8",
        "page size   1653 × 2339 px (7), 1240 × 1755 px (1)",
        "text layer  on 50% of the pages",
    ]
    assert lines[4] == f"time        not known: {HOW}"
    assert lines[-1].startswith("damaged     broken.pdf: the document cannot be opened")


def test_as_json_and_without_loading_torch(tmp_path: Path) -> None:
    said = tmp_path / "said"
    command = (
        "import sys; from batchocr.cli import main; "
        f"main.leave = lambda code: open({str(said)!r}, 'w').write(f'{{code}} {{\"torch\" in sys.modules}}'); "
        f"sys.argv[1:] = ['inspect', {DOCUMENTS!r}, '--model', 'acme/nowhere', '--json']; main.run_command('json')"
    )
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, cwd=ROOT, check=True)
    printed = json.loads(done.stdout)
    assert said.read_text() == "0 False"
    assert (printed["documents"], printed["pages"], printed["problems"]) == (6, 7, {"encrypted": 1, "damaged": 1})
    assert (printed["pages_read"], printed["settings"], printed["estimate"], printed["remark"]) == (0, None, None, HOW)


def test_some_pages_are_read_and_the_whole_is_told_from_them(tmp_path: Path, model: Path) -> None:
    draw_pdf(tmp_path / "a.pdf", *"abcdefgh")
    Image.new("RGB", (40, 900), "white").save(tmp_path / "b.png")
    options = ("--model", model, "--dpi", "72", "--workers", "1", "--read", "3")
    lines, printed, log = inspected(tmp_path, *options)
    assert "3 of 3 pages" in log, "how far it is"
    assert line(lines, "read") == f"3 of 9 pages: with {model} (Qwen2-VL, such as MinerU2.5) in float32 on cpu"
    assert re.fullmatch(
        r"about \d+ s(, between \d+ s and \d+ s)?: \d+ s to start, then [\d.]+ pages/s", line(lines, "time")
    )
    assert line(lines, "bottleneck") and printed["bottleneck"]
    assert (printed["pages_read"], printed["pages_failed"], printed["settings"]["model"]) == (3, 0, str(model))
    estimate = printed["estimate"]
    assert (estimate["device"], estimate["basis"]) == ("cpu", "pages read")
    assert estimate["start_up_seconds"] < estimate["seconds_low"] <= estimate["seconds"] <= estimate["seconds_high"]
    work_s = estimate["seconds"] - estimate["start_up_seconds"]
    assert work_s == pytest.approx(9 / estimate["pages_per_second"])
    assert printed["per_page"]["patches"] > 0


def test_where_all_that_was_read_failed_no_time_is_given(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = draw_pdf(tmp_path / "a.pdf", *"abcd")

    def look_before_it_is_gone(found: Found, config: Config) -> Survey:
        survey = _look(found, config)
        path.unlink()
        return survey

    monkeypatch.setattr("batchocr.cli.inspect._look", look_before_it_is_gone)
    lines = said_by("inspect", path, "--model", model, "--read", "3")[1].splitlines()
    assert line(lines, "read").startswith("3 of 4 pages, 3 failed: with ")
    assert line(lines, "time") == "not known: none of the pages that were drawn could be read"


@pytest.mark.parametrize(
    ("low_s", "high_s", "said"),
    [
        (50.0, 98.0, "about 75 s, between 50 s and 98 s: 5 s to start, then 0.12 pages/s"),
        (74.8, 75.2, "about 75 s: 5 s to start, then 0.12 pages/s"),
    ],
)
def test_the_range_is_said_unless_it_is_narrower_than_the_figure(low_s: float, high_s: float, said: str) -> None:
    assert _time(Estimate("cpu", "pages read", 75.0, 0.1234, 5.0, low_s, high_s)) == said


def test_at_the_rate_of_an_earlier_run(tmp_path: Path) -> None:
    report = {"pages_read": 20, "work_seconds": 40.0, "start_up_seconds": 5.0, "settings": {"device": "cpu"}}
    (tmp_path / "report.json").write_text(json.dumps(report))
    path = draw_pdf(tmp_path / "a.pdf", *"abcd")
    lines, printed, _ = inspected(path, "--like", tmp_path / "report.json")
    assert line(lines, "time") == "about 13 s, at the 0.5 pages/s of that run on cpu"
    assert (printed["estimate"]["basis"], printed["estimate"]["seconds"]) == ("earlier run", 13.0)


@pytest.mark.parametrize(
    ("content", "read"), [(b"no document", ()), (None, ("--read", "2"))], ids=["damaged", "no such page"]
)
def test_where_nothing_can_be_read_no_time_is_given(
    tmp_path: Path, model: Path, content: bytes | None, read: tuple[str, ...]
) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(content) if content else draw_pdf(path, "one page")
    lines, printed, _ = inspected(path, "--model", model, "--pages", "7", *read)
    assert line(lines, "time") == "none: there is no page that could be read"
    assert (printed["estimate"], printed["remark"]) == (None, "there is no page that could be read")
    assert printed["pages_read"] == 0


def test_wrong_usage_is_refused_before_the_work(tmp_path: Path) -> None:
    code, _, log = said_by("inspect", DOCUMENTS, "--like", tmp_path / "none")
    assert (code, "--like" in log) == (2, True)
    assert said_by("inspect", tmp_path)[0] == 4
    assert said_by("inspect", DOCUMENTS, "--model", tmp_path, "--read", "2")[0] == 5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--read", "5", "--like", "report.json"), "--read and --like contradict each other"),
        (("--read", "1"), "--read"),
    ],
)
def test_wrong_flags_are_wrong_usage(arguments: tuple[str, ...], said: str) -> None:
    command = [sys.executable, "-m", "batchocr", "inspect", "--json", DOCUMENTS, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in json.loads(done.stderr.splitlines()[-1])["message"]


@pytest.mark.long
def test_ctrl_c_while_pages_are_read_ends_it_and_leaves_no_process(tmp_path: Path, model: Path) -> None:
    draw_pdf(tmp_path / "a.pdf", *map(str, range(100)))
    program = command(tmp_path / "a.pdf", "--model", model, "--read", "100", name="inspect")
    with subprocess.Popen(program, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stderr is not None
        eventually(lambda: re.search(b"opening the documents|of 100 pages", run.stderr.readline()))
        started = children(psutil.Process(run.pid))
        run.send_signal(signal.SIGINT)
        out, said = run.communicate(timeout=60)
    assert (run.returncode, out) == (130, b"")
    assert b"batchocr: stopped before the end: run the same command again\n" in said and b"Traceback" not in said
    assert started
    eventually(lambda: not any(is_alive(child) for child in started))
