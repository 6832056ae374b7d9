"""A forecast of what GPUs would read, without one: the engine itself, on a GPU that only moves a clock.

    python -m benchmarks.gpu.virtual_gpu

Scheduler, stages, queue, limits and meters are the product's; only the operations and the device are replaced. What
they cost is calculated (virtual_costs.py), and how two streams get into each other's way is not known, so each of two
models of it is shown (virtual_device.py). Dense pages of the design, in steady state; then 448 × 448 images.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from batchocr.config import Config
from batchocr.data import Request
from batchocr.pages.protocol.revision import MAX_LAYOUT_TOKENS
from batchocr.planning.limits import engine_limits, useful_pages_in_flight
from batchocr.processes.engine_messages import EngineLimits
from batchocr.processes.meter import Meter
from benchmarks.gpu.virtual_costs import DETECTOR_FLOP, VIRTUAL_GPUS, Gpu, Speed
from benchmarks.gpu.virtual_device import CONTENTION, ContentionName
from benchmarks.gpu.virtual_model import VirtualEngine, virtual_engine
from benchmarks.record import commit, write_json
from benchmarks.replay import PagesInFlight
from benchmarks.speed.small_images import SIDE, small_image_trace
from benchmarks.trace import PROMPTS, Noise, Trace, TracePage, dense_trace
from tests.support.mineru_shape import MINERU

WHAT_IT_IS = "A forecast: calculated, not measured. No GPU was used."

_WORKERS = 8
"""Of a machine with 16 cores; 208 pages are in flight then."""
_PAGES = 400
_IMAGES = 1000
_BFLOAT16_BYTES = 2
_NOISE_BYTES = 1 << 24
_PREFILLED, _DECODED = 4_925, 1_480 - 15
"""Tokens of a dense page. A prefill chooses the first one of each of its answers."""
_LAYOUT_PREFILLED, _LAYOUT_DECODED = 1_399, 400 - 1
"""Those of them for its layout."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """Of dense pages on a GPU, in steady state.

    step_ms: from when a decode step could begin to its end. The shares are of the time: for a stage, what its work
    would take alone; idle, that with nothing to do. The rest is lost where streams get into each other's way.
    """

    pages_per_second: float
    rows: float
    step_ms: float
    vit_share: float
    prefill_share: float
    decode_share: float
    idle_share: float


_HEADER = (
    "| GPU | contention | pages/s | rows a decode step | ms a decode step | ViT / prefill / decode / idle, % "
    "| 448 × 448 images/s |"
)


class Run:
    """A trace on its way through a virtual engine, from its first page on. detects: layouts are asked of a detector."""

    def __init__(self, virtual: VirtualEngine, trace: Trace, pages_in_flight: int, *, detects: bool = False) -> None:
        if detects:
            pages = (replace(page, layout=replace(page.layout, output_tokens=0)) for page in trace.pages)
            trace = Trace(tuple(pages))
        self._detects = detects
        self.virtual = virtual
        self.num_tokens = 0
        self._pages_in_flight = pages_in_flight
        self._vit_s_a_page = virtual.costs.vision_seconds(patches(trace.pages[0])[1 if detects else 0 :])
        if detects:
            self._vit_s_a_page += virtual.costs.layouts(DETECTOR_FLOP).alone_s
        self._prefilled = _PREFILLED - _LAYOUT_PREFILLED * detects
        self._decoded = _DECODED - _LAYOUT_DECODED * detects
        self._pages = PagesInFlight(trace, self._submit, Noise(_NOISE_BYTES))
        self.count_anew()

    def count_anew(self) -> None:
        """Forget what was counted so far, as the run was not yet in steady state."""
        self.meter = Meter()
        self.virtual.count_anew()
        self._begun_s = self.virtual.clock.now_s

    @property
    def num_finished(self) -> int:
        """Pages since the beginning."""
        return self._pages.num_begun - len(self._pages.left)

    @property
    def seconds(self) -> float:
        return self.virtual.clock.now_s - self._begun_s

    @property
    def progress(self) -> float:
        """Dense pages, as far as each stage came with them, weighted by the stage's time: pages finish in waves, and
        one stage may be ahead of another when one looks."""
        done_s = self.virtual.clock.done_s
        pages = {
            "vit": done_s["vit"] / self._vit_s_a_page,
            "prefill": sum(self.virtual.prefills) / self._prefilled,
            "decode": self.meter.stages["decode"].items / self._decoded,
        }
        return sum(done_s[stage] * number for stage, number in pages.items()) / sum(done_s[stage] for stage in pages)

    def until(self, num_finished: int) -> None:
        """Step until so many pages are finished."""
        self._pages.begin(self._pages_in_flight)
        while self.num_finished < num_finished:
            for request_id, completion in self.virtual.engine.step(self.meter):
                self.num_tokens += completion.output_tokens
                self._pages.end(request_id, completion.output_tokens)
            self._pages.begin(self._pages_in_flight)

    def forecast(self) -> Forecast:
        """Of what was counted."""
        decode, clock = self.meter.stages["decode"], self.virtual.clock
        return Forecast(
            pages_per_second=self.progress / self.seconds,
            rows=decode.items / decode.batches,
            step_ms=1000 * decode.busy_s / decode.batches,
            vit_share=clock.done_s["vit"] / self.seconds,
            prefill_share=clock.done_s["prefill"] / self.seconds,
            decode_share=clock.done_s["decode"] / self.seconds,
            idle_share=clock.idle_s / self.seconds,
        )

    def _submit(self, request_id: int, request: Request) -> None:
        if self._detects and request.prompt == PROMPTS["layout"]:
            request = replace(request, detector="d")
        refused = self.virtual.engine.submit(request_id, request)
        if refused is not None:
            raise RuntimeError(f"the engine refused a request: {refused.error}")


def patches(page: TracePage) -> list[int]:
    """Of each of its images."""
    side = MINERU.vision.patch_size
    return [(ask.resize_to or ask.height) // side * ((ask.resize_to or ask.width) // side) for ask in page.asks]


def limits_on(gpu: Gpu) -> EngineLimits:
    """The product's, of its default options."""
    return engine_limits(
        Config(),
        MINERU,
        on_gpu=True,
        memory_bytes=gpu.memory_bytes,
        value_bytes=_BFLOAT16_BYTES,
        layout_tokens=MAX_LAYOUT_TOKENS,
    )


def forecast_pages(
    speed: Speed, limits: EngineLimits, contention: ContentionName, *, num_pages: int = _PAGES, detects: bool = False
) -> Forecast:
    """Of this many dense pages, behind others that bring the engine into its steady state. detects: see Run."""
    in_flight = useful_pages_in_flight(_WORKERS, limits.llm_batch_size, on_gpu=True)
    first = in_flight
    virtual = virtual_engine(speed, MINERU, limits, contention, detects=detects)
    run = Run(virtual, dense_trace(first + num_pages + in_flight), in_flight, detects=detects)
    run.until(first)
    run.count_anew()
    run.until(first + num_pages)
    return run.forecast()


def images_per_second(
    speed: Speed, limits: EngineLimits, contention: ContentionName, *, num_images: int = _IMAGES
) -> float:
    """Of small images that are all submitted at once, as in `small_images.py`."""
    virtual = virtual_engine(speed, MINERU, limits, contention)
    run = Run(virtual, small_image_trace(num_images, SIDE), num_images)
    run.until(num_images)
    return num_images / run.seconds


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    parser.add_argument("--layout", action="store_true", help="pages/s without and with a layout detector, alone")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    print(WHAT_IT_IS)
    if given.layout:
        _compare_layouts()
        return
    print(f"\n{_HEADER}\n{'| --- ' * _HEADER.count(' | ')}| --- |", flush=True)
    figures: dict[str, float] = {}
    for gpu in VIRTUAL_GPUS.values():
        limits = limits_on(gpu)
        for contention in CONTENTION:
            pages = forecast_pages(gpu.speed, limits, contention)
            images = images_per_second(gpu.speed, limits, contention)
            print(_line(gpu, contention, pages, images), flush=True)
            row = {**asdict(pages), "images_per_second": images}
            figures |= {f"{gpu.name}.{contention}.{name}": value for name, value in row.items()}
    if given.out:
        write_json(given.out, {"what": WHAT_IT_IS, "commit": commit(), **figures})


def _compare_layouts() -> None:
    for gpu in VIRTUAL_GPUS.values():
        limits = replace(limits_on(gpu), layout_batch_size=8)
        for contention in CONTENTION:
            without, with_one = (
                forecast_pages(gpu.speed, limits, contention, detects=detects).pages_per_second
                for detects in (False, True)
            )
            ratio = with_one / without
            print(f"{gpu.name:8} {contention:11} {without:.2f} → {with_one:.2f} pages/s, {ratio:.2f} ×", flush=True)


def _line(gpu: Gpu, contention: ContentionName, pages: Forecast, images: float) -> str:
    shares = (pages.vit_share, pages.prefill_share, pages.decode_share, pages.idle_share)
    cells = [
        f"{gpu.name}, {gpu.attention}",
        contention,
        f"{pages.pages_per_second:.2f}",
        f"{pages.rows:.0f}",
        f"{pages.step_ms:.2f}",
        " / ".join(f"{100 * share:.0f}" for share in shares),
        f"{images:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
