"""What a SQLite file from somebody else may hold."""

from __future__ import annotations

import struct

ENDLESS = "with recursive c(x) as (select 1 union all select x + 1 from c) select cast(x as blob) key, x answer from c"
"""A query without an end, with the columns of a cache."""

_MAGIC = bytes.fromhex("d9d505f920a163d7")
_PAGE_BYTES = 4096


def journal_naming(name: str, num_pages: int = 4) -> bytes:
    """A rollback journal that names a file as that of several databases, which SQLite removes after it has rolled back.
    num_pages: of the database. Source: https://sqlite.org/fileformat2.html, "The Rollback Journal"."""
    header = _MAGIC + struct.pack(">IIIII", 0, 0, num_pages, 512, _PAGE_BYTES)
    encoded = name.encode()
    lock_page = 0x40000000 // _PAGE_BYTES + 1
    ending = struct.pack(">I", lock_page) + encoded + struct.pack(">II", len(encoded), sum(encoded)) + _MAGIC
    return header.ljust(512, b"\0") + ending
