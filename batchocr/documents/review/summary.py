"""The head of a review page: what made the table, and what its run reported."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchocr.tables.atomic import require_ordinary
from batchocr.tables.files import report_path
from batchocr.tables.opened import StoredRows
from batchocr.tables.schema import RunMetadata

_MAX_REPORTS = 8
_TIMES = {"wall_seconds": "Time in all", "start_up_seconds": "Until the model was ready", "work_seconds": "Reading"}
_MEASURES = {"ink_outside": "Ink outside of blocks", "text_layer_agreement": "Agreement with the text layer"}
_PLACES = {"median": "half of the pages", "worst_tenth": "the worst tenth", "worst_hundredth": "the worst hundredth"}
_RATES = {"pages_per_second": "Pages a second", "output_tokens_per_second": "Tokens generated a second"}


@dataclass(frozen=True, slots=True)
class FactGroup:
    """Facts under a heading, as pairs of a name and a value."""

    heading: str
    facts: tuple[tuple[str, str], ...]


def groups(table: StoredRows) -> list[FactGroup]:
    """What to show of a table and of the reports of the runs that wrote its parts."""
    paths = [part.path for part in table.parts[:_MAX_REPORTS]]
    headings = [f"Run of {path.name}" if len(paths) > 1 else "Run" for path in paths]
    reports = [_read_report(report_path(path)) for path in paths]
    settings = next(filter(None, (report.get("settings") for report in reports)), dict(table.metadata.settings))
    found = [
        *(FactGroup(heading, tuple(_run(report))) for heading, report in zip(headings, reports, strict=True)),
        *(
            FactGroup(label, tuple(_distribution(report.get(name))))
            for name, label in _MEASURES.items()
            for report in reports
        ),
        *(FactGroup("Why pages failed", tuple(_plain(report.get("errors")))) for report in reports),
        FactGroup("Table", tuple(_table(table.metadata))),
        FactGroup("Settings", tuple(_plain(settings))),
    ]
    return [group for group in found if group.facts]


def _read_report(path: Path) -> Mapping[str, Any]:
    """A report; empty if there is none that can be read."""
    try:
        require_ordinary(path)
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _run(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from ((label, _shown(report[name])) for name, label in _RATES.items() if report.get(name) is not None)
    yield from ((label, f"{_shown(report[name])} s") for name, label in _TIMES.items() if report.get(name) is not None)
    if report.get("bottleneck"):
        yield "Bottleneck", str(report["bottleneck"])
    if report.get("error"):
        yield "Ended by", str(report["error"])


def _table(facts: RunMetadata) -> Iterator[tuple[str, str]]:
    if not facts.model:
        yield "Made by", "another program, of a table of batchocr"
        return
    yield "Model", facts.model + (f" at {facts.model_revision[:12]}" if facts.model_revision else "")
    yield "Model fingerprint", facts.model_fingerprint[:12]
    yield "Settings fingerprint", facts.settings_fingerprint[:12]
    yield "batchocr", facts.batchocr_version


def _distribution(measure: object) -> Iterator[tuple[str, str]]:
    """What a report says of a share that each page has."""
    if isinstance(measure, Mapping) and measure.get("pages"):
        for name, label in _PLACES.items():
            if isinstance(value := measure.get(name), int | float):
                yield label, f"{value:.1%}"


def _plain(values: object) -> Iterator[tuple[str, str]]:
    """The entries that are no mappings or lists themselves."""
    if isinstance(values, Mapping):
        yield from (
            (str(name).replace("_", " "), _shown(value))
            for name, value in values.items()
            if isinstance(value, str | int | float)
        )


def _shown(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:,.3g}" if value < 100 else f"{value:,.0f}"
        case int():
            return f"{value:,}"
        case _:
            return str(value)
