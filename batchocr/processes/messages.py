"""The messages between the run (`job/pipeline.py`) and a worker process (`pages/__main__.py`).

A task is one document to open, whose pages to look at or which to write as a PDF, a part of a container to list, or one
page to read or to draw; the run chooses its number. The run sends Setup once, then OpenDocument, LookAtPages,
ListMembers, ReadPage, DrawPage, WriteSearchable and Completions; the rest come back, Started first. Every task ends
with exactly one Opened, PagesSeen, MembersListed, Drawn, SearchableWritten, Finished or Failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import AfterValidator, Field

from batchocr.config import Config
from batchocr.data import (
    Additions,
    Box,
    Completion,
    Encoding,
    Failure,
    FigureUse,
    Int64,
    Number,
    OrientationUse,
    OutlineEntry,
    PageSeen,
    Reading,
    Sampling,
    SearchableMade,
    TextLayerUse,
)
from batchocr.option_values import MOST_WORKER_BYTES, ZIP_ENCODING
from batchocr.storage.members import Member
from batchocr.storage.unpacked import folder_name

Activity = Literal["open", "render", "post-process"]
Part = tuple[Box, Encoding, int]
"""A part of a page: its box, how to encode it, and by how many degrees what is in it lies turned clockwise: it is
turned back."""

_MAX_RESIZED_PX = 1 << 26
_MAX_PROMPT = 10_000
_MAX_QUESTIONS = 2000
_MAX_PROMPTS = 1_000_000
_OPTIONS = (
    *("dpi", "password", "max_new_tokens", "penalties", "text_layer", "orientation", "figures"),
    *("document_column", "name_column", "zip_encoding", "work_dir"),
)
"""The options of a run that are a worker's, too."""
Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


@dataclass(frozen=True, slots=True)
class Setup:
    """How this worker opens, renders and reads; sent once, first."""

    dpi: int
    password: str | None
    max_new_tokens: int
    penalties: bool
    memory_bytes: int
    """How much memory the worker may hold."""
    protocol: Annotated[str, Field(pattern="^[a-z0-9_]{1,40}$")] = "none"
    """The name of the protocol of a family of models, "lines" for an audit's second reader, "none" if no page is
    read."""
    page_timeout_s: float = 60.0
    """How long the worker may take for one thing before the run ends it."""
    text_layer: TextLayerUse = "check"
    """What the text of PDFs is for."""
    orientation: OrientationUse = "check"
    """What becomes of pages that do not stand upright."""
    figures: FigureUse = "skip"
    """Whether figures are read."""
    detector: str = ""
    """The fingerprint of the layout detector; empty if the model finds layouts."""
    document_column: str | None = None
    """The column that holds the documents of a table; None for the one that fits."""
    name_column: str | None = None
    """The column that holds the names of the documents of a table; None for the `path` beside a document, or the row's
    number."""
    zip_encoding: str = ZIP_ENCODING
    """The encoding of names in zips that do not say theirs."""
    work_dir: str | None = None
    """Where compressed tars are unpacked; None for the usual place."""
    folder_name: str = field(default_factory=folder_name)
    """The name of this run's folder in `work_dir`."""
    type: Literal["setup"] = "setup"

    @classmethod
    def of(cls, config: Config, memory_bytes: int = MOST_WORKER_BYTES) -> Self:
        """What a run's options mean for a worker, which reads no page."""
        same = {name: getattr(config, name) for name in _OPTIONS}
        return cls(memory_bytes=memory_bytes, page_timeout_s=config.page_timeout, **same)


@dataclass(frozen=True, slots=True)
class OpenDocument:
    """Open a document, to tell its version and how many pages it has."""

    task_id: int
    path: str
    with_outline: bool = False
    """Whether to tell the document's outline too."""
    type: Literal["open"] = "open"


@dataclass(frozen=True, slots=True)
class ReadPage:
    """Read a page of this version of the file, and of no other."""

    task_id: int
    path: str
    page_index: int
    size: int | None = None
    """The size of the file, in bytes; None for the file as it is now."""
    mtime_ns: int | None = None
    """When the file was last modified, in ns since 1970; None for the file as it is now."""
    dpi: int | None = None
    """The resolution to draw a page of a PDF at; None for that of the setup."""
    type: Literal["read"] = "read"


@dataclass(frozen=True, slots=True)
class DrawPage:
    """Draw a page, which has this width and height, and write parts of it to `to_path`, one after the other."""

    task_id: int
    page: ReadPage
    size: tuple[int, int]
    parts: tuple[Part, ...]
    to_path: str
    type: Literal["draw"] = "draw"

    def takes(self, sizes: Sequence[int]) -> bool:
        """Whether parts of these sizes have no more bytes than four pages in pixels: a model may find any number of
        figures."""
        return sum(sizes) <= 4 * 3 * self.size[0] * self.size[1]


@dataclass(frozen=True, slots=True)
class LookAtPages:
    """Tell what pages are like: their size, and how much text they have of their own. No page is drawn."""

    task_id: int
    path: str
    page_indices: tuple[int, ...]
    size: int | None = None
    mtime_ns: int | None = None
    type: Literal["look at pages"] = "look at pages"


@dataclass(frozen=True, slots=True)
class ListMembers:
    """Tell what documents are within a file: the first of them, or those after what was told last."""

    task_id: int
    path: str
    goes_on: bool = False
    type: Literal["list members"] = "list members"


@dataclass(frozen=True, slots=True)
class WriteSearchable:
    """Write this version of a document as a PDF to `to_path`, with the text of its pages and with these additions."""

    task_id: int
    path: str
    size: int
    mtime_ns: int
    text_path: str
    """The file with the text of the pages: see `pages/searchable/placed_text`."""
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
    """The worker can be given something to do. This is its first word, and about no task."""

    type: Literal["started"] = "started"


@dataclass(frozen=True, slots=True)
class Began:
    """The worker is about to do something that may hang."""

    task_id: int
    activity: Activity
    type: Literal["began"] = "began"


@dataclass(frozen=True, slots=True)
class Ended:
    """The step ended, successfully or not."""

    task_id: int
    activity: Activity
    seconds: Seconds
    """How long the step took."""
    type: Literal["ended"] = "ended"


@dataclass(frozen=True, slots=True)
class Opened:
    """A document can be opened."""

    task_id: int
    page_count: Number
    doc_id: str
    """SHA-256 of the file, hex."""
    size: Number
    """The size of the file before it was read, in bytes."""
    mtime_ns: Int64
    """When the file had last been modified before it was read, in ns since 1970."""
    doubted: bool = False
    """Whether the document is an object whose bytes do not fit its ETag."""
    outline: tuple[OutlineEntry, ...] = ()
    """The document's outline; empty if it was not asked for, or cannot be read."""
    type: Literal["opened"] = "opened"


@dataclass(frozen=True, slots=True)
class PagesSeen:
    """What pages are like."""

    task_id: int
    format: Annotated[str, Field(max_length=20)]
    """The format of the file."""
    pages: tuple[PageSeen | None, ...]
    """The pages, in the order in which they were asked for; None for one that cannot be read."""
    type: Literal["pages seen"] = "pages seen"


@dataclass(frozen=True, slots=True)
class MembersListed:
    """Some of the documents within a file, in the file's order."""

    task_id: int
    version: tuple[Number, Int64]
    """The size and mtime of the file that the documents are in."""
    members: tuple[Member, ...]
    skipped: dict[Annotated[str, Field(max_length=40)], Number]
    """How many other files there were, as `SkippedFiles.by_kind` says it."""
    is_last: bool
    """Whether this is the last such message of the file: no more documents follow."""
    problem: Failure | None = None
    """Why the rest cannot be listed."""
    type: Literal["members listed"] = "members listed"


@dataclass(frozen=True, slots=True)
class Drawn:
    """The parts of a page were written."""

    task_id: int
    sizes: tuple[Number, ...]
    """The bytes of each part that was written; 0 for a part of which nothing is on the page."""
    type: Literal["drawn"] = "drawn"


@dataclass(frozen=True, slots=True)
class SearchableWritten:
    task_id: int
    made: SearchableMade
    type: Literal["searchable written"] = "searchable written"


def _answerable(questions: tuple[Question, ...]) -> tuple[Question, ...]:
    """The questions. Raises ValueError for questions that no page has: one that is far too large could end the engine,
    which answers the questions of many pages at once."""
    for question in questions:
        height, width = question.resize_to or (1, 1)
        if not (min(height, width) > 0 and height * width <= _MAX_RESIZED_PX):
            raise ValueError(f"an image is not resized to {width} × {height} px")
    if sum(len(question.prompt) for question in questions) > _MAX_PROMPTS:
        raise ValueError("the prompts are too long together")
    return questions


@dataclass(frozen=True, slots=True)
class Question:
    """A Request without its pixels, which are in the batch's shared memory."""

    offset: int
    """The offset of the first byte of the image's pixels in the batch's memory."""
    height: int
    width: int
    prompt: Annotated[str, Field(max_length=_MAX_PROMPT)]
    sampling: Sampling
    resize_to: tuple[int, int] | None
    digest: Digest
    """SHA-256, hex, of all that the answer depends on but the model."""
    detector: Digest | Literal[""] = ""
    """The fingerprint of the layout detector that is asked, as in Request; empty for the model."""


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


Task: TypeAlias = OpenDocument | LookAtPages | ListMembers | ReadPage | DrawPage | WriteSearchable
ToWorker: TypeAlias = Setup | Task | Completions
Answer: TypeAlias = Opened | PagesSeen | MembersListed | Drawn | SearchableWritten | Finished | Failed
OfTask: TypeAlias = Began | Ended | RequestBatch | Answer
FromWorker: TypeAlias = Started | OfTask
