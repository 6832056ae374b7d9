"""What a session says about its model, and what it refuses on this machine."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from PIL import Image

import batchocr
from batchocr import UsageError
from batchocr.config import Config, DType, make_config
from batchocr.data import OrientationUse
from batchocr.job.session import Session, default_pages_in_flight, require_usable, settings_without_model
from batchocr.job.stats.report import Setting
from batchocr.pages.protocol.revision import TURNED_PAGES
from batchocr.processes.engine_messages import DeviceFound, FromEngine, Ready
from batchocr.tables.schema import RunMetadata, metadata_from_json, metadata_to_json
from tests.support.fake_engines import SimulatedEngine
from tests.support.running import QUICK_MODEL

COMMIT = "c" * 40


def metadata_and_settings(config: Config) -> tuple[RunMetadata, dict[str, Setting]]:
    with closing(Session(config)) as session:
        return session.metadata, session.settings()


def test_the_commit_of_a_model_from_the_hub_is_a_fact_and_a_local_folder_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "models--acme--reader" / "snapshots" / COMMIT
    shutil.copytree(QUICK_MODEL, folder)
    local = metadata_and_settings(Config(model=str(folder)))[0]
    monkeypatch.setattr("batchocr.job.session.find_checkpoint", lambda name, revision: folder)
    hub = metadata_and_settings(Config(model="acme/reader"))[0]
    assert (hub.model, hub.model_revision, local.model_revision) == ("acme/reader", COMMIT, "")
    assert hub.settings_fingerprint == local.settings_fingerprint


def test_a_model_in_a_folder_whose_name_is_no_text_has_metadata_and_settings_that_can_be_written(
    tmp_path: Path,
) -> None:
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/mod\xe9l")
    shutil.copytree(QUICK_MODEL, folder)
    metadata, settings = metadata_and_settings(Config(model=folder, device="cpu"))
    read_back = metadata_from_json(metadata_to_json(metadata))
    assert read_back is not None
    assert read_back.model == settings["model"] == f"{tmp_path}/mod\\udce9l"


def test_whether_figures_are_read_is_part_of_what_the_text_depends_on() -> None:
    skip, read = (
        metadata_and_settings(Config(model=str(QUICK_MODEL), figures=figures))[0] for figures in ("skip", "read")
    )
    assert "figures" not in skip.settings, "outputs that were begun before there was the option are continued"
    assert read.settings == {**skip.settings, "figures": "read"}
    assert read.settings_fingerprint != skip.settings_fingerprint


GPUS = ("cuda:0", "cuda:1", "cuda:2")
T4 = "cuda:0"


class MixedMachine(SimulatedEngine):
    """An engine on one of three GPUs, of which the first has no bfloat16."""

    def says(self) -> Iterator[FromEngine]:
        if self.found is None:
            device = T4 if self.use.device in ("auto", "cuda") else self.use.device
            yield DeviceFound(device, GPUS, "cuda", 40 << 30, name=f"GPU {device}", without_bfloat16=(T4,))
        elif self.is_loading and not self.ready:
            yield Ready()


@pytest.mark.parametrize(
    ("device", "dtype", "begun_in", "engines"),
    [
        ("auto", "auto", None, ["cuda:1", "cuda:2"]),
        ("cuda,cuda:2", "auto", None, ["cuda:2"]),
        ("cuda:2,cuda:0", "auto", "bfloat16", ["cuda:2"]),
        ("auto", "auto", "float32", list(GPUS)),
        ("auto", "float32", None, list(GPUS)),
        ("cuda:0", "auto", None, [T4]),
    ],
)
def test_every_gpu_that_has_the_data_type_of_the_run_has_an_engine_whichever_comes_first(
    device: str, dtype: DType, begun_in: DType | None, engines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batchocr.processes.engines.EngineProcess", MixedMachine)
    monkeypatch.setattr("batchocr.processes.engines.wait_for", lambda *_: set())
    begun = RunMetadata("", "", "", "", {"dtype": begun_in}) if begun_in else None
    config = Config(model=str(QUICK_MODEL), device=device, dtype=dtype)
    with closing(Session(config, begun_in=begun)) as session:
        session.load()
        assert sorted(use.device for use in session.engines.uses()) == engines
        assert session.not_loaded == {}
        assert session.dtype == ("float32" if T4 in engines else "bfloat16")


MEMORY = 8 << 30


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"workers": 33}, "--workers 33: this process may use 8.0 GiB of memory and each takes 256 MiB, so at most 32"),
        ({"workers": 10**12}, "so at most 32"),
        ({"pages_in_flight": 10**6}, "--pages-in-flight 1000000: this process may use 8.0 GiB of memory"),
        ({"pages_in_flight": 205}, "each takes 40 MiB, so at most 204"),
        ({"worker_memory": "9G"}, "--worker-memory 9216M: this process may use 8.0 GiB of memory, so at most 8192M"),
        ({"cache": "s3://bucket/x"}, "--cache s3://bucket/x: a cache is a folder on a disk of this machine"),
        ({"backend": "cuda"}, "--backend cuda needs an NVIDIA GPU"),
        ({"vit_dtype": "fp8"}, "--vit-dtype fp8 needs an NVIDIA GPU"),
    ],
)
def test_what_cannot_work_on_this_machine_is_refused_before_anything_is_opened(
    options: dict[str, object], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batchocr.job.session.usable_memory_bytes", lambda: MEMORY)
    unfound = {"model": str(tmp_path / "no model"), "device": "cpu", **options}
    read = {
        "run": lambda: batchocr.run(tmp_path / "no documents", out=tmp_path / "out.parquet", **unfound),
        "process": lambda: batchocr.process(tmp_path / "no documents", **unfound),
        "Ocr": lambda: batchocr.Ocr(**unfound),
    }
    for refused in read.values():
        with pytest.raises(UsageError, match=re.escape(said)):
            refused()


@pytest.mark.parametrize("options", [{"workers": 32}, {"pages_in_flight": 204}, {"worker_memory": "8G"}])
def test_what_just_fits_this_machine_is_taken(options: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchocr.job.session.usable_memory_bytes", lambda: MEMORY)
    require_usable(make_config({"device": "cpu", **options}))


@pytest.mark.parametrize(
    ("workers", "llm_batch_size", "on_gpu", "expected"),
    [
        (1, 16, False, 4),
        (8, 16, False, 11),
        (1, 64, False, 9),
        (1, 32, True, 14),
        (16, 256, True, 128),
    ],
)
def test_a_cpu_has_few_pages_in_flight_so_that_the_first_are_soon_finished_and_a_gpu_what_fills_its_batches(
    monkeypatch: pytest.MonkeyPatch, workers: int, llm_batch_size: int, on_gpu: bool, expected: int
) -> None:
    monkeypatch.setattr("batchocr.job.session.usable_memory_bytes", lambda: 64 << 30)
    assert default_pages_in_flight(workers, llm_batch_size, on_gpu=on_gpu) == expected
    monkeypatch.setattr("batchocr.job.session.usable_memory_bytes", lambda: 480 << 20)
    assert default_pages_in_flight(workers, llm_batch_size, on_gpu=on_gpu) == 3


def test_a_session_on_a_cpu_has_these_pages_in_flight_unless_told_otherwise() -> None:
    model = str(QUICK_MODEL)
    in_flight = [
        metadata_and_settings(Config(model=model, **options))[1]["pages_in_flight"]
        for options in (
            {"device": "cpu", "workers": 2},
            {"device": "cpu,cpu", "workers": 2},
            {"device": "cpu", "pages_in_flight": 14},
        )
    ]
    assert in_flight == [5, 8, 14]


def test_only_turning_pages_is_a_setting_that_text_depends_on() -> None:
    settings = {
        use: settings_without_model(make_config({"orientation": use}), "mineru") for use in ("off", "check", "turn")
    }
    assert settings["off"] == settings["check"] == settings_without_model(Config(), "mineru")
    assert settings["turn"] == settings["off"] | {"orientation": f"turn r{TURNED_PAGES}"}


def test_pages_are_not_turned_without_the_extra_that_sees_how_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchocr.job.session.revision.has_classifier", lambda: False)
    require_usable(Config(orientation="check"))
    with pytest.raises(UsageError, match=r"--orientation turn needs its classifier: pip install '\.\[orientation\]'"):
        require_usable(Config(orientation="turn"))


@pytest.mark.parametrize(("use", "has_extra", "said"), [("check", False, 1), ("check", True, 0), ("off", False, 0)])
def test_a_run_says_once_that_pages_could_not_be_looked_at(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    quick_processes: None,
    use: OrientationUse,
    has_extra: bool,
    said: int,
) -> None:
    """Nothing is written on these pages, so that it is not known how they stand in any case."""
    monkeypatch.setattr("batchocr.job.run.has_classifier", lambda: has_extra)
    for height in (300, 301):
        Image.new("RGB", (200, height), "white").save(tmp_path / f"{height}.png")
    with caplog.at_level(logging.INFO):
        batchocr.run(tmp_path, out=tmp_path / "t.jsonl", model=QUICK_MODEL, orientation=use, max_new_tokens=8)
    notices = [record.message for record in caplog.records if "[orientation]" in record.message]
    assert (
        notices == ["which way up is not known of 2 pages: pip install '.[orientation]' in a clone of batchocr"] * said
    )
