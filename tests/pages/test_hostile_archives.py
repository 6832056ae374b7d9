"""Archives and tables that lie: each ends with documents, counts and reasons, and nothing is written but a copy."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchocr.config import Config
from batchocr.errors import PageError
from batchocr.pages.input import containers
from batchocr.pages.input.containers import Containers
from batchocr.pages.input.folders import describe_skipped
from batchocr.processes.channel import FROM_WORKER
from batchocr.processes.messages import ListMembers, Setup
from batchocr.storage.members import MemberAddress

CONTENT: Final = b"%PDF-1.4 not much of a document"
NAMES: Final = ("a.pdf", "b.pdf", "c.pdf")
Fields = dict[int, tuple[str, int]]
"""Numbers to put into a header: by their offset in it, the format and the value."""


def zipped(*names: str | zipfile.ZipInfo, content: bytes = CONTENT, comment: bytes = b"", method: int = 8) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.comment = comment
        for name in names:
            archive.writestr(name, content)
    return file.getvalue()


def patched(data: bytes, magic: bytes, fields: Fields) -> bytes:
    """The same with other numbers behind the first such magic."""
    changed = bytearray(data)
    for offset, (form, value) in fields.items():
        struct.pack_into(form, changed, data.index(magic) + offset, value)
    return bytes(changed)


def directory(fields: Fields, *names: str, content: bytes = CONTENT) -> bytes:
    """A zip with lies about its first member in the directory."""
    return patched(zipped(*(names or NAMES), content=content), b"PK\1\2", fields)


def end(fields: Fields) -> bytes:
    """A zip with lies in its last record."""
    return patched(zipped(*NAMES), b"PK\5\6", fields)


def link(mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("link.pdf")
    info.create_system, info.external_attr = 3, mode << 16
    return info


def overlapping() -> bytes:
    """A zip of which all members are the first one, which is most of it."""
    data = bytearray(zipped(*NAMES, content=os.urandom(3000)))
    place = data.index(b"PK\1\2")
    while place >= 0:
        data[place + 42 : place + 46] = bytes(4)
        data[place + 20 : place + 24] = struct.pack("<L", 6000)
        place = data.find(b"PK\1\2", place + 1)
    return bytes(data)


def zip64(size: int, extra_bytes: int = 16) -> bytes:
    """A zip whose member's sizes are in a field for long ones, which may be too short."""
    data = zipped("a.pdf")
    start, stop = data.index(b"PK\1\2"), data.index(b"PK\5\6")
    extra = struct.pack("<2H2Q", 1, 16, size, len(CONTENT))[: 4 + extra_bytes]
    entry = bytearray(data[start:stop])
    entry[20:28], entry[30:32] = b"\xff" * 8, struct.pack("<H", len(extra))
    last = bytearray(data[stop:])
    last[12:16] = struct.pack("<L", len(entry) + len(extra))
    return data[:start] + entry + extra + last


def member(name: str, type: bytes = tarfile.REGTYPE, **fields: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mtime, info.size = type, 1_700_000_000, len(CONTENT) if type == tarfile.REGTYPE else 0
    for field, value in fields.items():
        setattr(info, field, value)
    return info


def tarred(*entries: str | tarfile.TarInfo, format: int = tarfile.PAX_FORMAT, encoding: str = "utf-8") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=format, encoding=encoding) as archive:
        for entry in entries:
            archive.addfile(member(entry) if isinstance(entry, str) else entry, io.BytesIO(CONTENT))
    return file.getvalue()


def header(offset: int, value: bytes, data: bytes | None = None) -> bytes:
    """A tar with other bytes in the header of its first member, and a checksum that fits."""
    changed = bytearray(data or tarred(*NAMES, format=tarfile.GNU_FORMAT))
    changed[offset : offset + len(value)] = value
    changed[148:156] = b" " * 8
    changed[148:156] = b"%06o\0 " % sum(changed[:512])
    return bytes(changed)


def table(columns: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


def binary(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary())


def named(*paths: str | None) -> bytes:
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    return table({"pdf": pa.array([{"bytes": CONTENT, "path": path} for path in paths], kind)})


ZIPS: Final[dict[str, tuple[Callable[[], bytes], str]]] = {
    "nothing": (lambda: b"", "damaged"),
    "something else": (lambda: b"no archive" * 100, "damaged"),
    "no member": (zipped, "no document"),
    "folders only": (lambda: zipped("a/", "b/", "b/c.pdf/"), "no document"),
    "cut in a member": (lambda: zipped(*NAMES)[:50], "damaged"),
    "cut in the directory": (lambda: (data := zipped(*NAMES))[: data.index(b"PK\1\2") + 60], "damaged"),
    "cut before the end": (lambda: (data := zipped(*NAMES))[: data.index(b"PK\5\6")], "damaged"),
    "cut in the end": (lambda: zipped(*NAMES)[:-1], "damaged"),
    "the first half is gone": (lambda: zipped(*NAMES)[40:], "damaged"),
    "names that lead up": (lambda: zipped("../../a.pdf", "b/../../c.pdf"), "read a.pdf, b/c.pdf"),
    "absolute names": (lambda: zipped("/etc/a.pdf", "//host/b.pdf"), "read etc/a.pdf, host/b.pdf"),
    "names of Windows": (lambda: zipped("..\\a.pdf", "C:\\b.pdf"), "read C:\\b.pdf"),
    "a name with NUL": (lambda: zipped("aXb.pdf").replace(b"aXb", b"a\0b"), "no suffix"),
    "no name": (lambda: zipped(".", ".."), "2 with no suffix"),
    "names that are too long": (lambda: zipped("a" * 5000 + ".pdf", "b.pdf"), "read 0/aaa"),
    "letters that move the cursor": (lambda: zipped("\x1b[2J\n.pdf"), "read \x1b[2J\n.pdf"),
    "not UTF-8, and not said to be": (lambda: zipped("aa.pdf").replace(b"aa", b"\x82\xff"), "read é\xa0.pdf"),
    "not UTF-8, but said to be": (
        lambda: zipped("é.pdf", "b.pdf").replace("é".encode(), b"\x82\xff"),
        "read é\xa0.pdf, b",
    ),
    "encrypted": (lambda: patched(zipped("a.pdf"), b"PK\3\4", {6: ("<H", 1)}), "unpack it first"),
    "an unknown method": (lambda: patched(zipped("a.pdf"), b"PK\3\4", {8: ("<H", 97)}), "unknown method (97)"),
    "a bomb by what it says": (lambda: directory({24: ("<L", 2 << 30)}), "2,147,483,648 bytes"),
    "a bomb that says less": (lambda: directory({24: ("<L", 100)}, "a.pdf", content=bytes(5_000_000)), "checksum"),
    "a size that is too large": (lambda: directory({24: ("<L", 9000)}), "9,000 bytes"),
    "a packed size that is too large": (lambda: directory({20: ("<L", 1 << 30)}), "overlap"),
    "members that overlap": (overlapping, "overlap"),
    "another checksum": (lambda: directory({16: ("<L", 7)}), "checksum"),
    "a member beyond the file": (lambda: directory({42: ("<L", 1 << 30)}), "no member"),
    "a member that is none": (lambda: directory({42: ("<L", 5)}), "no member"),
    "a long field before a member": (lambda: patched(zipped("a.pdf"), b"PK\3\4", {28: ("<H", 65535)}), "damaged"),
    "more members than there are": (lambda: end({8: ("<H", 9), 10: ("<H", 9)}), "read a.pdf, b.pdf, c.pdf"),
    "a directory beyond the file": (lambda: end({16: ("<L", 1 << 30)}), "damaged"),
    "a directory longer than the file": (lambda: end({12: ("<L", 1 << 30)}), "damaged"),
    "a day that is none": (lambda: directory({14: ("<H", 0)}), "read a.pdf, b.pdf, c.pdf"),
    "a long size": (lambda: zip64(1 << 62), "too_large"),
    "a size longer than any": (lambda: zip64((1 << 64) - 1), "longer than any"),
    "a long size that is cut": (lambda: zip64(9, 4), "damaged"),
    "a comment with another end": (lambda: zipped("a.pdf", comment=b"PK\5\6" + bytes(18)), "directory is empty"),
    "as long a comment as can be": (lambda: zipped("a.pdf", comment=b"c" * 65535), "read a.pdf"),
    "behind a program": (lambda: b"#!/bin/sh\n" * 500 + zipped("a.pdf"), "read a.pdf"),
    "zips in a zip": (lambda: zipped("a.zip", content=zipped("b.zip", content=zipped("c.pdf"))), "1 .zip"),
    "a link and a device": (lambda: zipped(link(0o120777), link(0o020666)), "2 links or devices"),
}
TARS: Final[dict[str, tuple[Callable[[], bytes], str]]] = {
    "nothing": (lambda: b"", "damaged"),
    "something else": (lambda: b"no archive" * 100, "damaged"),
    "no member": (tarred, "no document"),
    "folders only": (lambda: tarred(member("a", tarfile.DIRTYPE), member("b.pdf", tarfile.DIRTYPE)), "no document"),
    "cut in a header": (lambda: tarred(*NAMES)[:1100], "damaged at byte 1,024"),
    "cut in a member": (lambda: tarred(*NAMES)[:1540], "damaged"),
    "names that lead up": (lambda: tarred("../../a.pdf", "/etc/b.pdf"), "read a.pdf, etc/b.pdf"),
    "two of a name": (lambda: tarred("a.pdf", "./a.pdf"), "read a.pdf, a.pdf"),
    "names that are too long": (lambda: tarred("a.pdf", "d/" * 2100 + "b.pdf", "c.pdf"), "read a.pdf, 1/b.pdf, c.pdf"),
    "not UTF-8": (lambda: tarred("é.pdf", format=tarfile.GNU_FORMAT, encoding="latin-1"), "udce9"),
    "links to a file": (
        lambda: tarred(*(member("a.pdf", kind, linkname="/etc/passwd") for kind in (b"1", b"2"))),
        "2 links or devices",
    ),
    "devices": (lambda: tarred(*(member("a.pdf", kind) for kind in (b"3", b"4", b"6"))), "3 links or devices"),
    "an unknown kind": (lambda: header(156, b"Z"), "1 links or devices"),
    "a checksum that is wrong": (lambda: tarred(*NAMES).replace(b"a.pdf", b"A.pdf"), "damaged at byte 0"),
    "a size below 0": (lambda: header(124, b"\xff" * 12), "damaged"),
    "a size beyond the file": (lambda: header(124, b"77777777777\0"), "damaged"),
    "a size beyond any file": (lambda: header(124, b"\x80" + b"\xff" * 11), "damaged"),
    "holes of a terabyte": (lambda: header(483, b"10000000000000\0", header(156, b"S")), "sparse"),
    "a long name without an end": (lambda: header(156, b"L"), "read c.pdf"),
    "a thousand headers for none": (lambda: header(156, b"x")[:512] * 3000, "damaged"),
    "a header that says another size": (lambda: tarred(member("a.pdf", pax_headers={"size": "-5"})), "damaged"),
    "a time that is none": (lambda: tarred(member("a.pdf", mtime=0, pax_headers={"mtime": "nan"})), "read a.pdf"),
    "a second tar": (lambda: tarred("a.pdf") * 2, "another tar follows at byte 10,240"),
}
COMPRESSED: Final[dict[str, tuple[Callable[[], bytes], str]]] = {
    "nothing": (lambda: b"", "damaged"),
    "something else": (lambda: b"no archive" * 100, "damaged"),
    "cut": (lambda: gzip.compress(tarred(*NAMES))[:-20], "damaged"),
    "damaged": (lambda: gzip.compress(os.urandom(5000))[:-8] + bytes(8), "damaged"),
    "a bomb": (lambda: gzip.compress(bytes(33 << 20)), "no room to unpack it"),
    "no tar": (lambda: gzip.compress(b"no archive" * 100), "damaged"),
    "zeros behind its end": (lambda: gzip.compress(tarred(*NAMES)) + bytes(512), "read a.pdf, b.pdf, c.pdf"),
    "two of them": (lambda: gzip.compress((data := tarred(*NAMES))[:900]) + gzip.compress(data[900:]), "read a.pdf, b"),
    "something else behind its end": (lambda: gzip.compress(tarred(*NAMES)) + b"something else", "damaged"),
}
TABLES: Final[dict[str, tuple[Callable[[], bytes], str]]] = {
    "nothing": (lambda: b"", "damaged"),
    "only its magic": (lambda: b"PAR1PAR1", "damaged"),
    "cut": (lambda: table({"pdf": binary(CONTENT)})[:-9], "damaged"),
    "a footer beyond the file": (lambda: table({"pdf": binary(CONTENT)})[:-8] + b"\xff\xff\xff\x0fPAR1", "damaged"),
    "more rows than bytes": (
        lambda: table({"pdf": binary(*[CONTENT] * 100)}).replace(b"\x16\xc8\1", b"\x16\xfe\x7f"),
        "8,191 rows",
    ),
    "no row": (lambda: table({"pdf": binary()}), "no document"),
    "no column": (lambda: table({"text": ["a"]}), "none of this table does"),
    "two columns": (lambda: table({"one": binary(CONTENT), "two": binary(CONTENT)}), "one of one, two"),
    "lists of lists": (lambda: table({"pdf": [[[CONTENT]]]}), "none of this table"),
    "a row of nothing": (lambda: table({"pdf": binary(CONTENT, None)}), "absent: the table has nothing there; read 0"),
    "more documents than bytes": (
        lambda: table({"pdf": pa.array([[None] * 9999], pa.list_(pa.binary()))}),
        "than bytes",
    ),
    "names that lead up": (lambda: named("../../a.pdf", "/etc/b.pdf", None, "", ".."), "a.pdf, etc/b.pdf, 2, 3, 4"),
    "two of a name": (lambda: named("a.pdf", "a.pdf"), "read a.pdf, a.pdf"),
    "names that are too long": (lambda: named("a.pdf", "b" * 5000, "c.pdf"), f"read a.pdf, 1/{'b' * 255}, c.pdf"),
    "not UTF-8": (lambda: named("a.pdf", "éé.pdf", "c.pdf").replace("éé".encode(), b"\xe9\xff\xe9\xff"), "udce9"),
}
CASES: Final = [
    pytest.param(f"x{suffix}", *case, id=f"{suffix}: {name}")
    for suffix, cases in ((".zip", ZIPS), (".tar", TARS), (".tar.gz", COMPRESSED), (".parquet", TABLES))
    for name, case in cases.items()
]


def said(path: Path) -> str:
    """What is said of a container and of what is in it."""
    listing, found = Containers(Setup.of(Config(work_dir=str(path.parent / "work")))), list[Any]()
    try:
        while not found or not found[-1].is_last:
            step = listing.list(ListMembers(1, str(path), goes_on=bool(found)))
            found.append(FROM_WORKER.validate_json(FROM_WORKER.dump_json(step)))
    except PageError as error:
        return f"{error.error_kind}: {error}"
    skipped: dict[str, int] = {}
    for step in found:
        skipped |= {kind: skipped.get(kind, 0) + count for kind, count in step.skipped.items()}
    members = [each for step in found for each in step.members]
    read, parts = [], [describe_skipped(skipped)]
    for each in members:
        copy = io.BytesIO()
        try:
            listing.copy(str(MemberAddress(str(path), found[-1].version, each)), copy, timeout_s=10)
            read.append(each.name)
        except PageError as error:
            parts.append(f"{error.error_kind}: {error}")
        assert len(copy.getvalue()) <= each.size
    if found[-1].problem is not None:
        parts.append(f"{found[-1].problem.kind}: {found[-1].problem.message}")
    parts.append(f"read {', '.join(read)}" if read else "" if any(parts) else "no document")
    return "; ".join(filter(None, parts))


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(("name", "make", "expected"), CASES)
def test_a_hostile_archive_ends_with_documents_counts_and_reasons(
    name: str, make: Callable[[], bytes], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / name
    path.write_bytes(make())
    monkeypatch.setattr(containers, "_LEAST_FREE_BYTES", shutil.disk_usage(tmp_path).free - (20 << 20))
    assert expected in said(path)
    assert sorted(os.listdir(tmp_path)) == ["in"]
    assert set(os.listdir(tmp_path / "in")) <= {name, "work"}


@pytest.mark.long
def test_a_million_empty_members_are_a_million_documents(tmp_path: Path) -> None:
    data = zipped("a.pdf", content=b"", method=0)
    start, stop = data.index(b"PK\1\2"), data.index(b"PK\5\6")
    entries = data[start:stop] * 1_000_000
    last = patched(data[stop:], b"PK\5\6", {8: ("<H", 65535), 10: ("<H", 65535), 12: ("<L", len(entries))})
    (tmp_path / "x.zip").write_bytes(data[:start] + entries + last)
    listing, num_members, is_last = Containers(), 0, False
    while not is_last:
        step = listing.list(ListMembers(1, str(tmp_path / "x.zip"), goes_on=num_members > 0))
        num_members, is_last = num_members + len(step.members), step.is_last
    assert num_members == 1_000_000
