"""What `benchmarks.gpu.check` does with parts that fail, and what it needs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.gpu import check
from benchmarks.gpu.check import Part, run_command, verdict
from tests.conftest import ROOT

pytestmark = pytest.mark.slow

ONLY_WHOLE_RUNS_NEED = "pymupdf,pyarrow,mineru_vl_utils,loguru,latex2mathml,nh3,rapidfuzz,simplejpeg,sgl_kernel"


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import no_such_thing", "needs no_such_thing"),
        ("raise ValueError('bad')", "exit code 1: ValueError: bad"),
        ("import sys; print('a line of the log', file=sys.stderr); sys.exit(1)", "exit code 1"),
        ("import os; os.kill(os.getpid(), 11)", "killed by SIGSEGV"),
        ("", None),
    ],
)
def test_why_a_part_failed_is_said_in_a_line(program: str, said: str | None) -> None:
    assert run_command([sys.executable, "-c", program], 60)[0] == said


def test_the_verdict_says_what_is_wrong_and_what_is_not_done() -> None:
    figures = {"throughput.dense_bf16.pages_per_second": 11.53}
    found = {
        "kernels": ["rotary: triton (error 0)"],
        "checks": {"norms": {"ok": True}},
        "figures": figures,
        "failed": {},
    }
    parts: dict[str, dict[str, object]] = {"ops": {}, "model": {}, "production": {}}
    assert verdict(found, parts, []) == "correct: yes; pages/s: 11.53; kernels: rotary: triton"
    assert verdict(found, {"ops": {}}, ["model"]).startswith("correct: not known yet; ")
    assert verdict(found, {"ops": {}}, ["model", "decode"]).endswith("; not done: --only model,decode")
    wrong = found | {"checks": {"norms": {"ok": False}}, "failed": {"model": "exit code 1"}}
    assert verdict(wrong, parts, []).startswith("correct: no (norms, model); ")


def test_the_plan_fits_into_fourteen_minutes_and_each_parts_help_says_how_long_it_takes() -> None:
    parts = {part.name: part for part in (*check.PARTS, *check.LONG_PARTS)}
    assert sum(check.PLAN.values()) <= 14 * 60
    for name, seconds in check.PLAN.items():
        said = import_module(parts[name].module).__doc__ or ""
        assert re.search(rf"expected on an H200: [^.]*\b{seconds} s", said.replace("\n", " "), re.IGNORECASE), name
        assert seconds < parts[name].deadline_s


@pytest.mark.long
def test_each_part_of_the_plan_writes_its_rows_on_a_cpu_with_a_stand_in_for_vllm(tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    plan = ["benchmarks.gpu.check", "--only", "plan", "--smoke", "--device", "cpu", "--out", str(out)]
    subprocess.run([sys.executable, "-m", "tests.support.stand_in_vllm", *plan], cwd=ROOT, check=True)
    found = json.loads(out.read_text())
    assert list(found["parts"]) == [name for name in check.PLAN if name != "long.fp8"]  # which a CPU does not have
    assert found["failed"] == {}
    assert all(part["rows"] for part in found["parts"].values())
    set_ups = [row["engine"] for row in found["parts"]["beside"]["rows"]]
    assert set_ups == ["batchocr", "batchocr", "vLLM, 4", "vLLM, 4-pool", "vLLM, 3", "vLLM, 2", "vLLM, 1"]


@pytest.mark.long
def test_a_part_that_is_cut_off_leaves_no_process_of_a_part_that_it_runs(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    inner = f"import os, pathlib, time; pathlib.Path({str(pid)!r}).write_text(str(os.getpid())); time.sleep(600)"
    outer = f"""
import signal, sys
from benchmarks.gpu.check import run_command
signal.signal(signal.SIGTERM, signal.default_int_handler)
run_command([sys.executable, "-c", {inner!r}], 600)
"""
    assert run_command([sys.executable, "-c", outer], 15)[0] == "cut off after 15 s"
    assert not psutil.pid_exists(int(pid.read_text()))


@pytest.mark.long
def test_a_part_that_is_cut_off_leaves_no_process(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = f"""
import os, pathlib, sys, time
print('so far', file=sys.stderr, flush=True)
child, own = os.fork(), os.getpid()
if child: pathlib.Path({str(pids)!r}).write_text(f'{{own}} {{child}}')
time.sleep(600)
"""
    assert run_command([sys.executable, "-c", program], 2.0) == ("cut off after 2 s", "so far\n")
    for pid in map(int, pids.read_text().split()):
        with suppress(psutil.NoSuchProcess):
            psutil.wait_procs([psutil.Process(pid)], timeout=5)
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.fixture
def outcomes(monkeypatch: pytest.MonkeyPatch) -> dict[str, str | None]:
    """Why the parts first, second and third fail, which run at once; None if one does not."""
    found: dict[str, str | None] = {"first": None, "second": None, "third": None}

    def run(part: Part, options: list[str], deadline_s: float, *, smoke: bool) -> dict[str, Any]:
        return {"figures": {"rate": 1.0}, "error": found[part.name]}

    monkeypatch.setattr(check, "PARTS", tuple(Part(name, "no.module", 60) for name in found))
    monkeypatch.setattr(check, "run_part", run)
    return found


def run_check(out: Path, *options: str) -> int:
    """Returns the exit code."""
    try:
        check.main(["--device", "cpu", "--out", str(out), *options])
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


@pytest.mark.parametrize("error", ["interrupted", "cut off after 5 s"])
def test_a_part_for_which_the_time_was_too_short_has_not_failed_and_the_next_command_goes_on(
    error: str, outcomes: dict[str, str | None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "results.json"
    outcomes["second"] = error
    assert run_check(out, "--minutes", "0.5") == 0
    assert "not done: --only second,third" in capsys.readouterr().out
    outcomes["second"] = None
    assert run_check(out, "--only", "second,third") == 0
    written = json.loads(out.read_text())
    assert (written["parts"].keys(), written["failed"]) == (outcomes.keys(), {})
    assert "not done" not in capsys.readouterr().out


def test_a_part_that_fails_is_an_exit_code_and_the_others_run(
    outcomes: dict[str, str | None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes["second"] = "cut off after 60 s"
    assert run_check(tmp_path / "results.json") == 1
    assert json.loads((tmp_path / "results.json").read_text())["failed"] == {"second": "cut off after 60 s"}
    assert "correct: no (second)" in capsys.readouterr().out
    assert run_check(tmp_path / "results.json", "--only", "first") == 1
    outcomes["second"] = None
    assert run_check(tmp_path / "results.json", "--only", "second") == 0


@pytest.mark.long
@pytest.mark.parametrize("family", ["glm_ocr", "paddleocr_vl"])
def test_of_another_family_the_parts_are_run_that_can_run_any_model(tmp_path: Path, family: str) -> None:
    out = tmp_path / "results.json"
    assert run_check(out, "--smoke", "--family", family, "--only", "model,production,ablation,throughput.layout") == 0
    written = json.loads(out.read_text())
    assert written["parts"].keys() == {"model", "production", "throughput.layout"}
    assert (written["failed"], all(check["ok"] for check in written["checks"].values())) == ({}, True)


@pytest.mark.long
def test_it_runs_from_a_checkout_without_what_only_whole_runs_need(tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    names = "ops,model,throughput.dense_bf16,decode,small_images,end_to_end,throughput.peers"
    command = [sys.executable, "-m", "tests.support.bare_environment", ONLY_WHOLE_RUNS_NEED]
    command += ["benchmarks.gpu.check", "--smoke", "--device", "cpu", "--out", str(out), "--only", names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    values = json.loads(out.read_text())
    assert values["failed"].keys() == {"end_to_end", "throughput.peers"}
    assert all(reason.removeprefix("needs ") in ONLY_WHOLE_RUNS_NEED for reason in values["failed"].values())
    assert all(check["ok"] for check in values["checks"].values())
    measured = {name.rpartition(".")[0] for name in values["figures"]}
    assert {"throughput.dense_bf16", "decode", "small_images"} <= measured


def test_the_wheels_to_carry_are_all_that_batchocr_needs_beside_what_is_there() -> None:
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    there = ("torch", "transformers", "regex", "huggingface_hub", "safetensors")
    lines = (ROOT / "benchmarks" / "wheels.txt").read_text().splitlines()
    carried = {line for line in lines if not line.startswith(("#", "hypothesis", "pytest"))}
    assert carried == {each for each in needed if not each.startswith(there)}
