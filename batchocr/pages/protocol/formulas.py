r"""Formulas in what a model says, marked as in every block: `\(x\)` within text, `\[x\]` as a block."""

from __future__ import annotations

import re
from typing import Final

FORMULA: Final = (
    r"(?<!\\)\\[(\[](?:\\\[)?((?:[^\\]|\\[^()\[\]])+)\\[)\]](?:\\\])?"
    r"|(?<![\\$])\$\$([^$]+)\$\$|(?<![\\$])\$(?!\$)((?:[^$\\]|\\.)+)\$(?![\d$])"
)
"""A formula within text, whichever marks it has. "$5 and $6" are prices. No match crosses another opening: text with
many that are never closed would take quadratic time."""
_IN_TEXT: Final = re.compile(FORMULA, re.DOTALL)
_MARK: Final = re.compile(r"(?<!\\)(?:\\[()\[\]]|\$)")


def latex_of(text: str) -> str:
    """The text of one formula, without any marks."""
    return _MARK.sub("", text).strip()


def marked(found: re.Match[str]) -> str:
    """What was found by FORMULA, with our marks; as it is if nothing is between them."""
    latex = latex_of(found[0])
    return f"\\({latex}\\)" if latex else found[0]


def with_marks(text: str) -> str:
    """The text with our marks around each formula."""
    return _IN_TEXT.sub(marked, text)


def as_block(text: str) -> str:
    """The formula of a block that is nothing else; '' if there is none."""
    latex = latex_of(text)
    return f"\\[\n{latex}\n\\]" if latex else ""
