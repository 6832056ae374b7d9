"""Every error batchocr raises on purpose.

BatchOcrError              exit code
├── UsageError             2   options or arguments that cannot work
├── NoInputError           4   no candidate file in the input
├── ModelError             5   the model cannot be loaded
├── OutputError            6   the output cannot be written
│   └── OutputMismatchError    it belongs to other settings, or is not ours
├── EngineError            1   the engine, or its device, failed or hangs
└── PageError              –   becomes a row, never an exit code; each class owns its `error_kind`
    └── NotFoundError, UnreadableError, UnsupportedError, EncryptedError, DamagedError, TooLargeError,
        PageOutOfMemoryError, RefusedError

A message says what, where, and what to do.
"""

from __future__ import annotations

from typing import ClassVar

from batchocr.data import ErrorKind


class BatchOcrError(Exception):
    """The base class of them all. exit_code: what the command ends with."""

    exit_code: ClassVar[int] = 1


class UsageError(BatchOcrError):
    exit_code = 2


class NoInputError(BatchOcrError):
    exit_code = 4


class ModelError(BatchOcrError):
    exit_code = 5


class OutputError(BatchOcrError):
    exit_code = 6


class OutputMismatchError(OutputError):
    """What exists at the output's path belongs to other settings or documents, or is not ours."""


class EngineError(BatchOcrError):
    """The engine broke; pages finished before that are in the journal."""


class PageError(BatchOcrError):
    """One page or one document cannot be read. error_kind: what its row says."""

    error_kind: ClassVar[ErrorKind] = "internal"


class NotFoundError(PageError):
    error_kind = "not_found"


class UnreadableError(PageError):
    error_kind = "unreadable"


class UnsupportedError(PageError):
    error_kind = "unsupported"


class EncryptedError(PageError):
    error_kind = "encrypted"


class DamagedError(PageError):
    error_kind = "damaged"


class TooLargeError(PageError):
    error_kind = "too_large"


class PageOutOfMemoryError(PageError):
    error_kind = "out_of_memory"


class RefusedError(PageError):
    """The engine could not run the question that all others of the page depend on."""

    error_kind = "engine"
