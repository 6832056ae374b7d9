"""Answers that outlive a run: `--cache DIR`, a SQLite file that several runs may have open at once.

An answer is found by a key, which is the hash of its question's digest and of what made it (the model, the data types,
the protocol's revision): so a cache may hold those of several models. It has a checksum, as SQLite has none, which also
tells whether it belongs to the key that it is found under.

Whatever is wrong with the file, the run goes on without it, after one warning. It is written about once a second, in
one transaction, and not waited for by the disk: of a run that is killed it lacks the last second, of a machine that
loses its power a little more, and is sound either way (SQLite's WAL).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from batchocr.data import Completion
from batchocr.errors import UsageError
from batchocr.storage.checksums import checked_line, is_sound
from batchocr.storage.sqlite_file import SqliteFile
from batchocr.storage.uris import is_uri

logger = logging.getLogger(__name__)

NAME: Final = "answers.sqlite"
MAX_BYTES: Final = 32 << 30
"""The largest size of the file: the answers to some three million pages, which take 10 KB each."""

_APPLICATION_ID: Final = 0x626F6372
_VERSION: Final = 2
_TABLE: Final = "CREATE TABLE answers (key BLOB PRIMARY KEY, answer BLOB NOT NULL)"
_OPEN_WAIT_MS: Final = 5000
_WAIT_MS: Final = 100
"""How long to wait for another run that is writing: the run's own loop stands still meanwhile."""
_WRITE_INTERVAL_S: Final = 1.0
_MAX_WAITING_BYTES: Final = 16 << 20
"""The most bytes of answers that cannot be written yet, because somebody else has the file locked."""

_MOUNTS: Final = Path("/proc/self/mountinfo")
_NETWORK: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "lustre", "gpfs", "beegfs", "glusterfs", "9p"}
    | {f"fuse.{name}" for name in ("ceph", "gcsfuse", "glusterfs", "juicefs", "rclone", "s3fs", "sshfs")}
)
"""File systems on which SQLite's WAL, which several processes map, is not safe: they may be on other machines."""

_COMPLETION: Final = TypeAdapter(Completion)


class _UnusableError(Exception):
    """Why the cache cannot be used, and what to do."""


def cache_folder(name: str) -> Path:
    """The folder that a --cache names. Raises UsageError if it names none, one in an object store, or nothing."""
    if not name:
        raise UsageError("--cache is empty: give it a folder")
    if is_uri(name):
        raise UsageError(f"--cache {name}: a cache is a folder on a disk of this machine, not in an object store")
    folder = Path(name)
    for path in (folder / NAME, folder, *folder.parents):
        if os.path.islink(path) and not os.path.exists(path):
            raise UsageError(f"--cache {name}: {path} is a link to nothing: remove it, or choose another folder")
    return folder


class AnswerCache:
    """The answers in a folder that one maker made. Belongs to one thread at a time. Once something is wrong, a warning
    says what, and all methods do nothing.

    makers: everything besides the question that an answer depends on, in the form in which answers are put, and in
    others in which they may be there. max_bytes: of the file.
    """

    def __init__(self, folder: Path, *makers: Mapping[str, str], max_bytes: int = MAX_BYTES) -> None:
        self._path = folder / NAME
        self._db: SqliteFile | None = None
        self._makers = [json.dumps(dict(maker), sort_keys=True) for maker in makers]
        self._is_full = False
        self._waiting: dict[bytes, bytes] = {}
        self._waiting_bytes = 0
        self._written_s = time.monotonic()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _require_local(self._path)
            self._db = _open(self._path, max_bytes)
        except OSError as error:
            self._give_up(f"{error.strerror or error}; choose a folder that can be written")
        except (sqlite3.Error, _UnusableError) as error:
            self._give_up(_said(error))

    def find(self, digests: Sequence[str]) -> dict[str, Completion]:
        """The answers that there are to these questions."""
        if self._db is None or not digests:
            return {}
        keys = {_key(maker, digest): digest for maker in self._makers for digest in digests}
        select = f"SELECT key, answer FROM answers WHERE key IN ({','.join('?' * len(keys))})"
        try:
            lines = self._db.execute(select, [*keys]).fetchall()
        except sqlite3.Error as error:
            self._give_up(_said(error))
            return {}
        return {keys[key]: found for key, line in lines if (found := _completion(key, line)) is not None}

    def put(self, digest: str, completion: Completion) -> None:
        """Have an answer written with the next `write`."""
        if self._db is not None and not self._is_full:
            key = _key(self._makers[0], digest)
            line = checked_line(json.dumps(_COMPLETION.dump_python(completion)).encode(), of=key)
            self._waiting[key] = line
            self._waiting_bytes += len(line)

    def write_if_due(self) -> None:
        """Write what has been put, if that was not done within the last second."""
        if time.monotonic() - self._written_s > _WRITE_INTERVAL_S:
            self.write()

    def close(self) -> None:
        """Write what has been put, waiting for other runs to finish their writing, and close the file."""
        if self._db is not None and self._waiting:
            self._db.execute(f"PRAGMA busy_timeout = {_OPEN_WAIT_MS}")
            self.write(most_waiting_bytes=0)
        self._close()

    def write(self, *, most_waiting_bytes: int = _MAX_WAITING_BYTES) -> None:
        """Write all that has been put, or nothing. While another run is writing, up to `most_waiting_bytes` wait for
        the next call. A full file is only read from then on."""
        self._written_s = time.monotonic()
        if self._db is None or not self._waiting:
            return
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?)", self._waiting.items())
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            if _code(error) == sqlite3.SQLITE_BUSY and self._waiting_bytes < most_waiting_bytes:
                return
            if _code(error) == sqlite3.SQLITE_FULL:
                self._is_full = True
                logger.warning("the cache %s is only read from now on: %s", self._path, _said(error))
            else:
                self._give_up(_said(error))
        self._forget()

    def _forget(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0

    def _give_up(self, reason: str) -> None:
        logger.warning("the run goes on without the cache %s: %s", self._path, reason)
        self._close()

    def _close(self) -> None:
        self._forget()
        if self._db is not None:
            with suppress(sqlite3.Error):
                self._db.close()
            self._db = None


def _key(maker: str, digest: str) -> bytes:
    """The key of an answer of this maker: SHA-256, 32 bytes."""
    return hashlib.sha256(f"{maker}\n{digest}".encode()).digest()


def _open(path: Path, max_bytes: int) -> SqliteFile:
    """The file, open, and made if there is none. Raises sqlite3.Error, _UnusableError."""
    db = SqliteFile(path, wait_s=_OPEN_WAIT_MS / 1000)
    try:
        _make_or_check(db)
        _use_wal(db)
        db.execute("PRAGMA synchronous = NORMAL")
        [page_bytes] = db.execute("PRAGMA page_size").fetchone()
        db.execute(f"PRAGMA max_page_count = {max_bytes // page_bytes}")
        db.execute(f"PRAGMA busy_timeout = {_WAIT_MS}")
    except BaseException:
        db.close()
        raise
    return db


def _make_or_check(db: SqliteFile) -> None:
    """Make the cache's table, unless it is there, and require that there is nothing else in the file."""
    db.execute("BEGIN IMMEDIATE")
    [schema_version] = db.execute("PRAGMA schema_version").fetchone()
    if schema_version == 0:
        db.execute(_TABLE)
        db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {_VERSION}")
    [application_id] = db.execute("PRAGMA application_id").fetchone()
    [version] = db.execute("PRAGMA user_version").fetchone()
    if application_id != _APPLICATION_ID:
        raise _UnusableError("it is a file of another program; choose another folder")
    if version != _VERSION:
        raise _UnusableError("it is of another version of batchocr; choose another folder, or delete it")
    db.require_only(_TABLE)
    db.execute("COMMIT")


def _use_wal(db: SqliteFile) -> None:
    """Have a new file use a WAL. SQLite does not wait for other processes that may be making the same file: hence the
    loop. Raises sqlite3.Error."""
    until_s = time.monotonic() + _OPEN_WAIT_MS / 1000
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > until_s:
                raise
        time.sleep(0.01)


def _completion(key: bytes, line: object) -> Completion | None:
    """The answer in a line of the table; None if the line is damaged, of another key, or holds none."""
    if not isinstance(line, bytes) or not is_sound(line, of=key):
        return None
    try:
        return _COMPLETION.validate_python(json.loads(line))
    except (ValueError, RecursionError):  # those from json, and ValidationError
        return None


def _code(error: Exception) -> int:
    """The primary code of an error of SQLite; 0 of others."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


_ADVICE: Final = {
    sqlite3.SQLITE_FULL: f"the disk is full, or it has reached {MAX_BYTES >> 30} GiB; delete it to begin anew",
    sqlite3.SQLITE_NOTADB: "it is no cache, or damaged; delete it, or choose another folder",
    sqlite3.SQLITE_CORRUPT: "it is damaged; check the disk, and delete it",
    sqlite3.SQLITE_INTERRUPT: "a query takes too long; delete it, or choose a folder on another disk",
    sqlite3.SQLITE_READONLY: "it may not be written; choose a folder that can be written",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; choose a folder that can be written",
    sqlite3.SQLITE_BUSY: "another program has it locked; end that, or choose another folder",
    sqlite3.SQLITE_IOERR: "the disk fails, or is full; choose a folder on another one",
}


def _said(error: Exception) -> str:
    advice = _ADVICE.get(_code(error))
    return str(error) if advice is None else f"{advice} ({error})"


def _require_local(path: Path) -> None:
    """Raises _UnusableError for a file on a file system that other machines may have mounted."""
    kind = _file_system(os.path.realpath(path))
    if kind in _NETWORK:
        raise _UnusableError(f"its file system is of the network ({kind}); choose a folder on a disk of this machine")


def _file_system(path: str) -> str:
    """The kind of the file system that holds a path; empty if that cannot be told."""
    best, kind = -1, ""
    for line in _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines():
        mount, _, rest = line.partition(" - ")
        mounted = mount.split()[4].replace("\\040", " ").rstrip("/")
        if len(mounted) >= best and f"{path}/".startswith(f"{mounted}/"):
            best, kind = len(mounted), rest.split()[0]
    return kind
