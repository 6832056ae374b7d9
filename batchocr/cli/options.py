"""The options of `batchocr run`: how they are spelt, and what `--help` says about them.

An option that was not given is None, or False for a switch: the defaults are in `Config`, and a recipe comes between.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

import typer

from batchocr.cli.console import LogFormat
from batchocr.config import PASSWORD_VARIABLE, BackendName, Config, DType, VitDType

_DEFAULTS = {field.name: field.default for field in fields(Config)}
_INPUT, _MODEL, _SIZES, _RUN, _OUTPUT = "What to read", "Model", "Batch sizes", "The run", "Logging"
_BY_DEVICE = "by device"


def _option(flag: str, metavar: str, panel: str, text: str, *, default: str = "") -> Any:
    """An option in a panel of `--help`. default: what to show as its default if Config has None or no such field."""
    of_config = _DEFAULTS.get(flag.removeprefix("--").replace("-", "_"))
    default = default or ("" if of_config is None else str(of_config).removesuffix(".0"))
    said = f"{text} Default: {default}." if default else text
    return typer.Option(flag, metavar=metavar, rich_help_panel=panel, help=said, show_default=False)


def _switch(flag: str, panel: str, text: str) -> Any:
    return typer.Option(flag, metavar="", rich_help_panel=panel, help=text, show_default=False)


Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT",
        show_default=False,
        help="Files, folders (searched recursively), globs, @list.txt with one path per line, or - for paths on stdin.",
    ),
]
Table = Annotated[
    str,
    typer.Argument(metavar="OUT", show_default=False, help="A table, or a quoted glob for the tables of all shards."),
]
ModelToCompare = Annotated[
    str | None,
    _option("--model", "NAME_OR_DIR", _MODEL, "The model that should have written the table.", default="not compared"),
]
Out = Annotated[str, _option("--out", "PATH", _INPUT, "The table to write: NAME.parquet or NAME.jsonl.")]
Pages = Annotated[
    str | None,
    _option(
        "--pages",
        "SPEC",
        _INPUT,
        "Pages of each document, counted from 1; r1 is the last: 1-10,15,r3-r1.",
        default="all",
    ),
]
Dpi = Annotated[
    int | None,
    _option("--dpi", "N", _INPUT, "Resolution at which PDFs are rendered; the longer side is kept within 3500 px."),
]
Password = Annotated[
    str | None,
    _option(
        "--password",
        "TEXT",
        _INPUT,
        f"For encrypted PDFs; better given as the environment variable {PASSWORD_VARIABLE}.",
    ),
]
Shard = Annotated[
    str | None,
    _option(
        "--shard",
        "I/N",
        _INPUT,
        "Read only the I-th of N shares of the documents; each job needs its own --out.",
        default="1/1",
    ),
]
ShardToCheck = Annotated[
    str | None,
    _option("--shard", "I/N", _INPUT, "Check only the I-th of N shares: one job's table.", default="1/1"),
]
FollowSymlinks = Annotated[
    bool, _switch("--follow-symlinks", _INPUT, "Also follow symbolic links that lead outside the given folder or glob.")
]
Limit = Annotated[
    int | None,
    _option("--limit", "N", _INPUT, "End after the first N rows of the input; rows finished by earlier runs count."),
]
RetryFailed = Annotated[
    bool | None,
    _option(
        "--retry-failed/--no-retry-failed",
        "",
        _INPUT,
        "Retry pages that failed in an earlier run, or leave them.",
        default="retry",
    ),
]

Model = Annotated[
    str | None, _option("--model", "NAME_OR_DIR", _MODEL, "A model on Hugging Face, or a folder that holds one.")
]
Revision = Annotated[str | None, _option("--revision", "TEXT", _MODEL, "Its branch, tag or commit on Hugging Face.")]
Device = Annotated[str | None, _option("--device", "NAME", _MODEL, "cpu, or a GPU such as cuda:0.")]
DTypeOption = Annotated[
    DType | None, _option("--dtype", "NAME", _MODEL, "float32, bfloat16 or auto: float32 on a CPU, bfloat16 on a GPU.")
]
VitDTypeOption = Annotated[
    VitDType | None,
    _option(
        "--vit-dtype",
        "NAME",
        _MODEL,
        "fp8 runs the ViT's linear layers in 8 bits, on GPUs that support it (experimental); auto follows --dtype.",
    ),
]
Backend = Annotated[
    BackendName | None,
    _option(
        "--backend", "NAME", _MODEL, "Kernels: reference (plain PyTorch), cpu, cuda, or auto, which fits the device."
    ),
]
MemoryFraction = Annotated[
    float | None,
    _option("--memory-fraction", "F", _MODEL, "Share of the GPU memory free at start-up that batchocr plans to use."),
]
MaxNewTokens = Annotated[
    int | None, _option("--max-new-tokens", "N", _MODEL, "Maximum tokens generated for one block.")
]
NoPenalties = Annotated[
    bool,
    _switch(
        "--no-penalties",
        _MODEL,
        "Plain greedy decoding, without penalties, n-gram rule or loop handling; for comparing engines.",
    ),
]

VitBatchSize = Annotated[
    int | None, _option("--vit-batch-size", "N", _SIZES, "Maximum images in a ViT batch.", default=_BY_DEVICE)
]
VitMaxPatches = Annotated[
    int | None,
    _option(
        "--vit-max-patches",
        "N",
        _SIZES,
        "Maximum patches in a ViT batch; a larger image is a batch of its own.",
        default=_BY_DEVICE,
    ),
]
LlmBatchSize = Annotated[
    int | None, _option("--llm-batch-size", "N", _SIZES, "Maximum sequences decoded at once.", default=_BY_DEVICE)
]
PrefillMaxTokens = Annotated[
    int | None,
    _option(
        "--prefill-max-tokens",
        "N",
        _SIZES,
        "Maximum tokens in a prefill batch; a longer prompt is a batch of its own.",
        default=_BY_DEVICE,
    ),
]
EmbeddingQueueTokens = Annotated[
    int | None,
    _option(
        "--embedding-queue-tokens",
        "N",
        _SIZES,
        "Maximum image tokens waiting between ViT and LLM.",
        default=_BY_DEVICE,
    ),
]
PagesInFlight = Annotated[
    int | None,
    _option(
        "--pages-in-flight",
        "N",
        _SIZES,
        "Maximum pages worked on at once; each holds about 40 MB of host memory.",
        default="by host memory and device",
    ),
]
Workers = Annotated[
    int | None,
    _option(
        "--workers",
        "N",
        _SIZES,
        "Processes that open and render documents and post-process pages.",
        default="by cores and memory",
    ),
]
WorkerMemory = Annotated[
    str | None,
    _option(
        "--worker-memory",
        "SIZE",
        _SIZES,
        "Memory limit of one worker (4G, 512M); a page that needs more fails.",
        default="an equal share of half the memory, at most 4G",
    ),
]

Recipe = Annotated[
    str | None,
    _option(
        "--recipe",
        "FILE_OR_NAME",
        _RUN,
        "A TOML file of options, or the name of one that comes with batchocr: cpu, h200, rtx4090. Flags win over it.",
    ),
]
NoResume = Annotated[bool, _switch("--no-resume", _RUN, "Refuse to continue an unfinished output.")]
Overwrite = Annotated[bool, _switch("--overwrite", _RUN, "Start over and replace --out.")]
StopAfter = Annotated[
    str | None,
    _option("--stop-after", "DURATION", _RUN, "After this long (3h55m, 90s), finish the pages in flight and exit 75."),
]
PageTimeout = Annotated[
    float | None,
    _option(
        "--page-timeout",
        "SECONDS",
        _RUN,
        "Time limit for opening a document, rendering a page, and post-processing a page, each.",
    ),
]
MaxPageErrorRate = Annotated[
    float | None, _option("--max-page-error-rate", "F", _RUN, "Share of failed pages above which the exit code is 3.")
]
ReportPath = Annotated[
    str | None,
    _option("--report", "PATH", _RUN, "Where to write the throughput report (JSON).", default="OUT.report.json"),
]

Quiet = Annotated[bool, _switch("--quiet", _OUTPUT, "Only warnings and errors; the report goes to its file alone.")]
Verbose = Annotated[bool, _switch("--verbose", _OUTPUT, "Log internal events, and show tracebacks.")]
LogFormatOption = Annotated[
    LogFormat, _option("--log-format", "NAME", _OUTPUT, "text, or json: one object per line.", default="text")
]

EPILOG = """Examples:

batchocr run ./scans --out results.parquet

batchocr run 'reports/**/*.pdf' --pages 1-3 --out first-pages.jsonl

find . -name '*.pdf' | batchocr run - --out results.parquet

batchocr run ./archive --shard 2/8 --stop-after 3h55m --out part-2.parquet

Exit codes: 0 every page read, in full or in part; 1 internal error: a bug, or a device or workers that fail; \
2 wrong usage; 3 more pages failed than allowed; 4 nothing to read; \
5 the model cannot be loaded; 6 the output cannot be written, or belongs to other settings; 75 stopped before the end \
and 130 interrupted: run the same command again to continue.
"""
