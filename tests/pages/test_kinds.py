"""What each type of block is stands in one table, which knows every type and decides how all formats write it."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from mineru_vl_utils.structs import BLOCK_TYPES

import batchocr
from batchocr.data import Block
from batchocr.documents.assembly.assemble import assemble
from batchocr.documents.export.data_text import text_of
from batchocr.documents.export.figures import pieces_of
from batchocr.documents.export.formats import FormatOptions, format_named
from batchocr.pages.kinds import kind_of
from batchocr.pages.protocol import detected_layout
from batchocr.pages.protocol.markdown import to_markdown
from batchocr.pages.protocol.rescue import has_running_text
from tests.support.documents import SolidFigures, block, text_row

PACKAGE = Path(batchocr.__file__).parent
CODE = "Require: n > 0\nfor i = 1 to n do\n    x_i = a*b*c\n    # step\nend for"


@pytest.mark.parametrize("type", sorted({*BLOCK_TYPES, *detected_layout.BLOCK_TYPES.values()} - {"unknown"}))
def test_every_type_of_mineru_and_of_the_detectors_is_known(type: str) -> None:
    assert kind_of(type) is not kind_of("a type of tomorrow")


def test_a_type_that_is_not_known_is_text_and_never_the_pdfs_own_letters() -> None:
    [odd] = assemble("a", [text_row("a", 0, block("margin_note", "Some *text*."))]).parts[:1]
    assert to_markdown([block("margin_note", "Some *text*.")]) == "Some \\*text\\*.\n"
    assert getattr(odd, "content", None) == "Some *text*."
    assert not has_running_text(block("margin_note"))
    assert has_running_text(block("text")) and not has_running_text(block("list"))


@pytest.mark.parametrize("type", ["code", "algorithm"])
def test_code_and_algorithms_keep_their_lines_in_every_format(type: str) -> None:
    blocks = [block(type, CODE)]
    fenced = f"```\n{CODE}\n```"
    assert to_markdown(blocks) == f"{fenced}\n"
    document = assemble("a", [text_row("a", 0, *blocks)])
    assert document.markdown == f"{fenced}\n"
    assert text_of(pieces_of(document)) == fenced

    def exported(name: str) -> dict[str, str]:
        made = format_named(name).files(document, "a", SolidFigures(), FormatOptions())
        return {file.path: file.data.decode() for file in made}

    assert json.loads(exported("chunks")["a.chunks.jsonl"])["text"] == fenced
    shown = CODE.replace(">", "&gt;")
    assert f"<pre><code>{shown}</code></pre>" in exported("html")["a.html"]
    [item] = json.loads(exported("mineru")["a/a_content_list.json"])
    assert (item["sub_type"], item["code_body"]) == (type, CODE)


def test_formulas_in_an_algorithm_are_formulas_on_a_page_of_html() -> None:
    document = assemble("a", [text_row("a", 0, block("algorithm", "1: \\(x < 1\\)\n  2: end"))])
    [page] = format_named("html").files(document, "a", SolidFigures(), FormatOptions())
    assert b"<pre><code>1: <math" in page.data and b"\n  2: end</code></pre>" in page.data


def test_no_other_module_asks_for_a_type_by_its_name() -> None:
    """But for MinerU's protocol and files, whose own names these are, and for the detectors, which give them."""
    own = {f"pages/{name}.py" for name in ("kinds", "protocol/families/mineru", "protocol/detected_layout")}
    own.add("documents/export/mineru.py")
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(path.read_text())) if name not in own else ():
            if isinstance(node, ast.Compare) and ast.unparse(node.left).rpartition(".")[2] == "type":
                compared = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
                found += [(name, value) for value in compared if value in BLOCK_TYPES]
    assert found == []


def test_boxes_around_others_say_nothing_themselves() -> None:
    inside = Block("text", (0.1, 0.1, 0.9, 0.2), 0, "An item")
    around = Block("list", (0.1, 0.1, 0.9, 0.4), 0, "An item and more")
    assert assemble("a", [text_row("a", 0, around, inside)]).markdown == "An item\n"
