"""The items of a run: those of the run that it continues as they were, and what is new."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from batchocr.config import Config
from batchocr.data import Document
from batchocr.job.survey.look import count_pages
from batchocr.machine import usable_cores
from batchocr.pages.input.sources import Found
from batchocr.ray.folder import ClusterPlan
from batchocr.ray.items import Item, PlannedDocument, divide, look_at_file, unchanged_items


def plan_items(found: Found, config: Config, earlier: ClusterPlan | None, pages_per_task: int) -> list[Item]:
    """The items, in the order of the input. Those of the run that this one continues stay as they were if their files
    have not changed; only files that are new or have changed are opened, to count their pages. Raises BatchOcrError."""
    documents = [look_at_file(document) for document in found.documents]
    now = {document.source: document for document in documents}
    kept: list[Item] = []
    counted: dict[str, PlannedDocument] = {}
    if earlier is not None:
        counted = {each.source: each for item in earlier.items for each in item.documents}
        if earlier.pages == config.pages:
            kept = unchanged_items(earlier.items, now)
    covered = {each.source for item in kept for each in item.documents}
    rest = [document for document in documents if document.source not in covered]
    first = 1 + max((item.number for item in earlier.items), default=-1) if earlier is not None else 0
    return [*kept, *divide(_counted(rest, counted, config), config.pages, pages_per_task, first=first)]


def _counted(
    documents: Sequence[PlannedDocument], known: dict[str, PlannedDocument], config: Config
) -> list[PlannedDocument]:
    """The documents with their numbers of pages. known: as they were counted by an earlier run."""
    done: dict[str, int | None] = {
        document.source: before.page_count
        for document in documents
        if (before := known.get(document.source)) is not None and before.is_same(document) and before.page_count
    }
    unknown = [document for document in documents if document.source not in done]
    if unknown:
        asked = [Document(each.path, each.source, each.problem) for each in unknown]
        for index, page_count in count_pages(asked, config, workers=config.workers or usable_cores()):
            done[unknown[index].source] = page_count
    return [replace(document, page_count=done[document.source]) for document in documents]
