"""What the command says on stderr: log lines, as text or as JSON, that keep clear of a progress bar."""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from contextlib import suppress
from datetime import UTC, datetime
from typing import Literal

from tqdm import tqdm

LogFormat = Literal["text", "json"]


class TextFormatter(logging.Formatter):
    """`batchocr: message`, or `batchocr: error: message` for what is worse than information."""

    def format(self, record: logging.LogRecord) -> str:
        level = f"{record.levelname.lower()}: " if record.levelno > logging.INFO else ""
        text = f"batchocr: {level}{printable(record.getMessage())}"
        if not record.exc_info:
            return text
        return "\n".join([text, *map(printable, self.formatException(record.exc_info).split("\n"))])


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, event, message, and the record's `fields` where it has some. All of it is
    ASCII, the rest escaped: no terminal takes anything in it for a command."""

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


class _StderrHandler(logging.Handler):
    """Writes to whatever stderr is, above the progress bar where there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        write_line(self.format(record))


def printable(text: str) -> str:
    """The text with whatever could move a terminal's cursor, colour it or reorder its letters spelt out: file names and
    a model's words come from strangers."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "surrogatepass").decode()
        for character in text
    )


def configure_logging(log_format: LogFormat, level: int) -> None:
    """Log batchocr at `level`, and only the errors of the libraries beneath it."""
    handler = _StderrHandler()
    handler.setFormatter(TextFormatter() if log_format == "text" else JsonFormatter())
    logging.basicConfig(handlers=[handler], level=logging.ERROR, force=True)
    logging.getLogger("batchocr").setLevel(level)


def quieten_libraries(*, downloads: bool) -> None:
    """Keep what is of no use to users off stderr, here and in the workers. downloads: their progress too."""
    warnings.simplefilter("ignore")
    # These libraries have log handlers of their own, and read their level here when they are loaded.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    if downloads:
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


def write_line(text: str) -> None:
    """Write to stderr, above the progress bar. Nobody is left to be told when its reader has gone: that is no error."""
    # RuntimeError: a signal's handler wants to log in the midst of a write.
    with suppress(OSError, RuntimeError):
        tqdm.write(text, file=sys.stderr)
