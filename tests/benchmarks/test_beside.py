"""vLLM does the same requests as batchocr, and their rates are set side by side. A stand-in takes vLLM's place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from batchocr.processes.meter import Meter
from benchmarks.gpu import beside, peer_vllm
from benchmarks.replay import replay
from benchmarks.trace import dense_trace
from benchmarks.true_shape import SMOKE_SHAPE, write_checkpoint
from tests.support import stand_in_vllm

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint"), SMOKE_SHAPE, torch.float32)


@pytest.fixture(autouse=True)
def _vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_vllm.install(monkeypatch)
    monkeypatch.setattr(peer_vllm, "_START_METHOD", "fork")


def _share(folder: Path, pages: int) -> peer_vllm.Share:
    arguments = peer_vllm._ARGUMENTS | {"gpu_memory_utilization": 0.9}
    return peer_vllm.Share(folder, torch.device("cpu"), dense_trace(pages).shrunk(0.1), 2, arguments, 2)


def test_vllm_is_asked_for_each_request_of_the_trace_in_the_checkpoints_format(folder: Path) -> None:
    share = _share(folder, 3)
    engine = peer_vllm.VllmEngine(folder, share.arguments, threads=2)
    replayed = replay(engine, peer_vllm.sizes_of(folder), share.trace, pages_in_flight=2, meter=Meter())
    asks = [ask for page in share.trace.pages for ask in page.asks]
    assert not engine.has_work
    assert sorted(work.output_tokens for work in replayed.work) == sorted(ask.output_tokens for ask in asks)
    added = engine._engine.added
    assert len(added) == len(replayed.work) == len(asks)
    assert sorted(prompt["size"] for prompt, _ in added) == sorted(
        (ask.resize_to or ask.width, ask.resize_to or ask.height) for ask in asks
    )
    # One token stands for the image, where batchocr's prompt has one for each of its merged patches.
    lengths = [len(prompt["prompt_token_ids"]) - 1 for prompt, _ in added]
    assert sorted(lengths) == sorted(work.prompt_tokens - work.image_tokens for work in replayed.work)


def test_processes_of_vllm_share_the_pages_and_their_rates_add_up(folder: Path) -> None:
    shares = [_share(folder, 2), _share(folder, 1)]
    together, clocks = peer_vllm.replay_together(shares)
    assert together.pages == 3
    assert len(together.work) == 45
    assert set(clocks.values()) == {None}


@pytest.mark.timeout(60)
def test_a_process_of_vllm_that_does_not_start_leaves_no_other_waiting(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = _share(folder, 1)
    bad.arguments["no_such_argument"] = 1
    with pytest.raises(TypeError, match="no_such_argument"):
        peer_vllm.replay_together([_share(folder, 1), bad])


def test_both_engines_are_compared_row_by_row(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "beside.json"
    arguments = ["--smoke", "--device", "cpu", "--checkpoint", str(folder), "--processes", "1,2", "--out", str(out)]
    beside.main(arguments)
    found = json.loads(out.read_text())
    assert [row["engine"] for row in found["rows"]] == ["batchocr", "vLLM in 1", "vLLM in 2"]
    ours, *peers = (row["pages/s"] for row in found["rows"])
    assert found["figures"]["times_vllm"] == pytest.approx(ours / max(peers))
    assert "batchocr / vLLM, pages/s: " in capsys.readouterr().out


@pytest.mark.long
def test_what_was_measured_stays_where_vllm_fails(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stand_in_vllm.LLMEngine, "broken", True)
    out = tmp_path / "beside.json"
    beside.main(["--smoke", "--device", "cpu", "--checkpoint", str(folder), "--processes", "1", "--out", str(out)])
    found = json.loads(out.read_text())
    assert [row["engine"] for row in found["rows"]] == ["batchocr"]
    assert found["notes"]["vLLM in 1"] == "RuntimeError: Engine core initialization failed"


def test_without_vllm_one_sentence_says_what_to_install(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_vllm, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="pip install vllm"):
        peer_vllm.main(["--smoke"])
    out = tmp_path / "beside.json"
    beside.main(["--smoke", "--device", "cpu", "--checkpoint", str(folder), "--out", str(out)])
    found = json.loads(out.read_text())
    assert [row["engine"] for row in found["rows"]] == ["batchocr"]
    assert "pip install vllm" in found["notes"]["vllm"]
