"""What rows depend on in this folder, for a run that loads nothing else of it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

DETECTED_LAYOUT: Final = 1
"""The revision of detected layouts. It goes up with every change in `detected_layout` that may alter the blocks of a
page."""

TRUSTED_TEXT: Final = 2
"""The revision of trusted text. It goes up with every change in `trusted_text`, or in `pages/input/plain_text`, that
may alter the text of a page."""

TURNED_PAGES: Final = 1
"""The revision of turned pages. It goes up with every change in `pages/orientation` that may turn a page another
way."""

MAX_LAYOUT_TOKENS: Final = 8192
"""The limit of a layout's answer, whatever is allowed for a block: a layout cut short loses whole blocks. A block's
line takes 12 to 20 tokens, so this is for more than 400 blocks; MinerU sets no limit."""


def has_classifier() -> bool:
    """Whether it can be seen how a scan stands: what runs the classifier comes with extras."""
    return find_spec("onnxruntime") is not None
