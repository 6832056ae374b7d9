"""The command with a stand-in for the run behind it: how it starts, what it says and how it ends."""

from __future__ import annotations

import io
import logging
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout

import pytest

from batchocr.cli.console import configure_logging
from tests.support.running import run_app

_RUN_WITH = """
import signal, sys, time, types
from batchocr import errors
from batchocr.config import Config
from batchocr.job.stats.ledger import Ledger
from batchocr.job.progress import RunProgress
from batchocr.job.stats.report import make_report

def report(
    reason="finished", found=10, failed=0, allowed=0.0, done_before=0, degraded=0, degraded_allowed=1.0
):
    ledger = Ledger(documents=1, found=found, already_done=done_before, exit_reason=reason, start_up_s=1.0, work_s=1.0)
    ledger.by_status.update({"ok": 10 - failed - degraded, "failed": failed, "degraded": degraded})
    ledger.rates = Config(max_page_error_rate=allowed, max_degraded_rate=degraded_allowed)
    return make_report(ledger, [])

def wait_for_stop(stop):
    stop.phase = "reading"
    print("ready", flush=True)
    while stop.reason is None:
        time.sleep(0.01)
    return report("interrupted" if stop.reason == "interrupted" else "stopped")

def run_with(config, inputs, *, out, stop, progress):
    BODY

api = types.ModuleType("batchocr.api")
api.run_with = run_with
sys.modules["batchocr.api"] = api
"""
STAND_IN = f"{_RUN_WITH}\nfrom batchocr.cli.start import main\nmain()\n"
RUN = ("run", "docs", "--out", "table.parquet")


def start(body: str, *arguments: str) -> subprocess.Popen[str]:
    """The command, started with `body` in place of the run."""
    return subprocess.Popen(
        [sys.executable, "-c", STAND_IN.replace("BODY", body), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit code, and what was written to stderr."""
    _, said = process.communicate(timeout=60)
    return process.returncode, said


def signalled(number: signal.Signals, body: str, *arguments: str) -> tuple[int, str]:
    """The exit code and what was written to stderr, if this signal comes once `body` has printed a line."""
    process = start(body, *arguments)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(number)
    return ended(process)


def command(*arguments: str, body: str = "raise AssertionError") -> tuple[int, str, str]:
    """The exit code, and what was written to stdout and stderr, with `body` in place of the run. It runs in this
    process, which takes a fraction of the time of a new one."""
    shown, said = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(shown), redirect_stderr(said):
        patched.setitem(sys.modules, "batchocr.api", None)
        exec(_RUN_WITH.replace("BODY", body), {})
        configure_logging("text", logging.INFO)
        code = run_app(patched, *arguments)
    return code, shown.getvalue(), said.getvalue()
