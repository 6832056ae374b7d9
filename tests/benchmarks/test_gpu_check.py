"""What `benchmarks.gpu.check` does with parts that fail, and what it needs."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from benchmarks.gpu.check import PARTS, run_command, verdict
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
