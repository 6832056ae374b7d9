"""What is said to limit a run's rate: only what its figures show."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import pytest

from batchocr.data import ErrorKind
from batchocr.job.stats.bottleneck import name_bottleneck
from batchocr.job.stats.ledger import Ledger
from batchocr.job.stats.report import make_report
from batchocr.processes.counts import WORKER_STAGES, Stage
from batchocr.processes.engines import EngineUse
from batchocr.processes.meter import Meter


@dataclass(frozen=True)
class Run:
    """Figures of a run. busy: of the stages, in shares of the work time, of all workers for theirs. fill: of their
    batches. waits: the share of the time in which the device had no request. gaps: in which it was idle besides."""

    pages: int
    work_s: float
    busy: dict[Stage, float]
    in_flight: int = 14
    fill: dict[Stage, float] | None = None
    waits: float = 0.0
    gaps: float = 0.0
    workers: int = 1
    gpu: bool = False
    start_up_s: float = 5.0
    preemptions: int = 0
    errors: tuple[ErrorKind, ...] = ()

    def bottleneck(self) -> str:
        meter = Meter()
        meter.starved_s += self.waits * self.work_s
        meter.device_busy.add(0.0, (1 - self.waits - self.gaps) * self.work_s)
        meter.preemptions += self.preemptions
        for stage, share in self.busy.items():
            processes = self.workers if stage in WORKER_STAGES else 1
            fill = (self.fill or {}).get(stage)
            limit = 100.0 if fill is not None else 0.0
            meter.add(stage, share * self.work_s * processes, items=round(100 * (fill or 1)), limit=limit)
        ledger = Ledger(found=self.pages, pages_read=self.pages, errors=Counter(self.errors), workers=self.workers)
        ledger.start_up_s, ledger.work_s = self.start_up_s, self.work_s
        report = make_report(ledger, [EngineUse("cuda:0", counts=meter.counts())])
        return name_bottleneck(report, pages_in_flight=self.in_flight, on_gpu=self.gpu)


LONG_DOCUMENT = Run(
    120,
    44.2,
    {"render": 0.33, "preprocess": 0.55, "vit": 0.22, "prefill": 0.1, "decode": 0.09, "post-process": 0.04},
    fill={"preprocess": 0.42, "vit": 0.42, "prefill": 0.18, "decode": 0.86},
    waits=0.004,
    gaps=0.044,
    start_up_s=3.4,
)
"""The quick model on a PDF of 120 pages, its images kept small, two cores."""

GPU = Run(
    20_000,
    2_000.0,
    {"render": 0.5, "preprocess": 0.02, "vit": 0.8, "prefill": 0.1, "decode": 0.2},
    in_flight=96,
    fill={"vit": 0.6, "prefill": 0.5, "decode": 0.95},
    workers=16,
    gpu=True,
)
"""A dense page of 36.8 TFLOP, 32 of them in the ViT, at 10 pages/s on an H200: calculated."""


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (replace(GPU, pages=0), "none: no page was read in this run"),
        (replace(GPU, start_up_s=2_100.0), "start-up took longer than the work: give a run more to read"),
        (
            replace(LONG_DOCUMENT, pages=1),
            "unknown: too little was read to tell (1 page in 44 s, with up to 14 in flight)",
        ),
        (
            replace(GPU, pages=400, work_s=9.0, start_up_s=1.0),
            "unknown: too little was read to tell (400 pages in 9 s, with up to 96 in flight)",
        ),
    ],
)
def test_of_a_run_that_says_too_little_nothing_is_made_up(run: Run, said: str) -> None:
    assert run.bottleneck() == said


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (replace(LONG_DOCUMENT, busy={"vit": 0.9}), "vit: takes 90% of the work time; the hardware is the limit"),
        (
            replace(LONG_DOCUMENT, busy={"decode": 0.9}, fill={"decode": 0.2}),
            "decode: takes 90% of the work time in batches that are 20% full; "
            "try a higher --pages-in-flight to fill them, though rows then come later",
        ),
        (
            replace(LONG_DOCUMENT, gaps=0.5),
            "engine: the device is idle 50% of the time between the engine's own steps",
        ),
    ],
)
def test_on_a_cpu_fuller_batches_are_advised_only_for_decoding(run: Run, said: str) -> None:
    assert run.bottleneck() == said


@pytest.mark.parametrize(
    ("run", "part", "advice"),
    [
        (GPU, "vit", "60% full; try a higher --pages-in-flight to fill them"),
        (replace(GPU, fill={"vit": 0.97}), "vit", "try a higher --vit-batch-size or --vit-max-patches if memory"),
        (
            replace(GPU, busy={"prefill": 0.5}, fill={"prefill": 1.0}),
            "prefill",
            "try a higher --prefill-max-tokens if memory allows",
        ),
        (replace(GPU, busy={"prefill": 0.5}, fill={"prefill": 0.4}), "prefill", "try a higher --llm-batch-size to"),
        (replace(GPU, busy={"decode": 0.7}, fill={"decode": 0.95}), "decode", "try a higher --llm-batch-size if"),
        (replace(GPU, busy={"decode": 0.7}, fill={"decode": 0.2}), "decode", "try a higher --pages-in-flight to"),
        (
            replace(GPU, busy={"decode": 0.7}, fill={"decode": 0.2}, preemptions=9),
            "decode",
            "for lack of KV cache; lower --llm-batch-size or raise --memory-fraction",
        ),
        (replace(GPU, busy={"preprocess": 0.9}, fill={"preprocess": 0.99}), "preprocess", "hardware is the limit"),
        (
            replace(GPU, gaps=0.4),
            "engine",
            "idle 40% of the time between the engine's own steps; larger batches help: try a higher --llm-batch-size",
        ),
        (replace(GPU, gaps=0.4, fill={"decode": 0.3}), "engine", "try a higher --pages-in-flight"),
        (
            replace(GPU, waits=0.5, busy={"render": 0.85, "post-process": 0.1, "vit": 0.4}),
            "render",
            "the device waits 50% of the time and the workers are busy; raise --workers (16 now)",
        ),
        (replace(GPU, waits=0.6, busy={"write": 0.8, "vit": 0.3}), "write", "put --out on a faster disk"),
        (
            replace(GPU, waits=0.6, busy={"render": 0.2, "vit": 0.3}),
            "pages in flight",
            "the device waits 60% of the time while the workers are not busy; raise --pages-in-flight",
        ),
        (
            replace(GPU, waits=0.6, busy={"render": 0.6, "vit": 0.3}, errors=("timeout", "timeout", "damaged")),
            "lost workers",
            "2 of the rows that failed cost their workers",
        ),
    ],
)
def test_what_bounds_a_long_run_is_named_with_what_would_move_it(run: Run, part: str, advice: str) -> None:
    said = run.bottleneck()
    assert said.startswith(f"{part}:")
    assert advice in said
