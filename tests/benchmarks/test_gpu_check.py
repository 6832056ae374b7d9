"""A first session on a GPU is not wasted: whatever happens to one part, the others and their figures are there."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.check import PARTS, Check, Part, Results, run_command
from benchmarks.gpu.ops_cases import CASES
from tests.conftest import ROOT
from tests.support.failing_part import FAULT_AT

pytestmark = pytest.mark.slow

ONLY_WHOLE_RUNS_NEED = "pymupdf,pyarrow,mineru_vl_utils,loguru,latex2mathml,nh3,rapidfuzz,simplejpeg,sgl_kernel"
OPTIONS = ["--device", "cpu"]
GOOD = Part("good", "benchmarks.gpu.preprocess", 60, ("--smoke",), needs_model=False)


def failing(place: str, fault: str, *, deadline_s: float = 60) -> Part:
    return Part("bad", "tests.support.failing_part", deadline_s, (place, fault), needs_model=False)


def checking(path: Path | None = None) -> Check:
    return Check(Results(path, {}), smoke=False, deadline_s=time.perf_counter() + 300)


def written(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(path.read_text())
    return values


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "deadline_s", "said"),
    [
        ("die", 60, "killed by SIGSEGV, trying the kernel double:bad one: "),
        ("hang", 15, "cut off after 15 s, trying the kernel double:bad one: "),
        ("break", 60, "exit code 1: batchocr.errors.EngineError: double:bad one has broken"),
    ],
)
def test_a_candidate_that_ends_its_process_is_named_and_can_be_left_out(
    fault: str, deadline_s: float, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = failing("trial", fault, deadline_s=deadline_s)
    _, error = checking(tmp_path / "results.json").run(part, OPTIONS)
    assert error is not None and error.startswith(said)
    assert error.endswith("leave it out with BATCHOCR_REJECT='double:bad one'")
    assert written(tmp_path / "results.json")["failed"] == {"bad": error}
    monkeypatch.setenv("BATCHOCR_REJECT", "double:bad one")
    checking(tmp_path / "results.json").run(part, OPTIONS)
    values = written(tmp_path / "results.json")
    assert values["failed"] == {}
    assert values["figures"] == {"bad.before": 1.0, "bad.behind": 2.0}
    assert values["kernels"] == [
        "double: good (error 0.0e+00, 1000000 µs); not bad one: rejected by BATCHOCR_REJECT; not reference: 1000000 µs"
    ]


@pytest.mark.long
@pytest.mark.parametrize(("fault", "reason"), [("die", "killed by SIGSEGV"), ("break", "RuntimeError: CUDA error")])
def test_a_check_that_ends_its_process_or_breaks_the_gpu_fails_alone(fault: str, reason: str) -> None:
    check = checking()
    check.run_checks(failing("check", fault), OPTIONS)
    checks = check.results.values["checks"]
    ends = {name.split()[0]: result for name, result in checks.items()}
    assert ends.keys() == {name for name in CASES if not name.startswith("fp8_")}
    assert [name for name, result in ends.items() if not result["ok"]] == [FAULT_AT]
    assert ends[FAULT_AT]["reason"].startswith(reason)


@pytest.mark.long
def test_the_next_command_continues_what_the_last_one_wrote_unless_it_was_another_machine_s(tmp_path: Path) -> None:
    path, other = tmp_path / "results.json", replace(GOOD, name="other")
    first = Check(Results(path, {"gpu": "A"}, [GOOD, other]), smoke=False, deadline_s=time.perf_counter() + 300)
    first.run(GOOD, OPTIONS)
    assert written(path)["not_begun"] == ["other"]

    second = Check(Results(path, {"gpu": "A"}, [other]), smoke=False, deadline_s=time.perf_counter() + 300)
    second.run(other, OPTIONS)
    assert written(path)["parts"].keys() == {"good", "other"}
    assert written(path)["not_begun"] == []

    Results(path, {"gpu": "B"}, [GOOD]).begin(GOOD)
    assert written(path)["parts"].keys() == {"good"}
    [kept] = tmp_path.glob("results.*.json")
    assert written(kept)["parts"].keys() == {"good", "other"}


@pytest.mark.long
def test_figures_are_in_the_file_while_their_part_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    path = tmp_path / "results.json"

    def stop_once_there(results: Results, *arguments: Any) -> None:
        take(results, *arguments)
        seen.append(written(path)["figures"])
        if seen[-1] and arguments[2] == "unfinished":
            raise KeyboardInterrupt

    take = Results.take
    monkeypatch.setattr(Results, "take", stop_once_there)
    with pytest.raises(KeyboardInterrupt):
        checking(path).run(failing("trial", "hang"), OPTIONS)
    assert seen[-1] == {"bad.before": 1.0}
    values = written(path)
    assert (values["failed"], values["not_begun"]) == ({}, ["bad"])


@pytest.mark.long
def test_a_part_for_which_the_time_was_too_short_has_not_failed(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    parts = [GOOD, failing("trial", "hang")]
    first = Check(Results(path, {}, parts), smoke=False, deadline_s=time.perf_counter() + 8)
    first.run(parts[1], OPTIONS)
    values = written(path)
    assert values["failed"] == {}
    assert values["not_begun"] == ["bad", "good"]
    assert values["figures"] == {"bad.before": 1.0}
    assert first.results.verdict() == (
        "correct: not known yet; pages/s: not measured; kernels: not known; "
        "not done; the rest: python -m benchmarks.gpu.check --only bad,good"
    )
    second = Check(Results(path, {}, [GOOD]), smoke=False, deadline_s=time.perf_counter() + 300)
    second.run(GOOD, OPTIONS)
    assert written(path)["not_begun"] == ["bad"]


def test_an_interrupted_command_leaves_no_process(tmp_path: Path) -> None:
    child = "import os, pathlib, time; child = os.fork(); own = os.getpid()\n"
    child += "if child: pathlib.Path('PIDS').write_text(f'{own} {child}')\ntime.sleep(600)"
    pids = tmp_path / "pids"

    def interrupt() -> None:
        if pids.exists() and len(pids.read_text().split()) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_command([sys.executable, "-c", child.replace("PIDS", str(pids))], 60, look=interrupt)
    for pid in map(int, pids.read_text().split()):
        assert not is_running(pid)


def is_running(pid: int) -> bool:
    """Whether the process does anything, or will: one that has ended may wait for its parent."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return False
        if state == "Z":
            return False
        time.sleep(0.05)
    return True


@pytest.mark.long
def test_it_runs_from_a_checkout_without_what_only_whole_runs_need(tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    names = "ops,model,throughput.dense_bf16,decode,small_images,end_to_end,throughput.peers"
    command = [sys.executable, "-m", "tests.support.bare_environment", ONLY_WHOLE_RUNS_NEED]
    command += ["benchmarks.gpu.check", "--smoke", *OPTIONS, "--out", str(out), "--only", names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    values = written(out)
    assert values["failed"].keys() == {"end_to_end", "throughput.peers"}
    assert all(reason.removeprefix("needs ") in ONLY_WHOLE_RUNS_NEED for reason in values["failed"].values())
    assert all(check["ok"] for check in values["checks"].values())
    measured = {name.rpartition(".")[0] for name in values["figures"]}
    assert {"throughput.dense_bf16", "decode", "small_images"} <= measured


def test_the_most_important_parts_come_first_and_in_the_type_of_real_runs() -> None:
    assert [part.name for part in PARTS[:4]] == ["ops", "model", "production", "throughput.dense_bf16"]
    assert all("float32" not in part.arguments for part in PARTS[:4])
    assert sum(part.deadline_s for part in PARTS[:4]) < 9.5 * 60
    assert len({part.name for part in PARTS}) == len(PARTS)


def test_the_wheels_to_carry_are_all_that_batchocr_needs_beside_what_is_there() -> None:
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    there = ("torch", "transformers", "huggingface_hub", "safetensors")
    lines = (ROOT / "benchmarks" / "wheels.txt").read_text().splitlines()
    carried = {line for line in lines if not line.startswith(("#", "hypothesis", "pytest"))}
    assert carried == {each for each in needed if not each.startswith(there)}
