"""The files made from dataclasses: `python -m tests.support.derived` writes them, and a test compares them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import typer.core
import typer.main

from batchocr.cli.main import app
from batchocr.cli.options import Declared, declared_options, shown_default
from batchocr.config import RECIPE
from tests.support.schemas import as_text, events_schema, report_schema

_ROOT = Path(__file__).parent.parent.parent

_OPTIONS = '''\
"""The options of the Python interface, in every form it takes them. Made from Config by `make options`."""

from __future__ import annotations

import os
from typing import Literal, TypedDict


class CallOptions(TypedDict, total=False):
    """What each call of an Ocr may choose anew.

    page_timeout and stop_after: seconds; stop_after also as `3h55m`. shard: (index from 1, count), or `2/8`.
    """
'''

_FIXED = '''

class Options(CallOptions, total=False):
    """The fields of Config, and `recipe`.

    worker_memory: bytes, or `4G`.
    """
'''

_PAGE = """\
<!-- Made from Config by `make options`. -->

# Options

Every option of `batchocr run`. `batchocr run --help` says the same. In Python they are keyword arguments, with
underscores for dashes: `batchocr.run("./scans", out="results.parquet", llm_batch_size=32, penalties=False)`; all but
those about logging. An `Ocr` takes them when it is made; those marked with * can also be given to its `process` and
`run`.
"""

_RECIPES = """
## Recipes

A recipe is a TOML file with options as keys, without their leading dashes; one that is on or off is `true` or `false`:

```toml
llm-batch-size = 32
stop-after = "3h55m"
penalties = false
```

It may hold every option except `--out`, `--recipe` and those about logging.

## Environment

`BATCHOCR_MODEL`, `BATCHOCR_CACHE` and `BATCHOCR_PASSWORD` stand for `--model`, `--cache` and `--password`. A flag on
the command line, or a keyword argument in Python, wins over the environment, the environment over the recipe, and the
recipe over the default. A variable that is empty is not there. `doctor` loads a model, and `verify` compares one, only
if `--model` is given.
"""


def options_module() -> str:
    """The text of batchocr/options.py."""
    recipe = Declared("recipe", str, None, replace(RECIPE, default="none"))
    options = [*declared_options().values(), recipe]
    chosen = "".join(_typed_key(option) for option in options if option.option.per_call)
    fixed = "".join(_typed_key(option) for option in options if not option.option.per_call)
    return f"{_OPTIONS}{chosen}{_FIXED}{fixed}"


def _typed_key(declared: Declared) -> str:
    option = declared.option
    optional = declared.default is None
    forms = [declared.type, *([option.also] if option.also else []), *([NoneType] if optional else [])]
    default = shown_default(declared)
    said = option.help + (f" Default: {default}." if default else "")
    doc = textwrap.indent(textwrap.fill(f'"""{said}"""', 116), "    ")
    return f"\n    {declared.name}: {' | '.join(map(_spelt, forms))}\n{doc}\n"


def _spelt(hint: Any) -> str:
    """A type as it stands in the source."""
    if hint is NoneType:
        return "None"
    if get_origin(hint) is Literal:
        return "Literal[" + ", ".join(f'"{value}"' for value in get_args(hint)) + "]"
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)


def options_page() -> str:
    """The text of docs/options.md."""
    return _PAGE + "\n".join(_tables()) + "\n" + _RECIPES


def _tables() -> Iterator[str]:
    """A table for each panel of the help, in its order."""
    command = typer.main.get_command(app)
    assert isinstance(command, typer.core.TyperGroup)
    options = [option for option in command.commands["run"].params if isinstance(option, typer.core.TyperOption)]
    for panel in dict.fromkeys(option.rich_help_panel for option in options):
        yield f"\n## {panel}\n\n| option | meaning | default |\n| --- | --- | --- |"
        yield from (_row(option) for option in options if option.rich_help_panel == panel)


def _row(option: typer.core.TyperOption) -> str:
    value = (option.metavar or "").replace("|", "\\|")
    flags = [f"`{' '.join(filter(None, (flag, value)))}`" for flag in (*option.opts, *option.secondary_opts)]
    meaning, _, default = (option.help or "").partition(" Default: ")
    shown = "required" if option.required else default.removesuffix(".") or ("" if option.metavar else "off")
    declared = declared_options().get(option.name or "")
    star = " *" if declared is not None and declared.option.per_call else ""
    return f"| {', '.join(flags)}{star} | {meaning} | {shown} |"


def derived_files() -> dict[Path, str]:
    """What each file should hold."""
    return {
        _ROOT / "batchocr" / "options.py": options_module(),
        _ROOT / "docs" / "options.md": options_page(),
        _ROOT / "docs" / "report.schema.json": as_text(report_schema()),
        _ROOT / "docs" / "events.schema.json": as_text(events_schema()),
    }


if __name__ == "__main__":
    for path, text in derived_files().items():
        path.write_text(text, encoding="utf-8")
