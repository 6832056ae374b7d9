"""From what the user names to the pixels of pages."""

from typing import Final

REVISION: Final = 5
"""The revision of what this folder makes. It goes up with every change that may alter the pixels of a page, or whether
its row says what is lost."""
