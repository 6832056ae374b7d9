"""Every option of a run, with its default, in one frozen dataclass; and the recipes that set them.

`Config` holds what the user said; None leaves a size to be chosen for the machine (`job/session.py`,
`engine/limits.py`). It is checked when it is made, and nothing changes it after that.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import BeforeValidator, TypeAdapter, ValidationError

from batchocr.errors import UsageError
from batchocr.page_spec import parse_page_spec

DType = Literal["auto", "float32", "bfloat16"]
VitDType = Literal["auto", "fp8"]
BackendName = Literal["auto", "reference", "cpu", "cuda"]
DEFAULT_MODEL = "opendatalab/MinerU2.5-Pro-2605-1.2B"
PASSWORD_VARIABLE = "BATCHOCR_PASSWORD"

_DURATION = re.compile("(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?")
_SHARD = re.compile("([0-9]+)/([0-9]+)")
_SIZE = re.compile("([0-9]+)([MG])")
_UNITS = {"M": 2**20, "G": 2**30}
_LEAST_WORKER_MEMORY = 256 * 2**20
"""A worker that has not opened anything yet takes 70 MB."""


def _as_seconds(value: object) -> object:
    """The seconds in a duration such as `3h55m`; anything but a string is returned as it is."""
    if not isinstance(value, str):
        return value
    match = _DURATION.fullmatch(value)
    if not value or match is None:
        raise ValueError(f"{value!r} is not a duration; write it as 3h55m or 90s")
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds


def _as_shard(value: object) -> object:
    """(index, count) of a shard such as `2/8`; anything but a string is returned as it is."""
    if not isinstance(value, str):
        return value
    match = _SHARD.fullmatch(value)
    if match is None:
        raise ValueError(f"{value!r} is not a shard; write it as I/N: the second of eight is 2/8")
    return int(match[1]), int(match[2])


def _as_bytes(value: object) -> object:
    """The bytes in a size such as `4G`; anything but a string is returned as it is."""
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value)
    if match is None:
        raise ValueError(f"{value!r} is not a size; write it as 4G or 512M")
    return int(match[1]) * _UNITS[match[2]]


@dataclass(frozen=True, slots=True)
class Config:
    """The options of the command line, under the same names. Sizes are upper limits. Raises UsageError.

    page_timeout and stop_after: seconds. worker_memory: bytes. shard: (index from 1, count).
    """

    model: str = DEFAULT_MODEL
    revision: str | None = None
    pages: str | None = None
    dpi: int = 200
    password: str | None = field(default=None, repr=False)
    follow_symlinks: bool = False
    vit_batch_size: int | None = None
    vit_max_patches: int | None = None
    llm_batch_size: int | None = None
    prefill_max_tokens: int | None = None
    embedding_queue_tokens: int | None = None
    max_new_tokens: int = 8192
    penalties: bool = True
    pages_in_flight: int | None = None
    workers: int | None = None
    worker_memory: Annotated[int | None, BeforeValidator(_as_bytes)] = None
    page_timeout: float = 60.0
    device: str = "auto"
    dtype: DType = "auto"
    vit_dtype: VitDType = "auto"
    backend: BackendName = "auto"
    memory_fraction: float = 0.9
    resume: bool = True
    overwrite: bool = False
    retry_failed: bool = True
    shard: Annotated[tuple[int, int], BeforeValidator(_as_shard)] = (1, 1)
    limit: int | None = None
    max_page_error_rate: float = 0.0
    stop_after: Annotated[float | None, BeforeValidator(_as_seconds)] = None
    report: str | None = None

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"{_flag(name)} must be more than 0, not {value}")
        if self.worker_memory is not None and self.worker_memory < _LEAST_WORKER_MEMORY:
            raise UsageError(f"--worker-memory must be at least 256M, not {self.worker_memory} bytes")
        if not 0 < self.memory_fraction <= 1:
            raise UsageError(f"--memory-fraction must be above 0 and at most 1, not {self.memory_fraction}")
        if not 0 <= self.max_page_error_rate <= 1:
            raise UsageError(f"--max-page-error-rate must be from 0 to 1, not {self.max_page_error_rate}")
        index, count = self.shard
        if not 1 <= index <= count:
            raise UsageError(f"--shard I/N needs 1 ≤ I ≤ N, not {index}/{count}")
        if self.pages is not None:
            parse_page_spec(self.pages)


_POSITIVE = (
    "dpi",
    "vit_batch_size",
    "vit_max_patches",
    "llm_batch_size",
    "prefill_max_tokens",
    "embedding_queue_tokens",
    "max_new_tokens",
    "pages_in_flight",
    "workers",
    "page_timeout",
    "limit",
    "stop_after",
)
_SWITCHED_OFF = {"no_penalties": "penalties", "no_resume": "resume", "no_retry_failed": "retry_failed"}
"""Flags that are named after what they switch off, and the field that each one sets."""

_NAMES = frozenset(field.name for field in fields(Config))
FLAG_NAMES = _NAMES - {"penalties", "resume"} | set(_SWITCHED_OFF)
"""Every option as its flag spells it, with underscores: `no_resume`, not `resume`."""


def make_config(options: Mapping[str, object], recipe: str | None = None) -> Config:
    """Return the Config with `options`, fields of Config by name; those left out are taken from the recipe.

    A password that is left out is looked up in the environment first. Raises UsageError.
    """
    _refuse_unknown(options, _NAMES)
    environment = {"password": password} if (password := os.environ.get(PASSWORD_VARIABLE)) else {}
    return Config(**{**(load_recipe(recipe) if recipe is not None else {}), **_checked({**environment, **options})})


def from_flags(flags: Mapping[str, object]) -> dict[str, object]:
    """Return the fields of Config that the flags set (`no_resume` sets `resume`), unchecked."""
    return {
        _SWITCHED_OFF.get(name, name): not value if name in _SWITCHED_OFF and isinstance(value, bool) else value
        for name, value in flags.items()
    }


def load_recipe(name_or_path: str) -> dict[str, Any]:
    """Return the fields of Config that a recipe sets, checked.

    name_or_path: a TOML file (with a `/`, or ending in .toml), or the name of a recipe that comes with batchocr. Its
    keys are the flags without their leading dashes. Raises UsageError, which names the file and the key.
    """
    text = _read_recipe(name_or_path)
    try:
        flags = {key.replace("-", "_"): value for key, value in tomllib.loads(text).items()}
        _refuse_unknown(flags, FLAG_NAMES)
        options = _checked(from_flags(flags))
        Config(**options)
    except (tomllib.TOMLDecodeError, UsageError) as error:
        raise UsageError(f"recipe {name_or_path}: {error}") from error
    return options


def _read_recipe(name_or_path: str) -> str:
    shipped = resources.files("batchocr") / "recipes"
    is_path = "/" in name_or_path or name_or_path.endswith(".toml")
    file = Path(name_or_path) if is_path else shipped / f"{name_or_path}.toml"
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        names = ", ".join(sorted(entry.name.removesuffix(".toml") for entry in shipped.iterdir()))
        raise UsageError(f"there is no recipe {name_or_path}; give a TOML file, or one of: {names}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the recipe {name_or_path} cannot be read: {error}") from error


def _refuse_unknown(names: Collection[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(sorted(known))}"
            raise UsageError(f"there is no option {name!r}; {hint}")


def _checked(options: Mapping[str, object]) -> dict[str, Any]:
    """The options in the form their fields hold: paths as text, durations in seconds. Raises UsageError."""
    types = get_type_hints(Config, include_extras=True)
    return {name: _checked_value(name, value, types[name]) for name, value in options.items()}


def _checked_value(name: str, value: object, hint: Any) -> object:
    plain = os.fspath(value) if isinstance(value, os.PathLike) else value
    try:
        return TypeAdapter(hint).validate_python(plain, strict=True)
    except ValidationError as error:
        problem = error.errors()[0]["msg"].removeprefix("Value error, ").removeprefix("Input ")
        shown = "" if name == "password" else f" {value!r}"
        raise UsageError(f"{_flag(name)}{shown}: {problem}") from error


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
