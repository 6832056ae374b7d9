"""`batchocr compare`: what differs between two tables of the same pages."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from batchocr.cli import options
from batchocr.cli.console import configure_logging, counting_bar, print_out, printable
from batchocr.cli.signals import clear_up_on_signals
from batchocr.data import counted
from batchocr.errors import ExitCode

if TYPE_CHECKING:
    from batchocr.tables.comparison import Comparison
    from batchocr.tables.page_change import PageChange

logger = logging.getLogger(__name__)

_Settings = dict[str, tuple[str | None, str | None]]


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
    max_change: Annotated[float | None, options.most_flag("--max-change", "all characters changed")] = None,
    as_json: options.AsJson = False,
    quiet: options.QuietCheck = False,
) -> None:
    """Compare two tables page by page: their text, blocks and status; the most changed pages first. Rows are matched by
    source and page_index, in whatever order they are. Other settings are allowed, and shown: for another model, another
    dtype, or the same shard run twice.

    Examples:
    batchocr compare before.parquet after.parquet
    batchocr compare before.parquet after.parquet --max-change 0.01
    """
    configure_logging("json" if as_json else "text", logging.WARNING if quiet else logging.INFO)
    from batchocr.tables import comparison
    from batchocr.tables.opened import open_rows
    from batchocr.tables.schema import different_settings
    from batchocr.tables.selection import selection_together

    one, other = open_rows(first, partial=partial), open_rows(second, partial=partial)
    settings = different_settings(one.metadata, other.metadata)
    selections = [selection_together([part.metadata.selection for part in table.parts]) or {} for table in (one, other)]
    here, there = (selection.get("shard") for selection in selections)
    if here != there:
        settings["shard"] = here, there
    rows = comparison.matched(one.rows(), other.rows())
    pairs = counting_bar(rows, what="comparing", unit="rows")
    found = comparison.compare(pairs, num_top=num_top, common=common)
    unmatched = common and not found.rows and found.only_first + found.only_second > 0
    too_much = max_change is not None and (unmatched or found.change > max_change)
    exit_code = ExitCode.TOO_MANY_FAILURES if too_much else ExitCode.DONE
    if as_json or not quiet:
        print_out(_as_json(found, settings, exit_code) if as_json else "\n".join(_as_text(found, settings)))
    if not found.rows + found.only_first + found.only_second:
        logger.warning("neither table has a row: there was nothing to compare")
    if unmatched:
        logger.warning("no row is in both tables, by its source and page_index: nothing was compared")
    elif too_much:
        changed = f"{found.change:.2%}"
        logger.warning("%s of the characters changed, more than --max-change %g allows", changed, max_change)
    raise typer.Exit(exit_code)


def _as_text(found: Comparison, settings: _Settings) -> list[str]:
    lines = [f"setting   {name}: {one or 'not set'} → {other or 'not set'}" for name, (one, other) in settings.items()]
    if found.only_first or found.only_second:
        lines += [f"only in   the first {counted(found.only_first, 'row')}, the second {found.only_second:,}"]
    lines += [f"rows      {found.rows:,} in both, {found.differing:,} different"]
    lines += [f"text      {found.change:.2%} of {counted(found.characters, 'character')} changed"]
    blocks = found.blocks
    lines += [f"blocks    {blocks.added:,} added, {blocks.lost:,} lost, {blocks.changed:,} changed"]
    changes = found.status_changes.most_common()
    lines += [f"status    {count:,} {before} → {after}" for (before, after), count in changes]
    classes = {share: f"≤ {share:.1%}".replace(".0%", "%") if share else "unchanged" for share in found.spread}
    spread = [f"{classes[share]}: {number:,}" for share, number in sorted(found.spread.items()) if number]
    lines += [f"spread    {', '.join(spread)}"] if spread else []
    if top := found.most_changed:
        lines += ["", "changed  blocks +added -lost ~changed  page"]
        lines += [_line(page) for page in top]
        if found.differing > len(top):
            lines += [f"and {found.differing - len(top):,} more, which --top shows"]
    return [printable(line) for line in lines]


def _line(page: PageChange) -> str:
    where = page.source if page.page_index is None else f"{page.source} page {page.page_index + 1}"
    before, after = (status or "no row" for status in page.statuses)
    blocks = f"+{page.blocks.added} -{page.blocks.lost} ~{page.blocks.changed}"
    return f"{page.share:7.1%}  {blocks:29}  {where}" + (f" ({before} → {after})" if before != after else "")


def _as_json(found: Comparison, settings: _Settings, exit_code: ExitCode) -> str:
    return json.dumps(
        {
            "settings": {name: list(values) for name, values in settings.items()},
            "rows": found.rows,
            "only_first": found.only_first,
            "only_second": found.only_second,
            "differing": found.differing,
            "change": found.change,
            "characters": found.characters,
            "characters_changed": found.characters_changed,
            "blocks": asdict(found.blocks),
            "status_changes": [[*change, count] for change, count in found.status_changes.most_common()],
            "spread": [{"up_to": share, "rows": number} for share, number in sorted(found.spread.items())],
            "most_changed": [{**asdict(page), "change": page.share} for page in found.most_changed],
            "exit_code": exit_code,
        },
        indent=2,
    )
