"""What an audit finds on a page, and what it counts there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
    """A place where the two readers disagree. block: index in the row's blocks; None if the text is in no block. bbox:
    in shares of the page. text: what the table says. second_text: what the second reader says. characters: how many
    letters and figures of the two are concerned. weight: the higher, the sooner a person should look."""

    kind: FindingKind
    block: int | None
    bbox: tuple[float, float, float, float]
    text: str
    second_text: str
    characters: int
    weight: float


@dataclass(frozen=True, slots=True)
class PageComparison:
    """A page compared. characters: letters and figures that could be compared, those of the table and those omitted.
    left_out: what was not compared, each as often as it came."""

    characters: int
    left_out: tuple[LeftOut, ...]
    findings: tuple[AuditFinding, ...]
