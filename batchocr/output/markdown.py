"""A page's blocks as Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from batchocr.data import Block

_LEFT_OUT: Final = frozenset({"header", "footer", "page_number", "aside_text"})
"""What belongs to the sheet of paper, not to the text."""

_HEADING_MARKS: Final = {"doc_title": "#", "title": "#", "paragraph_title": "##"}
"""MinerU2.5 calls every heading `title`; what one page shows of a document does not tell its level."""

_FIGURES: Final = frozenset({"image", "chart"})

# Neither crosses another opening: text with many that are never closed would take quadratic time.
_INLINE_FORMULA: Final = re.compile(r"\\\(((?:(?!\\[()]).)+)\\\)", re.DOTALL)
_BULLET: Final = re.compile(r"^[•●○◦▪■‣∙][ \t]*", re.MULTILINE)
_CHINESE: Final = re.compile(r"[\u4e00-\u9fff\u3400-\u4dbf]")
_BACKTICKS: Final = re.compile(r"`+")


def to_markdown(blocks: Sequence[Block]) -> str:
    """The text of a page in reading order; ends with one newline, or is empty.

    Formulas stand in dollar signs, tables as HTML, figures as `![image](#block-3)` with the block's index in `blocks`.
    Page headers, footers, page numbers and marginal text are left out, as is every block without content. A text that
    continues another is joined to the last text before it, as MinerU's json2md does.
    """
    parts: list[str] = []
    last_text: int | None = None
    for index, block in enumerate(blocks):
        part = _part(index, block)
        if not part:
            continue
        if block.merge_prev and last_text is not None:
            parts[last_text] += part if _CHINESE.search(part) else f" {part}"
            continue
        if block.type == "text":
            last_text = len(parts)
        parts.append(part)
    return "\n\n".join(parts) + "\n" if parts else ""


def _part(index: int, block: Block) -> str:
    """What one block adds; '' where it adds nothing."""
    content = (block.content or "").strip()
    if block.type in _FIGURES:
        return f"![{block.type}](#block-{index})"
    if not content or block.type in _LEFT_OUT:
        return ""
    if block.type in _HEADING_MARKS:
        return f"{_HEADING_MARKS[block.type]} {' '.join(_with_dollars(content).split())}"
    if block.type == "equation":
        return _display_formula(content)
    if block.type == "table":
        return _without_blank_lines(content)
    if block.type == "code":
        return _fenced(content)
    return _BULLET.sub("- ", _with_dollars(content))


def _with_dollars(text: str) -> str:
    r"""The text with `\( x \)` as `$x$`; no space inside the signs, where most renderers allow none."""
    return _INLINE_FORMULA.sub(lambda formula: f"${formula[1].strip()}$", text)


def _display_formula(content: str) -> str:
    latex = content.removeprefix("\\[").removesuffix("\\]").strip()
    return f"$$\n{_without_blank_lines(latex)}\n$$" if latex else ""


def _without_blank_lines(content: str) -> str:
    """A blank line would end the formula, or the HTML, for a Markdown reader."""
    return "\n".join(line for line in content.split("\n") if line.strip())


def _fenced(code: str) -> str:
    """The code between fences longer than any run of backticks in it; as it is where the model set them itself."""
    if code.startswith("```") and code.endswith("```") and len(code) > 6:
        return code
    fence = "`" * max(3, 1 + max(map(len, _BACKTICKS.findall(code)), default=0))
    return f"{fence}\n{code}\n{fence}"
