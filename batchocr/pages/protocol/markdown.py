"""Blocks as Markdown: one block, or all blocks of a page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Final

from batchocr.data import Block
from batchocr.pages.kinds import CONTENTS, Kind, kind_of
from batchocr.pages.protocol.sanitize import (
    harmless_characters,
    inert_formula,
    inert_table,
    inert_text,
    without_blank_lines,
)

_LOWEST_HEADING: Final = 6

_DRAWN: Final = frozenset({"math", "mermaid", "plantuml", "dot", "graphviz", "geojson", "topojson", "stl"})
"""Languages that some renderers do not show but draw, with links and all."""

_NO_TABLE: Final = "*A table that could not be parsed, as the model wrote it:*"

# No match crosses another opening: text with many that are never closed would take quadratic time.
INLINE_FORMULA: Final = re.compile(r"\\\(((?:(?!\\[()]).)+)\\\)", re.DOTALL)
_BULLET: Final = re.compile(r"^( *)[•●○◦▪■‣∙][ \t]*", re.MULTILINE)
NESTED: Final = " " * 4
"""What an item of a list begins with that is part of the item above, once for each level."""
DEEPEST: Final = 8
"""The deepest level of nested lists."""
_INDENT: Final = re.compile(r" +")
_NESTED: Final = re.compile(rf"^((?:{NESTED})+)(?! |- |\d{{1,9}}[.)] )(?:[–—−·*] +)?", re.MULTILINE)
_ENTRY: Final = re.compile(r"^( *)(?! |- )", re.MULTILINE)
_DASH: Final = re.compile(r"^[ \t]*(?=-[ \t])", re.MULTILINE)
_LINE_START: Final = re.compile(r"^[ \t]*(?=#{1,6}(?:[ \t]|$)|\+(?:[ \t]|$)|>|=+[ \t]*$|(?:-[ \t]*)+$)", re.MULTILINE)
"""The start of a line that Markdown would take for a heading, an item, a quotation or a rule."""
_BACKSLASH: Final = r"\g<0>\\"
_CLOSING: Final = re.compile(r"(?<= )(?=#+$)")
"""The place before the signs that Markdown takes for the end of a heading."""
_CHINESE: Final = re.compile(r"[\u4e00-\u9fff\u3400-\u4dbf]")
_TABLE_RULE: Final = re.compile(r":?-+:?(\|:?-+:?)+")
_OTSL_CELL: Final = re.compile(r"<(?:[eflux]cel|ched|rhed|srow)>")
"""The beginning of a cell in the model's own language for tables, OTSL, whose rows end with `<nl>`."""
_ALT: Final = re.compile(r"[\[\]]")
_BACKTICKS: Final = re.compile(r"`+")
OWN_FENCES: Final = re.compile(r"```([A-Za-z0-9+#_.-]*)[ \t]*\n(.*?)\n?```", re.DOTALL)
"""A pattern of code that a model fenced itself: the code's language, and the code."""


def to_markdown(blocks: Sequence[Block]) -> str:
    """The text of a page in reading order; ends with one newline, or is empty.

    Formulas are in dollar signs, tables in HTML, figures are `![image](#block-3)` with the block's index in `blocks`;
    one that was read has its description in place of "image", and below it a chart's table or the text in it. A table
    that could not be parsed is a line that says so, and what the model wrote, fenced.
    Page headers, footers, page numbers and marginal text are left out, as is every other block without content. A text
    that continues another is joined to the last text before it, as in MinerU's json2md. Whatever the blocks hold,
    nothing in the result is active in a browser: see `pages/protocol/sanitize.py`.
    """
    contents = _joined_contents(blocks)
    parts = [
        figure_markdown(block.type, f"#block-{index}", block.content, block.description)
        if kind_of(block.type).role == "figure" and not kind_of(block.type).holds
        else block_markdown(block.type, content)
        for index, (block, content) in enumerate(zip(blocks, contents, strict=True))
    ]
    return "\n\n".join(filter(None, parts)) + "\n" if any(parts) else ""


def _joined_contents(blocks: Sequence[Block]) -> list[str]:
    """The Markdown of each block; '' for a block without content, and for a text that was joined to another block.

    Texts are joined before anything is made inert: two harmless halves can make a harmful whole.
    """
    contents = [harmless_characters(block.content or "").strip() for block in blocks]
    last_text: int | None = None
    for index, block in enumerate(blocks):
        content = contents[index]
        if not content or not kind_of(block.type).is_paragraph:
            continue
        if block.merge_prev and last_text is not None:
            contents[last_text] += content if _CHINESE.search(content) else f" {content}"
            contents[index] = ""
        else:
            last_text = index
    return contents


def figure_markdown(type: str, target: str, content: str | None, description: str | None) -> str:
    """A figure with what was read of it. target: a relative URL, quoted. content, description: as in Block."""
    alt = _ALT.sub(r"\\\g<0>", inert_text(" ".join(harmless_characters(description or type).split())))
    picture = f"![{alt}]({target})"
    text = "" if content is None or content == description else block_markdown(type, content)
    return f"{picture}\n\n{text}" if text else picture


def block_markdown(type: str, content: str, *, level: int | None = None) -> str:
    """The Markdown of one block, whatever its content; '' if it adds nothing. Of a figure, it is what was read in it.

    Signs of Markdown at the start of a line mean themselves too. A list is what has bullets or numbers; or dashes, if
    the block is a list or if more than one of its lines begins with one. MinerU takes no other first dash for a list.
    level: of a heading, 1 is the highest; by its type if it is not known.
    """
    content = harmless_characters(content).rstrip().lstrip("\n")
    if first := _INDENT.match(content):  # of a part of a list, whose lines stand where its first does
        content = re.sub(rf"^ {{0,{len(first[0])}}}", "", content, flags=re.MULTILINE)
    content = content.strip()
    kind = kind_of(type)
    if not content or kind.role == "furniture":
        return ""
    if kind.role == "heading":
        mark = "#" * min(level or kind.level, _LOWEST_HEADING)
        text = " ".join(_with_dollars(content).split())
        return f"{mark} {_CLOSING.sub(_BACKSLASH, text)}"
    if kind.role == "formula":
        latex = latex_in(content)
        return f"$$\n{without_blank_lines(inert_formula(latex))}\n$$" if latex else ""
    if kind.role == "table":
        return inert_table(content) if content.startswith("<table") else f"{_NO_TABLE}\n\n{fenced(content)}"
    if kind.role == "code":
        return _code(content)
    if kind.role == "figure":
        return "\n\n".join(filter(None, (block_markdown(type, part) for type, part in figure_parts(content))))
    text = _LINE_START.sub(_BACKSLASH, _with_dollars(content))
    if kind.role != "list" and len(_DASH.findall(text)) == 1:
        text = _DASH.sub(_BACKSLASH, text)
    return listed(text, kind)


def nesting(line: str) -> int:
    """How deep an item of a list is nested."""
    return min((len(line) - len(line.lstrip(" "))) // len(NESTED), DEEPEST)


def listed(text: str, kind: Kind) -> str:
    """The text with dashes for bullets, and before each item of a list that is part of another, and each entry of
    contents."""
    text = _BULLET.sub(r"\1- ", text)
    if kind is kind_of(CONTENTS):
        return _ENTRY.sub(r"\1- ", text)
    return _NESTED.sub(r"\1- ", text) if kind.role == "list" else text


def latex_in(content: str) -> str:
    """The formula, without the marks that a model put around it."""
    return content.strip().removeprefix("\\[").removesuffix("\\]").strip()


def code_in(content: str) -> tuple[str, str]:
    """The language, '' if it is not said, and the code, without the fences that a model put around it."""
    own = OWN_FENCES.fullmatch(content)
    return (own[1], own[2]) if own else ("", content)


def figure_parts(content: str) -> list[tuple[str, str]]:
    """What was read in a figure, in parts: each with the type of block that it is like, `code`, `text` or `table`.

    A chart's table, in Markdown or in OTSL, may have text around it and rows of different lengths; it comes as HTML.
    """
    if OWN_FENCES.fullmatch(content):
        return [("code", content)]
    begin = _OTSL_CELL.search(content)
    if begin and "<nl>" in content:
        rows = content[begin.start() :].split("<nl>")
        cells = [
            [cell for at, cell in enumerate(_OTSL_CELL.split(row)) if at or cell.strip()] for row in rows if row.strip()
        ]
        parts = [("text", content[: begin.start()]), ("table", _table_html(cells))]
    else:
        parts = _with_tables(content.split("\n"))
    return [(kind, part.strip()) for kind, part in parts if part.strip()]


def _with_tables(lines: Sequence[str]) -> list[tuple[str, str]]:
    """Lines of text as parts, of which the lines of a table in Markdown are one."""
    parts, begin, at = [], 0, 0
    while at + 1 < len(lines):
        if "|" in lines[at] and _TABLE_RULE.fullmatch("|".join(_cells(lines[at + 1]))):
            end = next((row for row in range(at + 2, len(lines)) if "|" not in lines[row]), len(lines))
            rows = [_cells(line) for line in (lines[at], *lines[at + 2 : end])]
            parts += [("text", "\n".join(lines[begin:at])), ("table", _table_html(rows))]
            begin = at = end
        else:
            at += 1
    return [*parts, ("text", "\n".join(lines[begin:]))]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _table_html(rows: Sequence[Sequence[str]]) -> str:
    """The rows as a table, the first as its heading; short rows get empty cells."""
    width = max(map(len, rows))
    head, *body = ([*row, *[""] * (width - len(row))] for row in rows)
    return f"<table>{_row_html(head, 'th')}{''.join(_row_html(cells, 'td') for cells in body)}</table>"


def _row_html(cells: Sequence[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell.strip())}</{tag}>' for cell in cells)}</tr>"


def _with_dollars(text: str) -> str:
    r"""The text, inert, with `\( x \)` as `$x$`; no spaces inside the signs, as most renderers allow none there."""
    parts = INLINE_FORMULA.split(text)  # text and formulas alternate
    last = len(parts) - 1
    return "".join(
        _inline_formula(part) if i % 2 else inert_text(part, before_formula=i < last) for i, part in enumerate(parts)
    )


def _inline_formula(latex: str) -> str:
    """The formula, on one line; as text if it ends within braces: the text behind it would be within them too."""
    if latex.rfind("{") > latex.rfind("}"):
        return inert_text(f"\\({latex}\\)", before_formula=True)
    return f"${inert_formula(' '.join(latex.split()))}$"


def _code(content: str) -> str:
    """The code between fences. Fences that the model wrote itself are replaced: they may end before the code does."""
    language, code = code_in(content)
    return fenced(code, "" if language.lower() in _DRAWN else language)


def fenced(text: str, language: str = "") -> str:
    """The text between fences longer than any run of backticks in it."""
    fence = "`" * max(3, 1 + max(map(len, _BACKTICKS.findall(text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}"
