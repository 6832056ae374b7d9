"""Rows for a caller's loop: in input order, read ahead on a thread of their own while the caller handles one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import Full, Queue

from batchocr.data import Document, PageResult
from batchocr.intake import RowKey
from batchocr.output.journal import Entry
from batchocr.session import Pass, Session
from batchocr.stop import StopSwitch

_Rows = Queue[tuple[RowKey, Entry] | None]
"""Finished rows, and None at the end."""

_POLL_S = 0.2


def read_in_order(session: Session, documents: Sequence[Document]) -> Iterator[PageResult]:
    """Yield a row per page, in input order. Ends its workers when it is closed. Raises what reading raises."""
    stop = StopSwitch(session.config.stop_after)
    left = threading.Event()
    rows: _Rows = Queue(maxsize=session.pages_in_flight)
    with (
        Pass(session, documents, stop, finished=None, started_s=time.perf_counter()) as reading,
        ThreadPoolExecutor(1, thread_name_prefix="batchocr-run") as thread,
    ):
        ended = thread.submit(_read_ahead, reading, rows, left)
        try:
            yield from _in_order(reading, rows)
            ended.result()
        finally:
            left.set()


def _in_order(reading: Pass, rows: _Rows) -> Iterator[PageResult]:
    order = reading.intake.rows()
    expected = None
    early: dict[RowKey, PageResult] = {}
    while (row := rows.get()) is not None:
        key, entry = row
        early[key] = entry.result
        expected = expected or order.next()
        while expected in early:
            yield early.pop(expected)
            expected = order.next()
    # A stop leaves gaps before some rows that were finished.
    yield from (early[key] for key in sorted(early, key=lambda key: (key.document, key.page_index or 0)))


def _read_ahead(reading: Pass, rows: _Rows, left: threading.Event) -> None:
    """Put rows into the queue until the end, or until the caller has left."""

    def put(row: tuple[RowKey, Entry] | None) -> None:
        while not left.is_set():
            with suppress(Full):
                rows.put(row, timeout=_POLL_S)
                return

    with suppress(_CallerLeftError):
        try:
            for row in reading.results(tick=lambda: _check(left)):
                put(row)
        finally:
            put(None)


class _CallerLeftError(Exception):
    """Nobody waits for rows any more."""


def _check(left: threading.Event) -> None:
    if left.is_set():
        raise _CallerLeftError
