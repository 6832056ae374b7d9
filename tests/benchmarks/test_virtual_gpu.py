"""The forecast for GPUs: the engine itself runs, on a clock that gives the same figures every time."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path

import pytest

from batchocr.processes.engine_messages import EngineLimits
from benchmarks.gpu import virtual_gpu
from benchmarks.gpu.virtual_costs import VIRTUAL_GPUS, Costs, Speed
from benchmarks.gpu.virtual_device import CONTENTION, ContentionName, Gate, Kernels, VirtualClock, VirtualMark
from benchmarks.gpu.virtual_gpu import Forecast, Run, limits_on
from benchmarks.gpu.virtual_model import virtual_engine
from benchmarks.trace import dense_trace
from tests.support.mineru_shape import MINERU

H200 = VIRTUAL_GPUS["h200"]
LIMITS = replace(limits_on(H200), llm_batch_size=32, num_kv_tokens=100_000)
PAGES = 2


def read_all(speed: Speed, contention: ContentionName = "persistent", limits: EngineLimits = LIMITS) -> Run:
    """A run that has read a few dense pages at once."""
    run = Run(virtual_engine(speed, MINERU, limits, contention), dense_trace(PAGES), PAGES)
    run.until(PAGES)
    return run


@pytest.fixture(scope="module")
def read() -> Run:
    return read_all(H200.speed)


def test_the_engine_answers_every_request_with_the_tokens_of_the_trace(read: Run) -> None:
    assert not read.virtual.engine.has_work
    assert read.num_tokens == PAGES * 1480
    assert read.meter.stages["vit"].items == read.meter.stages["prefill"].items == PAGES * 15
    assert read.progress == pytest.approx(PAGES)


def test_the_figures_are_the_same_at_each_run(read: Run) -> None:
    assert read_all(H200.speed).forecast() == read.forecast()


def test_what_is_twice_as_fast_in_everything_reads_twice_as_many_pages(read: Run) -> None:
    slow, fast = read.forecast(), read_all(H200.speed.times(2)).forecast()
    assert fast.pages_per_second == pytest.approx(2 * slow.pages_per_second)
    assert (fast.rows, fast.vit_share) == pytest.approx((slow.rows, slow.vit_share))


def test_no_stage_runs_beside_another_if_they_take_turns() -> None:
    forecast = read_all(H200.speed, "slices").forecast()
    shares = forecast.vit_share + forecast.prefill_share + forecast.decode_share + forecast.idle_share
    assert shares == pytest.approx(1, abs=0.02)  # the rest are uploads


def test_a_page_takes_as_long_on_the_gpu_as_was_inferred_from_published_rates() -> None:
    assert ms_a_page(VIRTUAL_GPUS["h200"].speed) == pytest.approx(93, rel=0.1)
    assert ms_a_page(VIRTUAL_GPUS["h100"].speed) == pytest.approx(113, rel=0.1)


def ms_a_page(speed: Speed) -> float:
    """The sum of a dense page's kernels, at 100 rows a decode step."""
    costs = Costs(MINERU, speed)
    counts = virtual_gpu.patches(dense_trace(1).pages[0])
    assert (sum(counts), sum(count // 4 + 30 for count in counts)) == (17_900, 4_925)
    vit = costs.vision_seconds(counts)
    prefill = MINERU.language.num_layers * costs.prefill_layer([count // 4 + 30 for count in counts]).alone_s
    steps = 1480 / 100
    return 1000 * (vit + prefill + steps * costs.decode_step(100, 100 * 800).alone_s)


def test_the_limits_are_those_of_a_run() -> None:
    assert [limits_on(gpu).llm_batch_size for gpu in VIRTUAL_GPUS.values()] == [512, 512, 512, 256]


def test_there_is_a_figure_for_each_gpu_in_each_model_of_contention(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forecast = Forecast(11.0, *[1.0] * 6)
    monkeypatch.setattr(virtual_gpu, "forecast_pages", lambda *_: forecast)
    monkeypatch.setattr(virtual_gpu, "images_per_second", lambda *_: 300.0)
    virtual_gpu.main(["--out", str(tmp_path / "figures.json")])

    figures = json.loads((tmp_path / "figures.json").read_text())
    for gpu, contention in product(("h200", "h100", "a100", "rtx4090"), ("persistent", "slices")):
        assert figures[f"{gpu}.{contention}.pages_per_second"] == 11.0
        assert figures[f"{gpu}.{contention}.images_per_second"] == 300.0
        assert all(f"{gpu}.{contention}.{name}" in figures for name in asdict(forecast))
    first, *_, last = capsys.readouterr().out.splitlines()
    assert "forecast" in first.lower()
    assert last.startswith("| rtx4090, FA2 | slices | 11.00 |")


def launched(clock: VirtualClock, *queued: Kernels | Gate, side: bool) -> VirtualMark:
    """The mark behind what was launched."""
    mark = VirtualMark(clock)
    for each in (*queued, mark):
        clock.launch(each, side=side)
    return mark


def step() -> Kernels:
    return Kernels("decode", 1e-3, num=100, share=0.5)


def layer() -> Kernels:
    return Kernels("vit", 5e-3, num=12, gaps=5)


@pytest.mark.parametrize(
    ("contention", "step_ends_s", "layer_ends_s"),
    [
        # Five of its kernels begin during the layer, the others after it.
        ("persistent", 5.9725e-3, 5.0246e-3),
        ("slices", 1e-3, 6e-3),
    ],
)
def test_two_streams_get_into_each_others_way_as_the_model_says(
    contention: ContentionName, step_ends_s: float, layer_ends_s: float
) -> None:
    clock = VirtualClock(CONTENTION[contention])
    layer_ended = launched(clock, layer(), side=True)
    step_ended = launched(clock, step(), side=False)
    layer_ended.wait()
    step_ended.wait()
    assert step_ended.time_s == pytest.approx(step_ends_s, rel=0.01)
    assert layer_ended.time_s == pytest.approx(layer_ends_s, rel=0.01)


def test_a_step_between_two_layers_has_the_gpu_to_itself_if_the_second_waits_for_it() -> None:
    clock = VirtualClock(CONTENTION["persistent"])
    first = launched(clock, layer(), side=True)
    step_ended = launched(clock, Gate(first), step(), side=False)
    second = launched(clock, Gate(step_ended), layer(), side=True)
    second.wait()
    assert (first.time_s, step_ended.time_s, second.time_s) == pytest.approx((5e-3, 6e-3, 11e-3))
    assert clock.now_s == second.time_s


def test_kernels_begin_when_they_are_launched_and_the_gpu_is_idle_until_then() -> None:
    clock = VirtualClock(CONTENTION["persistent"])
    clock.work(2e-3)
    ended = launched(clock, step(), side=False)
    clock.work(0.5e-3)
    assert not ended.is_done()
    clock.work(0.6e-3)
    assert ended.is_done()
    assert ended.time_s == pytest.approx(3e-3)
    assert clock.idle_s == pytest.approx(2.1e-3)


def test_a_wait_that_can_never_end_is_an_error() -> None:
    clock = VirtualClock(CONTENTION["slices"])
    never = VirtualMark(clock)
    behind = launched(clock, Gate(never), side=True)
    with pytest.raises(RuntimeError, match="no stream will ever reach"):
        behind.wait()


def test_with_a_detector_a_page_is_its_blocks_and_a_fraction_of_its_layout(read: Run) -> None:
    limits = replace(LIMITS, layout_batch_size=2)
    run = Run(
        virtual_engine(H200.speed, MINERU, limits, "slices", detects=True), dense_trace(PAGES), PAGES, detects=True
    )
    run.until(PAGES)
    assert run.num_tokens == PAGES * 1080
    assert run.meter.stages["vit"].items == PAGES * 14
    assert run.meter.stages["layout"].items == PAGES
    assert run.progress == pytest.approx(PAGES)
    assert run.seconds < 0.8 * read.seconds
