"""What an audit finds on a page, and what it counts there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from batchocr.data import Box

FindingKind = Literal[
    "omitted",  # on the page, and in no block
    "invented",  # in a block, and not on the page
    "number",  # a figure that differs
    "different",  # other words
]
LeftOut = Literal[
    "formula",  # a formula, alone or within text
    "figure",  # a picture or a chart
    "figure_line",  # a line that the second reader found in a figure
    "script",  # a block in letters that the second reader does not know
    "script_line",  # a line that the second reader found in such a block
    "unread",  # a line that the second reader found and could not read
    "long",  # a block too long to be compared
]
PageOutcome = Literal["compared", "empty", "uncompared", "unreadable"]


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """A place where the two readers disagree."""

    kind: FindingKind
    block: int | None
    """Index in the row's blocks; None if the text is in no block."""
    bbox: Box
    """The box of the place, in shares of the page."""
    text: str
    """What the table says."""
    second_text: str
    """What the second reader says."""
    characters: int
    """How many letters and figures of the two are concerned."""
    weight: float
    """The higher, the sooner a person should look."""


@dataclass(frozen=True, slots=True)
class PageComparison:
    """A page compared."""

    characters: int
    """Letters and figures that could be compared: those of the table and those omitted."""
    uncompared: int
    """Letters and figures that could not be compared: those that the second reader found in figures, and those of the
    table in scripts that it does not know."""
    left_out: tuple[LeftOut, ...]
    """What was not compared, each reason as often as it came."""
    findings: tuple[AuditFinding, ...]
