"""Lists of paths, in a file (`@list.txt`) or on stdin."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TextIO


def read_list(path: str, *, null: bool) -> list[str]:
    """Return the paths in a file: one per line, without blank lines and those that begin with `#`.

    null: they are separated by NUL, and taken as they are. Raises OSError, ValueError.
    """
    return _paths_in(os.fsdecode(Path(path).read_bytes()), null=null, comments=True)


def read_stdin(stdin: TextIO, *, null: bool) -> list[str]:
    """Return the paths on stdin. What writes them writes no comments, so that there a `#` begins a name.

    Raises OSError, ValueError.
    """
    # Its own decoding refuses names that are not text.
    text = os.fsdecode(stdin.buffer.read()) if isinstance(stdin, io.TextIOWrapper) else stdin.read()
    return _paths_in(text, null=null, comments=False)


def _paths_in(text: str, *, null: bool, comments: bool) -> list[str]:
    if null:
        return [path for path in text.split("\0") if path]
    if "\0" in text:
        raise ValueError("its paths are separated by NUL: --null reads it")
    lines = text.removeprefix("\ufeff").split("\n")
    return [line.removesuffix("\r") for line in lines if line.strip() and not (comments and line.startswith("#"))]
