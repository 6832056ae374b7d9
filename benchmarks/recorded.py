"""Pages recorded with what the protocol asks about them and makes of the answers: for workers that do no work of their
own. The pixels of a question are its place in the recording. Loads no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from batchocr.data import Page, Pixels, Reading, Request, Sampling
from batchocr.pages.input.render import open_document
from batchocr.pages.input.sources import find_documents
from batchocr.pages.protocol.mineru import MinerUProtocol
from benchmarks.foreseen import Foreseen, pixels_key

_SIDE = 4


@dataclass(frozen=True, slots=True)
class RecordedQuestion:
    """answer: what it is answered with."""

    prompt: str
    sampling: Sampling
    resize_to: tuple[int, int] | None
    answer: Foreseen


@dataclass(frozen=True, slots=True)
class RecordedPage:
    """rounds: what the protocol asks. reading: what it returns in the end."""

    rounds: tuple[tuple[RecordedQuestion, ...], ...]
    reading: Reading

    def requests(self, number: int, round: int) -> list[Request]:
        """The questions of a round. number: of the page in the recording."""
        return [
            Request(place_as_pixels(number, round, position), each.prompt, each.sampling, each.resize_to, round)
            for position, each in enumerate(self.rounds[round])
        ]


Recording = tuple[RecordedPage, ...]
_RECORDING: TypeAdapter[Recording] = TypeAdapter(Recording)


def record_pages(inputs: Sequence[str], answers: Mapping[bytes, Foreseen]) -> Recording:
    """All pages of the documents, read with these answers."""
    protocol = MinerUProtocol(max_new_tokens=8192, penalties=True)
    return tuple(_record_page(protocol, page, answers) for page in _pages(inputs))


def _pages(inputs: Sequence[str]) -> Iterator[Page]:
    for document in find_documents(inputs).documents:
        opened = open_document(document.path, password=None, dpi=200)
        for index in range(opened.page_count):
            yield opened.render(index)
        opened.close()


def _record_page(protocol: MinerUProtocol, page: Page, answers: Mapping[bytes, Foreseen]) -> RecordedPage:
    reader, rounds = protocol.read(page), []
    requests = next(reader)
    while True:
        rounds.append(
            tuple(
                RecordedQuestion(each.prompt, each.sampling, each.resize_to, answers[pixels_key(each.pixels)])
                for each in requests
            )
        )
        try:
            requests = reader.send([question.answer.completion for question in rounds[-1]])
        except StopIteration as end:
            return RecordedPage(tuple(rounds), end.value)


def foreseen_of(recording: Recording) -> dict[bytes, Foreseen]:
    """The answers to all questions of the recording, when it is played."""
    return {
        pixels_key(place_as_pixels(number, round, position)): question.answer
        for number, page in enumerate(recording)
        for round, questions in enumerate(page.rounds)
        for position, question in enumerate(questions)
    }


def place_as_pixels(page: int, round: int, position: int) -> Pixels:
    return Pixels(_SIDE, _SIDE, (b"%d/%d/%d" % (page, round, position)).ljust(3 * _SIDE * _SIDE))


def write_recording(path: Path, recording: Recording) -> None:
    path.write_bytes(_RECORDING.dump_json(recording))


def read_recording(path: Path) -> Recording:
    return _RECORDING.validate_json(path.read_bytes())
