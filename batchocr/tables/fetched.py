"""Tables in an object store, fetched to be read."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from batchocr.errors import NotFoundError, OutputError, PageError, of_store
from batchocr.pages.input.folders import SkippedFiles
from batchocr.pages.input.globs import WILDCARD, natural_key
from batchocr.pages.input.objects import documents_matching
from batchocr.storage.objects import list_below, look_at
from batchocr.storage.temporary import new_folder
from batchocr.tables.files import CLUSTER_REPORT_NAME, is_beside_a_table, metadata_path, report_path
from batchocr.tables.remote_output import fetch_file
from batchocr.tables.table import TABLE_SUFFIXES, could_be_table

_AT_ONCE = 8


def fetch_tables(name: str) -> list[Path]:
    """Copies of the tables that a URI names: one, those below a prefix, or those that match a glob, in natural order.
    Other files are left out, unless they are named themselves. The copies are deleted when the process ends. Raises
    OutputError, UsageError."""
    try:
        uris = [uri for uri in _uris(name) if uri.lower().endswith(TABLE_SUFFIXES) and not is_beside_a_table(uri)]
    except NotFoundError as error:
        raise of_store(error, f"there is no table {name}: {error}") from error
    except PageError as error:
        raise of_store(error, str(error)) from error
    uris.sort(key=natural_key)
    folders = [new_folder() for _ in uris]
    fetching = ThreadPoolExecutor(_AT_ONCE)
    try:
        paths = list(fetching.map(_fetch, uris, folders))
    finally:
        fetching.shutdown(wait=False, cancel_futures=True)  # whoever interrupts this does not wait for gigabytes
    named = name.lower().endswith(TABLE_SUFFIXES)
    fetched = [(uri, path) for uri, path in zip(uris, paths, strict=True) if named or could_be_table(path)]
    if not fetched:
        raise OutputError(f"there is no table {name}: was the run finished? `batchocr run` puts it there at its end")
    if not named:
        uri, path = fetched[0]
        with suppress(OutputError):  # `view` shows it, if it is there
            fetch_file(f"{uri.rpartition('/')[0]}/{CLUSTER_REPORT_NAME}", path.with_name(CLUSTER_REPORT_NAME))
    return [path for _, path in fetched]


def _uris(name: str) -> list[str]:
    if WILDCARD.search(name):
        return [found.object.uri for found in documents_matching(name, SkippedFiles())]
    if (found := look_at(name)) is not None:
        return [found.uri]
    return [found.uri for found in list_below(name, recursive=False)]


def _fetch(uri: str, folder: Path) -> Path:
    path = folder / uri.rpartition("/")[2]
    fetch_file(uri, path)
    fetch_file(f"{uri}.report.json", report_path(path), required=False)
    if path.suffix.lower() == ".jsonl":
        fetch_file(f"{uri}.meta.json", metadata_path(path), required=False)
    return path
