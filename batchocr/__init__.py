"""Offline batch document OCR: PDFs and images in, one table out.

    for page in batchocr.process(["./docs"]):
        print(page.source, page.page_index, page.markdown)

The names below are loaded when they are first used, so that `import batchocr` alone costs next to nothing.
None of them loads torch: models are in processes of their own.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from batchocr.api import Ocr, process, run
    from batchocr.data import Block, PageResult
    from batchocr.documents.assembly.assemble import OpenedTable, open_table
    from batchocr.documents.audit.audit import AuditReport, audit
    from batchocr.errors import (
        BatchOcrError,
        EngineError,
        ModelError,
        NoInputError,
        OutputError,
        OutputMismatchError,
        StaleError,
        StoreRefusesError,
        StoreUnavailableError,
        UsageError,
    )
    from batchocr.job.progress import RunProgress
    from batchocr.job.stats.report import Report
    from batchocr.job.stop import StopSwitch
    from batchocr.options import CallOptions, Options

    __version__: str

__all__ = [
    "AuditReport",
    "BatchOcrError",
    "Block",
    "CallOptions",
    "EngineError",
    "ModelError",
    "NoInputError",
    "Ocr",
    "OpenedTable",
    "Options",
    "OutputError",
    "OutputMismatchError",
    "PageResult",
    "Report",
    "RunProgress",
    "StaleError",
    "StopSwitch",
    "StoreRefusesError",
    "StoreUnavailableError",
    "UsageError",
    "__version__",
    "audit",
    "open_table",
    "process",
    "run",
]

_MODULES = {
    "batchocr.api": ("Ocr", "process", "run"),
    "batchocr.data": ("Block", "PageResult"),
    "batchocr.documents.assembly.assemble": ("OpenedTable", "open_table"),
    "batchocr.documents.audit.audit": ("AuditReport", "audit"),
    "batchocr.job.progress": ("RunProgress",),
    "batchocr.job.stats.report": ("Report",),
    "batchocr.job.stop": ("StopSwitch",),
    "batchocr.options": ("CallOptions", "Options"),
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("batchocr.machine").own_version()
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = next((module for module, names in _MODULES.items() if name in names), "batchocr.errors")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)
