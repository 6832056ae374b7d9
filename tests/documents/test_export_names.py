"""The names under which documents are exported."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchocr.documents.export.names import MAX_NAME_BYTES, Names

HOSTILE = [
    *("../../etc/passwd", "/etc/passwd", "..", "", ".", "/", "a/../../b.pdf", "~/x.pdf", ".bashrc", ".git/config"),
    *("a\x1b[31m.pdf", "a\nb.pdf", "a\u202efdp.exe", "nul\0l.pdf", "\udce9t\udce9.pdf", "C:\\x\\y.pdf", 'a"b|c?.pdf'),
    *("x" * 300 + ".pdf", "é" * 200 + ".pdf", "/".join(["deep" * 20] * 60) + "/a.pdf", "a. ", " ", "..."),
    *("CON", "nul.pdf", "a/Com1.tar.gz", "lpt\u00b2 .x", "conin$", "aux/prn.d/b.pdf", "a .pdf", "a..pdf"),
    *("con/.batchocr-export.sqlite", ".batchocr-export.sqlite"),
]


def name_of(source: str, *others: str) -> str:
    return Names([source, *others]).name_of(source)


def test_a_document_has_the_path_of_its_source_without_the_suffix() -> None:
    assert name_of("a/b.pdf", "a/c.pdf", "b.pdf", "a/d/b.pdf") == "a/b"
    assert name_of("report v1.2") == "report v1.2"
    assert name_of("a/Größe 5.PDF") == "a/Größe 5"


def test_those_that_differ_in_their_suffix_keep_it() -> None:
    sources = ["a/b.pdf", "a/b.png", "a/c.pdf"]
    assert [Names(sources).name_of(source) for source in sources] == ["a/b.pdf", "a/b.png", "a/c"]


def test_those_that_differ_in_capitals_alone_have_letters_added() -> None:
    sources = ["a/b.pdf", "a/B.pdf", "A/b.pdf"]
    names = [Names(sources).name_of(source) for source in sources]
    assert [name.rpartition("~")[0] for name in names] == sources
    assert len({name.casefold() for name in names}) == 3


@pytest.mark.parametrize("letter", ["e\u0301\u0323", "👨‍👩‍👧‍👦", "🇩🇪", "각", "👍🏽"])
def test_no_letter_is_cut_where_a_name_is(letter: str) -> None:
    assert set(name_of(f"a/{letter * 100}.pdf").removeprefix("a/").rpartition("~")[0].split(letter)) == {""}


def test_names_that_windows_has_for_devices_are_others() -> None:
    assert name_of("a/nul.pdf", "_con.pdf") == "a/_nul"
    assert name_of("con.pdf", "_con.pdf") == "_con.pdf~" + name_of("con.pdf", "_con.pdf")[-12:]
    assert name_of("common/console.pdf") == "common/console"


def test_a_name_does_not_depend_on_the_order_of_the_table() -> None:
    sources = ["b.pdf", "b.png", "B.pdf", "b.pdf.pdf", "b/b.pdf", *HOSTILE]
    names = {source: Names(sources).name_of(source) for source in sources}
    random.Random(3).shuffle(sources)
    assert names == {source: Names(sources).name_of(source) for source in names}


@pytest.mark.parametrize("source", HOSTILE)
def test_a_name_stays_below_the_folder_and_fits_the_file_system(source: str) -> None:
    name = name_of(source)
    parts = name.split("/")
    assert not name.startswith("/") and not {"", ".", ".."} & set(parts)
    assert all(part.isprintable() and not part.startswith(".") for part in parts)
    assert not any(part.endswith((".", " ")) for part in parts)
    devices = "con|prn|aux|nul|conin\\$|conout\\$|(com|lpt)[0-9¹²³]"
    assert not any(re.fullmatch(devices, part.partition(".")[0].strip(), re.IGNORECASE) for part in parts)
    assert all(len(part.encode()) <= MAX_NAME_BYTES + 20 for part in parts)
    assert len(name.encode()) < 1200


@given(st.lists(st.text(st.sampled_from("aAbB./~éÉ\u0301\x00 "), max_size=8), unique=True, max_size=12))
def test_no_two_documents_have_the_same_name_on_any_file_system(sources: list[str]) -> None:
    names = Names(sources)
    assert len({names.name_of(source).casefold() for source in sources}) == len(sources)
