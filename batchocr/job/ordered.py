"""Rows for a caller's loop: in input order, read ahead on a separate thread while the caller handles one."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing
from queue import Queue

from batchocr.config import Config
from batchocr.data import PageResult
from batchocr.errors import UsageError
from batchocr.job.document_run import RowKey
from batchocr.job.row_plan import RowPlan
from batchocr.job.run import Run
from batchocr.job.session import Session
from batchocr.job.shortfalls import warn_of_documents_without_rows
from batchocr.job.stop import StopSwitch
from batchocr.pages.input.sources import Found

_MAX_EARLY = 4
"""How many times `pages_in_flight` rows may be begun behind a page that takes long. They have to wait for its row:
without a limit they would fill the memory, and with a limit of 1 the device would be idle."""


def read_in_order(
    opened: Callable[[], AbstractContextManager[Session]], config: Config, found: Found
) -> Iterator[PageResult]:
    """Yield one row per page, in input order. Ends its workers when it is closed. Raises what reading raises.

    opened: opens a session for the loop, once that begins. However slow a page or the caller is, at most about 5 times
    `pages_in_flight` rows are in memory.
    """
    with opened() as session:
        in_flight = session.device_plan.pages_in_flight
        run = Run(session, config, found, StopSwitch(config.stop_after), max_unreleased=_MAX_EARLY * in_flight)
        with closing(run), closing(_ReadAhead(run, max_rows=in_flight)) as ahead:
            while (row := ahead.next_row()) is not None:
                yield row
            warn_of_documents_without_rows(run.plan, config)


def _in_order(plan: RowPlan, rows: Iterable[tuple[RowKey, PageResult]]) -> Iterator[PageResult]:
    """Yield the rows in input order, each as soon as all before it are there, and release them to the plan."""
    early: dict[int, PageResult] = {}
    following = 0
    for key, row in rows:
        early[plan.output_index(key)] = row
        while following in early:
            plan.end_of_window += 1
            yield early.pop(following)
            following += 1
    # After a stop, some finished rows have gaps before them.
    yield from (early[index] for index in sorted(early))


class _ReadAhead:
    """Puts the rows of a run into a queue, on its own thread, until the end or until `close`.

    The thread is a daemon: otherwise a script that ends in the middle of its loop would wait for it for ever.
    """

    def __init__(self, run: Run, max_rows: int) -> None:
        self._run = run
        self._finished = run.results(tick=self._check)
        self._rows: Queue[PageResult | Exception | None] = Queue()
        """The rows that were read ahead; at the end comes what reading raised, or None."""
        self._room = threading.Semaphore(max_rows)
        """The room for further rows in the queue."""
        self._left = threading.Event()
        # CPython 3.11 and 3.12 take a thread for ended once Ctrl-C has interrupted a `join`.
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, name="batchocr-run", daemon=True)
        self._thread.start()
        # A script can end in the middle of its loop: then that is closed only when threads can no longer be joined.
        atexit.register(self.close)

    def next_row(self) -> PageResult | None:
        """The next row, as soon as there is one; None at the end. Raises what reading raised, and UsageError in a fork,
        where no row comes."""
        if self._run.session.is_of_parent:
            raise UsageError("this loop was begun before the fork, in the parent process: it can go on only there")
        row = self._rows.get()
        self._room.release()
        if isinstance(row, Exception):
            raise row
        return row

    def close(self) -> None:
        """End the thread and the workers, whatever they are doing."""
        if self._run.session.is_of_parent:
            return
        self._left.set()
        self._room.release()  # it may wait for that
        try:
            self._ended.wait()
        finally:  # however often Ctrl-C is pressed meanwhile: it may still be at work with what is closed next
            self._ended.wait()
            self._thread.join()
            self._run.close()
            atexit.unregister(self.close)

    def _read(self) -> None:
        try:
            for row in _in_order(self._run.plan, self._finished):
                self._room.acquire()
                self._check()
                self._rows.put(row)
            self._rows.put(None)
        except Exception as error:  # noqa: BLE001 (carried to the caller's thread, if it has not left)
            self._rows.put(error)
        finally:
            self._ended.set()

    def _check(self) -> None:
        if self._left.is_set():
            raise _CallerLeftError


class _CallerLeftError(Exception):
    """Nobody is waiting for rows any more."""
