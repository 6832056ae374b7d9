"""`batchocr doctor --compare`: how much of the text another setting changes, on pages of one's own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from batchocr.api import run_with
from batchocr.config import Config
from batchocr.data import PageResult
from batchocr.errors import UsageError
from batchocr.job.stop import StopSwitch
from batchocr.tables.comparison import compare, matched
from batchocr.tables.opened import open_rows

_CAN_CHANGE: Final = ("dtype", "vit_dtype", "backend")
_NUMBER: Final = re.compile(r"\d+(?:[.,]\d+)*")


def settings_change(config: Config, change: str, inputs: Sequence[str]) -> str:
    """Read the documents with these settings and with another one, and say what share of the blocks, characters and
    numbers differ. change: as in `vit-dtype=fp8`. Raises UsageError, NoInputError, ModelError, EngineError."""
    name, _, value = (part.strip() for part in change.partition("="))
    if name.replace("-", "_") not in _CAN_CHANGE or not value:
        raise UsageError(f"--compare {change}: takes dtype, vit-dtype or backend and a value, as in vit-dtype=fp8")
    if not inputs:
        raise UsageError("--compare needs --input: documents of yours to read both ways")
    other = replace(config, **{name.replace("-", "_"): value})  # type: ignore[arg-type]
    with TemporaryDirectory(prefix="batchocr-") as folder:
        tables = [Path(folder, f"{number}.jsonl") for number in range(2)]
        for table, each in reversed([*zip(tables, (config, other), strict=True)]):  # the other one may be refused
            run_with(each, inputs, out=table, stop=StopSwitch(), progress=None)
        before, after = ([*open_rows(str(table)).rows()] for table in tables)
    found = compare(matched(iter(before), iter(after)), num_top=0)
    blocks = found.blocks
    num_blocks, num_changed = sum(len(row.blocks) for row in before), blocks.added + blocks.lost + blocks.changed
    numbers, others = _numbers(before), _numbers(after)
    lines = [
        f"compared    {name} {getattr(config, name.replace('-', '_'))} with {value}",
        f"pages       {_share(found.differing, found.rows)} differ",
        f"blocks      {_share(num_changed, num_blocks)} differ",
        f"characters  {_share(found.characters_changed, found.characters)} differ",
        f"numbers     {_share(max((numbers - others).total(), (others - numbers).total()), numbers.total())} differ",
    ]
    return "\n".join(lines)


def _numbers(rows: Sequence[PageResult]) -> Counter[tuple[str, int | None, str]]:
    """How often each page has each number."""
    return Counter(
        (row.source, row.page_index, number) for row in rows for number in _NUMBER.findall(row.markdown or "")
    )


def _share(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,} ({part / whole:.2%})" if whole else "none of 0"
