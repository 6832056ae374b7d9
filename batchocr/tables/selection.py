"""What of the input a run was asked for, and what several tables together were: which pages, which documents, which
shards."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator

from batchocr.config import Config, flag_of

_MAX_NAMED: Final = 10
"""The most shards that a message names."""


def _shards(selection: Mapping[str, str]) -> set[tuple[int, int]]:
    """Count and index of each shard that tables with this selection are of."""
    shards = (shard.split("/") for shard in selection.get("shard", "1/1").split(","))
    return {(int(count), int(index)) for index, count in shards}


def _possible(selection: Mapping[str, str]) -> Mapping[str, str]:
    """The selection. Raises ValueError if one of its values is none that its option takes."""
    _shards(selection)
    for name in ("limit", "sample_documents"):
        int(selection.get(name, 1))
    return selection


Selection: TypeAlias = Annotated[Mapping[str, str], AfterValidator(_possible)]
"""What of an input was asked for: `pages`, `only`, `limit`, `sample_documents` and `shard` as the options say them,
without those that ask for all; of merged tables several shards, as in 1/4,3/4."""


def selection_of(config: Config) -> dict[str, str]:
    """What of the input these options ask for."""
    index, count = config.shard
    asked = {
        "pages": config.pages,
        "only": config.only and os.path.abspath(config.only),
        "limit": config.limit and str(config.limit),
        "sample_documents": config.sample_documents and str(config.sample_documents),
        "shard": f"{index}/{count}" if count > 1 else None,
    }
    return {name: value for name, value in asked.items() if value}


def selection_of_either(one: Selection | None, other: Selection | None) -> dict[str, str] | None:
    """What of the input at least one of two runs into a table has asked for; None if that is not known."""
    if one is None or other is None:
        return None
    both = {name: _together(name, one[name], other[name]) for name in one.keys() & other.keys()}
    return {name: asked for name, asked in both.items() if asked is not None}


def _together(name: str, one: str, other: str) -> str | None:
    """The pages or rows that at least one of two runs has asked for; None if no option says so."""
    if one == other:
        return one
    if name == "only":
        return None
    if name == "pages":
        return ",".join(dict.fromkeys([*one.split(","), *other.split(",")]))
    return str(max(int(one), int(other)))


def selection_together(several: Sequence[Selection | None]) -> dict[str, str] | None:
    """What of the input several tables together were asked for; None if that is not known. An option that is
    not the same for all of them is left out; so are `limit` and `sample_documents` of several, each of which counts
    what is in its own table."""
    selections = [selection for selection in several if selection is not None]
    if len(selections) < len(several):
        return None
    if len(several) == 1:
        return dict(selections[0])
    agreed = set(selections[0].items()).intersection(*(each.items() for each in selections))
    together = {name: value for name, value in sorted(agreed) if name in ("pages", "only")}
    shards = sorted(set().union(*map(_shards, selections)))
    if any(found == count for count, found in Counter(count for count, _ in shards).items()):
        return together
    return together | {"shard": ",".join(f"{index}/{count}" for count, index in shards)}


def missing_shards(selection: Selection | None) -> str:
    """The shards of which tables with this selection have nothing, as in 2/4, 4/4; empty if there is none, or if that
    is not known."""
    shards = _shards(selection or {})
    every = ((count, index) for count in sorted({count for count, _ in shards}) for index in range(1, count + 1))
    missing = (f"{index}/{count}" for count, index in every if (count, index) not in shards)
    named = list(islice(missing, _MAX_NAMED + 1))
    return ", ".join(named if len(named) <= _MAX_NAMED else [*named[:-1], "…"])


def as_flags(selection: Selection) -> str:
    """A selection as it is given on the command line: `--limit 2 --pages 1`; empty if it is all of the input."""
    return " ".join(f"{flag_of(name)} {value}" for name, value in sorted(selection.items()))
