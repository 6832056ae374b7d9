"""The documents of a table as they are now, for those who show or cut out what is in them.

They are looked at in worker processes and under a deadline, like those of a run. What takes several questions is a
generator of them, its steps: it can be begun long before anybody waits for what comes of it.
"""

from __future__ import annotations

import math
import os
import re
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Any, Generic, Self, TypeAlias, TypeVar, cast

from PIL import Image

from batchocr.config import Config
from batchocr.data import Additions, Document, Failure, OutlineEntry, PageResult, SearchableMade
from batchocr.processes.members import list_within
from batchocr.processes.messages import (
    Drawn,
    DrawPage,
    Failed,
    OpenDocument,
    Opened,
    Part,
    ReadPage,
    SearchableWritten,
    Setup,
    Task,
    WriteSearchable,
)
from batchocr.processes.pool import WorkerPool
from batchocr.processes.worker import Arrived, Loss
from batchocr.storage.members import folders_above, is_container
from batchocr.storage.uris import is_uri

Item = TypeVar("Item")
Made = TypeVar("Made")
Steps: TypeAlias = Generator[Task, Any, Made]
"""Steps of work for workers: yields what to ask a worker, is sent its answer or a Failure, returns what was made of
it."""

_WHOLE: Part = ((0.0, 0.0, 1.0, 1.0), "pixels", 0)
_NOT_ITS_PIXELS = Failure("crashed", "the worker process said something else than what the page looks like")
"""The failure of a worker that says something else than what a page looks like, as only one does that a hostile
document has taken over."""

_AHEAD_FOR_EACH = 2
"""How many pages are drawn ahead for each worker: one page is drawn, and one is before it or there already."""
_MOST_LISTED = 8
"""How many archives' lists are kept: some 300 bytes a document."""

_ESCAPED = re.compile(r"\\ud(c[89a-f][0-9a-f])")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A document's file, which is the version that its rows were read from."""

    path: str
    source: str
    doc_id: str
    page_count: int
    size: int
    """The size of the file, in bytes."""
    mtime_ns: int
    outline: tuple[OutlineEntry, ...] = ()
    """The document's outline; empty if it has none, if that cannot be read, or was not asked for."""


def draw_again(task_id: int, file: SourceFile, row: PageResult) -> ReadPage:
    """The task of drawing a page as it was drawn for its row. A page that was scaled down to fit has less than whole
    dpi, and is scaled down again."""
    assert row.page_index is not None
    dpi = None if row.dpi is None else max(1, math.ceil(row.dpi - 1e-6))
    return ReadPage(task_id, file.path, row.page_index, file.size, file.mtime_ns, dpi)


@dataclass(slots=True, eq=False)
class Begun(Generic[Made]):
    """What workers do while their caller does something else."""

    steps: Steps[Made]
    task: Task | None = None
    """What is asked now; None once nothing is left to do."""
    was_killed: bool = False
    """Whether a worker was killed from outside while it did this, so that another worker does it again."""
    made: Made | None = None


class SourceFiles:
    """Finds documents by their `source` in a table, and draws their pages. Belongs to one thread; in a `with` block."""

    def __init__(self, roots: Sequence[str], config: Config, *, workers: int = 1) -> None:
        """roots: folders in which a `source` is looked for, and files that have one.
        Raises BatchOcrError if no worker can be started."""
        self.most_ahead = _AHEAD_FOR_EACH * workers
        """How many pages should be drawn before they are asked for."""
        self._roots = roots
        self._timeout_s = config.page_timeout
        self._task_ids = count()
        self._waiting: deque[Begun[Any]] = deque()
        self._asked: dict[int, Begun[Any]] = {}
        self._pool = WorkerPool(workers, replace(Setup.of(config), text_layer="off"))
        self._members: dict[str, dict[str, str]] = {}
        """The addresses of the documents in the last archives and tables, by the paths of these and of the
        documents."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    def begin(self, steps: Steps[Made]) -> Begun[Made]:
        """Have workers do this, after what was begun before. Raises BatchOcrError if none can be started."""
        begun = Begun(steps)
        self._go_on(begun, None)
        self._hand_out()
        return begun

    def take(self, begun: Begun[Made]) -> Made:
        """What comes of the work begun, as soon as it is done. Raises BatchOcrError if no worker can be started."""
        while begun.task is not None:
            for _, ended in self._pool.ended(self._timeout_s):
                if isinstance(ended, Loss):
                    self._take_back(ended)
                else:
                    answer = ended.failure if isinstance(ended, Failed) else ended
                    self._go_on(self._asked.pop(ended.task_id), answer)
            self._hand_out()
        return cast(Made, begun.made)

    def ahead(self, jobs: Iterable[tuple[Item, Steps[Made]]]) -> Iterator[tuple[Item, Made]]:
        """Yield each item with what comes of its steps, in this order. Workers begin with the first of them when this
        is called, and with each further one a few items before they are asked for."""
        left = iter(jobs)
        begun = deque((item, self.begin(steps)) for item, steps in islice(left, self.most_ahead))

        def taken() -> Iterator[tuple[Item, Made]]:
            while begun:
                item, first = begun.popleft()
                begun.extend((item, self.begin(steps)) for item, steps in islice(left, 1))
                yield item, self.take(first)

        return taken()

    def find(self, source: str, doc_id: str | None) -> SourceFile | Failure:
        """The file of a document, or why it is not there: `changed` if there is only another version. Raises
        BatchOcrError if no worker can be started."""
        return self.take(self.begin(self.finding(source, doc_id, outline=False)))

    def page_image(self, file: SourceFile, row: PageResult) -> Image.Image | Failure:
        """What comes of `drawing_page`. Raises BatchOcrError if no worker can be started."""
        return self.take(self.begin(drawing_page(file, row)))

    def finding(self, source: str, doc_id: str | None, *, outline: bool = True) -> Steps[SourceFile | Failure]:
        """Steps: as in `find`. outline: whether to read that of a PDF."""
        failure = Failure("not_found", f"{source} is not there: say with --input where the documents are")
        if not doc_id:  # it could not be opened
            return failure
        for path in self._candidates(source):
            found: Opened | Failure = yield OpenDocument(0, path, outline)
            if isinstance(found, Failure):
                failure = found
            elif found.doc_id == doc_id:
                version = found.doc_id, found.page_count, found.size, found.mtime_ns
                return SourceFile(path, source, *version, found.outline)
            else:
                failure = Failure("changed", f"{path} has changed since it was read")
        return failure

    def _candidates(self, source: str) -> Iterator[str]:
        """The existing files that the source may be; each once."""
        names = [source, _ESCAPED.sub(lambda escaped: chr(int(f"d{escaped[1]}", 16)), source)]
        candidates = [os.path.join(root, name) for root in self._roots for name in names if os.path.isdir(root)]
        candidates += [root for root in self._roots if os.path.basename(root) == os.path.basename(source)]
        for root in filter(is_container, self._roots):
            _, is_within, name = f"/{source}".partition(f"/{os.path.basename(root)}/")
            candidates += [f"{root}/{name}"] if is_within else []
        candidates, objects = list(dict.fromkeys(candidates + names)), list(_objects(self._roots, source))
        yield from filter(os.path.isfile, candidates)
        yield from objects
        yield from (member for path in candidates + objects if (member := self._member(path)))

    def _member(self, path: str) -> str | None:
        """The address of a document within a file, of this path below that of the file; None if it is none."""
        above = folders_above(path)
        container = next((each for each in above if is_container(each) and (is_uri(each) or os.path.isfile(each))), "")
        if not container:
            return None
        real = container if is_uri(container) else os.path.realpath(container)
        if real not in self._members:
            with WorkerPool(1, self._pool.setup) as pool:
                [within] = list_within([Document(real, real)], pool)
            if len(self._members) >= _MOST_LISTED:
                del self._members[next(iter(self._members))]
            self._members[real] = {found.source: found.path for found in within.documents}
        return self._members[real].get(real + path[len(container) :])

    def _hand_out(self) -> None:
        """Give the workers as much waiting work as they have room for."""
        self._pool.recycle_workers()
        while self._waiting and (workers := self._pool.with_room()):
            task_id, begun = next(self._task_ids), self._waiting.popleft()
            self._asked[task_id] = begun
            workers[0].send(replace(cast(Task, begun.task), task_id=task_id))

    def _go_on(self, begun: Begun[Any], answer: Arrived | Failure | None) -> None:
        """Take the next step; the first, if there is no answer yet."""
        try:
            begun.task = begun.steps.send(answer)
            self._waiting.append(begun)
        except StopIteration as end:
            begun.made, begun.task = end.value, None

    def _take_back(self, loss: Loss) -> None:
        """Have other workers do what a lost one had before it. It did one after the other, so the first is to blame;
        but a kill from outside is nobody's fault, the first time."""
        first, *others = sorted(loss.task_ids)
        self._waiting.extendleft(self._asked.pop(task_id) for task_id in reversed(others))
        begun = self._asked.pop(first)
        if loss.killed and not begun.was_killed:
            begun.was_killed = True
            self._waiting.appendleft(begun)
        else:
            self._go_on(begun, loss.failure)


def drawing(
    file: SourceFile | Failure, row: PageResult, parts: Sequence[Part]
) -> Steps[Mapping[Part, bytes] | Failure]:
    """Steps: parts of the page of a row as it was read, each empty if it has no area; or why the page cannot be
    drawn."""
    if isinstance(file, Failure):
        return file
    if row.doc_id != file.doc_id:
        return Failure("changed", f"{row.source} has changed since this page was read")
    if not (row.width and row.height):
        return Failure("damaged", "the row is of no page that could be drawn")
    with open(os.memfd_create("batchocr-parts"), "rb") as memory:
        to = f"/proc/{os.getpid()}/fd/{memory.fileno()}"
        drawn: Drawn | Failure = yield DrawPage(0, draw_again(0, file, row), (row.width, row.height), tuple(parts), to)
        if isinstance(drawn, Failure):
            return drawn
        return {part: memory.read(size) for part, size in zip(parts, drawn.sizes, strict=True)}


def drawing_page(file: SourceFile | Failure, row: PageResult) -> Steps[Image.Image | Failure]:
    """Steps: the page of a row as it was read: RGB, row.width × row.height px; or why it cannot be drawn."""
    drawn = yield from drawing(file, row, [_WHOLE])
    if isinstance(drawn, Failure):
        return drawn
    size = row.width or 0, row.height or 0
    if len(drawn[_WHOLE]) != 3 * size[0] * size[1]:
        return _NOT_ITS_PIXELS
    return Image.frombytes("RGB", size, drawn[_WHOLE])


def writing_searchable(
    file: SourceFile, text_path: str, to_path: str, additions: Additions
) -> Steps[SearchableMade | Failure]:
    """Steps: write the document as a PDF with the text of its pages, as in `WriteSearchable`."""
    task = WriteSearchable(0, file.path, file.size, file.mtime_ns, text_path, to_path, additions)
    written: SearchableWritten | Failure = yield task
    return written if isinstance(written, Failure) else written.made


def _objects(roots: Sequence[str], source: str) -> Iterator[str]:
    """The objects of stores that the source may be; whether they exist, asking for them says."""
    if is_uri(source):
        yield source
        return
    for root in filter(is_uri, roots):
        yield root if root.endswith(f"/{source}") else f"{root.rstrip('/')}/{source}"
