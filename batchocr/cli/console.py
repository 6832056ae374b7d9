"""What the command writes to stderr: log lines, as text or as JSON, that do not collide with a progress bar."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import warnings
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Literal, TypeVar

import typer
from tqdm import tqdm

from batchocr.errors import OutputError
from batchocr.job.progress import Progress, ProgressBar, ProgressLog

logger = logging.getLogger(__name__)

LogFormat = Literal["text", "json"]

T = TypeVar("T")

_HOW_FAR = "{n_fmt} of {total_fmt}{unit} [{elapsed}<{remaining}, {rate_noinv_fmt}]"
COUNTING = f"{{l_bar}}{{bar}}| {_HOW_FAR}"
"""The format of a bar that counts. Its rate is always so many a second, where tqdm turns a slow one over."""
_LINE_INTERVAL_S = 10.0


class TextFormatter(logging.Formatter):
    """`batchocr: message`, or `batchocr: error: message` for levels above INFO."""

    def format(self, record: logging.LogRecord) -> str:
        level = f"{record.levelname.lower()}: " if record.levelno > logging.INFO else ""
        text = f"batchocr: {level}{printable(record.getMessage())}"
        return f"{text}\n{printable_lines(self.formatException(record.exc_info))}" if record.exc_info else text


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, event, message, and the record's `fields` if it has any. It is all ASCII,
    other characters being escaped: no terminal takes anything in it for a command."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", "message"),
            "message": record.getMessage(),
        }
        entry.update(getattr(record, "fields", {}))
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry)


class _TextHandler(logging.Handler):
    """Writes to the current stderr, above the progress bar if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        write_line(self.format(record))


class _JsonHandler(logging.Handler):
    """Writes to `sys.__stderr__`, which only the log uses (see `json_stderr`)."""

    def emit(self, record: logging.LogRecord) -> None:
        if sys.__stderr__ is not None:
            # As in `write_line`.
            with suppress(OSError, RuntimeError):
                sys.__stderr__.write(f"{self.format(record)}\n")


def printable(text: str) -> str:
    """The text with every character escaped that could move a terminal's cursor, colour its output or reorder its
    letters: file names and a model's words come from strangers."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "surrogatepass").decode()
        for character in text
    )


def printable_lines(text: str) -> str:
    """The text with every character escaped but its line breaks, as `printable` does."""
    return "\n".join(map(printable, text.split("\n")))


def print_out(text: str) -> None:
    """Write to standard output. Raises OutputError."""
    encoding = sys.stdout.encoding or "utf-8"
    text = text.encode(encoding, "backslashreplace").decode(encoding)  # a locale may lack some of its letters
    try:
        typer.echo(text)
    except OSError as error:
        raise OutputError(f"cannot write to standard output: {error.strerror}") from error


def configure_logging(log_format: LogFormat, level: int) -> None:
    """Log batchocr at `level`, and only the errors of the libraries it uses."""
    handler = _TextHandler() if log_format == "text" else _JsonHandler()
    handler.setFormatter(TextFormatter() if log_format == "text" else JsonFormatter())
    logging.basicConfig(handlers=[handler], level=logging.ERROR, force=True)
    logging.getLogger("batchocr").setLevel(level)


def quieten_libraries(*, downloads: bool) -> None:
    """Keep messages that are of no use to users off stderr, here and in the workers. downloads: their progress too."""
    warnings.simplefilter("ignore")
    # These libraries have their own log handlers, and read their level from here when they are loaded.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    if downloads:
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


def counting_bar(iterable: Iterable[T] | None = None, *, what: str, unit: str, total: int | None = None) -> tqdm[T]:
    """A bar on a terminal, else a line in the log every ten seconds; neither if only warnings are logged."""
    bar = partial(tqdm, iterable, what, total, unit=f" {unit}", leave=False)
    if has_terminal():
        return bar(bar_format=COUNTING, disable=not logger.isEnabledFor(logging.INFO))
    often = {"miniters": 1, "mininterval": _LINE_INTERVAL_S, "delay": _LINE_INTERVAL_S}
    return bar(file=_LogLines(), bar_format=f"{what}: {_HOW_FAR}", **often)


class _LogLines(io.TextIOBase):
    """A file of tqdm's whose lines go to the log."""

    def write(self, text: str) -> int:
        if line := text.strip():
            logger.info("%s", line)
        return len(text)


def has_terminal() -> bool:
    """Whether stderr is a terminal, and has room for a bar: that of a container may have no width."""
    return sys.stderr.isatty() and os.get_terminal_size(sys.stderr.fileno()).columns > 0


def progress_on_stderr() -> Progress:
    """How progress is shown on stderr: as a bar on a terminal, else in the log. Logs as JSON go through a pipe, which
    is no terminal."""
    return ProgressBar() if has_terminal() else ProgressLog()


def write_line(text: str) -> None:
    """Write above the progress bar on stderr. If the reader of stderr is gone, the line is dropped without an error."""
    # RuntimeError: a signal handler logs in the middle of a write.
    with suppress(OSError, RuntimeError):
        tqdm.write(text, file=sys.stderr)
