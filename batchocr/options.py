"""The options of the Python interface, in every form it takes them."""

from __future__ import annotations

import os
from typing import TypedDict

from batchocr.config import BackendName, DType, VitDType


class Options(TypedDict, total=False):
    """The fields of Config, and `recipe`: a TOML file, or the name of a recipe that comes with batchocr.

    page_timeout and stop_after: seconds; stop_after also as `3h55m`. worker_memory: bytes, or `4G`. shard: (index from
    1, count), or `2/8`.
    """

    model: str | os.PathLike[str]
    revision: str | None
    recipe: str | os.PathLike[str] | None
    pages: str | None
    dpi: int
    password: str | None
    follow_symlinks: bool
    vit_batch_size: int | None
    vit_max_patches: int | None
    llm_batch_size: int | None
    prefill_max_tokens: int | None
    embedding_queue_tokens: int | None
    max_new_tokens: int
    penalties: bool
    pages_in_flight: int | None
    workers: int | None
    worker_memory: int | str | None
    page_timeout: float
    device: str
    dtype: DType
    vit_dtype: VitDType
    backend: BackendName
    memory_fraction: float
    resume: bool
    overwrite: bool
    retry_failed: bool
    shard: tuple[int, int] | str
    limit: int | None
    max_page_error_rate: float
    stop_after: float | str | None
    report: str | os.PathLike[str] | None
