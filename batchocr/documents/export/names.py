"""Under which name a document is exported: the path of its `source`, made safe, and different from all others'."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable
from typing import Final

from batchocr.data import letters_end

MAX_NAME_BYTES: Final = 150
"""The longest name of a folder, or of a file before what a format adds to it and what it has while it is written;
systems allow 255."""

_MAX_PATH_BYTES: Final = 1000
"""The longest path below `--to`: most systems allow 4,096 in all, of which `--to` needs some."""

_UNSAFE: Final = re.compile(r'[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff<>:"|?*\\]')
"""Control characters, what reorders letters, lone surrogates, and what other systems, or URLs, allow in no name."""

_RESERVED: Final = re.compile(
    r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9\u00b9\u00b2\u00b3]) *(?:\.|$)", re.IGNORECASE
)
"""What Windows takes for a device, whatever its suffix."""

_DIGEST_LETTERS: Final = 12


class Names:
    """The names of a table's documents. They depend on which sources there are, but not on their order.

    A document loses its suffix: `a/b.pdf` is `a/b`. Those that would then have the same name, but for capitals, keep
    it, as `a/b.pdf` and `a/b.png`. If they are the same even then, they have letters added.
    """

    def __init__(self, sources: Iterable[str]) -> None:
        """sources: in any order, with repetitions."""
        known: set[int] = set()
        once: set[int] = set()
        self._taken: set[int] = set()
        """The names that more than one document could have."""
        for source in sources:
            if hash(source) not in known:
                known.add(hash(source))
                wished = set(map(_key, _candidates(source)))
                self._taken |= wished & once
                once |= wished

    def name_of(self, source: str) -> str:
        """The document's path below the folder of the export, separated by `/`."""
        names = _candidates(source)
        free = (name for name in names if _key(name) not in self._taken)
        return next(free, None) or _with_digest(names[-1], source)


def _candidates(source: str) -> list[str]:
    """The names that a document would like to have, best first."""
    parts = [safe_part(part) for part in source.split("/") if part not in ("", ".", "..")] or ["document"]
    whole = "/".join(parts)
    if len(whole.encode()) > _MAX_PATH_BYTES:  # for a file system: its end, with letters of its own
        whole = _with_digest(parts[-1], source)
    folder, slash, last = whole.rpartition("/")
    stem = re.sub(r"(?<=.)\.[A-Za-z][A-Za-z0-9]{0,4}$", "", last).rstrip(". ")
    return list(dict.fromkeys([folder + slash + stem, whole]))


def safe_part(part: str) -> str:
    """A part of a path as every file system, and a page's address, can hold it."""
    safe = _UNSAFE.sub("_", part).strip(" ")
    safe = f"_{safe[1:]}" if safe.startswith(".") else safe  # hidden, or a file that something else reads
    safe = safe.rstrip(". ") or "_"
    safe = f"_{safe}" if _RESERVED.match(safe) else safe
    return safe if len(safe.encode()) <= MAX_NAME_BYTES else _with_digest(safe, part)


def _with_digest(name: str, source: str) -> str:
    digest = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_LETTERS]
    folder, slash, last = name.rpartition("/")
    length = len(last.encode()[:MAX_NAME_BYTES].decode("utf-8", "ignore"))
    return f"{folder}{slash}{last[: letters_end(last, length)]}~{digest}"


def _key(name: str) -> int:
    """A number that stands for a name, as there may be millions of names: equal for names that a file system takes for
    one."""
    return hash(unicodedata.normalize("NFC", name.casefold()))
