"""Some pages of an input, drawn at random and read as a run reads them, to tell how long all of it would take."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import accumulate
from random import Random

from batchocr.data import Document
from batchocr.job.progress import Progress, log_failure
from batchocr.job.run import Run
from batchocr.job.session import Session
from batchocr.job.stats.report import Report
from batchocr.job.stop import StopSwitch
from batchocr.pages.input.sources import Found
from batchocr.storage.listing import Documents

_SEED = 0
"""The seed of the draw: the same input gives the same pages."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What came of reading the pages of a sample."""

    tokens: Sequence[tuple[int, int]]
    """The tokens of the image and of the text of each page; none of a page that failed."""
    report: Report
    family: str
    """What the model's family is called."""

    @property
    def num_pages(self) -> int:
        """How many pages were drawn."""
        return len(self.tokens)

    @property
    def num_failed(self) -> int:
        return len(self.tokens) - self.report.pages_read


def draw(wanted: Sequence[tuple[Document, Sequence[int]]], number: int) -> list[Document]:
    """Documents that have so many of the wanted pages, or all if there are no more. The row of all pages is cut into
    stretches of equal length, from a random place on, and of each a page is taken at random: every page is as likely as
    any other, and a document has as many of them as its length is worth. wanted: documents with the indices of the
    pages to choose from, at least one page in all."""
    starts = list(accumulate((len(pages) for _, pages in wanted), initial=0))
    total = starts.pop()
    number = min(number, total)
    random = Random(_SEED)
    first = random.randrange(total)
    drawn: defaultdict[int, list[int]] = defaultdict(list)
    for stretch in range(number):
        place = random.randrange(stretch * total // number, (stretch + 1) * total // number)
        place = (first + place) % total
        index = bisect_right(starts, place) - 1
        drawn[index].append(wanted[index][1][place - starts[index]])
    return [replace(wanted[index][0], pages=frozenset(pages)) for index, pages in sorted(drawn.items())]


def read_pages(session: Session, documents: list[Document], progress: Progress, *, opening_s: float) -> Sample:
    """Read the pages of the documents that each document names. progress: is told how far it is. opening_s: how long
    the model took to be opened, which counts as start-up. Raises UsageError, ModelError, EngineError."""
    stop = StopSwitch()
    stop.began_s -= opening_s
    tokens: list[tuple[int, int]] = []
    try:
        with closing(Run(session, session.config, Found(Documents(documents), {}), stop)) as run:
            for _, row in run.results(tick=lambda: progress.show(run.progress())):
                run.ledger.add_result(row)
                tokens.append((row.image_tokens, row.output_tokens))
                if row.status == "failed":
                    log_failure(row)
        progress.show(run.progress())
    finally:
        progress.close()
    num_pages = sum(len(document.pages or ()) for document in documents)
    tokens += [(0, 0)] * (num_pages - len(tokens))  # of a document that failed as a whole
    return Sample(tokens, run.report(), session.family.name)
