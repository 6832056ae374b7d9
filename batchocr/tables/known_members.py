"""What is in archives and tables, as the rows of an earlier run say it: so that they need not be listed again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from batchocr.config import Config
from batchocr.data import Document, valid_text
from batchocr.option_values import parse_page_spec
from batchocr.processes.members import Within
from batchocr.storage.listing import Documents
from batchocr.storage.members import Member, MemberAddress, folders_above
from batchocr.tables.earlier import has_table
from batchocr.tables.files import journal_path
from batchocr.tables.known import KnownRows, version_of
from batchocr.tables.table import table_for


def known_within(out: Path, config: Config, containers: Sequence[Document]) -> list[Within]:
    """What is in those of the containers that are as they were when the table at `out` was made, if it has settled rows
    of all documents in them. Raises OutputError if the table is damaged.

    Who reads a document of these is told that its file has changed: where it is, is not known."""
    if config.overwrite or config.only or journal_path(out).exists() or not has_table(out):
        return []
    if (table := table_for(out).open_table(out)) is None:
        return []
    with closing(table):
        whole, asked = table.metadata.containers, (config.document_column, config.name_column, 0, config.zip_encoding)
        unchanged = {
            source: container
            for source, container in ((valid_text(container.source), container) for container in containers)
            if source in whole and whole[source]._replace(num_documents=0) == (*version_of(container), *asked)
        }
        known = table.columns if unchanged else KnownRows()
    _, num_settled = known.asked(parse_page_spec(config.pages), config.retry_failed)
    numbers = _numbers_within(unchanged, known)
    # Rows of documents that are gone would stand for some that need a look.
    return [
        Within(container, Documents(_documents(container, known, numbers[source])), version=whole[source][:2])
        for source, container in unchanged.items()
        if len(numbers[source]) == whole[source].num_documents and num_settled[numbers[source]].all()
    ]


def _numbers_within(containers: Container[str], known: KnownRows) -> defaultdict[str, list[int]]:
    """The numbers of the documents that are in each of these containers, by its `source`."""
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for number, source in enumerate(known.sources.to_pylist()):
        for container in filter(containers.__contains__, folders_above(source)):
            numbers[container].append(number)
    return numbers


def _documents(container: Document, known: KnownRows, numbers: Sequence[int]) -> Iterator[Document]:
    """Yield these documents of the table, which are in the container, as their rows say."""
    for number in numbers:
        source, version = known.sources[number].as_py(), known.version(number)
        address = MemberAddress(container.path, (-1, -1), Member(number, 0, 0, *version, source))
        yield Document(str(address), source, None, None, *version)
