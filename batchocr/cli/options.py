"""The flags of the commands: those of Config, made from its fields, and the few that concern the command alone."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from inspect import Parameter
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args, get_type_hints

import typer

from batchocr.cli.console import LogFormat
from batchocr.config import INPUT, RECIPE, RUN, Config, Option, flag_of, option_of
from batchocr.errors import UsageError
from batchocr.storage.uris import is_uri

Flags = Mapping[str, Any]
"""The fields of Config whose flags were given, by name."""

Command = Callable[..., None]
_LOGGING = "Logging"
_OTHERS = "Options"
"""Where flags stand that are of no other panel."""


@dataclass(frozen=True, slots=True)
class Declared:
    """An option of Config. type: of its field, without None."""

    name: str
    type: Any
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
    """Give a command the flags of these options, in place of its parameter `flags`, which gets those that were given.

    Without names: all of them. changed: what the help says about an option that means something else here.
    """
    options = {name: option for name, option in declared_options().items() if not names or name in names}
    options |= {name: replace(options[name], option=option) for name, option in changed.items()}

    def decorate(command: Command) -> Command:
        @wraps(command)
        def with_flags(**arguments: Any) -> None:
            flags = {name: _as_declared(option, arguments.pop(name)) for name, option in options.items()}
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


def _as_declared(declared: Declared, given: Any) -> Any:
    """The number in the text of a flag, if that is what it should be. Raises UsageError in the words of Config."""
    if given is None or declared.type not in (int, float) or declared.option.also is not None:
        return given
    try:
        return declared.type(given)
    except ValueError as error:
        kind = "integer" if declared.type is int else "number"
        raise UsageError(f"{flag_of(declared.name)} {given!r}: should be a valid {kind}") from error


def _parameter(declared: Declared) -> Parameter:
    """The parameter from which Typer makes a flag; two flags, if it is on or off: one takes back what a recipe says.
    None stands for a flag that was not given: a recipe comes before the default of Config."""
    # Text, as Config refuses in a sentence what does not fit.
    taken: Any = bool if declared.type is bool else str
    flag = flag_of(declared.name)
    if taken is bool:
        flag += f"/--no-{declared.name.replace('_', '-')}"
    flags = filter(None, (flag, declared.option.short))
    annotation = Annotated[taken | None, _typer_option(*flags, option=declared.option, default=shown_default(declared))]
    return Parameter(declared.name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def shown_default(declared: Declared) -> str:
    """What the help says is the option's default; empty if there is nothing to say."""
    if declared.option.default:
        return declared.option.default
    if isinstance(declared.default, bool):
        return "on" if declared.default else ""
    return "" if declared.default is None else str(declared.default).removesuffix(".0")


def _typer_option(*flags: str, option: Option, default: str = "") -> Any:
    text = f"{option.help} Default: {default}." if default else option.help
    return typer.Option(*flags, metavar=option.metavar, rich_help_panel=option.panel, help=text, show_default=False)


def refuse_both(flag: str, given: bool, other: str, other_given: bool) -> None:
    """Raises UsageError if both flags were given."""
    if given and other_given:
        raise UsageError(f"{flag} and {other} contradict each other: give one of them")


def refuse_contradictions(flags: Flags, config: Config, *, quiet: bool, verbose: bool) -> None:
    """Raises UsageError if a flag asks for what another, or the recipe, rules out."""
    refuse_both("--quiet", quiet, "--verbose", verbose)
    if flags.get("resume") and config.overwrite:
        raise UsageError("--overwrite starts over and --resume continues: give one of them")


def as_local_path(flag: str, name: str) -> Path:
    """The path that a flag names. Raises UsageError if it names none, or one in an object store."""
    if not name:
        raise UsageError(f"{flag} is empty: say where to write")
    if name == "-":
        raise UsageError(
            f"{flag} -: nothing of this goes to standard output; name a file or folder, ./- for one named -"
        )
    if "://" in name:
        raise UsageError(f"{flag} {name}: write to a path on this machine, and copy it to an object store afterwards")
    return Path(name)


def require_roots(roots: Sequence[str]) -> None:
    """Raises UsageError if there is no file and no folder where an --input says that documents are."""
    for root in roots:
        if not is_uri(root) and not os.path.exists(root):
            raise UsageError(
                f"--input {root!r}: there is no such folder or file. It takes no globs and no lists: name the folder"
            )


def as_log_format(name: str) -> LogFormat:
    """Raises UsageError."""
    if name not in ("text", "json"):
        raise UsageError(f"--log-format {name!r}: one of text, json")
    return "json" if name == "json" else "text"


Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT",
        show_default=False,
        help="Files, folders (searched recursively), globs, @list.txt with one path per line, or - for paths on stdin; "
        "or the same in an object store, as in s3://bucket/scans/. In @list.txt, lines that begin with # are comments; "
        "./#a.pdf names a file.",
    ),
]
Table = Annotated[
    str,
    typer.Argument(metavar="OUT", show_default=False, help="A table, or a glob for the tables of all shards."),
]
SavedTable = Annotated[
    str,
    typer.Argument(metavar="TABLE", show_default=False, help="A table, a folder of tables, or a glob for several."),
]
Roots = Annotated[
    list[str] | None,
    _typer_option(
        "--input",
        option=Option(
            INPUT,
            "Where the documents of the table are: a folder or a file. May be given more than once.",
            "ROOT",
            default="where the run found them",
        ),
    ),
]
Partial = Annotated[
    bool,
    _typer_option(
        "--partial", option=Option(INPUT, "Of a run that is unfinished, take the pages that it has read so far.")
    ),
]
ReviewOut = Annotated[
    str, _typer_option("--out", "-o", option=Option(_OTHERS, "The HTML file to write.", "PATH"), default="review.html")
]
Sample = Annotated[
    str | None,
    _typer_option("--sample", option=Option(INPUT, "How many pages to show, 200 at most.", "N"), default="100"),
]
ReviewSort = Annotated[
    str,
    _typer_option(
        "--sort",
        option=Option(INPUT, "Which to take, and show first: worst, order or random.", "NAME"),
        default="worst",
    ),
]
_TABLE_TO_WRITE = "The table to write: NAME.parquet or NAME.jsonl, also in an object store."
Out = Annotated[str, _typer_option("--out", "-o", option=Option(INPUT, _TABLE_TO_WRITE, "PATH"))]
_PARTS_TO_WRITE = "The folder to write parts of the table into, or a prefix in an object store."
PartsOut = Annotated[str, _typer_option("--out", "-o", option=Option(INPUT, _PARTS_TO_WRITE, "FOLDER"))]
Address = Annotated[
    str | None,
    _typer_option(
        "--address",
        option=Option(
            RUN,
            "The Ray cluster: auto for the one that this machine is of, HOST:PORT, or ray://HOST:PORT, which needs "
            "ray[client]. Without it, and without "
            "RAY_ADDRESS, Ray is started on this machine alone.",
            "ADDRESS",
        ),
    ),
]
PagesPerTask = Annotated[
    str,
    _typer_option(
        "--pages-per-task",
        option=Option(RUN, "About how many pages an actor reads at a time; longer documents are divided.", "N"),
        default="1000",
    ),
]
Actors = Annotated[
    str | None,
    _typer_option(
        "--actors",
        option=Option(
            RUN, "How many actors.", "N", default="one for each GPU that there is, or for each machine if there is none"
        ),
    ),
]
MergedOut = Annotated[str, _typer_option("--out", "-o", option=Option(_OTHERS, _TABLE_TO_WRITE, "PATH"))]
Recipe = Annotated[str | None, _typer_option("--recipe", option=RECIPE)]
Quiet = Annotated[
    bool,
    _typer_option(
        "--quiet", "-q", option=Option(_LOGGING, "Only warnings and errors; the report goes to its file alone.")
    ),
]
QuietCheck = Annotated[
    bool, _typer_option("--quiet", "-q", option=Option(_LOGGING, "Print only errors: the exit code says it all."))
]
Strict = Annotated[
    bool, _typer_option("--strict", option=Option(RUN, "Exit with 3 too if documents are gone whose rows are kept."))
]
AsJson = Annotated[bool, _typer_option("--json", option=Option(_LOGGING, "Print one JSON object, and log in JSON."))]
Verbose = Annotated[
    bool, _typer_option("--verbose", option=Option(_LOGGING, "Log internal events, and show tracebacks."))
]
LogFormatName = Annotated[
    str,
    _typer_option(
        "--log-format", option=Option(_LOGGING, "text, or json: one object per line.", "NAME"), default="text"
    ),
]

EPILOG = """Examples:

batchocr run ./scans -o results.parquet

batchocr run 'reports/**/*.pdf' --pages 1-3 -o first-pages.jsonl

find . -name '*.pdf' -print0 | batchocr run -0 - -o results.parquet

batchocr run ./archive --shard 2/8 --stop-after 3h55m -o part-2.parquet

Exit codes: 0 every page read, in full or in part; 1 internal error: a bug, or a device or workers that fail; \
2 wrong usage; 3 more pages failed, or were degraded, than allowed, or are worse than before; 4 nothing to read; \
5 the model cannot be loaded; 6 the output cannot be written, or belongs to other settings; 75 stopped before the end \
and 130 interrupted: run the same command again to continue.
"""
