"""Characters that a page of HTML may hold."""

from __future__ import annotations

import re
from typing import Final

from batchocr.pages.protocol.sanitize import harmless_characters

_NO_CHARACTERS: Final = re.compile(
    "[\ufdd0-\ufdef" + "".join(chr(plane << 16 | 0xFFFE) + chr(plane << 16 | 0xFFFF) for plane in range(17)) + "]"
)
"""Code points that Unicode leaves empty for ever; HTML calls each an error."""


def shown_characters(text: str) -> str:
    """The text without what commands a terminal, reorders letters or is no character."""
    return _NO_CHARACTERS.sub("", harmless_characters(text))
