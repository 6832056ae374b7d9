"""Every option of a run, declared once: its type, its limits, its default, and what `--help` says about it.

`Config` holds what the user said; None leaves a size to be chosen for the machine (`job/session.py`,
`planning/limits.py`). It is checked when it is made, and nothing changes it after that. The flags (`cli/options.py`),
the keys of a recipe, `batchocr.Options` and docs/options.md are made from its fields.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

from pydantic import (
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic.dataclasses import dataclass
from pydantic_core import ArgsKwargs, ErrorDetails

from batchocr.data import FigureUse, OrientationUse, TextLayerUse, valid_text
from batchocr.errors import UsageError
from batchocr.option_values import (
    ZIP_ENCODING,
    Count,
    DeviceText,
    Duration,
    EncodingText,
    FolderText,
    LocalPathText,
    PageSpecText,
    PathText,
    Rate,
    Seconds,
    Shard,
    WorkerBytes,
    as_text,
)

logger = logging.getLogger(__name__)

DType = Literal["auto", "float32", "bfloat16"]
VitDType = Literal["auto", "fp8"]
BackendName = Literal["auto", "reference", "cpu", "cuda"]
DEFAULT_MODEL = "opendatalab/MinerU2.5-Pro-2605-1.2B"

_IN_ENVIRONMENT = ("model", "cache", "password")
"""The options that may be given as an environment variable, such as BATCHOCR_MODEL."""
_READABLE_DPI = 72
"""The resolution below which letters of a usual size are a few pixels high."""


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """What `--help` and docs/options.md say about a field of Config."""

    panel: str
    """The part of the help in which the option stands."""
    help: str
    metavar: str = ""
    """What stands for the option's value in the help; a bool and a choice have none."""
    default: str = ""
    """The default that the help shows, if the field's own default would say nothing."""
    also: Any = None
    """A second type in which a value may be given."""
    short: str = ""
    """A shorter way to write the flag."""
    per_call: bool = False
    """Whether each call of an Ocr may choose the option, because nothing that is loaded depends on it."""


INPUT, MODEL, GENERATION, SIZES = "What to read", "Model", "Generation", "Batch sizes"
CONTINUING, RUN = "Continuing a run", "The run"
_BY_DEVICE = "by device"

RECIPE = Option(
    RUN,
    "A TOML file of options; flags win over it, and so do BATCHOCR_MODEL, _CACHE and _PASSWORD.",
    "FILE",
    also=os.PathLike[str],
)
"""The one option that is no field of Config, as it sets such fields."""


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
    config=ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True),
)
class Config:
    """The options of the command line, under the same names. Sizes are upper limits. Raises UsageError."""

    pages: Annotated[
        PageSpecText | None,
        Option(
            INPUT,
            "Pages of each document, counted from 1; r1 is the last: 1-10,15,r3-r1.",
            "SPEC",
            default="all",
            per_call=True,
        ),
    ] = None
    only: Annotated[
        LocalPathText | None,
        Option(
            INPUT,
            "Only the pages that this file names: an audit (those with findings), marks saved from a review page "
            "(those marked bad), or any table with source and page_index.",
            "FILE",
            default="all",
            also=os.PathLike[str],
            per_call=True,
        ),
    ] = None
    dpi: Annotated[
        Count, Option(INPUT, "Resolution of rendered PDFs; the longer side is kept within 3500 px.", "N")
    ] = 200
    figures: Annotated[
        FigureUse,
        Option(
            INPUT,
            "Whether to read pictures and charts: read says what they show, and a chart's table.",
        ),
    ] = "skip"
    text_layer: Annotated[
        TextLayerUse,
        Option(
            INPUT,
            "How to use a PDF's own text: check compares what was read, and takes it for answers that were lost; trust "
            "takes it for all blocks of plain text (docs/tiers.md).",
        ),
    ] = "check"
    orientation: Annotated[
        OrientationUse,
        Option(
            INPUT,
            "Pages that lie on a side or upside down: check says so, turn reads them upright (docs/tiers.md).",
        ),
    ] = "check"
    password: Annotated[
        str | None,
        Option(
            INPUT,
            "For encrypted PDFs; better given as the environment variable BATCHOCR_PASSWORD.",
            "TEXT",
            per_call=True,
        ),
    ] = dataclasses.field(default=None, repr=False)
    document_column: Annotated[
        str | None,
        Option(INPUT, "Of Parquet tables, the column with documents.", "NAME", default="the only one", per_call=True),
    ] = None
    name_column: Annotated[
        str | None,
        Option(INPUT, "Of Parquet tables, the column with names.", "NAME", default="path, or the row", per_call=True),
    ] = None
    zip_encoding: Annotated[
        EncodingText, Option(INPUT, "Of names in zips that are not UTF-8: gbk, cp932, cp866.", "NAME")
    ] = ZIP_ENCODING
    null: Annotated[
        bool,
        Option(
            INPUT,
            "NUL separates paths in lists and on stdin: as find -print0 writes them; they are taken as they are.",
            short="-0",
            per_call=True,
        ),
    ] = False
    follow_symlinks: Annotated[
        bool, Option(INPUT, "Also follow symbolic links that lead outside the given folder or glob.", per_call=True)
    ] = False
    shard: Annotated[
        Shard,
        Option(
            INPUT,
            "Read the I-th of N shares of the documents; each job needs its own --out.",
            "I/N",
            default="1/1",
            also=str,
            per_call=True,
        ),
    ] = (1, 1)
    """The index, from 1, and the count."""
    limit: Annotated[
        Count | None,
        Option(
            INPUT, "End after the first N rows of the input; rows finished by earlier runs count.", "N", per_call=True
        ),
    ] = None

    model: Annotated[
        PathText,
        Option(
            MODEL,
            "A model on Hugging Face, or a folder with one; also given as BATCHOCR_MODEL.",
            "NAME_OR_DIR",
            also=os.PathLike[str],
        ),
    ] = DEFAULT_MODEL
    revision: Annotated[str | None, Option(MODEL, "Its branch, tag or commit on Hugging Face.", "TEXT")] = None
    layout: Annotated[
        PathText | None,
        Option(
            MODEL,
            "Find layouts with a detector: PP-DocLayoutV2 or V3, as NAME, NAME@REVISION or DIR; the model reads the "
            "blocks (docs/tiers.md).",
            "NAME_OR_DIR",
            default="the model, or its authors' detector",
            also=os.PathLike[str],
        ),
    ] = None
    device: Annotated[
        DeviceText,
        Option(
            MODEL,
            "Where to run: cuda:0 one GPU, cuda:0,cuda:1 several, cpu the CPU; auto takes all GPUs, or the CPU.",
            "NAMES",
        ),
    ] = "auto"
    dtype: Annotated[
        DType,
        Option(
            MODEL,
            "auto takes bfloat16 on a GPU, and on a CPU that is faster in it if the model is stored in it.",
        ),
    ] = "auto"
    vit_dtype: Annotated[
        VitDType,
        Option(
            MODEL,
            "fp8 runs the ViT's linear layers in 8 bits, on GPUs that support it (experimental); auto follows --dtype.",
        ),
    ] = "auto"
    backend: Annotated[
        BackendName,
        Option(MODEL, "Kernels: reference is plain PyTorch, auto fits the device."),
    ] = "auto"
    retry_kernels: Annotated[bool, Option(MODEL, "Time the kernels of a GPU anew.")] = False
    memory_fraction: Annotated[
        float,
        Field(gt=0, le=1),
        Option(MODEL, "Share of the GPU memory free at start-up that batchocr plans to use.", "F"),
    ] = 0.9
    max_new_tokens: Annotated[Count, Option(GENERATION, "Maximum tokens generated for one block.", "N")] = 8192
    penalties: Annotated[
        bool,
        Option(
            GENERATION,
            "Penalties, n-gram rule and loop handling; without them plain greedy decoding, for comparing engines.",
        ),
    ] = True

    vit_batch_size: Annotated[
        Count | None, Option(SIZES, "Maximum images in a ViT batch.", "N", default=_BY_DEVICE)
    ] = None
    vit_max_patches: Annotated[
        Count | None,
        Option(SIZES, "Maximum patches in a ViT batch; a larger image is a batch of its own.", "N", default=_BY_DEVICE),
    ] = None
    llm_batch_size: Annotated[
        Count | None, Option(SIZES, "Maximum sequences decoded at once.", "N", default=_BY_DEVICE)
    ] = None
    prefill_max_tokens: Annotated[
        Count | None,
        Option(
            SIZES, "Maximum tokens in a prefill batch; a longer prompt is a batch of its own.", "N", default=_BY_DEVICE
        ),
    ] = None
    embedding_queue_tokens: Annotated[
        Count | None, Option(SIZES, "Maximum image tokens waiting between ViT and LLM.", "N", default=_BY_DEVICE)
    ] = None
    layout_batch_size: Annotated[
        Count | None, Option(SIZES, "Maximum pages in a batch of the detector of --layout.", "N", default=_BY_DEVICE)
    ] = None
    pages_in_flight: Annotated[
        Count | None,
        Option(
            SIZES,
            "Maximum pages worked on at once; each holds about 40 MB of host memory.",
            "N",
            default="by host memory and device",
        ),
    ] = None
    workers: Annotated[
        Count | None,
        Option(
            SIZES,
            "Processes that open and render documents and post-process pages.",
            "N",
            default="by cores and memory",
        ),
    ] = None
    worker_memory: Annotated[
        WorkerBytes | None,
        Option(
            SIZES,
            "Memory limit of one worker (4G, 512M); a page that needs more fails.",
            "SIZE",
            default="an equal share of half the memory, at most 4G",
            also=str,
        ),
    ] = None
    """The memory limit of a worker, in bytes."""

    resume: Annotated[bool, Option(CONTINUING, "Continue an unfinished output, or refuse to.", per_call=True)] = True
    overwrite: Annotated[
        bool, Option(CONTINUING, "Read everything again: earlier rows and the journal are discarded.", per_call=True)
    ] = False
    prune: Annotated[
        bool,
        Option(
            CONTINUING,
            "Remove rows of documents that are not there, and of pages not asked for.",
            per_call=True,
        ),
    ] = False
    retry_failed: Annotated[
        bool | None,
        Option(
            CONTINUING,
            "Retry all pages that failed in an earlier run, or none.",
            default="all but those of damaged or unsupported files",
            per_call=True,
        ),
    ] = None
    sample_documents: Annotated[
        Count | None,
        Option(RUN, "Read only N of the documents, drawn by their names: the same in every run.", "N", per_call=True),
    ] = None
    stop_after: Annotated[
        Duration | None,
        Option(
            RUN,
            "Stop after this long (3h55m, 90s): finish the pages in flight and exit 75.",
            "DURATION",
            also=str,
            per_call=True,
        ),
    ] = None
    """How long the run lasts at most, in seconds."""
    page_timeout: Annotated[
        Seconds,
        Option(
            RUN,
            "Time limit for opening a document, rendering a page, and post-processing a page, each.",
            "SECONDS",
            per_call=True,
        ),
    ] = 60.0
    """How long a worker may take for one thing, in seconds."""
    max_page_error_rate: Annotated[
        Rate, Option(RUN, "Exit with 3 if a larger share of the rows failed.", "F", per_call=True)
    ] = 0.05
    max_degraded_rate: Annotated[
        Rate,
        Option(
            RUN,
            "Exit with 3 if more are incomplete: a larger share (status degraded) of the pages that were read.",
            "F",
            per_call=True,
        ),
    ] = 0.25
    max_doubtful_rate: Annotated[
        Rate,
        Option(
            RUN,
            "Exit with 3 if more are doubtful: a larger share (quality under 0.5, as `view` sorts by it) of them.",
            "F",
            default="1: off",
            per_call=True,
        ),
    ] = 1.0
    report: Annotated[
        LocalPathText | None,
        Option(
            RUN,
            "Where to write the throughput report (JSON).",
            "PATH",
            default="OUT.report.json",
            also=os.PathLike[str],
            per_call=True,
        ),
    ] = None
    cache: Annotated[
        FolderText | None,
        Option(
            CONTINUING,
            "Keep the model's answers in this folder: for later runs, and others at the same time, that ask the same. "
            "Also given as BATCHOCR_CACHE.",
            "DIR",
            default="none",
            also=os.PathLike[str],
        ),
    ] = None
    rows_per_part: Annotated[
        Count, Option(RUN, "Most rows in a part of a folder; only a document may have more.", "N", per_call=True)
    ] = 16_384
    work_dir: Annotated[
        LocalPathText | None,
        Option(
            CONTINUING,
            "Where an --out in an object store is made, tars are unpacked, and the choice of kernels is kept.",
            "DIR",
            default="~/.cache/batchocr",
            also=os.PathLike[str],
            per_call=True,
        ),
    ] = None

    @model_validator(mode="wrap")
    @classmethod
    def _check(cls, given: ArgsKwargs, check: ModelWrapValidatorHandler[Config]) -> Config:
        """Raise UsageError where pydantic finds something wrong."""
        try:
            return check(given)
        except ValidationError as error:
            raise _refusal(error.errors()[0], given.kwargs or {}) from error


def _refusal(problem: ErrorDetails, given: Mapping[str, object]) -> UsageError:
    """A sentence with the flag, the value (but never a password) and what is allowed."""
    name = str(problem["loc"][0])
    if problem["type"] == "unexpected_keyword_argument":
        return _unknown(name)
    shown = "" if name == "password" else f" {as_text(given[name])!r}"
    allowed = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if problem["type"] == "literal_error":
        allowed = f"one of {', '.join(get_args(get_type_hints(Config)[name]))}"
    return UsageError(f"{flag_of(name)}{shown}: {allowed}")


def _unknown(name: str) -> UsageError:
    known = sorted(field.name for field in dataclasses.fields(Config))
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(known)}"
    if name in ("out", "inputs"):
        hint = "what is read and where it goes are said on the command line: batchocr run INPUT --out TABLE"
    if name.removeprefix("no_") in known:
        hint = f"write {name.removeprefix('no_')} = false"
    return UsageError(f"there is no option {name!r}; {hint}")


def flag_of(name: str) -> str:
    """The flag of a field: `--dpi`."""
    return f"--{name.replace('_', '-')}"


def make_config(options: Mapping[str, Any], recipe: str | None = None) -> Config:
    """Return the Config with `options`, fields of Config by name; those left out are taken from the environment, if
    they may be there, then from the recipe. Raises UsageError.
    """
    variables = {name: os.environ.get(f"BATCHOCR_{name.upper()}") for name in _IN_ENVIRONMENT}
    environment = {name: value for name, value in variables.items() if value}
    config = Config(**{**(load_recipe(recipe) if recipe is not None else {}), **environment, **options})
    if config.dpi < _READABLE_DPI:
        logger.warning("--dpi %d: letters may be too small to be read; the default is 200", config.dpi)
    return config


def given_options(config: Config) -> dict[str, Any]:
    """The options that differ from their defaults, but never a password."""
    fields = (field for field in dataclasses.fields(Config) if field.name != "password")
    given = {field.name: value for field in fields if (value := getattr(config, field.name)) != field.default}
    return {name: valid_text(value) if isinstance(value, str) else value for name, value in given.items()}


def for_call(config: Config, options: Mapping[str, Any]) -> Config:
    """Return the Config with `options` for one call of an Ocr that was made with it. Raises UsageError."""
    hints = get_type_hints(Config, include_extras=True)
    for name in options:
        if name not in hints and name != "recipe":
            raise _unknown(name)
        if name == "recipe" or not option_of(hints[name]).per_call:
            raise UsageError(f"{name} is fixed when an Ocr is made, and cannot be chosen for a call: make another Ocr")
    return dataclasses.replace(config, **options)


def option_of(hint: Any) -> Option:
    """The Option in the type of a field of Config."""
    return next(part for part in hint.__metadata__ if isinstance(part, Option))


def load_recipe(path: str) -> dict[str, Any]:
    """Return the fields of Config that a recipe sets, checked.

    path: of a TOML file. Its keys are the flags without their leading dashes. Raises UsageError, which names the file
    and the key.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        flags = {key.replace("-", "_"): value for key, value in tomllib.loads(text).items()}
        config = Config(**flags)
    except OSError as error:
        raise UsageError(f"the recipe {path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError, UsageError) as error:  # no text, no TOML, or it is nested too deep
        raise UsageError(f"recipe {path}: {error}") from error
    return {name: getattr(config, name) for name in flags}
