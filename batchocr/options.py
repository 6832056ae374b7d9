"""The options of the Python interface, in every form it takes them. Made from Config by `make options`."""

from __future__ import annotations

import os
from typing import Literal, TypedDict


class CallOptions(TypedDict, total=False):
    """What each call of an Ocr may choose anew.

    page_timeout and stop_after: seconds; stop_after also as `3h55m`. shard: (index from 1, count), or `2/8`.
    """

    pages: str | None
    """Pages of each document, counted from 1; r1 is the last: 1-10,15,r3-r1. Default: all."""

    only: str | os.PathLike[str] | None
    """Only the pages that this file names: an audit (those with findings), marks saved from a review page (those marked
    bad), or any table with source and page_index. Default: all."""

    password: str | None
    """For encrypted PDFs; better given as the environment variable BATCHOCR_PASSWORD."""

    document_column: str | None
    """Of Parquet tables, the column with documents. Default: the only one."""

    name_column: str | None
    """Of Parquet tables, the column with names. Default: path, or the row."""

    null: bool
    """NUL separates paths in lists and on stdin: as find -print0 writes them; they are taken as they are."""

    follow_symlinks: bool
    """Also follow symbolic links that lead outside the given folder or glob."""

    shard: tuple[int, int] | str
    """Read the I-th of N shares of the documents; each job needs its own --out. Default: 1/1."""

    limit: int | None
    """End after the first N rows of the input; rows finished by earlier runs count."""

    resume: bool
    """Continue an unfinished output, or refuse to. Default: on."""

    overwrite: bool
    """Read everything again: earlier rows and the journal are discarded."""

    prune: bool
    """Remove rows of documents that are not there, and of pages not asked for."""

    retry_failed: bool | None
    """Retry all pages that failed in an earlier run, or none. Default: all but those of damaged or unsupported
    files."""

    sample_documents: int | None
    """Read only N of the documents, drawn by their names: the same in every run."""

    stop_after: float | str | None
    """Stop after this long (3h55m, 90s): finish the pages in flight and exit 75."""

    page_timeout: float
    """Time limit for opening a document, rendering a page, and post-processing a page, each. Default: 60."""

    max_page_error_rate: float
    """Exit with 3 if a larger share of the rows failed. Default: 0.05."""

    max_degraded_rate: float
    """Exit with 3 if more are incomplete: a larger share (status degraded) of the pages that were read. Default:
    0.25."""

    max_doubtful_rate: float
    """Exit with 3 if more are doubtful: a larger share (quality under 0.5, as `view` sorts by it) of them. Default: 1:
    off."""

    report: str | os.PathLike[str] | None
    """Where to write the throughput report (JSON). Default: OUT.report.json."""

    rows_per_part: int
    """Most rows in a part of a folder; only a document may have more. Default: 16384."""

    work_dir: str | os.PathLike[str] | None
    """Where an --out in an object store is made, tars are unpacked, and the choice of kernels is kept. Default:
    ~/.cache/batchocr."""


class Options(CallOptions, total=False):
    """The fields of Config, and `recipe`.

    worker_memory: bytes, or `4G`.
    """

    dpi: int
    """Resolution of rendered PDFs; the longer side is kept within 3500 px. Default: 200."""

    figures: Literal["skip", "read"]
    """Whether to read pictures and charts: read says what they show, and a chart's table. Default: skip."""

    text_layer: Literal["off", "check", "trust"]
    """How to use a PDF's own text: check compares what was read, and takes it for answers that were lost; trust takes
    it for all blocks of plain text (docs/tiers.md). Default: check."""

    orientation: Literal["off", "check", "turn"]
    """Pages that lie on a side or upside down: check says so, turn reads them upright (docs/tiers.md). Default:
    check."""

    zip_encoding: str
    """Of names in zips that are not UTF-8: gbk, cp932, cp866. Default: cp437."""

    model: str | os.PathLike[str]
    """A model on Hugging Face, or a folder with one; also given as BATCHOCR_MODEL. Default:
    opendatalab/MinerU2.5-Pro-2605-1.2B."""

    revision: str | None
    """Its branch, tag or commit on Hugging Face."""

    layout: str | os.PathLike[str] | None
    """Find layouts with a detector: PP-DocLayoutV2 or V3, as NAME, NAME@REVISION or DIR; the model reads the blocks
    (docs/tiers.md). Default: the model, or its authors' detector."""

    device: str
    """Where to run: cuda:0 one GPU, cuda:0,cuda:1 several, cpu the CPU; auto takes all GPUs, or the CPU. Default:
    auto."""

    dtype: Literal["auto", "float32", "bfloat16"]
    """auto takes bfloat16 on a GPU, and on a CPU that is faster in it if the model is stored in it. Default: auto."""

    vit_dtype: Literal["auto", "fp8"]
    """fp8 runs the ViT's linear layers in 8 bits, on GPUs that support it (experimental); auto follows --dtype.
    Default: auto."""

    backend: Literal["auto", "reference", "cpu", "cuda"]
    """Kernels: reference is plain PyTorch, auto fits the device. Default: auto."""

    retry_kernels: bool
    """Time the kernels of a GPU anew."""

    memory_fraction: float
    """Share of the GPU memory free at start-up that batchocr plans to use. Default: 0.9."""

    max_new_tokens: int
    """Maximum tokens generated for one block. Default: 8192."""

    penalties: bool
    """Penalties, n-gram rule and loop handling; without them plain greedy decoding, for comparing engines. Default:
    on."""

    vit_batch_size: int | None
    """Maximum images in a ViT batch. Default: by device."""

    vit_max_patches: int | None
    """Maximum patches in a ViT batch; a larger image is a batch of its own. Default: by device."""

    llm_batch_size: int | None
    """Maximum sequences decoded at once. Default: by device."""

    prefill_max_tokens: int | None
    """Maximum tokens in a prefill batch; a longer prompt is a batch of its own. Default: by device."""

    embedding_queue_tokens: int | None
    """Maximum image tokens waiting between ViT and LLM. Default: by device."""

    layout_batch_size: int | None
    """Maximum pages in a batch of the detector of --layout. Default: by device."""

    pages_in_flight: int | None
    """Maximum pages worked on at once; each holds about 40 MB of host memory. Default: by host memory and device."""

    workers: int | None
    """Processes that open and render documents and post-process pages. Default: by cores and memory."""

    worker_memory: int | str | None
    """Memory limit of one worker (4G, 512M); a page that needs more fails. Default: an equal share of half the memory,
    at most 4G."""

    cache: str | os.PathLike[str] | None
    """Keep the model's answers in this folder: for later runs, and others at the same time, that ask the same. Also
    given as BATCHOCR_CACHE. Default: none."""

    recipe: str | os.PathLike[str] | None
    """A TOML file of options; flags win over it, and so do BATCHOCR_MODEL, _CACHE and _PASSWORD. Default: none."""
