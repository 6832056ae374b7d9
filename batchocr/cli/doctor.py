"""`batchocr doctor`: what this machine offers for a run, and the exit code of a run that fails for lack of it."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer

from batchocr.cli import options
from batchocr.cli.console import configure_logging, print_out, quieten_libraries
from batchocr.config import MODEL, Option, make_config
from batchocr.errors import ExitCode, UsageError

logger = logging.getLogger(__name__)


@options.takes_options(
    *("model", "revision", "layout", "device", "dtype", "vit_dtype", "backend", "workers", "password"),
    model=Option(MODEL, "Also load this model, downloading it if need be.", "NAME_OR_DIR", default="none"),
    layout=Option(MODEL, "With --model, also load this layout detector.", "NAME_OR_DIR", default="none"),
)
def doctor(
    flags: options.Flags,
    as_json: options.AsJson = False,
    quiet: options.QuietCheck = False,
    verbose: options.Verbose = False,
    compare: Annotated[
        str | None,
        options.flag(
            "--compare",
            metavar="NAME=VALUE",
            help="Instead, read --input with --model as it is and with another setting, as in vit-dtype=fp8 or "
            "dtype=bfloat16, and say how much of the text differs.",
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None, options.flag("--input", metavar="INPUT", help="What --compare reads; a few pages.")
    ] = None,
) -> None:
    """Show what this machine and each of its devices offer, which kernels a run would use and how exact they are; with
    --model, also whether that model loads and fits here, and what a run would plan. Exits with 0 if all of it works,
    with 5 if the model cannot be loaded, else with 2.

    Examples:
    batchocr doctor
    batchocr doctor --model ./model
    batchocr doctor --model ./model --compare vit-dtype=fp8 --input page.pdf
    """
    configure_logging("json" if as_json else "text", logging.DEBUG if verbose else logging.WARNING)
    quieten_libraries(downloads=quiet or "model" not in flags or not sys.stderr.isatty())
    config = make_config(flags)
    if compare is not None:
        if "model" not in flags:
            raise UsageError("--compare needs --model: the one to read with")
        from batchocr.cli.settings_change import settings_change

        said = settings_change(config, compare, inputs or [])
        if not quiet:
            print_out(said)
        return
    from batchocr.cli.diagnosis import examine

    diagnosis = examine(config, try_model="model" in flags)
    if as_json or not quiet:
        print_out(diagnosis.to_json() if as_json else diagnosis.to_text())
    if diagnosis.exit_code != ExitCode.DONE:
        where = "findings that are not ok" if as_json else "lines marked NO"
        logger.error("not all works here that a run would use: see the %s", where)
    raise typer.Exit(diagnosis.exit_code)
