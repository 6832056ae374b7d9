"""Loaded by every Python process that has this folder on its path: workers write a line for each page they begin."""

from __future__ import annotations

import os
import sys

if "batchocr.pages" in sys.orig_argv and "PAGES_BEGUN" in os.environ:
    from batchocr.pages.page_worker import PageWorker
    from batchocr.processes.messages import ReadPage

    read = PageWorker._read

    def note_and_read(worker: PageWorker, task: ReadPage) -> object:
        with open(os.environ["PAGES_BEGUN"], "ab", buffering=0) as file:
            file.write(f"{task.path} {task.page_index}\n".encode())
        return read(worker, task)

    PageWorker._read = note_and_read  # type: ignore[method-assign]
