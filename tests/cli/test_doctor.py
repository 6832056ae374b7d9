"""`batchocr doctor` through its entry point, on a machine whose GPUs are hidden."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from batchocr import backend
from batchocr.backend import select_device
from batchocr.backend.trial import Choice
from batchocr.cli.doctor import Diagnosis, _library, examine
from batchocr.cli.finding import Finding
from batchocr.cli.model_check import try_out
from batchocr.config import Config
from batchocr.errors import UsageError
from batchocr.input.in_memory import hold
from batchocr.pool.pool import WorkerPool
from tests.support.running import QUICK_MODEL, raising

pytestmark = pytest.mark.slow

FILE_LIMIT_BYTES = 1 << 20


def doctor(*arguments: str, before: Callable[[], None] | None = None) -> subprocess.CompletedProcess[str]:
    """The finished command. before: called in its process first."""
    done = subprocess.run(
        [sys.executable, "-m", "batchocr", "doctor", *arguments],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        preexec_fn=before,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def findings(shown: str) -> dict[str, str]:
    """The lines above the table of operations, as name and rest of the line."""
    lines = shown.partition("\n\n")[0].splitlines()
    return dict(re.split(r"\s{2,}", line, maxsplit=1) for line in lines)


def test_a_machine_without_a_gpu_can_run_and_is_told_with_what() -> None:
    done = doctor("--workers", "3")
    assert (done.returncode, done.stderr) == (0, "")
    found = findings(done.stdout)
    assert re.match(r"none \(.+\); the CPU does the work", found["NVIDIA GPU"])
    assert found["runs on"] == "ok  cpu, float32, backend cpu"
    assert found["shared memory"] == "ok  a page of 11 MB crosses it"
    assert found["workers"] == "ok  3; one was started and opened a picture"
    assert {"batchocr", "host", "torch", "triton", "sgl_kernel"} <= found.keys()

    table = done.stdout.partition("\n\n")[2]
    timed = re.findall(r"^(\S.*?) {2,}(\S+) +(\d\.\de[-+]\d\d) +(\d+) µs$", table, re.MULTILINE)
    assert {(operation, taken) for operation, taken, _, _ in timed} == {
        ("linear", "oneDNN"),
        ("paged attention", "views"),
        ("patches", "Pillow"),
        ("quick_gelu MLP", "oneDNN"),
        ("gelu MLP", "oneDNN"),
        ("silu_mul MLP", "oneDNN"),
    }
    assert all(float(error) < 1e-5 and int(microseconds) > 0 for _, _, error, microseconds in timed)
    assert table.count("not reference: ") == len(timed)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--device", "cuda"), "--device cuda cannot be used here: "),
        (("--backend", "cuda"), "--backend cuda needs an NVIDIA GPU (--device cuda); reference runs on CPUs and GPUs"),
    ],
)
def test_a_device_that_is_not_there_is_refused_in_a_sentence(arguments: tuple[str, ...], said: str) -> None:
    done = doctor(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"batchocr: error: {said}")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.skipif(torch.version.cuda is not None, reason="torch was built for CUDA")
def test_a_gpu_that_this_torch_cannot_use_is_refused_with_what_would_help() -> None:
    with pytest.raises(UsageError, match="enabled; install a CUDA build of torch, or use --device cpu"):
        select_device("cuda:0")


def test_a_library_that_is_not_installed_is_told_from_one_that_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_library.py").write_text("import no_such_part")
    monkeypatch.syspath_prepend(tmp_path)
    missing, broken = _library("no_such_library", "no-such-library"), _library("broken_library", "broken-library")
    assert missing.value == "not installed (for NVIDIA GPUs: pip install '.[cuda]' in a clone of batchocr)"
    assert broken.value == "not usable: No module named 'no_such_part'"


def limit_files() -> None:
    """Keep files, and shared memory too, from growing beyond a tenth of a page."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_LIMIT_BYTES, FILE_LIMIT_BYTES))


def test_what_would_fail_a_run_is_marked_and_fails_the_command() -> None:
    done = doctor("--backend", "reference", before=limit_files)
    assert done.returncode == 2
    found = findings(done.stdout)
    assert found["shared memory"].startswith("NO  no room for 10 MiB of pixels")
    assert found["workers"].startswith("ok  ")
    assert found["runs on"] == "ok  cpu, float32, backend reference"
    assert done.stderr == "batchocr: error: a run would fail here: see the lines marked NO\n"


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (("/no/such/program",), "a worker process cannot be started: No such file or directory; try fewer --workers"),
        (
            (sys.executable, "-c", "import no_such_module"),
            "one was started and failed: the worker process has ended with exit code 1; it said: ",
        ),
    ],
)
def test_workers_that_cannot_work_are_a_finding(
    monkeypatch: pytest.MonkeyPatch, program: tuple[str, ...], said: str
) -> None:
    monkeypatch.setattr("batchocr.cli.doctor.WorkerPool", partial(WorkerPool, command=program))
    [finding] = [finding for finding in examine(Config(backend="reference")).findings if finding.name == "workers"]
    assert finding.ok is False
    assert finding.value.startswith(said)


def test_a_worker_that_cannot_open_a_picture_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchocr.cli.doctor.hold", lambda name, picture: hold(name, b"no picture"))
    [finding] = [finding for finding in examine(Config(backend="reference")).findings if finding.name == "workers"]
    assert finding.ok is False
    assert finding.value.startswith("one was started and failed: ")


@pytest.mark.parametrize(("marks", "exit_code"), [((), 0), ((None, True), 0), ((True, False, None), 2), ((False,), 2)])
def test_one_finding_that_is_not_ok_is_enough(marks: tuple[bool | None, ...], exit_code: int) -> None:
    assert Diagnosis([Finding("a", "b", ok) for ok in marks], []).exit_code == exit_code


def test_no_finding_can_move_the_cursor() -> None:
    shown = Diagnosis([Finding("model", "red\x1b[31m and\na new line")], []).to_text()
    assert shown.splitlines()[0] == r"model      red\x1b[31m and\na new line"


def test_a_candidate_that_was_not_taken_is_listed_with_its_reason() -> None:
    choice = Choice("rms_norm", "triton", 1.5e-3, 2e-5, {"sgl_kernel": "ImportError: libcuda.so.1"})
    shown = Diagnosis([Finding("host", "8 cores", None), Finding("workers", "none", False)], [choice]).to_text()
    assert shown.splitlines() == [
        "host         8 cores",
        "workers  NO  none",
        "",
        "operation         taken              error against reference        time",
        "rms_norm          triton                             1.5e-03       20 µs",
        "                  not sgl_kernel: ImportError: libcuda.so.1",
    ]


def test_the_findings_as_json_are_one_object() -> None:
    found = json.loads(examine(Config(device="cpu", workers=1)).to_json())
    assert (found["exit_code"], found["plan"]) == (0, None)
    assert {"name": "runs on", "value": "cpu, float32, backend cpu", "ok": True} in found["findings"]
    assert {"linear", "patches"} <= {operation["operation"] for operation in found["operations"]}
    assert all(operation["seconds"] > 0 for operation in found["operations"])
    assert all(seconds > 0 for operation in found["operations"] for seconds in operation["others"].values())
    assert "µs" not in json.dumps(found, ensure_ascii=False)


def test_a_model_is_loaded_and_a_run_with_it_planned(sample_data: Path) -> None:
    done = doctor("--model", str(sample_data / "model"), "--json", "--backend", "reference")
    found = json.loads(done.stdout)
    said = {finding["name"]: finding for finding in found["findings"]}
    assert done.returncode == 0
    assert "ViT of 4 layers × 128, language model of 5 layers × 128" in said["model"]["value"]
    assert "16 sequences decoded at once" in said["plan"]["value"]
    assert said["loading"]["ok"] and said["memory"]["ok"]
    plan = found["plan"]
    assert (plan["settings"]["llm_batch_size"], plan["settings"]["dtype"]) == (16, "float32")
    assert 0 < plan["needed_bytes"]["weights"] < sum(plan["needed_bytes"].values()) < plan["usable_bytes"]


def test_a_model_that_cannot_be_loaded_is_a_finding_with_the_exit_code_of_the_run(tmp_path: Path) -> None:
    shutil.copytree(QUICK_MODEL, tmp_path / "model")
    with (tmp_path / "model" / "model.safetensors").open("r+b") as file:
        file.truncate(100_000)
    for model, said in ((tmp_path / "model", "is damaged or cut short"), (tmp_path / "none", "neither a folder nor")):
        done = doctor("--model", str(model), "--backend", "reference")
        assert done.returncode == 5
        assert [line for line in done.stdout.splitlines() if said in line and " NO " in line]
        assert "a run would fail here" in done.stderr


def test_a_model_that_does_not_fit_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "memory_bytes", lambda device: 30 << 20)
    tried = try_out(Config(model=str(QUICK_MODEL), device="cpu"))
    said = {finding.name: finding for finding in tried.findings}
    assert said["memory"].ok is False
    assert "GiB needed at most and 0.0 there" in said["memory"].value
    assert "loading" not in said


def test_without_a_model_none_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchocr.job.session.find_checkpoint", raising(AssertionError("looked for")))
    assert examine(Config(backend="reference")).plan is None
