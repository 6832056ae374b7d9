"""What an audit found, for those who look through the pages."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from batchocr.documents.audit.audit_table import AuditedPage, read_pages
from batchocr.documents.audit.findings import AuditFinding
from batchocr.documents.review.choose import ChosenRow, PageKey, key_of
from batchocr.documents.review.page import FindingData

_MAX_FINDINGS: Final = 200
_MAX_CHARACTERS: Final = 2000
"""Of a page, and of a finding, that are shown."""


def weights_of(audit: Path) -> dict[PageKey, float]:
    """How much the findings of each audited page weigh. Raises OutputError."""
    return {_key_of(page): page.weight for page in read_pages(audit)}


def findings_of(audit: Path, chosen: Iterable[ChosenRow]) -> dict[PageKey, list[FindingData]]:
    """The findings of the chosen pages, the weightiest first. Raises OutputError."""
    keys = {key_of(one.row) for one in chosen}
    return {
        _key_of(page): [
            _data(finding) for finding in sorted(page.findings, key=lambda finding: -finding.weight)[:_MAX_FINDINGS]
        ]
        for page in read_pages(audit)
        if _key_of(page) in keys
    }


def _key_of(page: AuditedPage) -> PageKey:
    return page.source, page.page_index, page.text_hash


def _data(finding: AuditFinding) -> FindingData:
    return FindingData(
        kind=finding.kind,
        block=finding.block,
        box=[round(edge, 5) for edge in finding.bbox],
        text=finding.text[:_MAX_CHARACTERS],
        second=finding.second_text[:_MAX_CHARACTERS],
    )
