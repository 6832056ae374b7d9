"""What `batchocr audit` finds: truth is damaged on purpose, and compared with what the second reader reads.

    python -m benchmarks.accuracy.audit sample_data/exam report.pdf:0 report.pdf:3 --lines /tmp/lines

A folder has a `truth.jsonl` as in `benchmarks.accuracy`; of a PDF it is the text layer of the page, counted from 0.
Prints how many of each damage are found, how many sound pages are flagged, and the time a page takes. What the second
reader reads is kept in the folder `--lines`, as it takes nearly all of the time.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pymupdf

from batchocr.data import Block
from batchocr.documents.audit.compare import compare_page
from batchocr.documents.audit.lines import ReadLine, lines_of
from batchocr.documents.findings import AuditFinding
from batchocr.pages.input.render import open_document
from batchocr.pages.protocol.second_reader import SecondReader

_SENTENCE = re.compile(r"[^.!?。！？]+[.!?。！？]+\s*")
_NUMBER = re.compile(r"\d{3,}")
_MIN_LETTERS = 20
_LINE_LETTERS = 70
_INK = ("text", "title", "list_item", "table", "table_caption", "image_caption", "header", "footer")

Damage = Callable[[list[Block], random.Random], list[Block] | None]


@dataclass(frozen=True)
class TruePage:
    """A page, its true blocks, and its lines as the second reader reads them. seconds: that it took for them."""

    name: str
    blocks: list[Block]
    lines: list[ReadLine]
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", help="folders with a truth.jsonl, or PDF:PAGE")
    parser.add_argument("--lines", type=Path, required=True, help="folder in which lines are kept")
    parser.add_argument("--trials", type=int, default=8, help="damages of each kind for each page")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    given.lines.mkdir(exist_ok=True)
    pages = [page for source in given.sources for page in true_pages(source, given.lines)]
    print_figures(pages, given.trials, given.seed)


def print_figures(pages: Sequence[TruePage], trials: int, seed: int) -> None:
    generator = random.Random(seed)
    flagged, found, tried = 0, Counter[str](), Counter[str]()
    for page in pages:
        sound = compare_page(page.blocks, page.lines).findings
        flagged += bool(sound)
        for name, (damage, kinds) in DAMAGES.items():
            for _ in range(trials):
                damaged = damage(list(page.blocks), generator)
                if damaged is None:
                    continue
                tried[name] += 1
                new = _new(compare_page(damaged, page.lines).findings, sound)
                found[name] += any(finding.kind in kinds for finding in new)
    for name in tried:
        print(f"{name:20} {found[name]:5} of {tried[name]:5} found  {found[name] / tried[name]:.1%}")
    print(f"{'sound pages':20} {flagged:5} of {len(pages):5} flagged  {flagged / len(pages):.1%}")
    print(f"{'seconds a page':20} {sum(page.seconds for page in pages) / len(pages):5.1f}")


def _new(findings: Sequence[AuditFinding], before: Sequence[AuditFinding]) -> list[AuditFinding]:
    known = {(finding.kind, finding.text, finding.second_text) for finding in before}
    return [finding for finding in findings if (finding.kind, finding.text, finding.second_text) not in known]


def true_pages(source: str, kept: Path) -> Iterator[TruePage]:
    path, _, page = source.rpartition(":")
    if path.endswith(".pdf"):
        yield _with_lines(path, int(page), _text_layer(path, int(page)), kept)
        return
    for line in (Path(source) / "truth.jsonl").read_text().splitlines():
        row = json.loads(line)
        blocks = [
            Block(block["type"], tuple(block["bbox"] or (0.0, 0.0, 1.0, 1.0)), 0, block["content"] or None)
            for block in row["blocks"]
        ]
        yield _with_lines(os.path.join(source, row["source"]), row["page_index"], blocks, kept)


def _text_layer(path: str, number: int) -> list[Block]:
    page = pymupdf.open(path)[number]
    width, height = page.rect.width, page.rect.height
    seen = [*page.cluster_drawings(), *(picture["bbox"] for picture in page.get_image_info())]
    pictures = [
        Block("image", (x0 / width, y0 / height, x1 / width, y1 / height), 0, None)
        for x0, y0, x1, y1 in seen
        if not page.get_textbox((x0, y0, x1, y1)).strip()
    ]
    return pictures + [
        Block("text", (x0 / width, y0 / height, x1 / width, y1 / height), 0, " ".join(text.split()))
        for x0, y0, x1, y1, text, _, kind in page.get_text("blocks")
        if kind == 0 and text.strip()
    ]


def _with_lines(path: str, number: int, blocks: list[Block], kept: Path) -> TruePage:
    file = kept / f"{os.path.basename(path)}.{number}.json"
    if not file.exists():
        page = open_document(path, password=None, dpi=200).render(number)
        started_s = time.perf_counter()
        reader = SecondReader().read(page)
        next(reader)
        try:
            reader.send([])
        except StopIteration as end:
            read = [asdict(block) for block in end.value.blocks]
        file.write_text(json.dumps({"seconds": time.perf_counter() - started_s, "blocks": read}))
    found = json.loads(file.read_text())
    lines = lines_of([Block(**block) for block in found["blocks"]])
    return TruePage(f"{os.path.basename(path)}:{number}", blocks, lines, found["seconds"])


def _texts(blocks: Sequence[Block], least: int = _MIN_LETTERS) -> list[int]:
    """The blocks of text that are long enough to be damaged."""
    return [
        index
        for index, block in enumerate(blocks)
        if block.type in _INK and block.type != "table" and _letters(block.content or "") >= least
    ]


def _letters(text: str) -> int:
    return sum(character.isalnum() for character in text)


def drop_block(blocks: list[Block], generator: random.Random) -> list[Block] | None:
    places = _texts(blocks)
    if len(blocks) < 2 or not places:
        return None
    del blocks[generator.choice(places)]
    return blocks


def drop_line(blocks: list[Block], generator: random.Random) -> list[Block] | None:
    places = _texts(blocks, 3 * _LINE_LETTERS)
    if not places:
        return None
    index = generator.choice(places)
    words = (blocks[index].content or "").split(" ")
    first = generator.randrange(len(words))
    last = first
    while last < len(words) and len(" ".join(words[first:last])) < _LINE_LETTERS:
        last += 1
    dropped = " ".join(words[first:last])
    if _letters(dropped) < _MIN_LETTERS or "\\(" in dropped:
        return None
    return _with_content(blocks, index, " ".join(words[:first] + words[last:]))


def drop_sentence(blocks: list[Block], generator: random.Random) -> list[Block] | None:
    places = _texts(blocks, 2 * _MIN_LETTERS)
    for index in generator.sample(places, len(places)):
        content = blocks[index].content or ""
        sentences = [match for match in _SENTENCE.finditer(content) if _letters(match[0]) >= _MIN_LETTERS]
        sentences = [match for match in sentences if "\\(" not in match[0] and "\\)" not in match[0]]
        if sentences:
            match = generator.choice(sentences)
            return _with_content(blocks, index, content[: match.start()] + content[match.end() :])
    return None


_INVENTED = (
    "The committee postponed its decision until the following spring.",
    "No further shipments were recorded that year.",
    "Prices rose by a third before the harbour was reopened to traffic.",
    "See the appendix for a full list of participants.",
    "It remains unclear who first proposed the method.",
)


def invent_sentence(blocks: list[Block], generator: random.Random) -> list[Block] | None:
    places = _texts(blocks, 2 * _MIN_LETTERS)
    if not places:
        return None
    index = generator.choice(places)
    words = (blocks[index].content or "").split(" ")
    at = generator.randrange(len(words) + 1)
    if "\\(" in " ".join(words[:at]).rpartition("\\)")[2]:
        return None
    return _with_content(blocks, index, " ".join([*words[:at], generator.choice(_INVENTED), *words[at:]]))


def swap_words(blocks: list[Block], generator: random.Random) -> list[Block] | None:
    places = _texts(blocks, 2 * _MIN_LETTERS)
    if not places:
        return None
    index = generator.choice(places)
    content = blocks[index].content or ""
    words = [match for match in re.finditer(r"[^\W\d_]{5,}", content) if "\\" not in content]
    if len({match[0] for match in words}) < 2:
        return None
    one, other = sorted(generator.sample(words, 2), key=lambda match: match.start())
    if one[0] == other[0]:
        return None
    start, middle, end = content[: one.start()], content[one.end() : other.start()], content[other.end() :]
    return _with_content(blocks, index, start + other[0] + middle + one[0] + end)


def change_digit(blocks: list[Block], generator: random.Random) -> list[Block] | None:
    numbers = [
        (index, match)
        for index, block in enumerate(blocks)
        if block.type in _INK and block.content and "\\" not in block.content
        for match in _NUMBER.finditer(block.content)
    ]
    if not numbers:
        return None
    index, match = generator.choice(numbers)
    at = generator.randrange(match.start(), match.end())
    content = blocks[index].content or ""
    other = generator.choice([digit for digit in "0123456789" if digit != content[at]])
    return _with_content(blocks, index, content[:at] + other + content[at + 1 :])


def _with_content(blocks: list[Block], index: int, content: str) -> list[Block]:
    blocks[index] = replace(blocks[index], content=content)
    return blocks


DAMAGES: dict[str, tuple[Damage, set[str]]] = {
    "dropped block": (drop_block, {"omitted"}),
    "dropped line": (drop_line, {"omitted"}),
    "dropped sentence": (drop_sentence, {"omitted"}),
    "invented sentence": (invent_sentence, {"invented"}),
    "swapped words": (swap_words, {"different", "number"}),
    "changed digit": (change_digit, {"number"}),
}


if __name__ == "__main__":
    main()
