"""From what the user names to the pixels of pages."""

from typing import Final

REVISION: Final = 5
"""Goes up with every change here that may alter the pixels of a page, or whether its row says what is lost."""
