"""Docstrings stand alone: the first line has its own noun. `tests/support/docstring_draw.py` draws some to be read."""

from __future__ import annotations

import re

from tests.support.docstring_draw import docstrings

NEEDS_A_NEIGHBOUR = re.compile(r"(?:Of|As(?! long as)|Those|Its|Likewise|The same)\b")

IN_THE_HELP = {"document_column: str | None", "name_column: str | None", "revision: str | None", "zip_encoding: str"}
"""Options whose text in `--help` stands behind their name. The list may only become shorter."""


def test_no_docstring_begins_with_a_word_that_needs_the_one_above() -> None:
    needy = [each for each in docstrings() if NEEDS_A_NEIGHBOUR.match(each.text)]
    assert [each.where for each in needy if not each.where.startswith("options.")] == []
    assert {each.declared for each in needy} == IN_THE_HELP
