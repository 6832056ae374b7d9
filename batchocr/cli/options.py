"""The flags of the commands: those of Config, made from its fields, and the few that concern the command alone."""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from inspect import Parameter
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args, get_type_hints

import typer
from pydantic import TypeAdapter

from batchocr.cli import console
from batchocr.config import INPUT, RECIPE, Config, Option, flag_of, option_of
from batchocr.errors import UsageError
from batchocr.option_values import Rate
from batchocr.storage.uris import is_uri

Flags = Mapping[str, Any]
"""The fields of Config whose flags were given, by name."""

ALL = frozenset(field.name for field in dataclasses.fields(Config))
"""The names of the options of a run."""
OF_TABLES = ("document_column", "name_column")

Command = Callable[..., None]
_LOGGING, _LIMITS = "Logging", "Limits"


@dataclass(frozen=True, slots=True)
class Declared:
    """An option of Config."""

    name: str
    type: Any
    """The type of the option's field, without None."""
    default: object
    option: Option


def declared_options() -> dict[str, Declared]:
    """Every option of Config by its name, in the order of `--help`."""
    types, hints = get_type_hints(Config), get_type_hints(Config, include_extras=True)
    return {
        field.name: Declared(
            field.name,
            _without_none(types[field.name]),
            field.default,
            option_of(hints[field.name]),
        )
        for field in dataclasses.fields(Config)
    }


def _without_none(hint: Any) -> Any:
    if NoneType not in get_args(hint):
        return hint
    [remaining] = (part for part in get_args(hint) if part is not NoneType)
    return remaining


def takes_options(*names: str, **changed: Option) -> Callable[[Command], Command]:
    """Give a command the flags of these options. Its parameter `flags` gets those that the user gave.

    changed: what the help says about an option that means something else here.
    """
    options = {name: option for name, option in declared_options().items() if name in names}
    options |= {name: replace(options[name], option=option) for name, option in changed.items()}

    def decorate(command: Command) -> Command:
        @wraps(command)
        def with_flags(**arguments: Any) -> None:
            flags = {name: arguments.pop(name) for name in options}
            command(**arguments, flags={name: value for name, value in flags.items() if value is not None})

        signature = inspect.signature(command, eval_str=True)
        parameters = [
            parameter.replace(kind=Parameter.KEYWORD_ONLY)
            for own in signature.parameters.values()
            for parameter in (map(_parameter, options.values()) if own.name == "flags" else [own])
        ]
        with_flags.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        with_flags.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return with_flags

    return decorate


def _parameter(declared: Declared) -> Parameter:
    """The parameter from which Typer makes a flag; two flags, if it is on or off: one takes back what a recipe says.
    None stands for a flag that was not given: a recipe comes before the default of Config."""
    option, name = declared.option, flag_of(declared.name)
    # Text, where Config refuses in a sentence what does not fit.
    taken: Any = declared.type if declared.type in (bool, int, float) and option.also is None else str
    if taken is bool:
        name += f"/--no-{declared.name.replace('_', '-')}"
    made = flag(
        *filter(None, (name, option.short)),
        panel=option.panel,
        metavar=option.metavar or "|".join(get_args(declared.type)),
        default=shown_default(declared),
        help=option.help,
    )
    annotation = Annotated[taken | None, made]
    return Parameter(declared.name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def shown_default(declared: Declared) -> str:
    """What the help says is the option's default; empty if there is nothing to say."""
    if declared.option.default:
        return declared.option.default
    if isinstance(declared.default, bool):
        return "on" if declared.default else ""
    return "" if declared.default is None else str(declared.default).removesuffix(".0")


def flag(
    *names: str,
    help: str,
    panel: str = "Options",
    metavar: str = "",
    default: str = "",
    least: int | None = None,
    most: int | None = None,
) -> Any:
    """A flag of a command. default: as the help says it; empty if there is nothing to say. least, most: of a number."""
    text = f"{help} Default: {default}." if default else help
    return typer.Option(
        *names, metavar=metavar or None, min=least, max=most, rich_help_panel=panel, help=text, show_default=False
    )


def most_flag(name: str, share: str) -> Any:
    """A flag for the most that a share of the characters may be."""
    said = f"Exit with 3 if a larger share of {share} (from 0 to 1). Default: none."
    return typer.Option(name, metavar="F", parser=_share, rich_help_panel=_LIMITS, help=said, show_default=False)


def _share(text: str) -> float:
    try:
        return TypeAdapter(Rate).validate_python(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no share; write a number from 0 to 1") from None


def argument(metavar: str, help: str) -> Any:
    """What a command takes without a flag."""
    return typer.Argument(metavar=metavar, show_default=False, help=help)


def refuse_both(one: str, given: bool, other: str, other_given: bool) -> None:
    """Raise UsageError if both flags were given."""
    if given and other_given:
        raise UsageError(f"{one} and {other} contradict each other: give one of them")


def as_local_path(name: str, path: str) -> Path:
    """The path that the flag of this name was given. Raises UsageError if it is empty, or in an object store."""
    if not path:
        raise UsageError(f"{name} is empty: say where to write")
    if path == "-":
        raise UsageError(
            f"{name} -: nothing of this goes to standard output; name a file or folder, ./- for one named -"
        )
    if "://" in path:
        raise UsageError(f"{name} {path}: write to a path on this machine, and copy it to an object store afterwards")
    return Path(path)


def as_language(tag: str) -> str:
    """The BCP 47 tag; '' if none is given. Raises UsageError."""
    if tag and not re.fullmatch(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*", tag):
        raise UsageError(f"--language {tag!r}: a tag such as en, de-AT or zh-Hant")
    return tag


def require_roots(roots: Sequence[str]) -> None:
    """Raise UsageError if there is no file and no folder where an --input says that documents are."""
    for root in roots:
        if not is_uri(root) and not os.path.exists(root):
            raise UsageError(
                f"--input {root!r}: there is no such folder or file. It takes no globs and no lists: name the folder"
            )


Inputs = Annotated[
    list[str],
    argument(
        "INPUT...",
        "Files, folders (searched recursively), archives and tables of documents (.zip, .cbz, .tar, .tar.gz, .tar.zst, "
        ".parquet), globs, @list.txt with one path per line, or - for paths on stdin; or the same in an object store, "
        "as in s3://bucket/scans/. In @list.txt, lines that begin with # are comments; ./#a.pdf names a file.",
    ),
]
SavedTable = Annotated[str, argument("TABLE", "A table, a folder of tables, or a glob for several.")]
Roots = Annotated[
    list[str] | None,
    flag(
        "--input",
        panel=INPUT,
        metavar="ROOT",
        default="where the run found them",
        help="Where the documents of the table are: a folder or a file. May be given more than once.",
    ),
]
Partial = Annotated[
    bool, flag("--partial", panel=INPUT, help="Of a run that is unfinished, take the pages that it has read so far.")
]
_TABLE_TO_WRITE = (
    "The table to write, NAME.parquet or NAME.jsonl: also in an object store; or FOLDER/ for parts of one, in Parquet."
)
Out = Annotated[str, flag("--out", "-o", panel=INPUT, metavar="PATH", help=_TABLE_TO_WRITE)]
MergedOut = Annotated[str, flag("--out", "-o", metavar="PATH", help=_TABLE_TO_WRITE)]
Recipe = Annotated[str | None, flag("--recipe", panel=RECIPE.panel, metavar=RECIPE.metavar, help=RECIPE.help)]
Quiet = Annotated[
    bool, flag("--quiet", "-q", panel=_LOGGING, help="Only warnings and errors; the report goes to its file alone.")
]
QuietCheck = Annotated[
    bool, flag("--quiet", "-q", panel=_LOGGING, help="Only warnings and errors: the exit code says the rest.")
]
AsJson = Annotated[bool, flag("--json", panel=_LOGGING, help="Print one JSON object, and log in JSON.")]
Verbose = Annotated[
    bool, flag("--verbose", panel=_LOGGING, help="Log internal events, show tracebacks, print the whole report.")
]
LogFormat = Annotated[
    console.LogFormat,
    flag("--log-format", panel=_LOGGING, metavar="text|json", default="text", help="json: one object per line."),
]
