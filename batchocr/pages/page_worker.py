"""A page's life in a worker process: opened, rendered, read in batches of questions, finished."""

from __future__ import annotations

import os
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

from batchocr.data import Completion, Failure, OrientationUse, OutlineEntry, Page, PageSeen
from batchocr.errors import ChangedError, PageError, RefusedError, TooLargeError
from batchocr.pages.documents import DocumentCache
from batchocr.pages.input.pdf import PdfDocument
from batchocr.pages.orientation import orientation_of
from batchocr.pages.parts import cut_out
from batchocr.pages.protocol.agreement import agreement_of
from batchocr.pages.protocol.base import PageProtocol, Reader
from batchocr.pages.turning import turned_back, turned_page
from batchocr.processes.channel import Channel, ChannelError
from batchocr.processes.messages import (
    Activity,
    Began,
    Completions,
    Drawn,
    DrawPage,
    Ended,
    Failed,
    Finished,
    FromWorker,
    ListMembers,
    LookAtPages,
    OfTask,
    OpenDocument,
    Opened,
    PagesSeen,
    ReadPage,
    RequestBatch,
    SearchableWritten,
    Started,
    Task,
    ToWorker,
    WriteSearchable,
)
from batchocr.processes.pixels import share_batch
from batchocr.storage.members import MemberAddress, file_of, is_compressed, is_member


class PageWorker:
    """Does what the run asks for, one thing at a time, until the run closes the channel.

    Many pages are in progress at once, each waiting for its completions. Those that have them go before new tasks.
    """

    def __init__(
        self,
        channel: Channel[FromWorker, ToWorker],
        protocol: PageProtocol | None,
        documents: DocumentCache,
        orientation: OrientationUse = "off",
    ) -> None:
        """protocol: None if no page is to be read. orientation: what to do about pages that do not stand upright."""
        self._channel = channel
        self._protocol = protocol
        self._documents = documents
        self._orientation = orientation
        self._new: deque[Task] = deque()
        self._answered: deque[Completions] = deque()
        self._in_work: dict[int, Reader] = {}
        """The readers of the pages that wait for their completions, by task."""
        self._doc_id: str | None = None  # of the document being opened, once it is known

    def run(self) -> None:
        """Work until the channel closes. Raises ChannelError if the run breaks the protocol."""
        self._channel.send(Started())
        while self._take_messages():
            self._do(self._answered.popleft() if self._answered else self._new.popleft())

    def _take_messages(self) -> bool:
        """Take what has arrived, waiting if there is nothing to do. Returns False when the run is gone."""
        while True:
            for message, _ in self._channel.receive():
                if isinstance(message, Completions):
                    self._answered.append(message)
                elif isinstance(message, Task):
                    self._new.append(message)
            if self._channel.closed:
                return False
            if self._answered or self._new:
                return True
            self._channel.wait()

    def _do(self, message: Task | Completions) -> None:
        """Do a task, or go on with it, and say what came of it. Whatever goes wrong fails this task, and no other."""
        self._doc_id = None
        try:
            outcome, pixels = self._outcome(message)
            self._channel.send(outcome, pixels)
        except ChannelError:
            raise
        except Exception as error:  # noqa: BLE001 (boundary: a page in a worker)
            self._in_work.pop(message.task_id, None)
            doc_id = None if isinstance(error, ChangedError) else self._doc_id
            self._channel.send(Failed(message.task_id, _failure(error), doc_id))

    def _outcome(self, message: Task | Completions) -> tuple[OfTask, int | None]:
        """What comes of a task, with the descriptor of a batch's pixels."""
        if not isinstance(message, Completions):
            self._unpack(message)
        if isinstance(message, OpenDocument):
            return self._open(message), None
        if isinstance(message, LookAtPages):
            return self._look(message), None
        if isinstance(message, ListMembers):
            return self._list(message), None
        if isinstance(message, WriteSearchable):
            return self._write(message), None
        if isinstance(message, DrawPage):
            return self._draw(message), None
        return self._read(message) if isinstance(message, ReadPage) else self._go_on(message)

    def _unpack(self, task: Task) -> None:
        """Unpack the compressed tar in which the document is, however long that takes."""
        path = task.page.path if isinstance(task, DrawPage) else task.path
        if is_member(path) and is_compressed(file_of(path)):
            address = MemberAddress.parse(path)
            with self._during(task.task_id, "open") as next_step:
                for _ in self._documents.containers.unpacking(address.container, address.version):
                    next_step()

    def _open(self, task: OpenDocument) -> Opened:
        with self._during(task.task_id, "open"):
            self._doc_id, size, mtime_ns = self._documents.fingerprint(task.path)
            with self._documents.open(task.path, size, mtime_ns) as document:
                page_count = document.page_count
                outline: tuple[OutlineEntry, ...] = ()
                with suppress(PageError):
                    outline = tuple(document.outline()) if task.with_outline else ()
            doubted = self._documents.is_doubted(task.path)
        return Opened(task.task_id, page_count, self._doc_id, size, mtime_ns, doubted, outline)

    def _look(self, task: LookAtPages) -> PagesSeen:
        pages: list[PageSeen | None] = []
        with (
            self._during(task.task_id, "open") as next_step,
            self._documents.open(task.path, task.size, task.mtime_ns) as document,
        ):
            for page_index in task.page_indices:
                next_step()
                try:
                    pages.append(document.look(page_index))
                except PageError:
                    pages.append(None)
        return PagesSeen(task.task_id, document.format, tuple(pages))

    def _list(self, task: ListMembers) -> OfTask:
        with self._during(task.task_id, "open"):
            return self._documents.containers.list(task)

    def _draw(self, task: DrawPage) -> Drawn:
        page = task.page
        with (
            self._during(task.task_id, "render") as next_step,
            self._documents.open(page.path, page.size, page.mtime_ns) as document,
        ):
            image = document.render(page.page_index, page.dpi).image
            if image.size != task.size:
                raise ChangedError(f"the page is now drawn with {image.width} × {image.height} px")
            with open(task.to_path, "wb", buffering=0) as file:
                sizes = []
                for part in task.parts:
                    next_step()
                    sizes.append(file.write(cut_out(image, part)))
                    if not task.takes(sizes):
                        raise TooLargeError("the figures found on this page have more bytes together than four pages")
        return Drawn(task.task_id, tuple(sizes))

    def _write(self, task: WriteSearchable) -> SearchableWritten:
        from batchocr.pages.searchable.write import write_searchable  # only an export needs it

        with (
            self._during(task.task_id, "render") as next_step,
            self._documents.open(task.path, task.size, task.mtime_ns) as document,
        ):
            path = self._documents.local_path(task.path)
            steps = write_searchable(document, path, task.additions, text_path=task.text_path, to_path=task.to_path)
            while (made := next(steps)) is None:
                next_step()
        return SearchableWritten(task.task_id, made)

    def _read(self, task: ReadPage) -> tuple[RequestBatch | Finished, int | None]:
        assert self._protocol is not None
        with self._during(task.task_id, "render"):
            with self._documents.open(task.path, task.size, task.mtime_ns) as document:
                page = document.render(task.page_index, task.dpi)
            if page.words and not page.glyphs:
                page = replace(page, again=partial(self._draw_again, task))
            orientation = self._orientation_of(page)
            turn = orientation if self._orientation == "turn" else None
            reader = self._protocol.read(turned_page(page, turn) if turn else page)
            return self._advance(task.task_id, _with_facts(page, reader, orientation, turn), None)

    def _orientation_of(self, page: Page) -> int | None:
        """How the page stands, if that is to be looked at. A page that is not to be turned is read without, too."""
        try:
            return None if self._orientation == "off" else orientation_of(page)
        except ImportError as error:
            if self._orientation == "check":
                return None
            raise RefusedError(f"how the page stands cannot be seen: install onnxruntime again: {error}") from error

    def _draw_again(self, task: ReadPage) -> Page | None:
        """The page with its glyphs; None if it cannot be drawn any more."""
        with suppress(PageError, MemoryError), self._documents.open(task.path, task.size, task.mtime_ns) as document:
            assert isinstance(document, PdfDocument), "only a PDF has words"
            return document.render(task.page_index, task.dpi, with_glyphs=True)
        return None

    def _go_on(self, answers: Completions) -> tuple[RequestBatch | Finished, int | None]:
        with self._during(answers.task_id, "post-process"):
            return self._advance(answers.task_id, self._in_work.pop(answers.task_id), list(answers.completions))

    def _advance(
        self, task_id: int, reader: Reader, completions: list[Completion] | None
    ) -> tuple[RequestBatch | Finished, int | None]:
        """Continue reading the page. Returns its next batch with the descriptor of its pixels, or the finished page."""
        try:
            requests = next(reader) if completions is None else reader.send(completions)
            while not requests:
                requests = reader.send([])
        except StopIteration as end:
            return Finished(task_id, end.value), None
        self._in_work[task_id] = reader
        return share_batch(task_id, requests)

    @contextmanager
    def _during(self, task_id: int, activity: Activity) -> Iterator[Callable[[], None]]:
        """Tell the run what is about to be done: it may never end. Yields what to call between steps of it that may
        each take as long as the whole usually may."""
        started_s = time.monotonic()

        def next_step() -> None:
            nonlocal started_s
            self._channel.send(Ended(task_id, activity, time.monotonic() - started_s))
            self._channel.send(Began(task_id, activity))
            started_s = time.monotonic()

        self._channel.send(Began(task_id, activity))
        try:
            yield next_step
        finally:
            self._channel.send(Ended(task_id, activity, time.monotonic() - started_s))


def _with_facts(page: Page, reader: Reader, orientation: int | None, turn: int | None) -> Reader:
    """The reader, changed so that its reading also has what is known of the page itself, and is in the frame of the
    page as it is. turn: by how many degrees the page was turned for the reader."""
    (width, height), dpi, words, shortfalls = page.image.size, page.dpi, page.words, (page.lost, page.doubt)
    del page  # its pixels do not stay here while the model answers
    read = yield from reader
    read = turned_back(read, turn) if turn else read
    return replace(
        read,
        orientation=orientation,
        error_message="; ".join(filter(None, [*shortfalls, read.error_message])) or None,
        text_layer_agreement=agreement_of(words, read.blocks),
        width=width,
        height=height,
        dpi=dpi,
    )


def _failure(error: Exception) -> Failure:
    """What a row says about an error."""
    if isinstance(error, PageError):
        return Failure(error.error_kind, str(error))
    if isinstance(error, MemoryError):
        return Failure("out_of_memory", "it needs more memory than a worker may have (--worker-memory)")
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{os.path.basename(place.filename)}, line {place.lineno}"
    return Failure("internal", f"a bug in batchocr: {type(error).__name__}: {error} ({where})")
