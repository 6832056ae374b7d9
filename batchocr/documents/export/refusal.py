"""What an export raises where a single file of a document is not to be had; the other files are written."""


class FileRefusedError(Exception):
    """A file of a document cannot be made, or cannot be put where it belongs; its message says why."""
