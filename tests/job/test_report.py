"""The throughput report: its arithmetic, its JSON and its table."""

from __future__ import annotations

import json
import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from batchocr.config import Config
from batchocr.data import PageResult
from batchocr.job.stats.bottleneck import name_bottleneck
from batchocr.job.stats.ledger import ExitReason, Ledger
from batchocr.job.stats.report import Report, make_report, write_report
from batchocr.job.stats.report_table import format_table
from batchocr.machine import peak_resident_bytes
from batchocr.processes.counts import STAGES, Counts, Stage, sum_of
from batchocr.processes.engines import EngineUse
from batchocr.processes.meter import Meter

OK = PageResult("a.pdf", 0, "ok", image_tokens=4000, output_tokens=1000)
DEGRADED = PageResult("a.pdf", 1, "degraded", image_tokens=2000, output_tokens=3000)
FAILED = PageResult("b.pdf", None, "failed", error_kind="damaged", error_message="no PDF")
SKIPPED = PageResult("c.pdf", None, "skipped")


def ledger() -> Ledger:
    """Six items of four documents, in ten seconds: two read, one failed, one skipped, two done before."""
    counted = Ledger(documents=4, found=6, start_up_s=5.0, work_s=10.0, workers=4)
    for result in (OK, DEGRADED, FAILED, SKIPPED):
        counted.add_result(result)
    counted.add_done("ok")
    counted.add_done("degraded")
    return counted


def busy(seconds: dict[Stage, float], *, fill: float = 0.7, starved_s: float = 0.0) -> Report:
    """The report of ten seconds in which the stages were busy this long, in batches this full."""
    meter = Meter()
    meter.starved_s += starved_s
    meter.device_busy.add(0.0, 10.0 - starved_s)
    for stage, stage_seconds in seconds.items():
        meter.add(stage, stage_seconds, items=round(100 * fill), limit=100)
    return report_of(ledger(), meter)


def report_of(counted: Ledger, meter: Meter, **known: Any) -> Report:
    """The report, with what one meter counted. known: what else the ledger says."""
    return make_report(replace(counted, **known), [EngineUse("cuda:0", counts=meter.counts())])


def test_rates_are_per_second_of_work_and_of_what_this_run_read() -> None:
    report = report_of(ledger(), Meter())
    assert report.pages_read == 2
    assert report.pages_per_second == 0.2
    assert report.image_tokens_per_second == 600
    assert report.output_tokens_per_second == 400
    assert report.wall_seconds == 15


def test_the_ledger_counts_every_item_once() -> None:
    report = report_of(ledger(), Meter())
    items = report.items
    counts = (items.found, items.ok, items.degraded, items.failed, items.skipped, items.already_done)
    assert counts == (6, 2, 2, 1, 1, 2)
    assert report.errors == {"damaged": 1}
    assert report.ledger_adds_up


def test_an_item_that_is_lost_shows_in_the_ledger() -> None:
    counted = ledger()
    counted.found += 1
    report = report_of(counted, Meter())
    assert not report.ledger_adds_up
    assert "≠" in format_table(report)


@pytest.mark.parametrize(
    ("reason", "lost", "allowed", "code"),
    [
        ("finished", 0, 0.0, 3),
        ("finished", 0, 1 / 5, 0),
        ("finished", 1, 1.0, 1),
        ("stopped", 3, 0.0, 75),
        ("interrupted", 3, 0.0, 130),
        ("failed", 3, 0.0, None),
    ],
)
def test_the_exit_code_is_that_of_the_command(reason: ExitReason, lost: int, allowed: float, code: int | None) -> None:
    counted = ledger()
    counted.found += lost
    rates = Config(max_page_error_rate=allowed, max_degraded_rate=1.0)
    report = report_of(counted, Meter(), exit_reason=reason, rates=rates)
    assert report.exit_code == json.loads(report.to_json())["exit_code"] == code


def test_pages_that_were_read_better_before_are_an_exit_code_whatever_is_allowed() -> None:
    allowed = Config(max_page_error_rate=1.0, max_degraded_rate=1.0)
    report = replace(report_of(ledger(), Meter(), rates=allowed), worse_documents=1, worse_pages=2)
    assert report.exit_code == json.loads(report.to_json())["exit_code"] == 3
    assert "worse        2 pages of 1 document than in an earlier run, or gone" in format_table(report)


@pytest.mark.parametrize(
    ("ok", "degraded", "failed", "allowed", "code"),
    [
        (0, 5, 0, 1.0, 0),
        (0, 5, 0, 0.99, 3),
        (3, 1, 0, 0.25, 0),
        (3, 1, 0, 0.24, 3),
        (3, 1, 96, 0.24, 3),  # pages that failed do not hide those that were read only in part
        (4, 0, 0, 0.0, 0),
        (0, 0, 4, 0.0, 0),
    ],
)
def test_too_many_degraded_pages_among_those_read_are_an_exit_code(
    ok: int, degraded: int, failed: int, allowed: float, code: int
) -> None:
    counted = Ledger(documents=1, found=ok + degraded + failed)
    counted.by_status.update({"ok": ok, "degraded": degraded, "failed": failed})
    rates = Config(max_page_error_rate=1.0, max_degraded_rate=allowed)
    report = report_of(counted, Meter(), rates=rates)
    assert report.exit_code == json.loads(report.to_json())["exit_code"] == code


def test_mean_fill_is_items_over_limits() -> None:
    meter = Meter()
    meter.add("vit", 1.0, items=8, limit=8)
    meter.add("vit", 3.0, items=4, limit=16)
    vit = report_of(ledger(), meter).stages["vit"]
    assert (vit.mean_fill, vit.batches, vit.items) == (0.5, 2, 12)
    assert (vit.busy_seconds, vit.busy_share, vit.items_per_busy_second) == (4.0, 0.4, 3.0)
    meter.add("render", 20.0)
    render = report_of(ledger(), meter).stages["render"]
    assert (render.mean_fill, render.busy_share) == (None, 0.5), "there is no limit, and of all workers"


def test_the_run_and_its_engine_count_their_own_stages() -> None:
    counted, engine = ledger(), Meter()
    counted.counts.add("write", 1.0)
    engine.add("decode", 4.0, items=2, limit=4)
    engine.patches += 10
    engine.starved_s += 2.5
    engine.device_busy.add(0.0, 7.0)
    engine.queue_depth(300)
    engine.queue_depth(500)
    report = make_report(counted, [EngineUse("cpu", counts=engine.counts())])
    assert (report.stages["write"].busy_seconds, report.stages["write"].items) == (1.0, 1)
    assert report.stages["decode"].mean_fill == 0.5
    assert (report.device.idle_seconds, report.device.idle_share) == (3.0, 0.3)
    assert (report.device.starved_seconds, report.device.starved_share) == (2.5, 0.25)
    assert (report.embedding_queue.mean_tokens, report.embedding_queue.max_tokens) == (400, 500)
    assert report.per_page.patches == 5


def test_waiting_is_a_part_of_being_idle_and_of_the_work() -> None:
    """An engine waits a little before the work begins, and behind its end."""
    meter = Meter()
    meter.starved_s += 10.1
    device = report_of(ledger(), meter).device
    assert (device.starved_seconds, device.starved_share) == (10.0, 1.0)
    meter.device_busy.add(0.0, 4.0)
    assert report_of(ledger(), meter).device.starved_share == 0.6


def test_what_several_engines_did_is_said_of_each_and_in_all() -> None:
    counts = []
    for busy_s in (8.0, 2.0):
        meter = Meter()
        meter.add("vit", busy_s, items=10, limit=10)
        meter.device_busy.add(0.0, busy_s)
        meter.starved_s += 1.0
        meter.model_flop += busy_s * 1e14
        counts.append(meter.counts(peak_device_bytes=int(busy_s * 1e9)))
    uses = [
        EngineUse("cuda:0", "attention: fa3", counts[0], peak_bytes=3 << 30),
        EngineUse("cuda:1", "attention: fa3", counts[1], num_lost=2, peak_bytes=2 << 30),
    ]
    report = make_report(ledger(), uses)
    assert [(engine.device, engine.idle_share, engine.lost) for engine in report.engines] == [
        ("cuda:0", pytest.approx(0.2), 0),
        ("cuda:1", pytest.approx(0.8), 2),
    ]
    assert (report.device.idle_share, report.device.starved_share) == (pytest.approx(0.5), pytest.approx(0.1))
    assert report.stages["vit"].busy_share == 0.5
    assert report.device.model_flop_per_second == 1e14
    assert (report.device.peak_memory_bytes, report.host_memory.peak_engine_bytes) == (8_000_000_000, 3 << 30)
    table = format_table(report)
    said = " ".join(table.split())
    assert "cuda:0: idle 20% of the time, 10% waiting for pages, 80,000 GFLOP/s" in said
    assert "peak_memory_bytes 8.00 GB" in said.partition("cuda:0:")[2].partition("cuda:1:")[0]
    assert said.count("engines lost 2") == 2
    assert max(map(len, table.splitlines())) <= 100


def test_a_run_that_did_nothing_has_a_report() -> None:
    report = make_report(Ledger(), [])
    assert report.pages_per_second == 0
    assert report.ledger_adds_up
    said = name_bottleneck(report, pages_in_flight=1, on_gpu=False)
    assert "bottleneck   none: no page was read" in format_table(replace(report, bottleneck=said))


def test_json_has_its_keys_and_the_rate_at_the_top(tmp_path: Path) -> None:
    path = tmp_path / "out.report.json"
    write_report(replace(busy({"vit": 8.0}), settings={"device": "cuda:0", "vit_batch_size": 64}), path)
    report = json.loads(path.read_text())
    assert next(iter(report)) == "pages_per_second"
    assert set(report) == {
        *("pages_per_second", "image_tokens_per_second", "output_tokens_per_second", "pages_read", "documents"),
        *("items", "errors", "wall_seconds", "start_up_seconds", "work_seconds", "table_seconds", "per_page", "saved"),
        *("stages", "embedding_queue", "device", "engines", "host_memory", "workers", "settings", "exit_reason"),
        *("complete", "ledger_adds_up", "bottleneck", "error", "documents_not_opened", "exit_code", "skipped_files"),
        *("max_page_error_rate", "max_degraded_rate", "max_doubtful_rate", "doubtful", "traits", "worse_documents"),
        *("newest", "worse_pages", "rows_gone", "rows_not_asked", "ink_outside", "text_layer_agreement"),
        *("started", "ended", "host", "version", "inputs", "options", "table", "rows", "bytes"),
    }
    assert list(report["stages"]) == list(STAGES)
    assert report["settings"] == {"device": "cuda:0", "vit_batch_size": 64}
    assert report["items"]["already_done"] == 2
    assert report["complete"] is True
    assert report["exit_code"] == 3
    assert [file.name for file in tmp_path.iterdir()] == ["out.report.json"]


def test_the_table_fits_a_terminal_and_says_what_matters() -> None:
    settings = {f"option_{number}": "a value of some length" for number in range(12)}
    report = replace(busy({"vit": 8.0, "render": 12.0}, starved_s=0.5), settings=settings, table_seconds=2.0)
    report = replace(report, bottleneck=name_bottleneck(report, pages_in_flight=4, on_gpu=False))
    lines = format_table(report).splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0] == "2 pages read at 0.20 pages/s (start-up 5.0 s, work 10.0 s, table 2.0 s)"
    assert any(line.split()[:3] == ["vit", "8.0", "s"] and "80%" in line and "70%" in line for line in lines)
    assert not any(line.startswith("decode") for line in lines), "there was nothing to decode"
    assert any(line.split()[:2] == ["bottleneck", "unknown:"] for line in lines)


def test_without_details_the_table_says_what_came_of_the_run_and_how_fast_it_was() -> None:
    labels = [line[:12].strip() for line in format_table(busy({"vit": 8.0}), details=False).splitlines()[1:]]
    assert [label for label in labels if label] == ["items", "errors", "per second", "device", "stage", "vit"]


def test_the_table_reads_well_for_a_single_slow_page() -> None:
    counted = Ledger(documents=1, found=1)
    counted.add_result(OK)
    meter = Meter()
    meter.model_flop += 1e12
    report = report_of(counted, meter, start_up_s=5.0, work_s=67.0)
    table = format_table(replace(report, settings={"worker_memory": 4_294_967_296, "resumed": True}))
    assert table.startswith("1 page read at 0.015 pages/s (start-up 5.0 s, work 0:01:07, table 0.0 s)\n")
    assert "15 GFLOP/s" in table
    assert "worker_memory 4,294,967,296, resumed True" in " ".join(table.split())
    assert "work 0:01:00" in format_table(report_of(counted, meter, work_s=59.97))


def test_the_table_names_the_option_that_saves_memory_where_there_was_too_little() -> None:
    engine = Meter()
    for stage in ("vit", "prefill", "vit"):
        engine.batches_halved[stage] += 1
    engine.preemptions += 3
    report = report_of(ledger(), engine)
    assert json.loads(report.to_json())["device"]["batches_halved"] == {"vit": 2, "prefill": 1}
    table = " ".join(format_table(report).split())
    assert "out of memory in 2 vit batches: lower --vit-batch-size or --vit-max-patches" in table
    assert "out of memory in 1 prefill batch: lower --prefill-max-tokens" in table
    assert "begun again for lack of KV cache: 3; lower --llm-batch-size" in table
    assert "memory in" not in format_table(report_of(ledger(), Meter()))


def test_the_table_of_a_run_that_was_stopped_says_so_and_what_is_left() -> None:
    counted = ledger()
    counted.found += 3
    counted.documents_not_opened = 2
    report = report_of(counted, Meter(), exit_reason="stopped")
    assert not report.complete
    table = format_table(report)
    assert "stopped before the end, run again to continue" in table.splitlines()[0]
    assert "+ 3 not reached" in table
    assert "2 of them not opened yet" in " ".join(table.split())
    assert report.items.not_reached == 3
    assert report.ledger_adds_up


def test_errors_of_items_that_earlier_runs_gave_up_count_beside_those_of_this() -> None:
    counted = ledger()
    counted.found += 1
    counted.add_done("failed", "damaged")
    report = report_of(counted, Meter())
    assert (report.items.failed, report.items.already_done, report.errors) == (2, 3, {"damaged": 2})
    assert report.ledger_adds_up


def test_peak_memory_of_a_process_is_known_while_it_lives() -> None:
    peak = peak_resident_bytes()
    assert peak is not None and 10e6 < peak < 100e9
    assert peak_resident_bytes(os.getpid()) is not None
    assert peak_resident_bytes(2**22 + 1) is None


def test_the_files_that_were_skipped_are_named_by_suffix() -> None:
    counted = ledger()
    counted.skipped_files = {".docx": 30, ".zip": 2}
    report = report_of(counted, Meter())
    assert json.loads(report.to_json())["skipped_files"] == {".docx": 30, ".zip": 2}
    assert "input        skipped 32 files: 30 .docx, 2 .zip" in format_table(report)
    assert "skipped 32 files" not in format_table(report_of(ledger(), Meter()))


def test_what_was_not_done_twice_is_counted_apart_and_is_in_no_rate() -> None:
    counted = ledger()
    counted.found += 1
    counted.add_result(replace(OK, source="copy.pdf", attempts=0))
    counted.documents_copied = 1
    counted.counts = Counts(asked=50, from_run=12, from_cache=8, saved_image_tokens=4000, saved_output_tokens=1000)
    report = report_of(counted, Meter())
    assert (report.items.ok, report.pages_read, report.pages_per_second) == (3, 2, 0.2)
    assert (report.image_tokens_per_second, report.output_tokens_per_second) == (200, 300)
    assert (report.per_page.image_tokens, report.per_page.output_tokens) == (1000, 1500)
    saved = {"questions": 50, "from_run": 12, "from_cache": 8, "documents": 1, "pages": 1}
    assert json.loads(report.to_json())["saved"] == saved
    assert "saved        questions 50, from_run 12, from_cache 8, documents 1, pages 1\n" in format_table(report)
    assert "saved" not in format_table(report_of(ledger(), Meter()))


def test_counts_add_up_and_the_highest_peak_stays() -> None:
    one, other = Counts(), Counts()
    for counts, factor in ((one, 1), (other, 10)):
        counts.add("vit", 0.5 * factor, items=2 * factor, batches=factor, limit=4.0 * factor)
        counts.batches_halved["vit"] += factor
        for field in fields(Counts):
            if field.name not in ("stages", "batches_halved"):
                setattr(counts, field.name, factor)
    total = sum_of([one, other])
    vit = total.stages["vit"]
    assert (vit.busy_s, vit.items, vit.batches, vit.limit_sum) == (5.5, 22, 11, 44.0)
    assert (total.batches_halved, total.queue_max_tokens, total.peak_device_bytes) == ({"vit": 11}, 10, 10)
    kept = ("stages", "batches_halved", "queue_max_tokens", "peak_device_bytes")
    assert {getattr(total, field.name) for field in fields(Counts) if field.name not in kept} == {11}
    assert (one.asked, one.stages["vit"].items, one.batches_halved) == (1, 2, {"vit": 1}), "what was added is as it was"
