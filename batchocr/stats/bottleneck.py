"""Which part of a run limits its rate, and the option that would change that."""

from __future__ import annotations

from batchocr.stats.meter import DEVICE_STAGES, WORKER_STAGES, Stage
from batchocr.stats.report import Report

_SIZE_OPTIONS: dict[Stage, str] = {
    "vit": "--vit-batch-size or --vit-max-patches",
    "prefill": "--prefill-max-tokens",
    "decode": "--llm-batch-size",
}

_FILLED_BY: dict[Stage, str] = {
    "vit": "--pages-in-flight",
    "prefill": "--llm-batch-size",
    "decode": "--pages-in-flight",
}
"""What decides how much work there is for a batch: a prefill admits as many sequences as others have ended."""

LIMITS_BY_MEMORY: dict[Stage, str] = {"vit": "--vit-max-patches", "prefill": "--prefill-max-tokens"}
"""The options that limit how much of the device's memory a batch of a stage takes."""

_DEVICE_WAITS = 0.1
"""If the engine has no request for more than this share of the work time, the device waits for pages."""
_ENGINE_SLOW = 0.3
"""If the device is idle for more than this share although there are pages, it waits for the engine's Python."""
_WORKERS_BUSY = 0.8
_WRITE_BUSY = 0.5
_FULL = 0.9


def name_bottleneck(report: Report) -> str:
    """One line on what limits the rate, judged by what was busy and how full the batches were."""
    if report.pages_read == 0:
        return "none: no page was read in this run"
    if report.start_up_seconds > report.work_seconds:
        return "start-up took longer than the work: give a run more to read"
    if report.device.starved_share > _DEVICE_WAITS:
        return _of_the_host(report)
    if report.device.idle_share > _ENGINE_SLOW:
        idle = f"the device is idle {report.device.idle_share:.0%} of the time between the engine's own steps"
        return f"engine: {idle}; larger batches help, --llm-batch-size first"
    return _of_the_device(report)


def _of_the_host(report: Report) -> str:
    waits = f"the device waits {report.device.starved_share:.0%} of the time"
    workers_share = sum(report.stages[stage].busy_share for stage in WORKER_STAGES)
    if workers_share > _WORKERS_BUSY:
        stage = _busiest(report, WORKER_STAGES)
        return f"{stage}: {waits} and the workers are busy; raise --workers ({report.workers} now) if cores are free"
    if report.stages["write"].busy_share > _WRITE_BUSY:
        return f"write: {waits} and the output is slow; put --out on a faster disk"
    return f"pages in flight: {waits} while the workers are not busy; raise --pages-in-flight"


def _of_the_device(report: Report) -> str:
    stage = _busiest(report, DEVICE_STAGES)
    share, fill = report.stages[stage].busy_share, report.stages[stage].mean_fill
    takes = f"{stage}: takes {share:.0%} of the work time"
    if stage not in _SIZE_OPTIONS or fill is None:
        return f"{takes}; the hardware is the limit"
    takes += f" in batches that are {fill:.0%} full"
    if fill >= _FULL:
        return f"{takes}; raise {_SIZE_OPTIONS[stage]} if memory allows"
    if stage == "decode" and report.device.preemptions:
        return f"{takes}, for lack of KV cache; lower --llm-batch-size or raise --memory-fraction"
    return f"{takes}; raise {_FILLED_BY[stage]} to fill them"


def _busiest(report: Report, stages: tuple[Stage, ...]) -> Stage:
    return max(stages, key=lambda stage: report.stages[stage].busy_share)
