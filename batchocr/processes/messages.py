"""The messages between the run (`job/pipeline.py`) and a worker process (`pages/__main__.py`).

A task is one document to open, whose outline to read, whose pages to look at or which to write as a PDF, or one page to
read; the run chooses its number. The run sends Setup once, then OpenDocument, ReadOutline, LookAtPages, ReadPage,
WriteSearchable and Completions; the rest come back, Started first. Every task ends with exactly one Opened, Outline,
PagesSeen, SearchableWritten, Finished or Failed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import AfterValidator, Field

from batchocr.config import Config
from batchocr.data import (
    Additions,
    Completion,
    Failure,
    FigureUse,
    Int64,
    Number,
    OutlineEntry,
    PageSeen,
    Reading,
    Sampling,
    SearchableMade,
    TextLayerUse,
)

Activity = Literal["open", "render", "post-process"]

_MAX_RESIZED_PX = 1 << 26
_MAX_PROMPT = 10_000
_MAX_QUESTIONS = 2000
_MAX_PROMPTS = 1_000_000
Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


@dataclass(frozen=True, slots=True)
class Setup:
    """How this worker opens, renders and reads; sent once, first. memory_bytes: how much memory it may hold. protocol:
    MinerU's, one that only passes on the pixels of a page, or an audit's second reader. page_timeout_s: after which the
    run ends the worker. text_layer: what the text of PDFs is for. figures: whether they are read. detector: the
    fingerprint of that which finds layouts; empty if the model does."""

    dpi: int
    password: str | None
    max_new_tokens: int
    penalties: bool
    memory_bytes: int
    protocol: Literal["mineru", "pixels", "lines"] = "mineru"
    page_timeout_s: float = 60.0
    text_layer: TextLayerUse = "check"
    figures: FigureUse = "skip"
    detector: str = ""
    type: Literal["setup"] = "setup"

    @classmethod
    def of(cls, config: Config, memory_bytes: int, *, detector: str = "") -> Self:
        """What a run's options mean for a worker."""
        return cls(
            *(config.dpi, config.password, config.max_new_tokens, config.penalties, memory_bytes),
            page_timeout_s=config.page_timeout,
            text_layer=config.text_layer,
            figures=config.figures,
            detector=detector,
        )


@dataclass(frozen=True, slots=True)
class OpenDocument:
    task_id: int
    path: str
    type: Literal["open"] = "open"


@dataclass(frozen=True, slots=True)
class ReadPage:
    """size in bytes, mtime_ns: of the version of the file that is to be read, and no other; None: as it is now.
    dpi: of a PDF, if not that of the setup."""

    task_id: int
    path: str
    page_index: int
    size: int | None = None
    mtime_ns: int | None = None
    dpi: int | None = None
    type: Literal["read"] = "read"


@dataclass(frozen=True, slots=True)
class ReadOutline:
    """size, mtime_ns: as in ReadPage."""

    task_id: int
    path: str
    size: int
    mtime_ns: int
    type: Literal["read outline"] = "read outline"


@dataclass(frozen=True, slots=True)
class LookAtPages:
    """What these pages are like: their size, and how much text they have of their own. None is drawn. size, mtime_ns:
    as in ReadPage."""

    task_id: int
    path: str
    page_indices: tuple[int, ...]
    size: int | None = None
    mtime_ns: int | None = None
    type: Literal["look at pages"] = "look at pages"


@dataclass(frozen=True, slots=True)
class WriteSearchable:
    """Write this version of a document as a PDF to `to_path`, with the text of its pages that is in the file at
    `text_path` (`pages/searchable/placed_text`), and with these additions."""

    task_id: int
    path: str
    size: int
    mtime_ns: int
    text_path: str
    to_path: str
    additions: Additions
    type: Literal["write searchable"] = "write searchable"


@dataclass(frozen=True, slots=True)
class Completions:
    """The answers to a page's last batch, in the order of its questions."""

    task_id: int
    completions: tuple[Completion, ...]
    type: Literal["completions"] = "completions"


@dataclass(frozen=True, slots=True)
class Started:
    """The worker can be given something to do. Its first word, of no task."""

    type: Literal["started"] = "started"


@dataclass(frozen=True, slots=True)
class Began:
    """The worker is about to do something that may hang."""

    task_id: int
    activity: Activity
    type: Literal["began"] = "began"


@dataclass(frozen=True, slots=True)
class Ended:
    """The step ended, successfully or not. seconds: how long it took."""

    task_id: int
    activity: Activity
    seconds: Seconds
    type: Literal["ended"] = "ended"


@dataclass(frozen=True, slots=True)
class Opened:
    """doc_id: SHA-256 of the file, hex. size in bytes and mtime_ns as they were before it was read."""

    task_id: int
    page_count: Number
    doc_id: str
    size: Number
    mtime_ns: Int64
    type: Literal["opened"] = "opened"


@dataclass(frozen=True, slots=True)
class Outline:
    task_id: int
    entries: tuple[OutlineEntry, ...]
    type: Literal["outline"] = "outline"


@dataclass(frozen=True, slots=True)
class PagesSeen:
    """format: of the file. page_count: of the document. pages: in the order in which they were asked for; None for one
    that cannot be read."""

    task_id: int
    format: Annotated[str, Field(max_length=20)]
    page_count: Number
    pages: tuple[PageSeen | None, ...]
    type: Literal["pages seen"] = "pages seen"


@dataclass(frozen=True, slots=True)
class SearchableWritten:
    task_id: int
    made: SearchableMade
    type: Literal["searchable written"] = "searchable written"


def _answerable(questions: tuple[Question, ...]) -> tuple[Question, ...]:
    """Raises ValueError for questions that no page has: one that is far too large could end the engine, which answers
    those of many pages at once."""
    for question in questions:
        height, width = question.resize_to or (1, 1)
        if not (min(height, width) > 0 and height * width <= _MAX_RESIZED_PX):
            raise ValueError(f"an image is not resized to {width} × {height} px")
    if sum(len(question.prompt) for question in questions) > _MAX_PROMPTS:
        raise ValueError("the prompts are too long together")
    return questions


@dataclass(frozen=True, slots=True)
class Question:
    """A Request without its pixels, which are at `offset` in the batch's shared memory. digest: SHA-256, hex, of all
    that its answer depends on but the model. detector: as in Request."""

    offset: int
    height: int
    width: int
    prompt: Annotated[str, Field(max_length=_MAX_PROMPT)]
    sampling: Sampling
    resize_to: tuple[int, int] | None
    digest: Digest
    detector: Digest | Literal[""] = ""


@dataclass(frozen=True, slots=True)
class RequestBatch:
    """A page's next questions, with one descriptor: the shared memory that holds all their pixels."""

    task_id: int
    round: int
    questions: Annotated[
        tuple[Question, ...], Field(min_length=1, max_length=_MAX_QUESTIONS), AfterValidator(_answerable)
    ]
    type: Literal["request batch"] = "request batch"


@dataclass(frozen=True, slots=True)
class Finished:
    task_id: int
    reading: Reading
    type: Literal["finished"] = "finished"


@dataclass(frozen=True, slots=True)
class Failed:
    task_id: int
    failure: Failure
    doc_id: str | None = None
    type: Literal["failed"] = "failed"


Task: TypeAlias = OpenDocument | ReadOutline | LookAtPages | ReadPage | WriteSearchable
ToWorker: TypeAlias = Setup | Task | Completions
OfTask: TypeAlias = Began | Ended | Opened | Outline | PagesSeen | SearchableWritten | RequestBatch | Finished | Failed
FromWorker: TypeAlias = Started | OfTask
