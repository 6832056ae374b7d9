"""Airflow 3.2 or later: eight tasks that divide the documents among them, each retried up to twenty times; then their
tables are compared with the input, whatever became of the tasks. Workers need /data, /models and /opt/batchocr."""

from __future__ import annotations

import signal
import subprocess
from datetime import timedelta

from airflow.sdk import dag, task
from airflow.sdk.exceptions import AirflowFailException

BATCHOCR = "/opt/batchocr/bin/batchocr"
SHARDS = 8
OF_NO_USE = (2, 3, 4)
"""Exit codes after which running it again changes nothing: wrong usage, too many failed pages, nothing to read."""


def call(*arguments: str) -> None:
    """Run batchocr. Raises AirflowFailException if another attempt is of no use, RuntimeError if one is."""
    process = subprocess.Popen([BATCHOCR, *arguments])
    # Airflow waits seconds for a task that it ends; the pages in flight are finished all the same, within a minute.
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    code = process.wait()
    if code in OF_NO_USE:
        raise AirflowFailException(f"batchocr has ended with exit code {code}: see its log")
    if code:
        raise RuntimeError(f"batchocr has ended with exit code {code}: another attempt continues")


@task(retries=20, retry_delay=timedelta(minutes=1))
def read(shard: int) -> None:
    """Read one share of the documents, for up to four hours at a time."""
    share, out = f"{shard}/{SHARDS}", f"/data/out/part-{shard}.parquet"
    call("run", "/data/in", "--model", "/models/mineru", "--shard", share, "--out", out, "--stop-after", "3h55m")


@task(trigger_rule="all_done")
def verify() -> None:
    """Compare the tables of all shares with the input: what a share has not read is missing, what failed is named."""
    call("verify", "/data/out/part-*.parquet", "/data/in")


@task(trigger_rule="one_failed")
def fail() -> None:
    """Airflow takes the state of a run from its last tasks: without this one, a run would be a success in which a share
    was not read, and `verify` has found nothing wrong with what is there."""
    raise AirflowFailException("a task before this one has failed: see its log")


@dag(schedule=None, catchup=False)
def batchocr() -> None:
    shares, compared = read.expand(shard=list(range(1, SHARDS + 1))), verify()
    shares >> compared
    [shares, compared] >> fail()


batchocr()
