"""What is in zip and tar archives, also in those that lie: documents, counts and reasons, and never another file."""

from __future__ import annotations

import io
import os
import struct
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from batchocr.config import Config
from batchocr.data import Failure
from batchocr.errors import ChangedError, DamagedError, PageError
from batchocr.pages.input import archives, containers
from batchocr.pages.input.containers import Containers
from batchocr.processes.messages import ListMembers, MembersListed, Setup
from batchocr.storage.members import Member, MemberAddress

CONTENT = b"%PDF-1.4 not much of a document"
NS = 10**9
TIME_S = 1_700_000_000


def listed(path: Path) -> list[MembersListed]:
    """What a worker says, as the run takes it."""
    listing = Containers()
    steps = [listing.list(ListMembers(7, str(path)))]
    while not steps[-1].is_last:
        steps.append(listing.list(ListMembers(7, str(path), goes_on=True)))
    return steps


def copy_member(address: str, copy: io.BytesIO, *, timeout_s: float) -> None:
    Containers().copy(address, copy, timeout_s=timeout_s)


def members(path: Path) -> list[Member]:
    return [member for step in listed(path) for member in step.members]


def names(path: Path) -> list[str]:
    return [found.name for found in members(path)]


def skipped(path: Path) -> Counter[str]:
    return sum((Counter(step.skipped) for step in listed(path)), Counter())


def problem(path: Path) -> Failure | None:
    return listed(path)[-1].problem


def content(path: Path, found: Member) -> bytes:
    version = path.stat().st_size, path.stat().st_mtime_ns
    copy_member(str(MemberAddress(str(path), version, found)), copy := io.BytesIO(), timeout_s=10)
    return copy.getvalue()


def kind_of_failure(path: Path, found: Member) -> str:
    with pytest.raises(PageError) as failed:
        content(path, found)
    return failed.value.error_kind


def make_zip(path: Path, *entries: str | zipfile.ZipInfo, method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for entry in entries:
            archive.writestr(entry, CONTENT)
    return path


def tar_member(name: str, type: bytes = tarfile.REGTYPE, mtime: float = TIME_S) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mtime, info.size = type, mtime, len(CONTENT) if type == tarfile.REGTYPE else 0
    return info


def make_tar(path: Path, *entries: str | tarfile.TarInfo, format: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(path, "w", format=format) as archive:
        for entry in entries:
            info = tar_member(entry) if isinstance(entry, str) else entry
            archive.addfile(info, io.BytesIO(CONTENT))
    return path


MAKERS: dict[str, Callable[..., Path]] = {"x.zip": make_zip, "x.tar": make_tar}


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Path]:
    """Make an archive of members of these names."""
    return lambda *names: MAKERS[request.param](tmp_path / request.param, *names)


def test_members_that_would_be_documents_in_a_folder_are_documents_in_their_order(make: Callable[..., Path]) -> None:
    path = make("b/2.pdf", "a.PNG", "notes.txt", "README", ".hidden.pdf", "__MACOSX/b/2.pdf", "inner.zip", "b/.x/1.pdf")
    assert names(path) == ["b/2.pdf", "a.PNG"]
    assert skipped(path) == {".txt": 1, "no suffix": 1, ".zip": 1}
    assert problem(path) is None
    assert [content(path, found) for found in members(path)] == [CONTENT] * 2


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_leads_nowhere_and_two_of_a_name_are_two(make: Callable[..., Path]) -> None:
    path = make("../../etc/a.pdf", "/etc/a.pdf", "./etc//a.pdf")
    assert names(path) == ["etc/a.pdf"] * 3
    assert [found.ordinal for found in members(path)] == [0, 1, 2]
    assert [content(path, found) for found in members(path)] == [CONTENT] * 3


def test_an_archive_is_listed_in_steps(make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "_STEP_ENTRIES", 2)
    path = make(*(f"{number}.pdf" for number in range(5)))
    assert [[found.ordinal for found in step.members] for step in listed(path)] == [[0, 1], [2, 3], [4]]
    assert [step.is_last for step in listed(path)] == [False, False, True]


def test_a_million_entries_are_not_kept(make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "_MAX_ENTRIES", 2)
    path = make("0.pdf", "1.pdf", "2.pdf")
    assert names(path) == ["0.pdf", "1.pdf"]
    assert (failure := problem(path)) is not None
    assert "more than 2 members" in failure.message


def test_an_archive_that_changed_gives_no_bytes_of_another_version(make: Callable[..., Path]) -> None:
    path = make("a.pdf")
    [found] = members(path)
    address = str(MemberAddress(str(path), (path.stat().st_size, path.stat().st_mtime_ns), found))
    os.utime(path, ns=(0, 5))
    with pytest.raises(ChangedError):
        copy_member(address, io.BytesIO(), timeout_s=10)


def test_an_archive_that_changes_while_a_member_is_copied_gives_none(make: Callable[..., Path]) -> None:
    path = make("a.pdf")
    [found] = members(path)

    class Copy(io.BytesIO):
        def flush(self) -> None:
            os.utime(path, ns=(0, 5))

    address = str(MemberAddress(str(path), (path.stat().st_size, path.stat().st_mtime_ns), found))
    with pytest.raises(ChangedError):
        copy_member(address, Copy(), timeout_s=10)


def test_an_address_is_read_back_whatever_the_name() -> None:
    for name in ("a.pdf", "b\0c.pdf", "d\udce9.pdf", ""):
        address = MemberAddress("x.zip", (5, -3), Member(1, 2, 3, 4, -5, name))
        assert MemberAddress.parse(str(address)) == address


def test_a_member_has_its_own_size_and_time_and_without_one_its_archives(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("a.pdf", (2023, 11, 14, 22, 13, 20))
    [of_zip] = members(make_zip(tmp_path / "x.zip", info))
    assert of_zip.mtime_ns // NS == TIME_S
    path = make_tar(tmp_path / "x.tar", "a.pdf", tar_member("b.pdf", mtime=0), tar_member("c.pdf", mtime=-5))
    times = [found.mtime_ns for found in members(path)]
    assert times == [TIME_S * NS, path.stat().st_mtime_ns, path.stat().st_mtime_ns]
    assert {found.size for found in (of_zip, *members(path))} == {len(CONTENT)}


def test_members_of_a_zip_of_equal_size_and_time_differ_by_their_checksums(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr(zipfile.ZipInfo("a.pdf"), b"one")
        archive.writestr(zipfile.ZipInfo("b.pdf"), b"two")
    first, second = (found for found in members(tmp_path / "x.zip"))
    assert (first.size, first.mtime_ns // NS) == (second.size, second.mtime_ns // NS)
    assert first.mtime_ns != second.mtime_ns


def test_links_and_devices_are_counted_and_not_followed(tmp_path: Path) -> None:
    kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE)
    entries = [tar_member(f"{number}.pdf", kind) for number, kind in enumerate(kinds)]
    for entry in entries:
        entry.linkname = "/etc/passwd"
    path = make_tar(tmp_path / "x.tar", *entries, "real.pdf")
    assert (names(path), skipped(path)) == (["real.pdf"], {"links or devices in archives": 4})
    link = zipfile.ZipInfo("link.pdf")
    link.create_system, link.external_attr = 3, 0o120777 << 16
    path = make_zip(tmp_path / "x.zip", link, "folder.pdf/", "real.pdf")
    assert (names(path), skipped(path)) == (["real.pdf"], {"links or devices in archives": 1})


def test_names_that_are_not_utf_8_are_names(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "x.zip", "aa.pdf")
    path.write_bytes(path.read_bytes().replace(b"aa", b"\x82\xff"))
    assert names(path) == ["é\N{NO-BREAK SPACE}.pdf"]
    with tarfile.open(tmp_path / "x.tar", "w", format=tarfile.GNU_FORMAT, encoding="latin-1") as latin:
        latin.addfile(tar_member("é.pdf"), io.BytesIO(CONTENT))
    assert names(tmp_path / "x.tar") == [r"\udce9.pdf"]


class Named(NamedTuple):
    """A member whose name is these bytes."""

    raw: bytes
    system: int = 0
    extra: bytes = b""
    flag: bool = False
    """Whether it says of itself that it is UTF-8."""


def make_zip_named(path: Path, *members: Named) -> Path:
    """A zip of members of such names, behind which comes one called last.pdf."""
    infos = [zipfile.ZipInfo(f"{number}" * len(member.raw)) for number, member in enumerate(members)]
    for info, member in zip(infos, members, strict=True):
        info.create_system, info.extra = member.system, member.extra
    data = make_zip(path, *infos, "last.pdf").read_bytes()
    for info, member in zip(infos, members, strict=True):
        data = data.replace(info.filename.encode(), member.raw)
    if members[0].flag:
        data = data.replace(b"PK\1\2\x14\0\x14\0\0\0", b"PK\1\2\x14\0\x14\0\0\x08", 1)
    path.write_bytes(data)
    return path


def unicode_path(text: bytes, raw: bytes) -> bytes:
    """The extra field by which a name is said in UTF-8 too."""
    return struct.pack("<2HBL", 0x7075, 5 + len(text), 1, zlib.crc32(raw)) + text


GBK, CP866, JIS = "合同/一.pdf".encode("gbk"), "Договор.pdf".encode("cp866"), "表/ソ.pdf".encode("cp932")


@pytest.mark.parametrize(
    ("member", "encoding", "name"),
    [
        pytest.param(Named("合同/一.pdf".encode(), 3), "cp437", "合同/一.pdf", id="UTF-8 without its flag"),
        pytest.param(Named("合同/一.pdf".encode()), "gbk", "合同/一.pdf", id="UTF-8, whatever the encoding"),
        pytest.param(Named("é.pdf".encode(), flag=True), "cp866", "é.pdf", id="UTF-8 with its flag"),
        pytest.param(Named(b"\x82.pdf", flag=True), "cp437", "é.pdf", id="a flag that lies"),
        pytest.param(Named(GBK), "cp437", "║╧═¼/╥╗.pdf", id="nothing says what it is"),
        pytest.param(Named(GBK), "gbk", "合同/一.pdf", id="gbk"),
        pytest.param(Named(CP866), "cp866", "Договор.pdf", id="cp866"),
        pytest.param(Named(JIS, 3), "cp932", "表/ソ.pdf", id="a letter of which a backslash is the half"),
        pytest.param(Named(b"\x81.pdf"), "gbk", "\\udc81.pdf", id="not of the encoding"),
        pytest.param(Named(GBK, 0, unicode_path("合同.pdf".encode(), GBK)), "cp437", "合同.pdf", id="Unicode Path"),
        pytest.param(Named(GBK, 0, unicode_path(b"a.pdf", b"b.pdf")), "gbk", "合同/一.pdf", id="of another name"),
        pytest.param(Named(GBK, 0, unicode_path(b"\xff.pdf", GBK)), "gbk", "合同/一.pdf", id="not UTF-8 itself"),
        pytest.param(Named(GBK, 0, unicode_path(b"", GBK)), "gbk", "合同/一.pdf", id="an empty one"),
        pytest.param(Named(b"a\\b.pdf", 0), "cp437", "a/b.pdf", id="of MS-DOS"),
        pytest.param(Named(b"a\\b.pdf", 10), "cp437", "a/b.pdf", id="of Windows"),
        pytest.param(Named(b"a\\b.pdf", 11), "cp437", "a/b.pdf", id="of Windows, by Info-ZIP"),
        pytest.param(Named(b"a\\b.pdf", 3), "cp437", "a\\b.pdf", id="of Unix"),
    ],
)
def test_a_member_of_a_zip_is_called_what_its_maker_called_it(
    member: Named, encoding: str, name: str, tmp_path: Path
) -> None:
    path = make_zip_named(tmp_path / "x.zip", member)
    [listed] = [Containers(Setup.of(Config(zip_encoding=encoding))).list(ListMembers(1, str(path)))]
    assert [found.name for found in listed.members] == [name, "last.pdf"]
    assert [content(path, found) for found in listed.members] == [CONTENT] * 2


def test_folders_and_hidden_members_are_known_behind_backslashes_too(tmp_path: Path) -> None:
    raws = b"a\\", b"__MACOSX\\._a.pdf", b"a\\.b\\c.pdf", b"a\\b.pdf"
    path = make_zip_named(tmp_path / "x.zip", *map(Named, raws))
    assert (names(path), skipped(path)) == (["a/b.pdf", "last.pdf"], {})


def test_a_path_longer_than_any_may_be_costs_its_folders_alone(make: Callable[..., Path]) -> None:
    path = make("a.pdf", "d/" * 2100 + "b.pdf", "c.pdf")
    assert (names(path), problem(path)) == (["a.pdf", "1/b.pdf", "c.pdf"], None)
    assert [content(path, found) for found in members(path)] == [CONTENT] * 3


def test_an_encrypted_member_of_a_zip_is_a_row_that_says_so(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "x.zip", "a.pdf")
    data = bytearray(path.read_bytes())
    for place in (6, data.index(b"PK\1\2") + 8):
        data[place] |= 1
    path.write_bytes(data)
    [found] = members(path)
    assert kind_of_failure(path, found) == "encrypted"


def test_members_packed_in_other_ways_are_read_if_they_can_be(tmp_path: Path) -> None:
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        path = make_zip(tmp_path / "x.zip", "a.pdf", method=method)
        assert content(path, *members(path)) == CONTENT
    path.write_bytes(path.read_bytes()[:8] + b"\x61\0" + path.read_bytes()[10:])
    assert kind_of_failure(path, *members(path)) == "unsupported"


def in_directory(path: Path, offset: int, value: int, form: str = "<L") -> Path:
    """Put a number into the first entry of a zip's directory."""
    data = bytearray(path.read_bytes())
    struct.pack_into(form, data, data.index(b"PK\1\2") + offset, value)
    path.write_bytes(data)
    return path


def test_a_bomb_is_refused_by_what_it_says(tmp_path: Path) -> None:
    path = in_directory(make_zip(tmp_path / "x.zip", "a.pdf"), 24, 2 << 30)
    [found] = members(path)
    assert kind_of_failure(path, found) == "too_large"


@pytest.mark.parametrize("size", [5, 5000])
def test_a_size_that_lies_damages_that_member(tmp_path: Path, size: int) -> None:
    path = in_directory(make_zip(tmp_path / "x.zip", "a.pdf", "b.pdf"), 24, size)
    first, second = members(path)
    assert kind_of_failure(path, first) == "damaged"
    assert content(path, second) == CONTENT


def test_a_checksum_that_lies_damages_that_member(tmp_path: Path) -> None:
    path = in_directory(make_zip(tmp_path / "x.zip", "a.pdf"), 16, 1)
    assert kind_of_failure(path, *members(path)) == "damaged"


def test_an_offset_that_lies_damages_that_member(tmp_path: Path) -> None:
    path = in_directory(make_zip(tmp_path / "x.zip", "a.pdf"), 42, 3)
    assert kind_of_failure(path, *members(path)) == "damaged"


def test_members_that_share_their_bytes_end_the_list(tmp_path: Path) -> None:
    path = in_directory(make_zip(tmp_path / "x.zip", "a.pdf", "b.pdf"), 20, 5000)
    assert names(path) == []
    assert (failure := problem(path)) is not None
    assert "overlap" in failure.message


def test_a_zip_behind_something_else_or_before_a_comment_is_read(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "x.zip", "a.pdf")
    path.write_bytes(b"#!/bin/sh\n" * 50 + path.read_bytes())
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"PK\5 and more" * 100
    assert content(path, *members(path)) == CONTENT


def test_a_zip_with_long_numbers_is_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive, archive.open("a.pdf", "w", force_zip64=True) as member:
        member.write(CONTENT)
    data = (tmp_path / "x.zip").read_bytes()
    start, end = data.index(b"PK\1\2"), data.index(b"PK\5\6")
    entry = bytearray(data[start:end])
    entry[20:28], entry[42:46] = b"\xff" * 8, b"\xff" * 4
    extra = struct.pack("<2H3Q", 1, 24, len(CONTENT), len(CONTENT), 0)
    entry[30:32] = struct.pack("<H", len(extra))
    entry += extra
    end_64 = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, len(entry), start)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, start + len(entry), 1)
    last = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    path = tmp_path / "long.zip"
    path.write_bytes(data[:start] + entry + end_64 + locator + last)
    [found] = members(path)
    assert (found.size, found.length, content(path, found)) == (len(CONTENT), len(CONTENT), CONTENT)


@pytest.mark.parametrize("make", MAKERS.values())
def test_an_archive_that_was_cut_says_so_whatever_is_left(make: Callable[..., Path], tmp_path: Path) -> None:
    name = "x.zip" if make is make_zip else "x.tar"
    data = make(tmp_path / name, "a.pdf", "b.pdf", "c.pdf").read_bytes()
    for end in (*range(0, len(data), 97), len(data) - 1 if name == "x.zip" else 2000):
        (tmp_path / name).write_bytes(data[:end])
        is_said = problem(tmp_path / name) is not None
        is_whole = name == "x.tar" and end >= 3 * 1024
        assert is_said or is_whole or names(tmp_path / name) == ["a.pdf", "b.pdf", "c.pdf"][: end // 1024], end


def test_a_file_that_is_no_archive_says_so(make: Callable[..., Path], tmp_path: Path) -> None:
    path = make("a.pdf")
    path.write_bytes(b"nothing of the kind" * 100)
    assert names(path) == []
    assert problem(path) is not None


def test_what_follows_damage_in_a_tar_is_not_lost_in_silence(tmp_path: Path) -> None:
    path = make_tar(tmp_path / "x.tar", "a.pdf", "b.pdf", "c.pdf")
    data = bytearray(path.read_bytes())
    data[1024:1034] = b"\xff" * 10
    path.write_bytes(data)
    assert names(path) == ["a.pdf"]
    assert problem(path) is not None


def test_a_second_tar_behind_the_first_is_not_lost_in_silence(tmp_path: Path) -> None:
    path = make_tar(tmp_path / "x.tar", "a.pdf")
    first = path.read_bytes()
    for behind, said in ((first, "another tar follows"), (b"something else", "the tar is damaged")):
        path.write_bytes(first + behind)
        assert names(path) == ["a.pdf"]
        assert (failure := problem(path)) is not None
        assert failure.message == f"{said} at byte {len(first):,}, and nothing is read from there on"


@pytest.mark.parametrize("size", [-1024, -1, -(1 << 60), 1 << 63, 1 << 72])
def test_a_tar_that_leads_back_or_nowhere_ends(tmp_path: Path, size: int) -> None:
    path = make_tar(tmp_path / "x.tar", "a.pdf", "b.pdf", format=tarfile.GNU_FORMAT)
    data = bytearray(path.read_bytes())
    header = data[1024:1536]
    header[124:136] = (b"\xff" if size < 0 else b"\x80") + (size % 2**88).to_bytes(11, "big")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    data[1024:1536] = header
    path.write_bytes(data)
    assert names(path) == ["a.pdf"]
    assert problem(path) is not None


def test_a_sparse_member_is_a_row_that_says_so(tmp_path: Path) -> None:
    info = tar_member("a.pdf")
    info.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.map": "0,5", "GNU.sparse.size": "9000000000"}
    path = make_tar(tmp_path / "x.tar", info)
    assert kind_of_failure(path, *members(path)) == "unsupported"


@pytest.mark.parametrize("value", ["nan", "inf", "-1e300", "1e300", "x"])
def test_a_time_that_is_none_is_that_of_the_tar(tmp_path: Path, value: str) -> None:
    info = tar_member("a.pdf", mtime=0)
    info.pax_headers = {"mtime": value}
    path = make_tar(tmp_path / "x.tar", info)
    [found] = members(path)
    assert found.mtime_ns == path.stat().st_mtime_ns


def mutations(data: bytes) -> Iterator[bytes]:
    """The same with bytes set to other values, one at a time."""
    for position in range(0, len(data), 13):
        for value in (0, 0xFF):
            yield data[:position] + bytes([value]) + data[position + 1 :]


def test_damage_anywhere_is_a_document_a_count_or_a_reason(make: Callable[..., Path]) -> None:
    path = make("a.pdf", "b/c.png")
    for data in mutations(path.read_bytes()[:2600]):
        path.write_bytes(data)
        for found in members(path):
            try:
                content(path, found)
            except PageError:
                continue


def test_the_bytes_of_a_deflated_member_come_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_PIECE_BYTES", 1000)
    data = bytes(1_000_000)
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.pdf", data)
    [found] = members(tmp_path / "x.zip")
    assert content(tmp_path / "x.zip", found) == data


def test_a_member_stops_where_it_should_end(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.pdf", bytes(5_000_000))
    path = in_directory(tmp_path / "x.zip", 24, 1000)
    [found] = members(path)
    copy = io.BytesIO()
    address = MemberAddress(str(path), (path.stat().st_size, path.stat().st_mtime_ns), found)
    with pytest.raises(DamagedError):
        copy_member(str(address), copy, timeout_s=10)
    assert len(copy.getvalue()) <= 1000
