"""Which part of a run limits its rate, and the option that would change that; or that this cannot be told."""

from __future__ import annotations

from typing import Final

from batchocr.data import counted
from batchocr.job.stats.report import Report
from batchocr.processes.counts import DEVICE_STAGES, WORKER_STAGES, Stage

SIZE_OPTIONS: Final[dict[Stage, str]] = {
    "layout": "--layout-batch-size",
    "vit": "--vit-batch-size or --vit-max-patches",
    "prefill": "--prefill-max-tokens",
    "decode": "--llm-batch-size",
}
"""The options that decide how much a batch of a stage may hold, and how much of the device's memory it takes."""

_LEAST_WORK_S: Final = 10.0
_LEAST_FILLINGS: Final = 4
"""The first `pages_in_flight` pages of a run, and the last, are read while there is less to do than the options allow.
In a run of fewer than four times as many, its figures are those of its beginning and its end."""

_DEVICE_WAITS: Final = 0.1
"""The share of the work time without a request from which on the device waits for pages."""
_ENGINE_SLOW: Final = 0.3
"""The share of the time that the device is idle although there are pages, from which on it waits for the engine's
Python."""
_WORKERS_BUSY: Final = 0.8
_WRITE_BUSY: Final = 0.5
_FULL: Final = 0.9


def name_bottleneck(report: Report, *, pages_in_flight: int, on_gpu: bool) -> str:
    """One line on what limits the rate, judged by what was busy and how full the batches were.

    pages_in_flight: how many there could be. on_gpu: whether fuller batches make every stage faster; on a CPU only
    decoding gains, where a step reads all weights however few sequences it has.
    """
    pages, work_s = report.pages_read, report.work_seconds
    if pages == 0:
        return "none: no page was read in this run"
    if report.start_up_seconds > work_s:
        return "start-up took longer than the work: give a run more to read"
    if work_s < _LEAST_WORK_S or pages < _LEAST_FILLINGS * pages_in_flight:
        read = f"{counted(pages, 'page')} in {work_s:.0f} s, with up to {pages_in_flight} in flight"
        return f"unknown: too little was read to tell ({read})"
    if report.device.starved_share > _DEVICE_WAITS:
        return _of_the_host(report)
    if report.device.idle_share > _ENGINE_SLOW:
        return _of_the_engine(report, on_gpu)
    return _of_the_device(report, on_gpu)


def _of_the_host(report: Report) -> str:
    waits = f"the device waits {report.device.starved_share:.0%} of the time"
    if sum(report.stages[stage].busy_share for stage in WORKER_STAGES) > _WORKERS_BUSY:
        stage = _busiest(report, WORKER_STAGES)
        return f"{stage}: {waits} and the workers are busy; raise --workers ({report.workers} now) if cores are free"
    if report.stages["write"].busy_share > _WRITE_BUSY:
        return f"write: {waits} and the output is slow; put --out on a faster disk"
    if num_lost := sum(report.errors.get(kind, 0) for kind in ("timeout", "crashed", "out_of_memory")):
        return f"lost workers: {waits}, and {num_lost:,} of the rows that failed cost their workers, which takes time"
    return f"pages in flight: {waits} while the workers are not busy; raise --pages-in-flight"


def _of_the_engine(report: Report, on_gpu: bool) -> str:
    idle = f"engine: the device is idle {report.device.idle_share:.0%} of the time between the engine's own steps"
    if not on_gpu:
        return idle
    fill = report.stages["decode"].mean_fill
    option = "--llm-batch-size" if fill is None or fill >= _FULL else "--pages-in-flight"
    return f"{idle}; larger batches help: try a higher {option}"


def _of_the_device(report: Report, on_gpu: bool) -> str:
    stage = _busiest(report, DEVICE_STAGES)
    share, fill = report.stages[stage].busy_share, report.stages[stage].mean_fill
    takes = f"{stage}: takes {share:.0%} of the work time"
    if stage not in (SIZE_OPTIONS if on_gpu else ("decode",)) or fill is None:
        return f"{takes}; the hardware is the limit"
    takes += f" in batches that are {fill:.0%} full"
    if fill >= _FULL:
        return f"{takes}; try a higher {SIZE_OPTIONS[stage]} if memory allows"
    if stage == "decode" and report.device.preemptions:
        return f"{takes}, for lack of KV cache; lower --llm-batch-size or raise --memory-fraction"
    if stage == "prefill":  # it admits as many sequences as others have ended
        return f"{takes}; try a higher --llm-batch-size to fill them"
    return f"{takes}; try a higher --pages-in-flight to fill them, though rows then come later"


def _busiest(report: Report, stages: tuple[Stage, ...]) -> Stage:
    return max(stages, key=lambda stage: report.stages[stage].busy_share)
