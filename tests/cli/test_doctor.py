"""`batchocr doctor` through its entry point, on a machine whose GPUs are hidden."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from batchocr.cli.diagnosis import Diagnosis, Finding, Operations, examine, try_out
from batchocr.config import Config, DType
from batchocr.engine import backend
from batchocr.engine.backend import select_device
from batchocr.engine.start import _library, load_engine
from batchocr.errors import EngineError, UsageError
from batchocr.processes.engine_messages import KernelChoice
from batchocr.processes.pool import WorkerPool
from tests.support.running import QUICK_MODEL, raising, said_by
from tests.support.stand_in import command

pytestmark = pytest.mark.slow


def findings(shown: str) -> dict[str, str]:
    """The lines above the table of operations, as name and rest of the line."""
    lines = shown.partition("\n\n")[0].splitlines()
    return dict(re.split(r"\s{2,}", line, maxsplit=1) for line in lines)


@pytest.fixture(scope="module")
def diagnosis() -> Diagnosis:
    """Of this machine, without a model."""
    return examine(Config(device="cpu", workers=3))


def test_a_machine_without_a_gpu_can_run_and_is_told_with_what(diagnosis: Diagnosis) -> None:
    found = findings(diagnosis.to_text())
    assert found["NVIDIA GPU"].startswith("none that torch can use; the CPU does the work")
    assert found["runs on"] == "ok  cpu, float32, backend cpu (oneDNN, Pillow)"
    assert found["workers"] == "ok  3; one was started and opened a picture"
    assert {"batchocr", "host", "torch", "triton", "sgl_kernel"} <= found.keys()


def test_a_device_that_is_not_there_is_refused_in_a_sentence() -> None:
    exit_code, shown, said = command("doctor", "--device", "cuda:99")
    assert (exit_code, shown) == (2, "")
    assert said.startswith("batchocr: error: --device cuda:99 cannot be used here: ")
    assert len(said.splitlines()) == 1


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
    assert missing == "not installed (for NVIDIA GPUs: pip install '.[cuda]' in a clone of batchocr)"
    assert broken == "not usable: No module named 'no_such_part'"


def test_what_would_fail_a_run_is_marked_and_fails_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchocr.cli.diagnosis.WorkerPool", partial(WorkerPool, command=("/no/such/program",)))
    exit_code, shown, said = said_by("doctor", "--backend", "reference", "--device", "cpu")
    assert exit_code == 2
    found = findings(shown)
    assert found["workers"].startswith("NO  a worker process cannot be started")
    assert found["runs on"] == "ok  cpu, float32, backend reference"
    assert said == "batchocr: error: not all works here that a run would use: see the lines marked NO\n"


def test_a_worker_that_ends_before_it_can_work_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    program = (sys.executable, "-c", "import no_such_module")
    monkeypatch.setattr("batchocr.cli.diagnosis.WorkerPool", partial(WorkerPool, command=program))
    [finding] = [finding for finding in examine(Config(backend="reference")).findings if finding.name == "workers"]
    assert finding.ok is False
    assert finding.value.startswith(
        "one was started and failed: the worker process has ended with exit code 1; it said: "
    )


def test_no_finding_can_move_the_cursor() -> None:
    shown = Diagnosis([Finding("model", "red\x1b[31m and\na new line")], []).to_text()
    assert shown.splitlines()[0] == r"model      red\x1b[31m and\na new line"


def test_a_candidate_that_was_not_taken_is_listed_with_its_reason() -> None:
    choice = KernelChoice("rms_norm", "triton", 1.5e-3, 2e-5, {"sgl_kernel": "ImportError: libcuda.so.1"})
    findings = [Finding("host", "8 cores", None), Finding("workers", "none", False)]
    shown = Diagnosis(findings, [Operations(A100, ["cuda:0"], [choice])]).to_text()
    assert shown.splitlines() == [
        "host         8 cores",
        "workers  NO  none",
        "",
        "operation         taken              error against reference        time",
        "rms_norm          triton                             1.5e-03       20 µs",
        "                  not sgl_kernel: ImportError: libcuda.so.1",
        "taken: the fastest kernel whose result is right; error: its largest difference from the",
        "reference, as a share of the largest value; time: of one trial. Below it, why others were not.",
    ]


def test_the_findings_as_json_are_one_object(diagnosis: Diagnosis) -> None:
    found = json.loads(diagnosis.to_json())
    assert (found["exit_code"], found["plan"]) == (0, None)
    assert {"name": "runs on", "value": "cpu, float32, backend cpu (oneDNN, Pillow)", "ok": True} in found["findings"]
    assert found["operations"] == []


def test_a_model_is_loaded_and_a_run_with_it_planned(sample_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchocr.job.session.usable_cores", lambda: 2)
    config = Config(model=str(sample_data / "model"), device="cpu", backend="reference")
    found = json.loads(examine(config, try_model=True).to_json())
    said = {finding["name"]: finding for finding in found["findings"]}
    assert found["exit_code"] == 0
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
        diagnosis = examine(Config(model=str(model), device="cpu", backend="reference"), try_model=True)
        assert diagnosis.exit_code == 5
        [failed] = [finding for finding in diagnosis.findings if finding.ok is False]
        assert said in failed.value


def test_a_model_that_does_not_fit_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "memory_bytes", lambda device: 30 << 20)
    tried = try_out(Config(model=str(QUICK_MODEL), device="cpu"))
    said = {finding.name: finding for finding in tried.findings}
    assert said["memory"].ok is False
    assert "GiB needed at most and 0.0 there" in said["memory"].value
    assert "loading" not in said


# Several devices, none of which is there

H200, A100, T4 = "NVIDIA H200", "NVIDIA A100", "Tesla T4"
CHOICE = ("rms_norm", "triton", 2e-5)


@dataclass
class Gpus:
    """What this machine is said to have. tried: the devices that kernels were tried on."""

    names: Sequence[str]
    unusable: Collection[int] = ()
    breaking: Mapping[int, Exception] = field(default_factory=dict)
    tried: list[str] = field(default_factory=list)

    def empty(self, size: int, device: torch.device) -> None:
        if device.index in self.unusable:
            raise RuntimeError("CUDA error: uncorrectable ECC error encountered. Some advice")

    def properties(self, device: torch.device) -> SimpleNamespace:
        major = {H200: 9, A100: 8, T4: 7}[self.names[device.index]]
        return SimpleNamespace(name=self.names[device.index], major=major, minor=0, total_memory=80 << 30)

    def make_ops(self, name: str, device: torch.device, dtype: torch.dtype) -> SimpleNamespace:
        self.tried.append(str(device))
        if device.index in self.breaking:
            raise self.breaking[device.index]
        operation, taken, seconds = CHOICE
        choices = () if device.type == "cpu" else (KernelChoice(operation, taken, seconds=seconds),)
        return SimpleNamespace(choices=choices)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Gpus]:
    def have(*names: str, **others: Any) -> Gpus:
        have = Gpus(names, **others)
        for name, value in {
            "backend.make_ops": have.make_ops,
            "backend.torch.empty": have.empty,
            "backend.torch.version.cuda": "13.0",
            "backend.torch.cuda.device_count": lambda: len(names),
            "backend.torch.cuda.set_device": lambda device: None,
            "backend.torch.cuda.get_device_properties": have.properties,
            "backend.torch.cuda.mem_get_info": lambda device: (60 << 30, 80 << 30),
        }.items():
            monkeypatch.setattr(f"batchocr.engine.{name}", value)
        return have

    return have


def said_of(diagnosis: Diagnosis, *names: str) -> list[tuple[str, str, bool | None]]:
    return [(found.name, found.value, found.ok) for found in diagnosis.findings if found.name.startswith(names)]


def test_every_gpu_is_shown_and_the_kernels_of_each_kind(gpus: Callable[..., Gpus]) -> None:
    there = gpus(H200, H200, A100, H200, unusable=[3])
    diagnosis = examine(Config(backend="reference", workers=2))
    assert said_of(diagnosis, "cuda", "NVIDIA GPU", "runs", "kernels") == [
        ("cuda:0", "NVIDIA H200, sm_90, 60.0 of 80.0 GiB free", True),
        ("cuda:1", "NVIDIA H200, sm_90, 60.0 of 80.0 GiB free", True),
        ("cuda:2", "NVIDIA A100, sm_80, 60.0 of 80.0 GiB free", True),
        ("cuda:3", "--device cuda:3 cannot be used here: CUDA error: uncorrectable ECC error encountered", False),
        ("runs on", "3 engines, on cuda:0 and cuda:1 and cuda:2; bfloat16, backend reference", True),
    ]
    assert diagnosis.exit_code == 2
    assert there.tried == ["cuda:0", "cuda:2"]
    kinds = [line for line in diagnosis.to_text().splitlines() if line.startswith("On ")]
    assert kinds == ["On cuda:0, cuda:1 (NVIDIA H200, sm_90):", "On cuda:2 (NVIDIA A100, sm_80):"]
    operations = json.loads(diagnosis.to_json())["operations"]
    assert [each["devices"] for each in operations] == [["cuda:0", "cuda:1"], ["cuda:2"]]
    assert [(each["operation"], each["taken"], each["seconds"]) for each in operations] == [CHOICE] * 2


@pytest.mark.parametrize(
    ("names", "dtype", "runs_on"),
    [
        ([T4, A100], "auto", "cuda:1, bfloat16"),
        ([A100, T4, A100], "auto", "2 engines, on cuda:0 and cuda:2; bfloat16"),
        ([T4, A100], "float32", "2 engines, on cuda:0 and cuda:1; float32"),
        ([T4], "auto", "cuda:0, float32"),
    ],
)
def test_it_is_said_which_of_unlike_gpus_a_run_would_use_and_in_which_data_type(
    gpus: Callable[..., Gpus], names: list[str], dtype: DType, runs_on: str
) -> None:
    gpus(*names)
    diagnosis = examine(Config(dtype=dtype, backend="reference", workers=2))
    assert said_of(diagnosis, "runs") == [("runs on", f"{runs_on}, backend reference", True)]


@pytest.mark.parametrize("error", [RuntimeError("an illegal address"), EngineError("an illegal address")])
def test_kernels_that_break_a_gpu_do_not_spoil_the_others(gpus: Callable[..., Gpus], error: Exception) -> None:
    there = gpus(H200, A100, breaking={0: error})
    diagnosis = examine(Config(device="cuda:0,cuda:1", backend="reference", workers=2))
    [broken] = said_of(diagnosis, "kernels")
    assert broken[0::2] == ("kernels on cuda:0", False)
    assert broken[1].endswith("an illegal address")
    assert [name for name, _, ok in said_of(diagnosis, "cuda", "runs") if ok] == ["cuda:0", "cuda:1", "runs on"]
    assert there.tried == ["cuda:0", "cuda:1"]
    assert [each.devices for each in diagnosis.operations] == [["cuda:1"]]


def test_the_cpu_is_shown_once_however_many_engines_it_has(gpus: Callable[..., Gpus]) -> None:
    gpus(H200, H200)
    diagnosis = examine(Config(device="cpu,cpu", backend="reference", workers=2))
    assert said_of(diagnosis, "NVIDIA GPU", "runs") == [
        ("NVIDIA GPU", "not used: cuda:0, cuda:1", None),
        ("runs on", "2 engines, on cpu and cpu; float32, backend reference", True),
    ]
    assert not diagnosis.operations


def test_a_device_that_cannot_load_the_model_is_named_and_the_plan_counts_engines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = iter([False, True, False])

    def load(*arguments: Any) -> Any:
        if next(refused):
            raise UsageError("there is no room")
        return load_engine(*arguments)

    monkeypatch.setattr("batchocr.engine.serve.load_engine", load)
    tried = try_out(Config(model=str(QUICK_MODEL), device="cpu,cpu,cpu", workers=3, pages_in_flight=9))
    said = {finding.name: finding for finding in tried.findings}
    assert said["plan"].value.startswith("2 engines, 3 workers, 9 pages in flight; in each engine up to 8 images")
    assert said["loading"].ok is False
    assert said["loading"].value.endswith(" s; not on cpu: there is no room")


def test_without_a_model_none_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchocr.job.session.find_checkpoint", raising(AssertionError("looked for")))
    assert examine(Config(backend="reference")).plan is None


def test_auto_passes_over_a_gpu_that_cannot_be_used(gpus: Callable[..., Gpus]) -> None:
    gpus(H200, H200, unusable=[0])
    diagnosis = examine(Config(backend="reference", workers=2))
    assert [(name, ok) for name, _, ok in said_of(diagnosis, "cuda")] == [("cuda:1", True), ("cuda:0", False)]
