"""The commands that show the documents of a table: their flags, and who does the work, loaded when called."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Literal

import typer

from batchocr.cli import options
from batchocr.cli.console import configure_logging
from batchocr.cli.signals import clear_up_on_signals
from batchocr.config import INPUT, RUN, Option, make_config


@options.takes_options(
    *("pages", "password", "page_timeout"),
    pages=Option(INPUT, "Show these pages of each document, as in 1-10,15,r3-r1.", "PAGES", default="some of all"),
    page_timeout=Option(RUN, "Time limit for drawing a page.", "SECONDS"),
)
@clear_up_on_signals()
def view(
    table: options.SavedTable,
    flags: options.Flags,
    roots: options.Roots = None,
    out: Annotated[
        str, options.flag("--out", "-o", metavar="PATH", default="review.html", help="The HTML file to write.")
    ] = "review.html",
    sample: Annotated[
        int | None,
        options.flag(
            "--sample",
            panel=INPUT,
            metavar="N",
            least=1,
            most=200,
            default="100",
            help="How many pages to show, 200 at most.",
        ),
    ] = None,
    sort: Annotated[
        Literal["worst", "order", "random"],
        options.flag(
            "--sort",
            panel=INPUT,
            metavar="NAME",
            default="worst",
            help="Which to take, and show first: worst, order or random.",
        ),
    ] = "worst",
    audit_path: Annotated[
        Path | None,
        options.flag(
            "--audit",
            panel=INPUT,
            metavar="PATH",
            help="Show only the pages of this audit, what weighs most first, with what it found.",
        ),
    ] = None,
    partial: options.Partial = False,
    as_json: options.AsJson = False,
) -> None:
    """Write one HTML file to look through: pages with numbered boxes, and beside them what was read, with formulas and
    tables drawn. It loads nothing and can be mailed. Marks that are given in it stay in the browser, and can be saved
    as JSON Lines. Exits with 3 if pages are without their picture, as their files are missing or have changed."""
    configure_logging("json" if as_json else "text", logging.INFO)
    from batchocr.cli.view import view_table
    from batchocr.tables.opened import open_rows

    config = make_config(flags)
    options.refuse_both("--sample", sample is not None, "--pages", config.pages is not None)
    path = options.as_local_path("--out", out)
    options.require_roots(roots or [])
    opened = open_rows(table, partial=partial)
    raise typer.Exit(
        view_table(
            *(opened, path),
            roots=roots or [],
            sort=sort,
            sample=sample,
            config=config,
            as_json=as_json,
            audit=audit_path,
        )
    )


@options.takes_options(
    *("password", "workers", "page_timeout"),
    workers=Option(RUN, "Processes that read, with one thread each.", "N", default="one for each core"),
    page_timeout=Option(RUN, "Time limit for opening a document, and for reading a page.", "SECONDS", default="600"),
)
@clear_up_on_signals()
def audit(
    table: options.SavedTable,
    out: Annotated[str, options.flag("--out", "-o", metavar="PATH", help="The Parquet file to write.")],
    flags: options.Flags,
    roots: options.Roots = None,
    sample: Annotated[
        int | None,
        options.flag("--sample", metavar="N", least=1, default="200", help="Audit N pages drawn at random."),
    ] = None,
    audit_all: Annotated[bool, options.flag("--all", help="Audit all pages.")] = False,
    worst: Annotated[
        int | None, options.flag("--worst", metavar="N", least=1, help="Audit the N pages that seem worst.")
    ] = None,
    seed: Annotated[int, options.flag("--seed", metavar="N", default="0", help="Another seed draws other pages.")] = 0,
    max_omitted: Annotated[
        float | None,
        options.flag(
            "--max-omitted",
            metavar="F",
            least=0,
            most=1,
            default="none",
            help="Exit with 3 if a larger share of the characters, from 0 to 1, is omitted.",
        ),
    ] = None,
    max_different: Annotated[
        float | None,
        options.flag(
            "--max-different",
            metavar="F",
            least=0,
            most=1,
            default="none",
            help="Exit with 3 if a larger share of the characters is invented or different.",
        ),
    ] = None,
    partial: options.Partial = False,
    as_json: options.AsJson = False,
) -> None:
    """Have a second reader of another family, PP-OCR, read pages of a TABLE on the CPU, and list what it does not
    confirm: text omitted, invented, or different. Prints how much of the whole table that is, with 95 % intervals.
    Needs the extra `audit`. Stopped, it goes on where it was. Exits with 3 if more is omitted or different than
    allowed, or if pages cannot be drawn again."""
    configure_logging("json" if as_json else "text", logging.INFO)
    from batchocr.cli.audit import Limits, audit_and_tell
    from batchocr.documents.audit.sample import choice_of
    from batchocr.tables.opened import open_rows

    path = options.as_local_path("--out", out)
    options.require_roots(roots or [])
    choice = choice_of(sample, worst, seed, whole=audit_all)
    limits = Limits(max_omitted, max_different)
    config = make_config({"page_timeout": 600, **flags})
    opened = open_rows(table, partial=partial)
    raise typer.Exit(audit_and_tell(opened, path, choice, limits, roots=roots or [], config=config, as_json=as_json))


@options.takes_options("password", "page_timeout")
@clear_up_on_signals()
def export(
    table: options.SavedTable,
    to: Annotated[str, options.flag("--to", metavar="DIR", help="The folder to write into.")],
    flags: options.Flags,
    formats: Annotated[
        str,
        options.flag(
            "--format",
            metavar="NAMES",
            default="md",
            help="md: Markdown; mineru: the files of MinerU's output folder; chunks: JSON Lines for retrieval; "
            "docling: a DoclingDocument; html: a page to read; pdf: the pages with invisible text, to be searched; "
            "hocr, alto: where each word is. Several are separated by commas.",
        ),
    ] = "md",
    roots: options.Roots = None,
    page_breaks: Annotated[bool, options.flag("--page-breaks", help="Mark where pages end.")] = False,
    max_chars: Annotated[
        int, options.flag("--max-chars", metavar="N", least=1, default="2000", help="The longest text of a chunk.")
    ] = 2000,
    language: Annotated[
        str,
        options.flag("--language", metavar="TAG", help="The language of the text for pdf, hocr and alto, as in en-GB."),
    ] = "",
    force_text: Annotated[
        bool, options.flag("--force-text", help="For pdf: also where a page has visible text of its own.")
    ] = False,
    partial: options.Partial = False,
    as_json: options.AsJson = False,
    quiet: options.QuietCheck = False,
) -> None:
    """Write a file, or a folder, for each document of a TABLE, its pages put together: under DIR, by the path of its
    source. Figures are cut out of the documents. Run it again to write only what is new; a file in DIR that an export
    did not write is never replaced. Exits with 3 if a figure or a document is missing, with 6 if the table cannot be
    read or nothing can be written."""
    configure_logging("json" if as_json else "text", logging.WARNING if quiet else logging.INFO)
    from batchocr.cli.export import export_table, formats_named
    from batchocr.documents.export.formats import FormatOptions
    from batchocr.tables.opened import open_rows

    folder = options.as_local_path("--to", to)
    options.require_roots(roots or [])
    exit_code = export_table(
        open_rows(table, partial=partial),
        folder,
        formats_named(formats),
        roots=roots,
        options=FormatOptions(page_breaks, max_chars, options.as_language(language), force_text),
        config=make_config(flags),
        as_json=as_json,
    )
    raise typer.Exit(exit_code)
