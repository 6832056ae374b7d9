"""The output of a cluster: a folder with a part of the table for each item, and `run.json`, which says of what.

Parts are listed, read and put here, and nowhere else.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter, ValidationError

from batchocr.data import ErrorKind, Status
from batchocr.errors import OutputError, OutputMismatchError
from batchocr.output.atomic import atomic_file, reading, writing
from batchocr.output.schema import RunFacts, decode_facts
from batchocr.ray.items import Item

logger = logging.getLogger(__name__)

_PLAN_NAME = "run.json"
REPORT_NAME = "report.json"


@dataclass(frozen=True, slots=True)
class Plan:
    """What the parts in a folder are of. facts: what their rows depend on. pages: as `--pages` said it."""

    facts: RunFacts
    pages: str | None
    items: tuple[Item, ...]


_PLAN: TypeAdapter[Plan] = TypeAdapter(Plan)


@dataclass(frozen=True, slots=True)
class PartRows:
    """How many rows a part has, by status; errors: the failed ones, by what was wrong."""

    by_status: Counter[Status]
    errors: Counter[ErrorKind]


class OutputFolder:
    """The folder of a run, as the driver and all actors see it under the same path."""

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.abspath(path))

    def create(self) -> None:
        """Make it, unless it is there. Raises OutputError."""
        if self.path.exists() and not self.path.is_dir():
            raise OutputError(f"--out {self.path} is a file: the parts need a folder of their own")
        with writing(self.path):
            self.path.mkdir(exist_ok=True)

    def clear(self) -> None:
        """Remove what earlier runs have put here. Raises OutputError."""
        with writing(self.path / _PLAN_NAME):
            for path in [*self.path.glob("part-*.parquet"), self.path / REPORT_NAME, self.path / _PLAN_NAME]:
                path.unlink(missing_ok=True)

    def plan(self) -> Plan | None:
        """That of an earlier run; None if there was none. Raises OutputError, and OutputMismatchError if the folder
        holds something else."""
        path = self.path / _PLAN_NAME
        with reading(path):
            text = path.read_bytes() if path.exists() else None
        if text is None:
            if others := sorted(self.path.glob("*.parquet")):
                raise OutputMismatchError(
                    f"{self.path} holds {others[0].name} and no {_PLAN_NAME}: it is not of a run on a cluster; choose "
                    "another --out"
                )
            return None
        try:
            return _PLAN.validate_json(text)
        except ValidationError as error:
            raise OutputMismatchError(
                f"{path} is damaged, or not of this version of batchocr: restore it, or choose another --out"
            ) from error

    def begin(self, plan: Plan) -> None:
        """Record what the parts will be of, and remove those that are of none of its items. Raises OutputError."""
        with atomic_file(self.path / _PLAN_NAME) as file:
            file.write(_PLAN.dump_json(plan, exclude={"items": {"__all__": {"documents": {"__all__": {"path"}}}}}))
        names = {item.name for item in plan.items}
        stale = [path for path in self.path.glob("part-*.parquet") if path.name not in names]
        for path in stale:
            with writing(path):
                path.unlink()
        if stale:
            logger.info("removed %d parts whose documents have changed or are gone", len(stale))

    def rows(self, name: str, facts: RunFacts) -> PartRows | None:
        """What a part of these facts holds; None if it is not there, or is damaged. Raises OutputMismatchError if it is
        of other settings."""
        path = self.path / name
        if not path.exists():
            return None
        try:
            with pq.ParquetFile(path, page_checksum_verification=True) as part:
                metadata = {key.decode(): value.decode() for key, value in (part.schema_arrow.metadata or {}).items()}
                columns = part.read(columns=["status", "error_kind"])
        except (pa.ArrowException, OSError, ValueError):
            logger.warning("%s is damaged, and is read again", path)
            return None
        found = decode_facts(metadata)
        if found is None or found.settings_fingerprint != facts.settings_fingerprint:
            raise OutputMismatchError(f"{path} was made with other settings: choose another --out")
        return PartRows(
            Counter(columns["status"].to_pylist()),
            Counter(kind for kind in columns["error_kind"].to_pylist() if kind is not None),
        )

    def fetch(self, name: str, to: Path) -> None:
        """Copy a part to a local disk. Raises OutputError."""
        with reading(self.path / name), writing(to):
            shutil.copyfile(self.path / name, to)

    def put(self, local: Path, name: str) -> None:
        """Put a part in its place, whole. Raises OutputError."""
        with open(local, "rb") as source, atomic_file(self.path / name) as target:
            shutil.copyfileobj(source, target)
