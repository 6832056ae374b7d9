"""What `-h` and `--help` print: how a command is written, examples, its options, and its exit codes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from typer.core import TyperCommand, TyperGroup

MAX_SHORT: Final = 15
"""How many options `-h` names."""
_FEW: Final = 20
"""The number of options up to which a command's `-h` says the same as `--help`."""

USED_MOST: Final = """
out read like address strict json pages model device overwrite stop-after quiet limit recipe figures text-layer dpi
cache shard password actors pages-per-task only max-page-error-rate max-degraded-rate layout null
"""
"""The options that people use, first what they use most."""

_NAMES_WIDTH: Final = 28
"""The most letters of an option's names and value that leave room for its text beside them; with more, the text begins
below."""
_IN_FULL: Final = "batchocr.help_in_full"


class Command(TyperCommand):
    """A command whose `-h` fits on a screen, and whose `--help` says everything.

    Its docstring is what it does, then examples, the simplest first, and, if it has them, exit codes: each begins after
    an empty line, with its title.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[_IN_FULL] = "--help" in args
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        said, examples, *others = (self.help or "").split("\n\n")
        parameters: list[Any] = self.get_params(ctx)
        options = [each for each in parameters if each.param_type_name == "option"]
        in_full = ctx.meta[_IN_FULL] or len(options) <= _FEW
        self.format_usage(ctx, formatter)
        formatter.write("\n")
        with formatter.indentation():
            formatter.write_text(said)
        _write_section(examples.splitlines()[: None if in_full else 4], formatter)
        if arguments := [(each.metavar, each.help) for each in parameters if each not in options]:
            with formatter.section("Arguments"):
                formatter.write_dl(arguments, _NAMES_WIDTH)
        if in_full:
            _write_all(options, formatter)
            for each in others:
                _write_section(each.splitlines(), formatter)
            return
        by_name = {name: each for each in options for name in each.opts}
        used = [by_name[f"--{name}"] for name in USED_MOST.split() if f"--{name}" in by_name][:MAX_SHORT]
        with formatter.section("Options"):  # each with its help up to the first colon, semicolon or full stop
            formatter.write_dl([(_names(each.opts, each), re.split("[:;.]( |$)", each.help)[0]) for each in used])
        formatter.write(f"\nAll {len(options)} options: {ctx.command_path} --help\n")


class Group(TyperGroup):
    """The commands, each with its simplest example."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        simplest = ((each.help or "").partition("Examples:\n")[2] for each in self.commands.values())
        _write_section(["Examples:", *(text.partition("\n")[0] for text in simplest)], formatter)
        self.format_commands(ctx, formatter)
        _write_all(self.get_params(ctx), formatter)


def _write_section(lines: list[str], formatter: Any) -> None:
    """Write a section: its title, then its lines as they are."""
    formatter.write("\n" + "\n  ".join(lines) + "\n")


def _write_all(options: Iterable[Any], formatter: Any) -> None:
    """Write every option in its panel, in the order of the panels' first options."""
    panels: dict[str, list[tuple[str, str]]] = {}
    for each in options:
        names = " / ".join(_names(names, each) for names in (each.opts, each.secondary_opts) if names)
        required = " Required." if each.required else ""
        panels.setdefault(each.rich_help_panel or "Help", []).append((names, each.help + required))
    for panel, rows in panels.items():
        with formatter.section(panel):
            formatter.write_dl(rows, _NAMES_WIDTH)


def _names(names: Iterable[str], option: Any) -> str:
    """The names of an option and what stands for its value, as `-o, --out PATH`."""
    value = "" if option.is_flag else f" {option.metavar}"
    return ", ".join(sorted(names, key=len)) + value
