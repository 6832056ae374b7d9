"""A document as a text file for each page."""

from __future__ import annotations

from dataclasses import replace

import pytest

from batchocr.data import PageResult
from batchocr.documents.assembly.assemble import assemble
from batchocr.documents.export.formats import FormatOptions
from batchocr.documents.export.pages import as_page_names, files
from batchocr.documents.export.refusal import FileRefusedError
from batchocr.errors import UsageError
from tests.support.documents import SolidFigures, block, text_row

FAILED = PageResult("a.pdf", 1, "failed", error_kind="timeout", error_message="too long")


def exported(*rows: PageResult, names: str = "{stem}_pg{page}_repeat1.md") -> dict[str, str]:
    options = FormatOptions(page_names=names)
    made = files(assemble("in/a.pdf", rows), "in/a", SolidFigures(), options)  # type: ignore[arg-type]
    return {file.path: bytes(file.data).decode() for file in made}


def test_each_page_is_a_file_of_its_own_text() -> None:
    halves = [text_row("a.pdf", 0, block("text", "A sentence that")), text_row("a.pdf", 1, block("text", "goes on."))]
    assert len(assemble("a.pdf", halves).markdown.split("\n\n")) == 1
    assert exported(*halves) == {"in/a_pg1_repeat1.md": "A sentence that\n", "in/a_pg2_repeat1.md": "goes on.\n"}


def test_headings_have_the_level_of_the_document() -> None:
    headings = [text_row("a.pdf", page, block("title", title)) for page, title in enumerate(["1 One", "1.1 Two"])]
    [first, second] = exported(*headings).values()
    assert (first, second) == ("# 1 One\n", "## 1.1 Two\n")


def test_a_page_that_failed_is_an_empty_file_and_one_without_a_row_none() -> None:
    read = text_row("a.pdf", 3, block("text", "Read."))
    assert exported(FAILED, read) == {"in/a_pg2_repeat1.md": "", "in/a_pg4_repeat1.md": "Read.\n"}
    degraded = replace(read, status="degraded", error_message="a block is missing")
    assert exported(degraded) == {"in/a_pg4_repeat1.md": "Read.\n"}


def test_a_document_that_could_not_be_opened_has_an_empty_first_page() -> None:
    assert exported(replace(FAILED, page_index=None)) == {"in/a_pg1_repeat1.md": ""}


def test_two_pages_never_share_a_name() -> None:
    page = text_row("a.pdf", 0, block("text", "One."))
    assert exported(page, names="{stem}.md") == {"in/a.md": "One.\n"}
    with pytest.raises(FileRefusedError, match=r"several of its pages would be in/a\.md: put \{page\} into"):
        exported(page, FAILED, names="{stem}.md")


@pytest.mark.parametrize("names", ["{stem}.md", "md/{stem}/{page:04}.txt", "x-{stem}-{page}"])
def test_a_name_may_have_folders_and_a_number_of_a_fixed_width(names: str) -> None:
    assert as_page_names(names) == names


@pytest.mark.parametrize(
    "names",
    [
        *("", "page.md", "{page}.md", "../{stem}", "{stem}/../x", "/{stem}", "{stem}//{page}", "{stem}/", "./{stem}"),
        *(
            "{{stem}}.md",
            "{stem}{pag}",
            "{stem}{0}",
            "{stem}{",
            "{stem}{page.x}",
            "{stem}{page:x!}",
            "{stem}\n",
            ".b/{stem}",
        ),
    ],
)
def test_names_that_lead_elsewhere_or_do_not_say_the_document_are_refused(names: str) -> None:
    with pytest.raises(UsageError, match=r"give a path within DIR that has \{stem\}, as \{stem\}_pg\{page\}\.md"):
        as_page_names(names)
