"""What `-h` and `--help` print: how a command is written, examples, its options, and its exit codes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from typer.core import TyperCommand, TyperGroup

MAX_SHORT: Final = 15
"""How many options `-h` names; where there are no more, it says the same as `--help`."""

USED_MOST: Final = """
out read like address strict json pages model device overwrite stop-after quiet limit recipe figures text-layer dpi
cache shard password actors pages-per-task only max-page-error-rate max-degraded-rate layout null
"""
"""The options that people use, first what they use most."""

EXAMPLES: Final = """
batchocr run ./scans -o results.parquet
batchocr run 'reports/**/*.pdf' --pages 1-3 -o first-pages.jsonl
batchocr run ./archive --shard 2/8 --stop-after 3h55m -o part-2.parquet
find . -name '*.pdf' -print0 | batchocr run -0 - -o results.parquet
batchocr inspect ./scans
batchocr inspect ./scans --read 50
batchocr inspect ./scans --like results.parquet.report.json
batchocr verify results.parquet ./scans
batchocr verify 'part-*.parquet' ./scans --max-page-error-rate 0
batchocr verify results.parquet ./scans --json
batchocr view results.parquet
batchocr view results.parquet --input ./scans --pages 1-3 -o first.html
batchocr view results.parquet --audit audit.parquet
batchocr audit results.parquet -o audit.parquet
batchocr audit results.parquet --worst 50 -o worst.parquet
batchocr audit results.parquet --max-omitted 0.01 -o audit.parquet
batchocr export results.parquet --to texts
batchocr export results.parquet --to texts --format html,pdf
batchocr export results.parquet --to texts --input ./scans
batchocr compare before.parquet after.parquet
batchocr compare before.parquet after.parquet --max-change 0.01
batchocr ray /shared/scans -o /shared/table
batchocr ray s3://bucket/scans/ --address auto -o s3://bucket/table/
batchocr merge 'part-*.parquet' -o results.parquet
batchocr merge results.parquet --prefer again.parquet -o better.parquet
batchocr doctor
batchocr doctor --model ./model
batchocr doctor --model ./model --compare vit-dtype=fp8 --input page.pdf
"""
"""Of every command, the simplest first."""

_NAMES_WIDTH: Final = 28
"""Letters of an option's names and value that leave its text room beside them; with more, the text begins below."""
_IN_FULL: Final = "batchocr.help_in_full"

EXIT_CODES: Final = """
0    every page read, in full or in part
1    internal error: a bug, or a device or workers that fail
2    wrong usage
3    more pages failed, or degraded, than allowed, or worse than before
4    nothing to read
5    the model cannot be loaded
6    the output cannot be written, or belongs to other settings
75   stopped before the end: run the same command again to continue
130  interrupted: likewise
"""
"""Of `run` and `ray`; the other commands say in a sentence when they exit with what."""


class Command(TyperCommand):
    """A command whose `-h` fits on a screen, and whose `--help` says everything."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[_IN_FULL] = "--help" in args
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        parameters: list[Any] = self.get_params(ctx)
        options = [each for each in parameters if each.param_type_name == "option"]
        in_full = ctx.meta[_IN_FULL] or len(options) <= MAX_SHORT
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        examples = _examples(self.name)
        _write_lines("Examples", examples if in_full else examples[:3], formatter)
        if arguments := [each for each in parameters if each not in options]:
            with formatter.section("Arguments"):
                formatter.write_dl([(each.metavar, each.help) for each in arguments], _NAMES_WIDTH)
        if in_full:
            _write_all(options, formatter)
            _write_lines("Exit codes", (self.epilog or "").strip().splitlines(), formatter)
            return
        by_name = {name: each for each in options for name in each.opts}
        used = [by_name[f"--{name}"] for name in USED_MOST.split() if f"--{name}" in by_name][:MAX_SHORT]
        with formatter.section("Options"):
            formatter.write_dl([(_names(each.opts, each), _in_brief(each.help)) for each in used])
        formatter.write(f"\nAll {len(options)} options: {ctx.command_path} --help\n")


class Group(TyperGroup):
    """The commands, each with its simplest example."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        _write_lines("Examples", [_examples(name)[0] for name in self.commands], formatter)
        self.format_commands(ctx, formatter)
        _write_all(self.get_params(ctx), formatter)


def _examples(name: str | None) -> list[str]:
    return [line for line in EXAMPLES.splitlines() if f"batchocr {name} " in f"{line} "]


def _write_lines(title: str, lines: list[str], formatter: Any) -> None:
    if lines:
        with formatter.section(title):
            formatter.write("".join(f"  {line}\n" for line in lines))


def _write_all(options: Iterable[Any], formatter: Any) -> None:
    """Every option in its panel, in the order of the panels' first ones."""
    panels: dict[str, list[tuple[str, str]]] = {}
    for each in options:
        names = " / ".join(_names(names, each) for names in (each.opts, each.secondary_opts) if names)
        required = " Required." if each.required else ""
        panels.setdefault(each.rich_help_panel or "Help", []).append((names, each.help + required))
    for panel, rows in panels.items():
        with formatter.section(panel):
            formatter.write_dl(rows, _NAMES_WIDTH)


def _names(names: Iterable[str], option: Any) -> str:
    """`-o, --out PATH`."""
    value = "" if option.is_flag else f" {option.metavar}"
    return ", ".join(sorted(names, key=len)) + value


def _in_brief(text: str) -> str:
    """What the help of an option says up to its first colon, semicolon or full stop."""
    return re.split(r"[:;.](?: |$)", text, maxsplit=1)[0]
