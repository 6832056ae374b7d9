"""Every error batchocr raises on purpose, and the exit codes of the command.

BatchOcrError              exit code
├── UsageError             2   options or arguments that cannot work
├── NoInputError           4   no candidate file in the input
├── ModelError             5   the model cannot be loaded
├── OutputError            6   the output cannot be written
│   ├── OutputMismatchError    it belongs to other settings, or is not ours
│   ├── StaleError         75  another run has replaced the table meanwhile
│   ├── StoreUnavailableError  75  the object store does not answer, for inputs too
│   └── StoreRefusesError      2   it denies access, or has no such bucket, for inputs too
├── EngineError            1   the engine, or its device, failed or hangs
└── PageError              –   becomes a row, never an exit code; each class owns its `error_kind`
    └── NotFoundError (and NoBucketError), UnreadableError (and DeniedError, UnavailableError, of a store),
        UnsupportedError, EncryptedError, DamagedError, ChangedError, TooLargeError, PageTimeoutError,
        PageOutOfMemoryError, RefusedError

A message says what, where, and what to do.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

from batchocr.data import ErrorKind


class ExitCode(IntEnum):
    """The exit codes of the command: part of its interface."""

    DONE = 0
    BUG = 1
    USAGE = 2
    TOO_MANY_FAILURES = 3
    NO_INPUT = 4
    MODEL = 5
    OUTPUT = 6
    STOPPED = 75
    INTERRUPTED = 130


class BatchOcrError(Exception):
    """The base class of all errors of batchocr."""

    exit_code: ClassVar[ExitCode] = ExitCode.BUG
    """What the command ends with."""


class UsageError(BatchOcrError):
    exit_code = ExitCode.USAGE


class NoInputError(BatchOcrError):
    exit_code = ExitCode.NO_INPUT


class ModelError(BatchOcrError):
    exit_code = ExitCode.MODEL


class OutputError(BatchOcrError):
    exit_code = ExitCode.OUTPUT


class OutputMismatchError(OutputError):
    """What exists at the output's path belongs to other settings or documents, or is not ours."""


class StaleError(OutputError):
    """Another run has replaced the table since this one began: what was read is kept, and the same command goes on."""

    exit_code = ExitCode.STOPPED


class StoreUnavailableError(OutputError):
    """An object store does not answer, or is too busy: the same command may succeed later."""

    exit_code = ExitCode.STOPPED


class StoreRefusesError(OutputError):
    """An object store denies access, or has no such bucket: nothing changes by trying again."""

    exit_code = ExitCode.USAGE


class EngineError(BatchOcrError):
    """The engine broke; pages finished before that are in the journal."""


class PageError(BatchOcrError):
    """One page or one document cannot be read."""

    error_kind: ClassVar[ErrorKind] = "internal"
    """The kind of error that the row says."""


class NotFoundError(PageError):
    error_kind = "not_found"


class NoBucketError(NotFoundError):
    """The store has no such bucket."""


class AbsentError(PageError):
    error_kind = "absent"


class UnreadableError(PageError):
    error_kind = "unreadable"


class DeniedError(UnreadableError):
    """A store does not let these credentials do it."""


class UnavailableError(UnreadableError):
    """A store does not answer, or is too busy."""


class UnsupportedError(PageError):
    error_kind = "unsupported"


class EncryptedError(PageError):
    error_kind = "encrypted"


class DamagedError(PageError):
    error_kind = "damaged"


class ChangedError(PageError):
    """The file is no longer the one that the row would speak of."""

    error_kind = "changed"


class TooLargeError(PageError):
    error_kind = "too_large"


class PageTimeoutError(PageError):
    """The document did not arrive in time; what hangs is found by the run itself."""

    error_kind = "timeout"


class PageOutOfMemoryError(PageError):
    error_kind = "out_of_memory"


class RefusedError(PageError):
    """The engine could not run the question that all others of the page depend on."""

    error_kind = "engine"


def of_store(error: PageError, said: str) -> OutputError:
    """The error of a command that needs to read or write an object which the store refuses. said: the message."""
    if isinstance(error, UnavailableError):
        return StoreUnavailableError(f"{said}, and run the same command again")
    return (StoreRefusesError if isinstance(error, DeniedError | NoBucketError) else OutputError)(said)
