"""The text of pieces as data for programs: the Markdown of `md` without the steps that make it inert.

Nothing in it is escaped, whatever the model wrote; see SECURITY.md. Of figures there is only what was read in them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from batchocr.documents.assembly.document import Piece
from batchocr.documents.export.words import with_dollars
from batchocr.pages.kinds import kind_of
from batchocr.pages.protocol.markdown import code_in, fenced, figure_parts, latex_in, listed
from batchocr.pages.protocol.sanitize import without_blank_lines
from batchocr.pages.turning import PICTURE_IN_TABLE

BETWEEN: Final = "\n\n"
_LOWEST_HEADING: Final = 6


def text_of(pieces: Iterable[Piece]) -> str:
    """The text of these pieces, in their order; '' if they have none."""
    return BETWEEN.join(filter(None, (_text(piece.type, piece.content or "", piece.level) for piece in pieces)))


def _text(type: str, content: str, level: int | None = None) -> str:
    content = content.strip()
    kind = kind_of(type)
    role = kind.role
    if not content or role == "furniture":
        return ""
    if role == "heading":
        return f"{'#' * min(level or 1, _LOWEST_HEADING)} {' '.join(with_dollars(content).split())}"
    if role == "formula":
        latex = latex_in(content)
        return f"$$\n{without_blank_lines(latex)}\n$$" if latex else ""
    if role == "table":
        return without_blank_lines(PICTURE_IN_TABLE.sub("", content))
    if role == "code":
        language, code = code_in(content)
        return fenced(code, language)
    if role == "figure":
        return BETWEEN.join(_text(type, part) for type, part in figure_parts(content))
    return listed(with_dollars(content), kind)
