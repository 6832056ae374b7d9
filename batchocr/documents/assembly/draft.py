"""Pieces while they are made: they grow, block by block."""

from __future__ import annotations

from dataclasses import dataclass, field

from batchocr.documents.assembly.document import Piece, Place
from batchocr.documents.assembly.joining import joint
from batchocr.documents.assembly.table_rows import TableRows


@dataclass(slots=True)
class Draft:
    """A piece in the making.

    texts: what it says and what stands between, in order; empty for one that is not read. rows: of a table to which
    others were joined, in place of `texts`. goes_on: whether the model says that this continues a text before the page.
    description: of a figure that was read.
    """

    type: str
    texts: list[str]
    places: list[Place]
    level: int | None = None
    rows: TableRows | None = None
    captions: list[Draft] = field(default_factory=list)
    footnotes: list[Draft] = field(default_factory=list)
    goes_on: bool = False
    description: str | None = None

    def go_on_with(self, other: Draft) -> None:
        """Join what another says to the end of this one's last paragraph or item."""
        num_surplus, between = joint(self.texts[-1], other.texts[0])
        if num_surplus:
            self.texts[-1] = self.texts[-1][:-num_surplus]
        self._append(other, between)

    def add_items(self, other: Draft) -> None:
        """Append another's items to those of this list."""
        self._append(other, "\n")

    def _append(self, other: Draft, between: str) -> None:
        self.texts += [between, *other.texts]
        self.places += other.places

    def piece(self) -> Piece:
        """The finished piece."""
        content = "".join(self.texts) if self.rows is None else self.rows.html()
        return Piece(
            type=self.type,
            content=content or None,
            places=tuple(self.places),
            level=self.level,
            captions=tuple(caption.piece() for caption in self.captions),
            footnotes=tuple(footnote.piece() for footnote in self.footnotes),
            description=self.description,
        )
