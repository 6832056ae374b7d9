"""The commands about inputs, tables and this machine: their flags, and who does the work, loaded when called."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from batchocr.cli import options
from batchocr.cli.console import configure_logging, print_out, quieten_libraries
from batchocr.cli.signals import clear_up_on_signals
from batchocr.config import INPUT, MODEL, RUN, Option, make_config
from batchocr.errors import ExitCode, UsageError

logger = logging.getLogger(__name__)


@options.takes_options(
    *("pages", "only", "dpi", "figures", "text_layer", "password", "null", "follow_symlinks", "shard"),
    *(
        "sample_documents",
        "model",
        "revision",
        "layout",
        "device",
        "dtype",
        "vit_dtype",
        "backend",
        "memory_fraction",
        "max_new_tokens",
    ),
    *("penalties", "vit_batch_size", "vit_max_patches", "llm_batch_size", "prefill_max_tokens"),
    *("embedding_queue_tokens", "layout_batch_size", "pages_in_flight", "workers", "worker_memory", "page_timeout"),
    page_timeout=Option(RUN, "Time limit for hashing and opening a document, and for each page.", "SECONDS"),
)
@clear_up_on_signals()
def inspect(
    inputs: options.Inputs,
    flags: options.Flags,
    read: Annotated[
        int | None,
        options.flag(
            "--read",
            metavar="N",
            least=2,
            help="Read N pages, drawn at random from all of the input, and say how long all of them would take.",
        ),
    ] = None,
    like: Annotated[
        Path | None,
        options.flag(
            "--like", metavar="REPORT", help="Calculate at the rate of an earlier run, from its OUT.report.json."
        ),
    ] = None,
    recipe: options.Recipe = None,
    as_json: options.AsJson = False,
) -> None:
    """Look at the INPUTs before a long run: formats and what will be skipped, pages, documents that are encrypted,
    damaged or identical, page sizes, text layers; and with --read or --like, how long reading would take. Only --read
    loads the model, and the options of the model are for it. Of long documents, a sample of pages is looked at."""
    configure_logging("json" if as_json else "text", logging.INFO)
    options.refuse_both("--read", read is not None, "--like", like is not None)
    quieten_libraries(downloads=not sys.stderr.isatty())
    from batchocr.cli.inspect import inspect_inputs

    inspect_inputs(inputs, make_config(flags, recipe), read=read, like=like, as_json=as_json)


@options.takes_options(
    *("model", "revision", "pages", "only", "limit", "password", "null", "follow_symlinks", "shard"),
    *("sample_documents", "page_timeout", "max_page_error_rate", "max_degraded_rate", "max_doubtful_rate"),
    model=Option(MODEL, "The model that should have written the table.", "NAME_OR_DIR", default="not compared"),
    pages=Option(INPUT, "The pages that should have a row, as in 1-10,15,r3-r1.", "SPEC", default="as in the table"),
    only=Option(INPUT, "Check only the pages that this file names.", "FILE", default="as in the table"),
    limit=Option(INPUT, "Check only the first N rows of the input.", "N", default="as in the table"),
    shard=Option(INPUT, "Check only the I-th of N shares.", "I/N", default="as in the table", also=str),
    sample_documents=Option(INPUT, "Check only N documents, those that `run` draws.", "N", default="as in the table"),
    page_timeout=Option(RUN, "Time limit for hashing and opening a document.", "SECONDS"),
)
@clear_up_on_signals()
def verify(
    out: Annotated[str, options.argument("OUT", "A table, or a glob for the tables of all shards.")],
    inputs: options.Inputs,
    flags: options.Flags,
    recipe: options.Recipe = None,
    as_json: options.AsJson = False,
    quiet: options.QuietCheck = False,
    strict: Annotated[
        bool, options.flag("--strict", panel=RUN, help="Exit with 3 too if documents are gone whose rows are kept.")
    ] = False,
) -> None:
    """Compare a table, or the tables of several shards, with the INPUTs. Prints a line for everything that is missing,
    stale, duplicate, surplus, gone or failed, that cannot be checked, or was made with other settings, and exits
    with 3 if there is more than --max-page-error-rate and --max-degraded-rate allow. Documents that are gone, of which
    the table keeps the rows, count with --strict."""
    configure_logging("json" if as_json else "text", logging.WARNING if quiet else logging.INFO)
    from batchocr.cli.tables import asked_for, tables_among
    from batchocr.cli.verify import Verdict, Verifier
    from batchocr.tables.opened import find_tables
    from batchocr.tables.page_list import documents_asked_for

    options.refuse_both("--quiet", quiet, "--json", as_json)
    tables, inputs = tables_among(find_tables(out), inputs)
    config = make_config(asked_for(tables) | dict(flags), recipe)
    documents = documents_asked_for(inputs, config).documents
    fingerprint = None
    if "model" in flags:
        from batchocr.planning.checkpoint_files import find_checkpoint
        from batchocr.planning.checkpoint_files import fingerprint as fingerprint_of

        fingerprint = fingerprint_of(find_checkpoint(config.model, config.revision))
    verifier = Verifier(tables, config)
    verdict = Verdict(verifier, config, is_strict=strict)
    verdict.print(verifier.findings(documents, fingerprint), "json" if as_json else "quiet" if quiet else "text")
    raise typer.Exit(verdict.exit_code)


@clear_up_on_signals()
def compare(
    first: Annotated[str, options.argument("A", "A table, a folder or a glob.")],
    second: Annotated[str, options.argument("B", "What it is compared with.")],
    partial: options.Partial = False,
    common: Annotated[
        bool, options.flag("--common", help="Compare only rows that both tables have; the others are counted.")
    ] = False,
    num_top: Annotated[
        int,
        options.flag(
            "--top", metavar="N", least=0, default="20", help="How many of the most changed pages are listed."
        ),
    ] = 20,
    max_change: Annotated[
        float | None,
        options.flag(
            "--max-change",
            metavar="F",
            least=0,
            most=1,
            default="none",
            help="Exit with 3 if a larger share of all characters, from 0 to 1, changed.",
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Compare two tables page by page: their text, blocks and status; the most changed pages first. Rows are matched by
    source and page_index, in whatever order they are. Other settings are allowed, and shown: for another model, another
    dtype, or the same shard run twice."""
    configure_logging("json" if as_json else "text", logging.INFO)
    from batchocr.cli.compare import compare_tables

    exit_code = compare_tables(first, second, num_top, max_change, partial=partial, common=common, as_json=as_json)
    raise typer.Exit(exit_code)


@options.takes_options(
    *("overwrite", "null", "follow_symlinks"),
    overwrite=Option(RUN, "Replace a table that is there already.", default="off"),
)
@clear_up_on_signals()
def merge(
    parts: Annotated[list[str], options.argument("PART...", "Tables, folders of tables, or globs.")],
    out: options.MergedOut,
    flags: options.Flags,
    prefer: Annotated[
        list[str] | None,
        options.flag(
            "--prefer",
            metavar="TABLE",
            help="A table whose rows take the place of the PARTs' rows of the same pages, unless they failed; it may "
            "have been made with other settings.",
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        options.flag(
            "--input",
            metavar="INPUT",
            default="the order of a folder",
            help="An INPUT of the run: rows take the order in which its documents stand there. May be given more than "
            "once, in the order of the run.",
        ),
    ] = None,
) -> None:
    """Make one table of the tables of several shards, row for row what a single run would have written; a run into it
    continues it. Refuses parts that were made with other settings, or that have the same page twice."""
    configure_logging("text", logging.INFO)
    from batchocr.cli.merge import merge_tables

    merge_tables(parts, out, inputs or [], make_config(flags), prefer or [])


@options.takes_options(
    *("model", "revision", "layout", "device", "dtype", "vit_dtype", "backend", "workers", "password"),
    model=Option(MODEL, "Also load this model, downloading it if need be.", "NAME_OR_DIR", default="none"),
    layout=Option(MODEL, "With --model, also load this layout detector.", "NAME_OR_DIR", default="none"),
)
def doctor(
    flags: options.Flags,
    as_json: options.AsJson = False,
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
    with 5 if the model cannot be loaded, else with 2."""
    configure_logging("json" if as_json else "text", logging.DEBUG if verbose else logging.WARNING)
    quieten_libraries(downloads="model" not in flags or not sys.stderr.isatty())
    config = make_config(flags)
    if compare is not None:
        if "model" not in flags:
            raise UsageError("--compare needs --model: the one to read with")
        from batchocr.cli.settings_change import settings_change

        print_out(settings_change(config, compare, inputs or []))
        return
    from batchocr.cli.doctor import examine

    diagnosis = examine(config, try_model="model" in flags)
    print_out(diagnosis.to_json() if as_json else diagnosis.to_text())
    if diagnosis.exit_code != ExitCode.DONE:
        where = "findings that are not ok" if as_json else "lines marked NO"
        logger.error("not all works here that a run would use: see the %s", where)
    raise typer.Exit(diagnosis.exit_code)
