"""The choice of kernels outlives a start, for the same card, software and model alone, and never stands in the way."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from batchocr import machine
from batchocr.config import Config
from batchocr.job.kept_kernels import KeptKernels
from batchocr.job.session import Session
from batchocr.processes.engine_messages import DeviceFound, FromEngine, KernelChoice, LoadModel, Ready, ToEngine
from tests.support.fake_engines import SimulatedEngine
from tests.support.running import QUICK_MODEL

H200 = DeviceFound("cuda:0", ("cuda:0",), "cuda", 130 << 30, name="NVIDIA H200, sm_90", total_bytes=140 << 30)
MODEL = {"shapes": "those of a model", "dtype": "bfloat16", "vit_dtype": "auto"}
ATTENTION = KernelChoice("attention", "fast", 1e-3, 6e-4, {"broken": "it is broken"}, {"slow": 2e-3, "reference": 0.1})
NORM = KernelChoice("rms_norm", "reference", 0.0, 1e-5, {}, {"triton": 3e-5})
NOT_TIMED = KernelChoice("sample", "reference", rejected={"triton": "no C compiler"})


@pytest.fixture
def kernels(tmp_path: Path) -> Callable[..., KeptKernels]:
    """As a start has them."""
    return lambda model=MODEL, **options: KeptKernels(str(tmp_path), model, **options)


Kernels = Callable[..., KeptKernels]


def test_the_next_start_has_what_was_timed_and_another_gpu_of_the_kind_as_well(kernels: Kernels) -> None:
    assert kernels().of(H200) == ()
    kernels().keep(H200, [ATTENTION, NORM, NOT_TIMED])
    assert kernels().of(H200) == kernels().of(replace(H200, device="cuda:1")) == (ATTENTION, NORM)


def test_nothing_is_kept_where_nothing_is_chosen(kernels: Kernels, tmp_path: Path) -> None:
    cpu = DeviceFound("cpu", ("cpu",), "cpu", 1 << 34)
    for found, choices in ((cpu, []), (H200, [NOT_TIMED])):
        kernels().keep(found, choices)
        assert kernels().of(found) == ()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "other",
    [
        {"found": replace(H200, name="NVIDIA H100, sm_90")},
        {"found": replace(H200, total_bytes=16 << 30)},
        {"model": {**MODEL, "shapes": "those of another"}},
        {"model": {**MODEL, "dtype": "float32"}},
        {"model": {**MODEL, "vit_dtype": "fp8"}},
        {"package": "torch"},
        {"package": "triton"},
        {"package": "sglang-kernel"},
        {"package": "fa3-fwd"},
        {"package": "batchocr"},
        {"driver": "NVRM version: 590.1"},
        {"reject": "attention:fast"},
    ],
    ids=str,
)
def test_what_was_fastest_elsewhere_is_not_taken(
    other: dict[str, Any], kernels: Kernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_ROOT", tmp_path)
    kernels().keep(H200, [ATTENTION])
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text(other.get("driver", ""))
    real = machine.version
    monkeypatch.setattr(machine, "version", lambda name: "9" if name == other.get("package") else real(name))
    monkeypatch.setenv("BATCHOCR_REJECT", other.get("reject", ""))
    assert kernels(other.get("model", MODEL)).of(other.get("found", H200)) == ()
    assert len(list((tmp_path / "kernels").iterdir())) == 1


def test_what_is_timed_anew_takes_the_place_of_what_was_kept(kernels: Kernels) -> None:
    kernels().keep(H200, [ATTENTION])
    start, other = kernels(anew=True), replace(ATTENTION, taken="slow")
    assert start.of(H200) == ()
    start.keep(H200, [other])
    assert start.of(H200) == kernels().of(H200) == (other,), "an engine that is replaced has it too"


def damage(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-9])


def make_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize("harm", [damage, make_folder, lambda file: file.write_text('[{"taken": 3}]')])
def test_a_file_that_cannot_be_read_is_one_warning_and_as_good_as_none(
    harm: Callable[[Path], object], kernels: Kernels, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kernels().keep(H200, [ATTENTION])
    [file] = (tmp_path / "kernels").iterdir()
    harm(file)
    start = kernels()
    assert start.of(H200) == ()
    start.keep(H200, [ATTENTION])
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert f"kernels are timed anew: {file} cannot be read: " in caplog.text
    if file.is_file():
        assert kernels().of(H200) == (ATTENTION,)


def test_a_folder_that_cannot_be_written_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    start = KeptKernels(str(tmp_path / "file"), MODEL)
    for choices in ([ATTENTION], [replace(ATTENTION, taken="slow")]):
        start.of(H200)
        start.keep(H200, choices)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


class OnAGpu(SimulatedEngine):
    """An engine on a GPU, which notes what it is to load."""

    loaded: list[LoadModel]

    def _tell(self, message: ToEngine, descriptor: int | None = None) -> None:
        if isinstance(message, LoadModel):
            self.loaded.append(message)

    def says(self) -> Iterator[FromEngine]:
        if self.found is None:
            yield H200
        elif self.is_loading and not self.ready:
            yield Ready(self.loaded[-1].kept_choices or (ATTENTION, NORM))


def test_the_engines_of_the_next_session_are_told_what_those_of_the_first_have_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batchocr.processes.engines.EngineProcess", OnAGpu)
    monkeypatch.setattr("batchocr.processes.engines.wait_for", lambda *_: set())
    OnAGpu.loaded = []
    options: list[Mapping[str, Any]] = [{}, {}, {"retry_kernels": True}, {"dtype": "float32"}]
    for each in options:
        with closing(Session(Config(model=str(QUICK_MODEL), device="cuda", work_dir=str(tmp_path), **each))) as session:
            session.load()
            assert session.settings()["kernels"] == "attention: fast; rms_norm: reference"
    assert [message.kept_choices for message in OnAGpu.loaded] == [(), (ATTENTION, NORM), (), ()]
