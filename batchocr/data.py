"""The data that travels between input, workers, engine, output and the caller.

Everything here is frozen. Types with only plain fields cross process boundaries as JSON (`processes/channel.py`) and
are stored in the journal as JSON; pixels cross in shared memory and never as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self, TypeAlias
from unicodedata import category

from pydantic import Field

if TYPE_CHECKING:
    from PIL import Image

Status = Literal["ok", "degraded", "failed", "skipped"]
FinishReason = Literal["stop", "length", "repetition"]
LoopCheck = Literal["at_once", "at_limit", "never"]
TextLayerUse = Literal["off", "check", "trust"]
OrientationUse = Literal["off", "check", "turn"]
FigureUse = Literal["skip", "read"]
Encoding = Literal["png", "jpeg", "pixels"]
"""How a picture is encoded; `pixels`: rows of RGB."""
TextSource = Literal["model", "page"]

# A worker that a hostile document has taken over says what it likes: `processes/channel` refuses what does not fit.
Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Number = Annotated[int, Field(ge=0, lt=2**63)]
Share = Annotated[float, Field(ge=0, le=1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]

MAX_PAGES: Final = 1 << 20
"""The most pages of a document: what is made of one may have an entry for each page before its last."""
PageNumber = Annotated[int, Field(ge=0, le=MAX_PAGES)]

Box: TypeAlias = tuple[float, float, float, float]
"""x0, y0, x1, y1, from the top left; in shares of the page, where nothing else is said."""

ErrorKind = Literal[
    "not_found",  # the path does not exist, or no longer does
    "absent",  # a table has nothing in this place: the row is skipped, and not failed
    "unreadable",  # the file or folder may not be read
    "unsupported",  # not a known format
    "encrypted",  # needs a password, and none or a wrong one was given
    "damaged",  # the document or the page cannot be decoded
    "changed",  # the file was replaced or written to while it was read
    "too_large",  # more pixels than is safe to decode, or more pages than a table can name
    "timeout",  # took longer than --page-timeout
    "crashed",  # took its worker process down
    "out_of_memory",
    "engine",  # the model could not run the request
    "internal",  # a bug in batchocr
]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a page, or a document as a whole, cannot be read."""

    kind: ErrorKind
    message: str


@dataclass(frozen=True, slots=True)
class Document:
    """A file of the input, a document within one, or an entry of the input that is neither (see `problem`)."""

    path: str
    """Where the document is: a path for the file system, the URI of an object in a store, or an address within a file
    (`storage/members`)."""
    source: str
    """Where the file is under its INPUT, `/`-separated: the stable name in rows and in the journal."""
    problem: Failure | None = None
    """Why the file cannot be opened, if that is already known."""
    held: object = None
    """What has to live as long as this, because `path` leads to it."""
    size: int | None = None
    """The size of an object, or of a document within a file, in bytes, from its listing; None for a file."""
    mtime_ns: int | None = None
    """When an object, or a document within a file, was last modified, in ns since 1970, from its listing; None for a
    file."""
    pages: Set[int] | None = None
    """The only pages of the document that are read, by index; None for those that the run asks for."""

    def chosen(self, pages: Sequence[int]) -> Sequence[int]:
        """The pages, among these, that are to be read of the document."""
        return pages if self.pages is None else [page for page in pages if page in self.pages]


PlacedWord: TypeAlias = tuple[float, float, str]
"""A word of a PDF's own text: x and y of its centre, as shares of the page, and what it says."""

LettersRun: TypeAlias = tuple[int, int, int, int]
"""How many letters of a PDF's page run as on an upright page, and as on one turned clockwise by one, two and three
quarters. NO_LETTERS if some are invisible, or images cover half of the page: they may be those of a scan."""
NO_LETTERS: Final[LettersRun] = (0, 0, 0, 0)

NOT_PLAIN: Final = "\ufffd"


@dataclass(frozen=True, slots=True)
class Glyph:
    """A letter as a PDF draws it; px of the page's image, y downwards."""

    text: str
    """The letter; U+FFFD if it is unknown, or if the glyph is not plain."""
    x: float
    """Where the glyph begins on its baseline; `y` is how far down that is."""
    y: float
    advance: float
    """The width that the glyph takes in its line."""
    size: float
    """The size of the glyph's font."""
    box: Box
    """x0, y0, x1, y1 of the glyph's ink; of a space, without any extent."""
    font: int = 0
    """The number of the glyph's font among those of the page."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page with its pixels."""

    image: Image.Image
    """The page's image, RGB."""
    dpi: float | None
    """The resolution as rendered, after the long side was capped; None for image files."""
    lost: str | None = None
    """What of the page could not be drawn, in words; None if nothing is known to be missing."""
    doubt: str | None = None
    """Why some of the page may not be read though all of it was drawn, in words; None if nothing is known to be
    hard."""
    words: tuple[PlacedWord, ...] = ()
    """The page's own text; empty if it has none."""
    letters_run: LettersRun = NO_LETTERS
    """How the letters of the page's own text run."""
    glyphs: tuple[Glyph, ...] = ()
    """The letters of the page's own text as they are drawn, if that text is to be taken where it is plain."""
    again: Callable[[], Page | None] | None = None
    """What draws the page once more, with its glyphs; None if the page has no text that could stand in for an answer.
    It returns None where that fails."""


@dataclass(frozen=True, slots=True)
class PageSeen:
    """A page that was looked at and not read."""

    width: Annotated[int, Field(ge=0, le=1 << 20)]
    """The width of the page as it would be drawn, in px."""
    height: Annotated[int, Field(ge=0, le=1 << 20)]
    characters: Annotated[int, Field(ge=0, le=1 << 40)] = 0
    """The characters of the page's own text, white space left out; 0 if it has none, as images and scans."""


@dataclass(frozen=True, slots=True)
class Pixels:
    """An RGB image as rows of bytes."""

    height: int
    width: int
    data: bytes | memoryview
    """uint8 [height, width, 3], contiguous."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How one sequence is decoded: greedily, after these penalties.

    As in vLLM, the repetition penalty counts the tokens of the prompt and the answer. The other penalties and the
    n-gram rule count those of the answer; zero switches one off.
    """

    max_new_tokens: Annotated[int, Field(gt=0, lt=2**63)]
    presence_penalty: Annotated[float, Field(ge=0, le=10)] = 0.0
    frequency_penalty: Annotated[float, Field(ge=0, le=10)] = 0.0
    no_repeat_ngram_size: Annotated[int, Field(ge=0, lt=2**31)] = 0
    loop_check: LoopCheck = "at_once"
    """When an answer that goes in circles is ended with `repetition`: at once; only when it has reached its limit,
    because a table with many equal cells looks like a loop; or never."""
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] = 1.0
    """The factor that divides the scores of tokens that are in the prompt or the answer, if the scores are positive,
    and multiplies negative ones. 1 switches it off."""

    @property
    def has_rules(self) -> bool:
        """Whether any score depends on the tokens before the one to be chosen."""
        rules = self.presence_penalty or self.frequency_penalty or self.no_repeat_ngram_size
        return bool(rules) or self.repetition_penalty != 1


@dataclass(frozen=True, slots=True)
class Request:
    """One question about one image."""

    pixels: Pixels
    prompt: str
    sampling: Sampling
    resize_to: tuple[int, int] | None = None
    """(height, width) in px to which the image is resized first, without keeping its aspect ratio; None leaves it as it
    is. The model's own resize to its patch grid follows."""
    round: int = 0
    """The round of the question: 0 for a page's first, then 1, …; the engine prefers later rounds, so that pages
    already begun are finished first."""
    detector: str = ""
    """The fingerprint of the layout detector that is asked in place of the model, whose answer is what
    `pages/protocol/detected_layout.py` reads; prompt and sampling mean nothing then. Empty for the model."""


@dataclass(frozen=True, slots=True)
class Completion:
    """What the model answered to one request."""

    text: str
    finish_reason: FinishReason
    image_tokens: int
    output_tokens: int
    mean_probability: float
    """The mean probability of the chosen tokens, from the logits before penalties; the end token counts, so even an
    empty answer has it."""
    min_logprob: float
    """The least log probability of the chosen tokens, from the logits before penalties."""
    error: str | None = None
    """Why the engine could not run the request; the other fields then mean nothing."""


def failed_completion(reason: str) -> Completion:
    """The completion of a request that the engine could not run."""
    return Completion("", "stop", 0, 0, 0.0, 0.0, error=reason)


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a page, in reading order.

    The four from confidence to finish_reason are None for blocks that the model did not read on their own.
    """

    type: str
    bbox: tuple[Finite, Finite, Finite, Finite]
    """x0, y0, x1, y1 as shares of the page, origin at the top left."""
    angle: Int64 | None
    """By how many degrees the block lies turned clockwise on the page: 0, 90, 180 or 270; None if the model gave
    none."""
    content: str | None
    """What the block says: text, HTML for tables, LaTeX for formulas; for a figure that was read, a chart's table in
    Markdown, a flowchart in Mermaid or the text in it, else its description; None for blocks that are not read. A table
    that could not be parsed has what the model wrote, seldom HTML; the row is degraded, and its message names the
    block."""
    merge_prev: bool = False
    """Whether the block continues the block before it."""
    confidence: Finite | None = None
    min_logprob: Finite | None = None
    tokens: Int64 | None = None
    """The tokens of the model's answer for the block."""
    finish_reason: FinishReason | None = None
    text_source: TextSource | None = None
    """Where the content is from: `model`; `page`, the PDF's own text, with `--text-layer trust`; None for blocks that
    are not read."""
    sub_type: str | None = None
    """The kind of a figure that was read, in the model's words."""
    description: str | None = None
    """A sentence about a figure that was read."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a worker made of a page: each field is a column of its row, where PageResult says what it is."""

    markdown: str
    blocks: tuple[Block, ...]
    image_tokens: Int64
    output_tokens: Int64
    error_message: str | None = None
    """Why the page was not read in full; None if it was."""
    ink_outside: Share | None = None
    text_layer_agreement: Share | None = None
    orientation: Int64 | None = None
    rescued_blocks: Number = 0
    ink_in_figures: Share | None = None
    writing_in_figures: Share | None = None
    layout_confidence: Share | None = None
    layout_min_logprob: Finite | None = None
    width: Number | None = None
    height: Number | None = None
    dpi: Finite | None = None


@dataclass(frozen=True, slots=True)
class OutlineEntry:
    """An entry of a PDF's outline."""

    level: Annotated[int, Field(gt=0, lt=2**31)]
    """The level of the entry, from 1."""
    title: str
    page_index: Annotated[int, Field(ge=0, lt=2**63)]
    y: Share | None = None
    """How far down the page the entry leads, as a share of the page's height; None if only to the page."""


@dataclass(frozen=True, slots=True)
class Additions:
    """What a PDF that can be searched is given beside its text."""

    outline: tuple[OutlineEntry, ...] = ()
    """The outline to give a PDF that has none."""
    language: str = ""
    """The language that the PDF is marked with, as a BCP 47 tag, as the user gave it; '' for none."""
    force_text: bool = False
    """Whether to add text also where a page has text of its own."""


@dataclass(frozen=True, slots=True)
class SearchableMade:
    """What became of a PDF that was to be written."""

    num_hidden_lines: int = 0
    """Lines left out because the page has invisible letters of its own there."""
    is_signed: bool = False
    """Whether the PDF is a mere copy, as a change would end what its signature says."""
    lacks_room: bool = False
    """Whether the PDF could not be written because a disk is full."""


@dataclass(frozen=True, slots=True)
class PageResult:
    """One row of the output: a page, or a document that could not be opened. Each field is a column of the table."""

    source: str
    """The document, as in Document."""
    page_index: PageNumber | None
    """The index of the page, from 0; None for a document that could not be opened, or has no pages."""
    status: Status
    doc_id: str | None = None
    """SHA-256 of the file, hex."""
    page_count: PageNumber | None = None
    """The number of pages of the document."""
    width: int | None = None
    """The width of the page's image, in px."""
    height: int | None = None
    dpi: Finite | None = None
    """The resolution at which the page was drawn; None for image files."""
    error_kind: ErrorKind | None = None
    error_message: str | None = None
    """Why the page failed, or was not read in full."""
    markdown: str | None = None
    blocks: tuple[Block, ...] = ()
    image_tokens: int = 0
    """The image tokens of all questions about the page."""
    output_tokens: int = 0
    ink_outside: Finite | None = None
    """The share of the page's ink that no block covers; None where nobody can tell."""
    text_layer_agreement: Finite | None = None
    """How much of what was read is what the PDF's own text says there, from 0 to 1, where the model has read; None
    where nobody can tell."""
    orientation: int | None = None
    """By how many degrees, clockwise, the page has to be turned to stand upright: 0, 90, 180 or 270; None where that is
    not known."""
    rescued_blocks: int | None = None
    """How many blocks have the page's own text because the model's answer was cut, looped or failed; None if it was not
    read."""
    ink_in_figures: Finite | None = None
    """The share of the ink in blocks, page headers and the like left out, that lies in figures that were not read; None
    where there is none."""
    writing_in_figures: Finite | None = None
    """The share of the ink in blocks, page headers and the like left out, that lies in figures that look like lines of
    writing."""
    layout_confidence: Finite | None = None
    """The confidence of the layout's answer, as each block has one of its own."""
    layout_min_logprob: Finite | None = None
    attempts: int = 1
    """How often the page was tried, over all runs; 0 if it was not, as when the row is a copy of another."""
    file_bytes: int | None = None
    """Size of the document's file, or of the document within one, when it was read; None for a document in memory, as
    is `file_mtime_ns`."""
    file_mtime_ns: int | None = None
    """When the document had last been modified when it was read, in ns since 1970."""

    @classmethod
    def of(cls, source: str, page_index: int | None, reading: Reading) -> Self:
        """The row of a page that was read."""
        status: Status = "degraded" if reading.error_message else "ok"
        columns = {field.name: getattr(reading, field.name) for field in fields(reading)}
        return cls(source, page_index, status, **columns)


def shared_area(one: Sequence[float], other: Sequence[float]) -> float:
    """The area of the intersection of two boxes (x0, y0, x1, y1), in their unit squared."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(0.0, width) * max(0.0, height)


def box_area(box: Sequence[float]) -> float:
    """The area of a box; 0 if it ends before it begins."""
    return shared_area(box, box)


def box_overlap(one: Sequence[float], other: Sequence[float]) -> float:
    """Intersection over union of two boxes; 0 for one without an area."""
    shared = shared_area(one, other)
    return shared / (box_area(one) + box_area(other) - shared) if shared else 0.0


def around(boxes: Sequence[Box]) -> Box:
    """The smallest box that holds all of these."""
    x0, y0, x1, y1 = zip(*boxes, strict=True)
    return min(x0), min(y0), max(x1), max(y1)


def counted(number: int, noun: str) -> str:
    """A number with its noun: "1 page", "2,000 pages"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


_JOINED: Final = re.compile("\u200d.|.[\u200d\u1160-\u11ff\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]", re.DOTALL)
"""Two characters that belong to one letter: of a Korean syllable, or of an emoji."""

_HALVES_OF_FLAGS: Final = "".join(map(chr, range(0x1F1E6, 0x1F200)))


def letters_end(text: str, end: int, start: int = 0) -> int:
    """Where to cut the text, from `start` on, so that no letter is cut from its accents, and no emoji in itself: at
    `end`, or a little before. At `end` if all of it is one letter."""
    at = end
    while start < at < len(text) and _is_within_letter(text, at, start):
        at -= 1
    return at if at > start else end


def _is_within_letter(text: str, at: int, start: int) -> bool:
    if text[at] in _HALVES_OF_FLAGS:
        before = text[start:at]
        return (len(before) - len(before.rstrip(_HALVES_OF_FLAGS))) % 2 == 1
    return category(text[at])[0] == "M" or _JOINED.fullmatch(text, at - 1, at + 1) is not None


def valid_text(text: str) -> str:
    r"""The text in a form that UTF-8 can hold: lone surrogates, as in odd file names, are escaped (`\udce9`)."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
