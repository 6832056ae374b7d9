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
    # A chain of four images, none of which can be decoded. Refusing the file because of the second one would lose sound
    # pages in other files: those with one image of an unknown kind, and truncated copies.
    "images/pillow_crash-2020-10-test.tif": {"pages": 4, "failed": [0, 1, 2, 3]},
}


def expected_outcomes(corpus: Path) -> dict[str, Outcome]:
    """The outcome of each file, as expected.json says, or better."""
    outcomes: dict[str, Outcome] = json.loads((corpus / "expected.json").read_text())
    return outcomes | _BETTER
