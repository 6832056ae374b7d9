"""Every file of the corpus has the error or page count stated in expected.json; as a script, this opens them all."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from batchocr.errors import PageError
from batchocr.pages.input.page_pixels import MAX_EDGE
from batchocr.pages.input.render import RenderableDocument, open_document
from tests.conftest import ROOT
from tests.support.corpus import Outcome, expected_outcomes

pytestmark = pytest.mark.slow

DEADLINE_S = 200
PAGE_OF_BROKEN_IMAGE = "chromium_pdfium__testing__resources__bug_552046.pdf, page 1"


@pytest.fixture(scope="module")
def read(corpus: Path) -> dict[str, Any]:
    """What the script says, in another process: some of these files once hung or crashed their reader."""
    child = subprocess.run(
        [sys.executable, "-m", "tests.pages.test_corpus_opens", str(corpus)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    return json.loads(child.stdout)


def test_every_file_opens_or_fails_as_expected(corpus: Path, read: dict[str, Any]) -> None:
    assert read["outcomes"] == expected_outcomes(corpus)


def test_no_page_of_a_sound_file_is_called_degraded(read: dict[str, Any]) -> None:
    assert set(read["degraded"]) <= {PAGE_OF_BROKEN_IMAGE}


def degraded_pages(corpus: Path) -> Iterator[str]:
    for path in sorted(corpus.glob("*/*.pdf")):
        with suppress(PageError), closing(open_document(str(path), password=None, dpi=36)) as document:
            for index in range(document.page_count):
                with suppress(PageError):
                    if document.render(index).lost is not None:
                        yield f"{path.name}, page {index + 1}"


def open_all(corpus: Path) -> dict[str, Outcome]:
    names = json.loads((corpus / "expected.json").read_text())
    return {name: open_one(corpus / name, first_page_only=name.startswith("real/")) for name in names}


def open_one(path: Path, *, first_page_only: bool) -> Outcome:
    try:
        document = open_document(str(path), password=None, dpi=200)
    except PageError as error:
        return {"document": error.error_kind}
    pages = range(1 if first_page_only else document.page_count)
    failed = [index for index in pages if not can_be_rendered(document, index)]
    document.close()
    return {"pages": document.page_count} | ({"failed": failed} if failed else {})


def can_be_rendered(document: RenderableDocument, page_index: int) -> bool:
    try:
        image = document.render(page_index).image
    except PageError:
        return False
    assert image.mode == "RGB"
    assert 0 < min(image.size) <= max(image.size) <= MAX_EDGE
    return True


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    json.dump({"outcomes": open_all(folder), "degraded": list(degraded_pages(folder))}, sys.stdout)
