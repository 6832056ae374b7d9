"""Every option of a run, with its default, in one frozen dataclass; recipes that set them; and what fits a machine.

`Config` holds what the user said, None where the machine should decide. `resolve()` decides and returns a new one in
which nothing is None that matters. Nothing changes a Config after that.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import TypeAdapter, ValidationError

from batchocr.errors import UsageError

DType = Literal["auto", "float32", "bfloat16"]
BackendName = Literal["auto", "reference", "cuda"]
DEFAULT_MODEL = "opendatalab/MinerU2.5-Pro-2605-1.2B"


@dataclass(frozen=True, slots=True)
class Config:
    """The options of the command line, under the same names. Sizes are upper limits."""

    model: str = DEFAULT_MODEL
    revision: str | None = None
    pages: str | None = None
    dpi: int = 200
    password: str | None = None
    vit_batch_size: int | None = None
    vit_max_patches: int | None = None
    llm_batch_size: int | None = None
    prefill_max_tokens: int | None = None
    embedding_queue_tokens: int | None = None
    max_new_tokens: int = 8192
    penalties: bool = True
    pages_in_flight: int | None = None
    workers: int | None = None
    page_timeout: float = 60.0
    device: str = "auto"
    dtype: DType = "auto"
    backend: BackendName = "auto"
    memory_fraction: float = 0.9
    resume: bool = True
    overwrite: bool = False
    shard: tuple[int, int] = (1, 1)
    limit: int | None = None
    max_page_error_rate: float = 0.0
    stop_after: float | None = None
    report: str | None = None

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"--{name.replace('_', '-')} must be more than 0, not {value}")
        if not 0 < self.memory_fraction <= 1:
            raise UsageError(f"--memory-fraction must be above 0 and at most 1, not {self.memory_fraction}")
        if not 0 <= self.max_page_error_rate <= 1:
            raise UsageError(f"--max-page-error-rate must be from 0 to 1, not {self.max_page_error_rate}")
        index, count = self.shard
        if not 1 <= index <= count:
            raise UsageError(f"--shard I/N needs 1 ≤ I ≤ N, not {index}/{count}")


_POSITIVE = (
    "dpi",
    "vit_batch_size",
    "vit_max_patches",
    "llm_batch_size",
    "prefill_max_tokens",
    "embedding_queue_tokens",
    "max_new_tokens",
    "pages_in_flight",
    "workers",
    "page_timeout",
    "limit",
    "stop_after",
)
