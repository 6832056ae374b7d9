"""The command: what there is to choose from, and errors as exit codes."""

from __future__ import annotations

import errno
import logging
from contextlib import nullcontext
from typing import Annotated, NoReturn, cast

import typer

from batchocr.cli.audit import audit
from batchocr.cli.compare import compare
from batchocr.cli.console import LogFormat, configure_logging, print_out
from batchocr.cli.doctor import doctor
from batchocr.cli.export import export
from batchocr.cli.help import Command, Group
from batchocr.cli.inspect import inspect
from batchocr.cli.json_stderr import json_stderr
from batchocr.cli.merge import merge
from batchocr.cli.ray import ray
from batchocr.cli.run import run
from batchocr.cli.signals import leave
from batchocr.cli.verify import verify
from batchocr.cli.view import view
from batchocr.errors import BatchOcrError, ExitCode
from batchocr.job.progress import event
from batchocr.machine import own_version

logger = logging.getLogger(__name__)

_TyperUsageError = cast(type[typer.BadParameter], typer.BadParameter.__base__)
"""Whatever Typer finds wrong with a command line. It is click's or, in later versions, that of Typer's own copy."""

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

app = typer.Typer(
    cls=Group,
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run_command(log_format: LogFormat) -> NoReturn:
    """Run the command and end the process with its exit code. log_format: what the command line asks for, known before
    it is parsed."""
    configure_logging(log_format, logging.INFO)
    with json_stderr() if log_format == "json" else nullcontext():
        exit_code = run_app(log_format)
    leave(exit_code)


def run_app(log_format: LogFormat) -> int:
    """Run the command; returns its exit code. Typer writes a usage error itself, and not as JSON."""
    try:
        ended = app(prog_name="batchocr", standalone_mode=log_format == "text")
    except SystemExit as end:
        return int(end.code or 0)
    except _TyperUsageError as error:
        return _failed("UsageError", error.format_message(), ExitCode.USAGE)
    except BatchOcrError as error:
        return _failed(type(error).__name__, str(error), error.exit_code)
    except MemoryError:
        said = "there is not enough memory for this process: raise its limit, or use a smaller model"
        return _failed("MemoryError", said, ExitCode.BUG)
    except Exception as error:  # noqa: BLE001 (boundary: the command)
        name = type(error).__name__
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            where = f" for {error.filename}" if error.filename else ""
            return _failed(name, f"{error.strerror}{where}: make room, and run this again", ExitCode.OUTPUT)
        return _failed(name, f"a bug in batchocr: {name}: {error}", ExitCode.BUG, is_bug=True)
    return ended if isinstance(ended, int) else ExitCode.DONE


def _failed(name: str, said: str, exit_code: ExitCode, *, is_bug: bool = False) -> ExitCode:
    """Log the error that is being handled; returns the exit code."""
    traceback = is_bug or logger.isEnabledFor(logging.DEBUG)
    logger.error("%s", said, exc_info=traceback, extra=event("run_failed", error=name, exit_code=exit_code))
    return exit_code


def _show_version(wanted: bool) -> None:
    if wanted:
        print_out(f"batchocr {own_version()}")
        raise typer.Exit


@app.callback()
def batchocr(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Offline batch document OCR: PDFs and images in, one table out."""


for _command, _said in (
    (run, "Read every page of an input into one table, one row per page."),
    (inspect, "Show what an input holds, and how long reading it would take."),
    (verify, "Compare finished tables with the documents that were read."),
    (view, "Show pages beside what was read of them, the worst first, in one HTML file."),
    (audit, "Have a second reader check pages of a table, and say how much of all is wrong."),
    (export, "Write the documents of a table as Markdown and other files, with their figures."),
    (compare, "Show what differs between two tables of the same pages."),
    (ray, "Read an input on all machines of a Ray cluster."),
    (merge, "Make one table of several, such as those of shards."),
    (doctor, "Show what this machine offers and, with --model, whether a model fits."),
):
    app.command(cls=Command, short_help=_said)(_command)
