"""vLLM does the same requests as batchocr, and their rates are set side by side. A stand-in takes vLLM's place."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from batchocr.processes.meter import Meter
from benchmarks.gpu import beside, peer_vllm
from benchmarks.replay import replay
from benchmarks.trace import PROMPTS, dense_trace
from benchmarks.true_shape import SMOKE_SHAPE, write_checkpoint
from tests.support import stand_in_vllm

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
BEGIN = [479, 471, 198, 447, 473, 457, 472, 460, 13, 480, 198, 479, 455, 198, 481, 484, 482, 198]
END = [25, 480, 198, 479, 439, 198]
TOKENS = {"layout": [*BEGIN, 477, 475, *END], "text": [*BEGIN, 467, 434, *END], "equation": [*BEGIN, 476, 434, *END]}
"""Of a request's prompt, by its kind. One token stands for the image."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint"), SMOKE_SHAPE, torch.float32)


@pytest.fixture(autouse=True)
def _vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in stand_in_vllm.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(peer_vllm, "START_METHOD", "fork")


def _given(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    peer_vllm.add_vllm_options(parser)
    return parser.parse_args(["--pages-in-flight", "4", *arguments])


def _shares(folder: Path, pages: int, set_up: str, *arguments: str) -> list[peer_vllm.Share]:
    trace = dense_trace(pages).shrunk(0.1)
    return peer_vllm.shares_of(trace, folder, peer_vllm.SetUp(set_up), _given(*arguments))


def _beside(folder: Path, out: Path, *arguments: str) -> dict[str, Any]:
    beside.main(["--smoke", "--device", "cpu", "--checkpoint", str(folder), "--out", str(out), *arguments])
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def test_vllm_is_set_up_as_its_offline_class_is_on_such_a_card_and_each_other_setting_has_its_reason() -> None:
    settings = peer_vllm.settings(peer_vllm.SetUp("4"), _given())
    assert {name: value for name, (value, _) in settings.items()} == {
        "dtype": "bfloat16",
        "max_model_len": 16384,
        "max_num_seqs": 1024,
        "max_num_batched_tokens": 16384,
        "disable_log_stats": True,
        "limit_mm_per_prompt": {"image": 1, "video": 0},
        "enable_prefix_caching": False,
        "mm_processor_cache_gb": 0,
        "generation_config": "vllm",
        "renderer_num_workers": 1,
        "gpu_memory_utilization": 0.225,
        "kv_cache_memory_bytes": 3 << 30,
    }
    assert all(reason for _, reason in settings.values())
    assert peer_vllm.settings(peer_vllm.SetUp("1-threads"), _given("--threads", "2"))["renderer_num_workers"][0] == 2
    fewer = peer_vllm.settings(peer_vllm.SetUp("4"), _given("--vllm-args", '{"max_num_seqs": 512}'))
    assert fewer["max_num_seqs"] == (512, "as given")


@pytest.mark.parametrize("text", ["", "0", "four", "4-", "4-mps-pool", "-pool"])
def test_what_is_no_set_up_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{text}$"):
        peer_vllm.SetUp(text)


@pytest.mark.parametrize("set_up", ["1-threads", "1-pool", "1"])
def test_vllm_is_asked_for_each_request_of_the_trace_in_the_checkpoints_format(folder: Path, set_up: str) -> None:
    (share,) = _shares(folder, 3, set_up, "--pool", "2")
    engine = peer_vllm.VllmEngine(share)
    if share.set_up.images == "before":
        engine.prepare(share.trace)
        engine.executor.shutdown()  # nothing is left to prepare
    replayed = replay(engine, peer_vllm.sizes_of(folder), share.trace, pages_in_flight=2, meter=Meter())
    asks = [ask for page in share.trace.pages for ask in page.asks]
    assert not engine.has_work
    assert sorted(work.output_tokens for work in replayed.work) == sorted(ask.output_tokens for ask in asks)
    added = engine._engine.added
    assert len(added) == len(replayed.work) == len(asks)
    assert asdict(engine._engine.args) == {"model": str(folder), "enforce_eager": False, **share.arguments}
    assert {
        (params.temperature, params.ignore_eos, params.presence_penalty, params.frequency_penalty)
        for _, params in added
    } == {(0.0, True, 0.0, 0.0), (0.0, True, 1.0, 0.05)}
    assert sorted((*prompt["size"], prompt["prompt_token_ids"]) for prompt, _ in added) == sorted(
        (ask.resize_to or ask.width, ask.resize_to or ask.height, TOKENS[ask.kind]) for ask in asks
    )
    # batchocr's prompt has a token for each of the image's merged patches.
    lengths = [len(prompt["prompt_token_ids"]) - 1 for prompt, _ in added]
    assert sorted(lengths) == sorted(work.prompt_tokens - work.image_tokens for work in replayed.work)
    # vLLM would take images of one name for the same image.
    assert len({prompt["mm_hashes"]["image"][0] for prompt, _ in added}) == len(asks)
    assert set(TOKENS) < set(PROMPTS)


def test_processes_of_vllm_share_the_pages_and_their_rates_add_up(folder: Path) -> None:
    shares = _shares(folder, 3, "2")
    assert [len(share.trace.pages) for share in shares] == [2, 1]
    assert [(share.pages_in_flight, share.preparers) for share in shares] == [(2, 4), (2, 4)]
    together, clocks = peer_vllm.replay_together(shares, CPU)
    assert together.pages == 3
    assert len(together.work) == 45
    assert set(clocks.a_page(3).values()) == {None}


@pytest.mark.timeout(60)
def test_a_process_of_vllm_that_does_not_start_leaves_no_other_waiting(folder: Path) -> None:
    good, bad = _shares(folder, 2, "2-threads")
    bad = replace(bad, arguments=bad.arguments | {"no_such_argument": 1})
    with pytest.raises(TypeError, match="no_such_argument"):
        peer_vllm.replay_together([good, bad], CPU)


def test_both_engines_are_compared_with_images_prepared_in_the_same_way(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = _beside(folder, tmp_path / "beside.json", "--set-ups", "1-threads,2,1-pool")
    rows = {(row["engine"], row["images"]): row["pages/s"] for row in found["rows"]}
    assert list(rows) == [
        ("batchocr", "within"),
        ("batchocr", "before"),
        ("vLLM, 1-threads", "within"),
        ("vLLM, 2", "before"),
        ("vLLM, 1-pool", "within"),
    ]
    best = max(rows["vLLM, 1-threads", "within"], rows["vLLM, 1-pool", "within"])
    assert found["figures"] == {
        "times_vllm_within": pytest.approx(rows["batchocr", "within"] / best),
        "times_vllm_before": pytest.approx(rows["batchocr", "before"] / rows["vLLM, 2", "before"]),
    }
    assert "max_num_seqs = 1024 (the default" in " ".join(found["notes"]["EngineArgs of vLLM, 1-threads"])
    assert not any(note.startswith("not measured") for note in found["notes"])
    assert "batchocr / vLLM, images prepared within the time: " in capsys.readouterr().out


def test_set_ups_that_there_is_no_time_for_are_named(folder: Path, tmp_path: Path) -> None:
    found = _beside(folder, tmp_path / "beside.json", "--set-ups", "4,4-pool", "--minutes", "0")
    assert [row["engine"] for row in found["rows"]] == ["batchocr", "batchocr"]
    assert found["notes"]["not measured, for --set-ups"] == "4,4-pool"


@pytest.mark.long
def test_what_was_measured_stays_where_vllm_fails(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stand_in_vllm.LLMEngine, "broken", True)
    found = _beside(folder, tmp_path / "beside.json", "--set-ups", "1")
    assert [row["engine"] for row in found["rows"]] == ["batchocr", "batchocr"]
    assert found["notes"]["vLLM, 1"] == "RuntimeError: Engine core initialization failed"
    assert found["notes"]["not measured, for --set-ups"] == "1"


MPS = """#!/bin/sh
cd "$CUDA_MPS_PIPE_DIRECTORY"
if [ "$1" = -f ]; then touch serving; while [ -e serving ]; do sleep 0.01; done; exit; fi
read -r command
case $command in get_server_list) {servers} ;; quit) rm serving ;; esac
"""
"""NVIDIA's program: it serves until it is told to quit."""


@pytest.mark.parametrize(("servers", "measured"), [("echo 4711", True), (":", False)])
def test_a_rate_under_mps_counts_only_if_mps_served_the_processes(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, servers: str, measured: bool
) -> None:
    program = tmp_path / "nvidia-cuda-mps-control"
    program.write_text(MPS.format(servers=servers))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"):
        monkeypatch.setenv(name, "")
    found = _beside(folder, tmp_path / "beside.json", "--set-ups", "1-mps")
    assert [row["engine"] for row in found["rows"]][2:] == ["vLLM, 1-mps"] * measured
    assert ("vLLM, 1-mps" in found["notes"]) is not measured


def test_without_vllm_one_sentence_says_what_to_install(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_vllm, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="pip install vllm"):
        peer_vllm.main(["--smoke"])
    found = _beside(folder, tmp_path / "beside.json")
    assert [row["engine"] for row in found["rows"]] == ["batchocr", "batchocr"]
    assert "pip install vllm" in found["notes"]["vllm"]
