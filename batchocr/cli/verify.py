"""`batchocr verify`: what was found wrong with tables, line by line, and the exit code."""

from __future__ import annotations

import json
import logging
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from batchocr.cli import options
from batchocr.cli.console import configure_logging, print_out, printable
from batchocr.cli.signals import clear_up_on_signals
from batchocr.config import INPUT, MODEL, RUN, Config, Option, make_config
from batchocr.data import counted
from batchocr.errors import ExitCode

if TYPE_CHECKING:
    from batchocr.cli.verifier import Problem, Verifier


@options.takes_options(
    *("model", "revision", "pages", "only", "limit", "password", "null", "follow_symlinks", "shard", "page_timeout"),
    *("sample_documents", "max_page_error_rate", "max_degraded_rate", "max_doubtful_rate", *options.OF_TABLES),
    model=Option(MODEL, "The model that should have written the table.", "NAME_OR_DIR", default="not compared"),
    pages=Option(INPUT, "The pages that should have a row: as in 1-10,15,r3-r1.", "SPEC", default="as in the table"),
    only=Option(INPUT, "Check only the pages that this file names.", "FILE", default="as in the table"),
    limit=Option(INPUT, "Check only the first N rows of the input.", "N", default="as in the table"),
    shard=Option(INPUT, "Check only the I-th of N shares.", "I/N", default="all", also=str),
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
        bool, options.flag("--strict", panel=RUN, help="Count documents that are gone: exit with 3 if any is.")
    ] = False,
    by_time: Annotated[
        bool,
        options.flag("--by-time", panel=RUN, help="Do not open documents of the size and time that their rows say."),
    ] = False,
) -> None:
    """Compare a table, or the tables of all shards, with the INPUTs. Prints a line for everything that is missing,
    stale, duplicate, surplus, gone or failed, that cannot be checked, or was made with other settings, and exits
    with 3 if there is more than --max-page-error-rate and --max-degraded-rate allow. Documents of a shard that has no
    table are missing, unless --shard asks for another. Documents that are gone, of which the table keeps the rows,
    count with --strict.

    Examples:
    batchocr verify results.parquet ./scans
    batchocr verify 'part-*.parquet' ./scans --max-page-error-rate 0
    batchocr verify results.parquet ./scans --by-time
    """
    configure_logging("json" if as_json else "text", logging.WARNING if quiet else logging.INFO)
    from batchocr.cli.verifier import Verifier, asked_for, tables_among
    from batchocr.tables.opened import find_tables, read_metadata
    from batchocr.tables.page_list import documents_asked_for
    from batchocr.tables.selection import as_flags, missing_shards, selection_of, selection_together

    options.refuse_both("--quiet", quiet, "--json", as_json)
    tables, inputs = tables_among(find_tables(out), inputs)
    several = [read_metadata(table) for table in tables]
    selection = selection_together([metadata.selection for metadata in several])
    shard = selection_of(make_config(dict(flags), recipe)).get("shard")
    # With rows that failed, an archive that has not changed is known all the same.
    told = asked_for(selection or {}, shard) | several[0].naming
    config = make_config({"retry_failed": False} | told | dict(flags), recipe)
    knows_all = len(tables) == 1 and selection is not None and selection.get("shard") == shard
    documents = documents_asked_for(inputs, config, tables[0] if by_time and knows_all else None).documents
    verifier = Verifier(tables, config, by_time=by_time)
    counts: Counter[Problem] = Counter()
    findings = []  # printed as one object, once nothing can end it midway
    for finding in verifier.findings(documents, _fingerprints(config) if "model" in flags else ()):
        counts[finding.problem] += 1
        if as_json:
            findings.append(asdict(finding))
        elif not quiet:
            print_out(printable(str(finding)))
    allowed = {"failed"} if strict else {"failed", "gone"}
    remarks = verifier.exceeded()
    exit_code = ExitCode.TOO_MANY_FAILURES if counts.keys() - allowed or remarks else ExitCode.DONE
    if counts["missing"] and shard is None and (missing := missing_shards(selection)):
        remarks = [f"no table is of shard {missing}", *remarks]
    if as_json:
        print_out(json.dumps({"findings": findings, **_as_json(verifier, counts), "exit_code": exit_code}, indent=2))
    elif not quiet:
        checked = f" (checked: only {as_flags(verifier.checked)})" if verifier.checked else ""
        rows = f"{counted(verifier.num_rows, 'row')} expected{checked}"
        print_out(printable(f"{rows}: {_summary(verifier, counts, remarks)}"))
    raise typer.Exit(exit_code)


def _fingerprints(config: Config) -> tuple[str, ...]:
    """The fingerprints of the model that should have written the table. Raises ModelError."""
    from batchocr.planning.checkpoint_files import find_checkpoint, fingerprints

    return fingerprints(find_checkpoint(config.model, config.revision))


def _as_json(verifier: Verifier, counts: Counter[Problem]) -> dict[str, object]:
    return {
        "checked": verifier.checked,
        "rows_expected": verifier.num_rows,
        "counts": counts,
        "degraded": verifier.by_status["degraded"],
        "ok_without_text": verifier.num_empty,
        "traits": verifier.traits,
        "documents_not_counted": verifier.num_uncounted,
        "documents_not_opened": verifier.num_by_time,
    }


def _summary(verifier: Verifier, found: Counter[Problem], more: list[str]) -> str:
    """What was found, and what cannot be checked or was not opened, in one line."""
    from batchocr.tables.page_quality import in_words

    kinds = {"gone": "documents gone" if found["gone"] > 1 else "document gone"}
    told = ", ".join(f"{count:,} {kinds.get(problem, problem)}" for problem, count in found.items() if count)
    degraded = verifier.by_status["degraded"]
    remarks = f"; {degraded:,} degraded" if degraded else ""
    remarks += "".join(f"; {each}" for each in more)
    if traits := verifier.traits:
        remarks += f"; {in_words(traits)}"
    if empty := verifier.num_empty:
        have = ", ".join(f"{number:,} with {what}" for what, number in sorted(verifier.in_empty.items()))
        remarks += f"; {counted(empty, 'ok row')} without text in the body of the page: {have}"
    if uncounted := verifier.num_uncounted:
        remarks += f"; pages not counted in {counted(uncounted, 'document')} that cannot be opened"
    if unopened := verifier.num_by_time:
        remarks += f"; {counted(unopened, 'document')} taken by size and time, not opened"
    return (told or "nothing wrong") + remarks
