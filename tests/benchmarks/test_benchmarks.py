"""The benchmarks run, and measure what they claim to: on a CPU, in miniature."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from batchocr.data import Pixels
from batchocr.planning.families import read_architecture
from batchocr.processes.meter import Meter
from benchmarks.attack import damaged_images, damaged_pdfs, sound
from benchmarks.gpu import check as gpu_check
from benchmarks.gpu.check import Part, run_part, summary
from benchmarks.gpu.variants import CoupledEngine, Prepared
from benchmarks.loading import load, make_engine
from benchmarks.replay import replay
from benchmarks.speed import throughput
from benchmarks.text_layer import read_answers
from benchmarks.trace import LAYOUT_SIZE, Noise, Trace, TracePage, dense_trace
from benchmarks.true_shape import SHAPES, SMOKE_SHAPE, detector, smoke_shape, write_checkpoint
from tests.support.pdf_files import encoded, letter, lines, stream, text_pages

pytestmark = pytest.mark.slow

FIGURES = (
    "throughput.dense_bf16.pages_per_second",
    "end_to_end.pages_per_second",
    "preprocess.resize_4k_ms",
    "small_images.requests_per_second",
    "decode.step_4_ms",
)


@pytest.mark.long
@pytest.mark.usefixtures("engine_processes")
def test_every_check_and_every_benchmark_passes_on_a_cpu_and_has_the_figures_that_releases_are_compared_by(
    tmp_path: Path,
) -> None:
    out = tmp_path / "gpu_check.json"
    gpu_check.main(["--smoke", "--device", "cpu", "--out", str(out)])
    assert out.with_name("gpu_check.trace.json.gz").stat().st_size > 1000
    checked = json.loads(out.read_text())
    assert checked["failed"] == {}
    assert checked["parts"].keys() == {part.name for part in gpu_check.PARTS if part.on_cpu}
    assert len(checked["checks"]) > 9
    assert all(check["ok"] for check in checked["checks"].values())
    assert all(checked["figures"][name] > 0 for name in FIGURES)
    assert {"commit", "gpu", "torch", "kernels"} <= checked.keys()


def test_a_part_that_fails_is_written_down_and_what_was_known_stays() -> None:
    part = Part("bad", "benchmarks.gpu.ops_check", 60, needs_model=False)
    found = summary({"bad": run_part(part, ["--device", "cpu", "--only", "norms,nonsense"], 60, smoke=True)})
    assert found["failed"] == {"bad": "exit code 1"}
    assert found["checks"]["norms float32"]["ok"]
    assert "KeyError" in found["checks"]["nonsense float32"]["reason"]


def test_the_dense_page_is_the_one_of_the_design() -> None:
    sizes = set()
    for page in dense_trace(20).pages:
        patches = [ask.height // 14 * (ask.width // 14) for ask in page.blocks]
        sizes.add((sum(patches) + (LAYOUT_SIZE // 14) ** 2, sum(ask.output_tokens for ask in page.asks), len(patches)))
    assert sizes == {(17_900, 1480, 14)}


def test_a_pages_text_layer_becomes_the_requests_of_a_run(sample_data: Path) -> None:
    first, *_ = read_answers([str(sample_data / "documents" / "article.pdf")])
    asks = first.asks
    assert (asks.layout.height, asks.layout.width, asks.layout.resize_to) == (2339, 1653, LAYOUT_SIZE)
    assert len(first.layout.text.splitlines()) == len(asks.blocks)
    long = max(first.blocks, key=lambda answer: len(answer.text))
    assert long.ask.output_tokens == pytest.approx(len(long.text) / 3.6, abs=3)
    assert len({answer.key for answer in first.blocks}) == len(first.blocks)


@pytest.mark.parametrize("family", SHAPES)
def test_a_checkpoint_of_random_weights_has_the_shape_that_it_is_given(family: str, tmp_path: Path) -> None:
    shape = smoke_shape(family)
    written = read_architecture(write_checkpoint(tmp_path, shape, torch.float32))
    assert (written.vision, written.language) == (shape.vision, shape.language)
    assert written.images.max_pixels == shape.images.max_pixels


@pytest.mark.parametrize("coupled", [False, True])
def test_a_replay_asks_for_blocks_behind_their_layout_and_gets_all_it_asked_for(tmp_path: Path, coupled: bool) -> None:
    model = load(write_checkpoint(tmp_path, SMOKE_SHAPE, torch.float32), "cpu")
    engine = make_engine(model, max_new_tokens=64)
    trace = dense_trace(3).shrunk(0.1)
    pages = tuple(TracePage(page.layout, page.blocks[:4]) for page in trace.pages)
    meter = Meter()
    steps = CoupledEngine(engine, 5) if coupled else engine
    with torch.inference_mode():
        result = replay(steps, model, Trace(pages), pages_in_flight=2, meter=meter)
    assert result.pages == 3
    assert sum(work.output_tokens for work in result.work) == sum(
        ask.output_tokens for page in pages for ask in page.asks
    )
    assert meter.stages["vit"].items == len(result.work) == 15
    assert meter.patches == sum(work.patches for work in result.work)


def test_images_that_were_cut_beforehand_are_the_same_patches_and_are_not_cut_again(tmp_path: Path) -> None:
    usual = load(write_checkpoint(tmp_path, SMOKE_SHAPE, torch.float32), "cpu").preprocessor
    page = dense_trace(1).shrunk(0.1).pages[0]
    asks = list({(ask.height, ask.width): ask for ask in page.asks}.values())  # one of each size
    noise = Noise()
    images = [(request.pixels, request.resize_to) for request in map(noise.request, asks)]
    expected = usual.patches(images)
    prepared = Prepared(usual, torch.device("cpu"))
    assert torch.equal(prepared.patches(images), expected)
    prepared.prepare(Trace((TracePage(asks[0], tuple(asks[1:])),)))
    blank = [(Pixels(pixels.height, pixels.width, bytes(len(pixels.data))), resize_to) for pixels, resize_to in images]
    assert torch.equal(prepared.patches(blank), expected)


@pytest.mark.parametrize(
    ("options", "rows", "pages"),
    [
        (("--pages", "3"), ["within"], 3),
        (("--pages", "3", "--prepared"), ["within", "before"], 3),
        (("--pages", "3", "--seconds", "0"), ["within"], 2),
    ],
)
def test_pages_alone_are_all_read_and_not_profiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], rows: list[str], pages: int
) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint", SMOKE_SHAPE, torch.float32)
    monkeypatch.setattr(throughput, "given_trace", lambda given: dense_trace(given.pages).shrunk(0.1))
    out = tmp_path / "throughput.json"
    usual = ["--smoke", "--device", "cpu", "--checkpoint", str(checkpoint), "--pages-in-flight", "2"]
    throughput.main([*usual, *options, "--out", str(out)])
    found = json.loads(out.read_text())
    measured = [(row["images"], row["pages"]) for row in found["rows"] if "pages/s" in row]
    assert measured == [(images, pages) for images in rows]
    assert ("device_idle_share_profiled" in found["notes"]) is ("--seconds" in options)


@pytest.mark.long
def test_a_detectors_layouts_are_followed_by_the_blocks_of_the_page(tmp_path: Path) -> None:
    model = load(write_checkpoint(tmp_path, SMOKE_SHAPE, torch.float32), "cpu")
    page = dense_trace(1).shrunk(0.1).pages[0]
    meter = Meter()
    with detector(smoke=True) as layouts, torch.inference_mode():
        engine = make_engine(model, layouts=layouts, max_new_tokens=64)
        trace = Trace((replace(page, blocks=page.blocks[:3]),)).detected()
        result = replay(engine, model, trace, pages_in_flight=1, meter=meter)
    assert (meter.stages["layout"].items, meter.stages["vit"].items) == (1, 3)
    assert [work.output_tokens for work in result.work] == [0, *(ask.output_tokens for ask in page.blocks[:3])]


@pytest.mark.long
def test_no_damage_to_the_sample_documents_goes_unsaid(tmp_path: Path) -> None:
    damaged_pdfs.main(["--smoke", "--out", str(tmp_path / "damage.json")])
    found = json.loads((tmp_path / "damage.json").read_text())
    assert sum(row["lost > 1 %"] for row in found["rows"]) > 5
    assert found["figures"]["untold"] == 0


@pytest.mark.long
def test_no_sound_image_is_said_to_be_damaged_and_what_damage_costs_is_counted(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    damaged_images.main(["--smoke", "--keep", str(kept), "--out", str(tmp_path / "damaged_images.json")])
    found = json.loads((tmp_path / "damaged_images.json").read_text())
    assert found["figures"]["sound_but_not_ok"] == 0
    by_damage = [row for row in found["rows"] if "encoding" not in row]
    assert sum(row["lost > 1 %"] for row in by_damage) > 20
    assert found["figures"]["untold"] == sum(row["ok, lost > 1 %"] for row in by_damage)
    assert len(list(kept.glob("*.sound"))) <= found["figures"]["untold"]


def test_false_alarms_are_counted_over_sound_pages_alone(tmp_path: Path) -> None:
    folder = tmp_path / "documents"
    folder.mkdir()
    text = text_pages(stream(lines("words")))
    for name, data in {
        "plain.pdf": text,
        "marked.pdf": text.replace(b"/Resources <<", b"/Resources <</XObject <</I 9 0 R>>"),
        "lacking.pdf": text_pages(stream(b"BT /F1 40 Tf 10 100 Td [(words) Tj (more)] TJ ET")),
        "truncated.pdf": text[:300],
        "half.png": encoded(letter(), "PNG")[:900],
        "whole.png": encoded(letter(), "PNG"),
    }.items():
        (folder / name).write_bytes(data)
    sound.main([str(folder), "--device", "cpu", "--out", str(tmp_path / "sound.json")])
    found = json.loads((tmp_path / "sound.json").read_text())
    assert [(row["first"], row["lacking"]) for row in found["rows"]] == [
        ("lacking.pdf, page 1", 1),
        ("marked.pdf, page 1", 0),
    ]
    assert found["figures"] == {
        "sound_pages": 4,
        "sound_pages_marked": 2,
        "sound_pages_marked_that_lack_something": 1,
    }
