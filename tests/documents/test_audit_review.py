"""What an audit found, on the review page."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from batchocr.documents.audit.audit_table import AuditedPage, AuditJournal, read_pages
from batchocr.documents.findings import AuditFinding
from batchocr.documents.review.choose import choose, text_hash
from batchocr.documents.review.review import write_review
from tests.support.review_pages import WhitePages, block, row, saved

ROWS = [row("a.pdf", number, block("text", "Some text")) for number in range(4)]


def audited(position: int, weight: float, *findings: AuditFinding) -> AuditedPage:
    text = text_hash(ROWS[position])
    return AuditedPage(position, "a.pdf", position, None, text, "compared", None, 100, weight=weight, findings=findings)


def test_audited_pages_come_by_weight_with_both_texts(tmp_path: Path) -> None:
    table = saved(tmp_path, ROWS)
    number = AuditFinding("number", 0, (0.1, 0.1, 0.9, 0.15), "</script>1432", "1482", 1, 10.0)
    omitted = AuditFinding("omitted", None, (0.1, 0.5, 0.9, 0.55), "", "Nobody asked the miller", 20, 20.0)
    journal = AuditJournal(tmp_path / "audit.parquet", {"table": "t"})
    for page in (audited(0, 0.0), audited(1, 10.0, number), audited(3, 30.0, number, omitted)):
        journal.append(page)
    journal.finish()
    journal.close()
    audit = {page.key: page for page in read_pages(tmp_path / "audit.parquet")}
    weights = {key: page.weight for key, page in audit.items()}
    choice = choose(table.rows(), "audit", 10, weights=weights)
    assert [chosen.row.page_index for chosen in choice.rows] == [3, 1, 0]
    out = tmp_path / "review.html"
    findings = {key: page.findings for key, page in audit.items()}
    write_review(out, choice, table, WhitePages(), findings=findings)  # type: ignore[arg-type]
    written = out.read_text()
    kinds = re.findall('"kind":"([a-z]+)"', written)
    assert kinds == ["omitted", "number", "number"], "of the first page the weightiest first, and of the second page"
    assert "Nobody asked the miller" in written
    assert "</script>1432" not in written
    read_again = choose([ROWS[0], replace(ROWS[1], markdown="Better"), *ROWS[2:]], "audit", 10, weights=weights)
    assert [chosen.row.page_index for chosen in read_again.rows] == [3, 0], "what was found is no longer true of it"
