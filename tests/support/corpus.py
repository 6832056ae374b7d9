"""What should become of each file of the corpus."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeAlias

Outcome: TypeAlias = dict[str, object]
"""`{"document": error_kind}`, or `{"pages": n}` with `"failed": [page_index, …]` if pages fail."""

_BETTER: dict[str, Outcome] = {
    # 23 bytes without a header of any kind: not a broken PDF but no PDF at all, like a text file of that name.
    "hostile/qpdf_qpdf__qpdf__qtest__qpdf__issue-335b.pdf": {"document": "unsupported"},
    # Their page trees are lost, or lead to pages that are, which is not the same as a document without pages.
    "hostile/chromium_pdfium__testing__resources__bug_355.pdf": {"document": "damaged"},
    "hostile/chromium_pdfium__testing__resources__bug_454695.pdf": {"document": "damaged"},
    "hostile/chromium_pdfium__testing__resources__bug_709793.pdf": {"document": "damaged"},
    "hostile/mozilla_pdf.js__test__pdfs__REDHAT-1531897-0.pdf": {"document": "damaged"},
    "hostile/mozilla_pdf.js__test__pdfs__issue19484_1.pdf": {"document": "damaged"},
    "hostile/mozilla_pdf.js__test__pdfs__issue9105_other.pdf": {"document": "damaged"},
    "hostile/qpdf_qpdf__qpdf__qtest__qpdf__bad11.pdf": {"document": "damaged"},
    "hostile/qpdf_qpdf__qpdf__qtest__qpdf__indirect-r-arg.pdf": {"document": "damaged"},
    "hostile/qpdf_qpdf__qpdf__qtest__qpdf__object-stream-self-ref.pdf": {"document": "damaged"},
    # The same, of files without a header.
    "hostile/qpdf_qpdf__qpdf__qtest__qpdf__bad-direct-root.pdf": {"document": "unsupported"},
    "hostile/qpdf_qpdf__qpdf__qtest__qpdf__issue-143.pdf": {"document": "unsupported"},
    "hostile/qpdf_qpdf__qpdf__qtest__qpdf__issue-148.pdf": {"document": "unsupported"},
    # Their page trees claim no pages, but have some.
    "hostile/chromium_pdfium__testing__resources__bug_552046.pdf": {"pages": 1},
    "hostile/chromium_pdfium__testing__resources__no_page_count.pdf": {"pages": 6},
    # The page that is left is blank, because what was on it cannot be found.
    "hostile/pikepdf_pikepdf__tests__resources__fuzz__378014596.pdf": {"pages": 1, "failed": [0]},
    # Only their attachments are encrypted, which no page shows.
    "hostile/mozilla_pdf.js__test__pdfs__encrypted-attachment.pdf": {"pages": 1},
    "hostile/qpdf_qpdf__qpdf__qtest__qpdf__unfilterable-with-crypt.pdf": {"pages": 30},
    # A blank page in place of an XFA form, and one in place of a portfolio.
    "hostile/chromium_pdfium__testing__resources__bug_1265.pdf": {"pages": 1, "failed": [0]},
    "hostile/chromium_pdfium__testing__resources__unsupported_feature.pdf": {"pages": 3, "failed": [0, 1, 2]},
    # What is left of it is read, and its row says that the rest is missing.
    "images/pillow_broken_data_stream.png": {"pages": 1},
    "images/pillow_truncated_jpeg.jpg": {"pages": 1},
    # A chain of four images, none of which can be decoded. Refusing the file because of the second one would lose sound
    # pages in other files: those with one image of an unknown kind, and truncated copies.
    "images/pillow_crash-2020-10-test.tif": {"pages": 4, "failed": [0, 1, 2, 3]},
}


def expected_outcomes(corpus: Path) -> dict[str, Outcome]:
    """The outcome of each file, as expected.json says, or better."""
    outcomes: dict[str, Outcome] = json.loads((corpus / "expected.json").read_text())
    return outcomes | _BETTER
