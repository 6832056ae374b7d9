"""From what the user named to the documents to read.

Only lists are opened here: whether a file is a document turns out when a worker opens it; and what is in an archive or
a table, a worker lists. Whatever is missing or cannot be read is a Document too, so that it becomes a row. A link that
is itself an INPUT is followed; beside its target a link counts for nothing: each file is read once, under its own name.

A document's `source`: if the first INPUT is a folder, what is in it is named by the path below that folder. Everything
else is named by its path as given (an INPUT, a line of a list, a match of a glob), and for a folder, or an archive, the
path below it. So an INPUT can be added at the end, and files to any INPUT, without another name for what was there.
(Only where the first folder gets a file whose path there is that of a later INPUT's file does that one go by its
absolute path.)
"""

from __future__ import annotations

import hashlib
import logging
import os
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from itertools import chain, count, islice
from pathlib import PurePath
from typing import TextIO

from batchocr.config import Config
from batchocr.data import Document, counted, valid_text
from batchocr.errors import BatchOcrError, NoInputError, UsageError
from batchocr.machine import usable_cores
from batchocr.pages.input.folders import SUFFIXES, SkippedFiles, describe_skipped, num_links
from batchocr.pages.input.globs import WILDCARD
from batchocr.pages.input.inputs import Search, expand
from batchocr.processes.members import Within, list_within
from batchocr.processes.messages import Setup
from batchocr.processes.pool import WorkerPool
from batchocr.storage.listing import Documents, repeated
from batchocr.storage.members import CONTAINERS, WholeContainer, file_of, folders_above, is_container, is_member
from batchocr.storage.uris import is_uri, parse_uri

logger = logging.getLogger(__name__)

PageList = Mapping[str, Set[int] | None]
"""The pages to read of documents, by their `source`; None for all."""
Known = Callable[[Sequence[Document]], Iterable[Within]]
"""A function that says what is in some of these containers, which then need not be listed."""

_NOTHING = ("not_found", "unreadable", "unsupported")
"""What is wrong with an INPUT in which there is nothing to read; of another one, a row says what it is."""
_MAX_NAMED = 10
_MAX_TOLD = 100
"""How many inputs and problems an error message spells out."""


@dataclass(frozen=True, slots=True)
class Found:
    """What the INPUTs hold."""

    documents: Documents
    """What to read, in order."""
    skipped: Mapping[str, int]
    """How many files are left out because of their suffix, or because an export has cut them (see SkippedFiles): of the
    whole input, whatever the shard."""
    roots: tuple[str, ...] = ()
    """The folders below which a document's `source` is its path."""
    empty: Mapping[str, str] = field(default_factory=dict)
    """The folders that hold no document, and archives and tables that cannot be listed to their end, each with what the
    `source` of a document in it would begin with."""
    not_drawn: Set[str] = frozenset()
    """The `source` of each document that is not of the sample, or has none of the pages."""
    inputs: tuple[str, ...] = ()
    """The first hundred INPUTs, as they were given."""
    containers: Mapping[str, WholeContainer] = field(default_factory=dict)
    """The archives and tables, by their `source`, of which all documents of this shard are known."""

    def container_of(self, source: str) -> str | None:
        """The container that a document of this `source` is, or was, in."""
        return next(filter(self.containers.__contains__, folders_above(source) if self.containers else ()), None)


def find_documents(
    inputs: Sequence[str | Document],
    *,
    stdin: TextIO | None = None,
    null: bool = False,
    follow_symlinks: bool = False,
    shard: tuple[int, int] = (1, 1),
    sample: int | None = None,
    only: PageList | None = None,
    setup: Setup | None = None,
    known: Known | None = None,
) -> Found:
    """Return the documents that `inputs` name: in that order, folders in natural order, each file once.

    inputs: Documents are taken as they are. stdin: where the paths for the INPUT `-` are read from. null: paths there
    and in lists are separated by NUL. follow_symlinks: also follow links that lead out of a folder or a glob. shard:
    return only the documents of one shard, (index from 1, count). sample: return only so many of them, drawn by their
    names; a larger sample has all of a smaller one. only: return only documents with these pages. setup: of the workers
    that list archives. known: says what is in those that need not be listed.
    Raises NoInputError if there is nothing that could be read, UsageError if a given Document has the name of another
    or the current folder is gone.
    """
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise UsageError("the current folder was deleted: change into another, and start again") from error
    search = Search(stdin, null, follow_symlinks, SkippedFiles())
    kept, empty = _expand_all(inputs, search)
    setup = setup or Setup.of(Config())
    within = _within(kept, setup, known)
    if within:
        kept = Documents(_with_members(kept, within, search.skipped))
    if all(document.problem and document.problem.kind in _NOTHING for document in kept):
        raise _nothing_found(inputs, kept, search.skipped)
    named = Documents(_named(kept, inputs, search)) if repeated(kept.names()) else kept
    documents = named if shard[1] == 1 else named.where(in_shard(source, *shard) for source in named.names())
    if not documents:
        logger.info("shard %d of %d has none of %s", *shard, counted(len(named), "document"))
    chosen = documents
    if only is not None:
        _require_named(only, named.names())
        chosen = Documents(replace(each, pages=only[each.source]) for each in documents if each.source in only)
    if sample is not None:
        drawn = set(nsmallest(sample, chosen.names(), key=_sampling_key))
        chosen = chosen.where(source in drawn for source in chosen.names())
    not_drawn = set() if chosen is documents else set(documents.names()).difference(chosen.names())
    for folder in empty:
        if os.listdir(folder):
            logger.warning("nothing in %s is read: hidden files and other suffixes are skipped", folder)
    empty |= {path: f"{each.container.source}/" for path, each in within.items() if each.version is None}
    names = tuple(valid_text(given if isinstance(given, str) else given.source) for given in inputs[:_MAX_TOLD])
    whole = _whole(within, documents, setup)
    return Found(chosen, search.skipped.by_kind(), _roots(inputs), empty, not_drawn, names, whole)


def _expand_all(inputs: Sequence[str | Document], search: Search) -> tuple[Documents, dict[str, str]]:
    """What the INPUTs name, each file once; and the folders that hold no document, as `Found.empty` has them."""
    hashes, positions = array("q"), array("i")

    def found() -> Iterator[Document]:
        for position, given in enumerate(inputs):
            for real, document in expand(given, search, is_first=position == 0):
                hashes.append(hash(real))
                positions.append(position)
                yield document

    documents = Documents(found())
    _warn_of_delta_tables(inputs, documents)
    with_some = set(positions)
    empty = {
        given: "" if position == 0 else f"{PurePath(given).as_posix()}/"
        for position, given in enumerate(inputs)
        if isinstance(given, str) and position not in with_some and os.path.isdir(given)
    }
    return _one_of_each(documents, hashes, positions, search), empty


def _warn_of_delta_tables(inputs: Sequence[str | Document], found: Documents) -> None:
    """Warn of a folder of Delta Lake, if an INPUT is one, or has a table that was found."""
    tables = (path for path in found.paths() if path.lower().endswith(".parquet"))
    folders = {str(folder) for table in tables for folder in PurePath(table).parents}
    folders |= {given for given in inputs if isinstance(given, str)}
    if delta := next((folder for folder in sorted(folders) if os.path.isdir(f"{folder}/_delta_log")), None):
        logger.warning(
            "%s is a Delta table: deleted rows may be in its files; export it, and read that", valid_text(delta)
        )


def _require_named(only: PageList, names: Iterable[str]) -> None:
    """Log documents of a page list that are not among these names. Raises NoInputError if none is."""
    if absent := sorted({*only}.difference(names)):
        what = f"of {counted(len(only), 'document')} that --only names, {len(absent):,} are not in the INPUTs"
        if len(absent) == len(only):
            raise NoInputError(f"{what}, {absent[0]!r} among them: give the INPUTs of the run that named them")
        logger.warning("%s, %r among them", what, absent[0])


def _sampling_key(source: str) -> bytes:
    return hashlib.sha256(b"sample:" + source.encode()).digest()  # other than that of a shard


def _roots(inputs: Sequence[str | Document]) -> tuple[str, ...]:
    first, here = inputs[0], os.getcwd()
    if isinstance(first, str) and is_uri(first):
        return str(parse_uri(first)), here
    if isinstance(first, str) and os.path.isdir(first):
        return tuple(dict.fromkeys([os.path.abspath(first), here]))
    return (here,)


def in_shard(source: str, index: int, count: int) -> bool:
    """Return whether the document is in shard `index` (from 1) of `count`: the same on every machine, in every run."""
    digest = hashlib.sha256(source.encode()).digest()
    return int.from_bytes(digest[:8], "big") % count == index - 1


def _one_of_each(documents: Documents, hashes: Sequence[int], positions: Sequence[int], search: Search) -> Documents:
    """Each file once: as the first INPUT that has it names it, there by its path with the fewest links, else the first.

    Hard links and copies count as separate files. hashes: of that by which each is recognised (`FoundInput.real`).
    positions: of the INPUT that each is of.
    """
    same = defaultdict[tuple[int, str], list[int]](list)
    for index in repeated(hashes):
        same[hashes[index], _real_path(documents[index], search)].append(index)
    kept: dict[int, int] = {}
    for indices in same.values():
        of_first = [index for index in indices if positions[index] == positions[indices[0]]]
        plainest = min(of_first, key=lambda index: num_links(documents[index].path)) if of_first[1:] else of_first[0]
        kept |= {index: plainest for index in indices if index != plainest}
    for index in sorted(kept):
        logger.info("%s is left out: it is the same file as %s", documents[index].path, documents[kept[index]].path)
    return documents.where(index not in kept for index in range(len(documents))) if kept else documents


def _real_path(document: Document, search: Search) -> str:
    """The document's path with links resolved; that of a file that is not there, as it is."""
    if is_uri(document.path):
        return document.path
    if document.problem:
        return os.path.abspath(document.path)
    folder, name = os.path.split(document.path)
    is_link = os.path.islink(document.path)
    return os.path.realpath(document.path) if is_link else os.path.join(search.real_folder(folder), name)


def _within(found: Documents, setup: Setup, known: Known | None) -> dict[str, Within]:
    """What is in each of the files that hold documents, by its path. Raises BatchOcrError if no worker can be
    started."""
    places = (index for index, path in enumerate(found.paths()) if is_container(path))
    containers = [document for document in map(found.__getitem__, places) if not document.problem]
    within = {each.container.path: each for each in known(containers)} if containers and known else {}
    if unknown := [document for document in containers if document.path not in within]:
        with WorkerPool(min(len(unknown), usable_cores()), setup) as pool:
            within |= {each.container.path: each for each in list_within(unknown, pool)}
    return within


def _with_members(found: Documents, within: Mapping[str, Within], skipped: SkippedFiles) -> Iterator[Document]:
    """Yield the documents, in place of files that hold documents those in them."""
    for document in found:
        if (inside := within.get(document.path)) is None:
            yield document
        else:
            skipped.add(inside.skipped)
            yield from inside.documents


def _whole(within: Mapping[str, Within], documents: Documents, setup: Setup) -> dict[str, WholeContainer]:
    """The files that were listed to their end, by their `source`. documents: those of this shard."""
    counts = Counter(file_of(path) for path in documents.paths() if is_member(path)) if within else Counter[str]()
    columns = setup.document_column, setup.name_column
    return {
        valid_text(found.container.source): WholeContainer(*found.version, *columns, counts[path], setup.zip_encoding)
        for path, found in within.items()
        if found.version is not None
    }


def _named(documents: Documents, inputs: Sequence[str | Document], search: Search) -> Iterator[Document]:
    """Yield each document under its `source`; where an earlier one has the same, under its absolute path. Raises
    UsageError if it is a Document that was given, as those are to keep their names."""
    taken: dict[str, bool] = {}
    for document in documents:
        source = document.source
        if source in taken:
            if document in inputs:
                raise UsageError(f"another document is named {source!r} already: give the one in memory another name")
            if taken[source] or is_member(document.path):
                raise UsageError(f"{source!r} is in an archive, and in a folder of its name: rename one of them")
            absolute = valid_text(_real_path(document, search))
            numbered = (f"{absolute} ({number})" for number in count(2))  # of another file whose name is not text
            document = replace(
                document, source=next(name for name in chain((absolute,), numbered) if name not in taken)
            )
        taken[document.source] = is_member(document.path)
        yield document


def _nothing_found(inputs: Sequence[str | Document], documents: Documents, skipped: SkippedFiles) -> BatchOcrError:
    """What is wrong if there is no document to read: wrong usage if every INPUT is a path that does not exist, or a
    table that has no such column; a prefix or a glob may have something tomorrow."""
    problems = {document.path: found for document in documents if (found := document.problem)}
    said = "; ".join(found.message for found in islice(problems.values(), _MAX_NAMED))
    given = {*map(str, inputs)}
    paths = {name for name in given if not (is_uri(name) or WILDCARD.search(name))}
    kinds = {found.kind if found.kind == "unsupported" or path in paths else None for path, found in problems.items()}
    if 0 < len(given) <= len(problems) and kinds <= {"not_found", "unsupported"}:
        return UsageError(f"{said}; there is nothing to read")
    names = [given.source if isinstance(given, Document) else given for given in inputs[:_MAX_NAMED]]
    stdin = "stdin" if problems else "stdin, which names none"
    texts = [stdin if name == "-" else valid_text(name) for name in names]
    if others := describe_skipped(skipped.by_kind()):
        others = f"; {others}. Read are {' '.join(SUFFIXES)}; and if they are named, {' '.join(CONTAINERS)}"
    looked = f"no document to read; looked in {', '.join(texts) or 'nothing'}"
    return NoInputError(f"{looked}: {said or 'no document is there that is not hidden'}{others}")
