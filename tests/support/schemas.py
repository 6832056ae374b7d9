"""JSON Schemas of the report and of the log's events, made from the dataclasses: for programs that read them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Union, get_args, get_type_hints

from pydantic import Field, TypeAdapter, create_model

from batchocr.data import ErrorKind
from batchocr.job.progress import EventName, RunProgress
from batchocr.job.stats.report import Report
from batchocr.job.stop import StopReason

_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_EVENTS: Final[Mapping[EventName, Mapping[str, Any]]] = {
    "run_started": {"out": str, "documents": int, "skipped_files": dict[str, int], "model": str, "version": str},
    "progress": {
        **{field.name: get_type_hints(RunProgress)[field.name] for field in dataclasses.fields(RunProgress)},
        "pages_per_second": float,
        "seconds_left": int | None,
    },
    "page_failed": {
        "source": str,
        "page_index": int | None,
        "error_kind": ErrorKind,
        "error_message": str | None,
        "attempts": int,
    },
    "input_empty": {"input": str, "rows": int},
    "worker_lost": {"error_kind": ErrorKind, "error_message": str},
    "stop_requested": {"reason": StopReason},
    "run_stopped": {"exit_code": int},
    "run_finished": {"exit_code": int, "report": dict[str, Any], "cut": dict[str, int]},
    "run_failed": {"error": str, "exit_code": int},
}
"""What each has beside `time`, `level`, `event` and `message`. A run that stops before its first page has no report."""


def report_schema() -> dict[str, Any]:
    """Of OUT.report.json, whole: it has all of these keys and no others."""
    schema = _without_titles(TypeAdapter(Report).json_schema(mode="serialization"))
    schema["properties"] |= {"complete": {"type": "boolean"}, "ledger_adds_up": {"type": "boolean"}}
    schema["properties"]["exit_code"] = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    told = {"required": [*schema["properties"]], "additionalProperties": False}
    return {"$schema": _DRAFT, "title": "The report of a batchocr run"} | schema | told


def events_schema() -> dict[str, Any]:
    """Of a line that `--log-format json` writes to stderr."""
    assert set(_EVENTS) == set(get_args(EventName))
    models = [_line(name, keys) for name, keys in {**_EVENTS, "message": {}}.items()]
    schema = _without_titles(TypeAdapter(Annotated[Union[*models], Field(discriminator="event")]).json_schema())
    return {"$schema": _DRAFT, "title": "A line of batchocr's log in JSON"} | schema


def _line(name: str, keys: Mapping[str, Any]) -> Any:
    fields: dict[str, Any] = {"time": str, "level": Literal["debug", "info", "warning", "error"]}
    fields |= {"event": Literal[name], "message": str, **keys}  # type: ignore[valid-type]
    return create_model(name, **{key: (hint, ...) for key, hint in fields.items()})


def _without_titles(schema: Any) -> Any:
    """Those that pydantic makes of the names say nothing."""
    if isinstance(schema, list):
        return [_without_titles(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    is_made = isinstance(schema.get("title"), str)
    return {key: _without_titles(value) for key, value in schema.items() if key != "title" or not is_made}


def as_text(schema: Mapping[str, Any]) -> str:
    """As it stands in docs/."""
    return json.dumps(schema, indent=2) + "\n"
