"""What an input holds, added up over its documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from batchocr.data import Document, ErrorKind
from batchocr.job.survey.look import DocumentSeen

MAX_NAMED = 1000
"""How many documents that cannot be opened are named at most."""


@dataclass(slots=True)
class Survey:
    """Counts over documents, and means over the pages that were measured."""

    skipped: Mapping[str, int]
    """Files of folders that are no documents, by suffix."""
    documents: int = 0
    formats: Counter[str] = field(default_factory=Counter)
    """The formats of the documents that could be measured and are no copies."""
    problems: Counter[ErrorKind] = field(default_factory=Counter)
    """Documents that cannot be opened or measured, by what is wrong."""
    named: list[tuple[str, ErrorKind, str]] = field(default_factory=list)
    """The first documents that cannot be opened or measured, as (source, kind, message)."""
    same_documents: int = 0
    """Documents with the bytes of one before."""
    same_pages: int = 0
    """The pages of documents with the bytes of one before."""
    pages: int = 0
    """Pages that would have rows."""
    measured: int = 0
    """Distinct pages that were measured."""
    unreadable: int = 0
    """Measured pages that cannot be read."""
    represented: float = 0.0
    """The pages that the measured ones stand for."""
    with_text: float = 0.0
    """Pages with text of their own, of all that the measured ones stand for."""
    sizes: Counter[tuple[int, int]] = field(default_factory=Counter)
    """The measured pages that can be read, by (width, height) in px."""
    wanted: list[tuple[Document, Sequence[int]]] = field(default_factory=list)
    """The distinct documents, and the indices of their pages, to draw some from."""

    def take(self, seen: DocumentSeen) -> None:
        """Count a document."""
        self.documents += 1
        self.pages += len(seen.wanted)
        if seen.wanted and not seen.same:
            self.wanted.append((seen.document, seen.wanted))
        if seen.problem is not None:
            self.problems[seen.problem.kind] += 1
            if len(self.named) < MAX_NAMED:
                self.named.append((seen.document.source, seen.problem.kind, seen.problem.message))
        elif seen.same:
            self.same_documents += 1
            self.same_pages += len(seen.wanted)
        else:
            self.formats[seen.format] += 1
        self._measure(seen)

    def _measure(self, seen: DocumentSeen) -> None:
        each = len(seen.wanted) / len(seen.pages) if seen.pages else 0.0
        self.measured += len(seen.pages)
        for page in seen.pages:
            if page is None:
                self.unreadable += 1
                continue
            self.represented += each
            self.with_text += each * bool(page.characters)
            self.sizes[page.width, page.height] += 1

    @property
    def distinct_pages(self) -> int:
        """The number of pages but for those of a file with the bytes of one before, whose rows a run makes from that
        one's."""
        return self.pages - self.same_pages

    @property
    def readable_pages(self) -> float:
        """The number of distinct pages that can be read, as far as the sample tells."""
        return self.distinct_pages * (1 - self.unreadable / self.measured if self.measured else 1.0)

    @property
    def text_share(self) -> float:
        """The share of pages with text of their own, from 0 to 1."""
        return self.with_text / self.represented if self.represented else 0.0
