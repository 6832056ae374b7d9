"""What is in archives and tables, as the rows of an earlier run say it: so that they need not be listed again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from batchocr.config import Config
from batchocr.data import Document, valid_text
from batchocr.option_values import parse_page_spec
from batchocr.processes.members import Within
from batchocr.storage.members import Member, MemberAddress, folders_above
from batchocr.tables.files import journal_path, table_file
from batchocr.tables.settled import SettledColumns, version_of
from batchocr.tables.stored import present
from batchocr.tables.table import table_for


def known_within(out: Path, config: Config, containers: Sequence[Document]) -> list[Within]:
    """What is in those of the containers that are as they were when the table at `out` was made, if it has settled rows
    of all documents in them. Raises OutputError if the table is damaged.

    Who reads a document of these is told that its file has changed: where it is, is not known."""
    if config.overwrite or config.only or journal_path(out).exists() or not present(table_file(out)).exists():
        return []
    if (table := table_for(out).open_table(present(out))) is None:
        return []
    with closing(table):
        whole, asked = table.metadata.containers, (config.document_column, config.name_column, 0, config.zip_encoding)
        unchanged = {
            source: Within(container, version=whole[source][:2])
            for source, container in ((valid_text(container.source), container) for container in containers)
            if source in whole and whole[source]._replace(num_documents=0) == (*version_of(container), *asked)
        }
        num_sources = _fill(unchanged, table.columns, config) if unchanged else Counter[str]()
    # Without rows of documents that are gone, which would stand for some that need a look.
    return [
        each
        for source, each in unchanged.items()
        if len(each.documents) == num_sources[each.container.source] == whole[source].num_documents
    ]


def _fill(containers: Mapping[str, Within], columns: SettledColumns, config: Config) -> Counter[str]:
    """Add the documents that need no further look, each to the container that it is in. Returns how many documents of
    each container have rows."""
    _, num_asked = columns.asked(parse_page_spec(config.pages) if config.pages else None, config.retry_failed)
    versions = zip(columns.file_bytes.tolist(), columns.file_mtime_ns.tolist(), strict=True)
    num_sources = Counter[str]()
    for number, (source, version) in enumerate(zip(columns.sources.to_pylist(), versions, strict=True)):
        for within in filter(None, map(containers.get, folders_above(source))):
            num_sources[within.container.source] += 1
            if num_asked[number]:
                address = MemberAddress(within.container.path, (-1, -1), Member(number, 0, 0, *version, source))
                within.documents[source] = Document(str(address), source, None, None, *version)
    return num_sources
