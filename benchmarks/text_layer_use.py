"""What a PDF's own text saves, and whether it is right.

    python -m benchmarks.text_layer_use FOLDER... [--model sample_data/model] [--limit N] [--list N]

First, the CPU time that a page takes in a worker, without the layer, and what `check` and `use` add. Then what a model
would be asked that finds the blocks of the text layer and reads what they say: without the layer, and with
`--text-layer use`. With --model, the folder is also read twice by that model, once without and once with; where a block
took its text from the layer, both texts are compared, and those that differ most are listed: either the model misread
them, or the layer lies.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rapidfuzz.distance import Levenshtein

import batchocr
from batchocr.data import Block, Completion, Document, LayerUse, Page, Reading, Request, TextLayerUse
from batchocr.errors import PageError
from batchocr.input.render import RenderableDocument, open_document
from batchocr.input.sources import find_documents
from batchocr.model.image_size import smart_resize
from batchocr.protocol.audit_plan import plan_audit
from batchocr.protocol.layer_text import LayerBlock, LegiblePage
from batchocr.protocol.mineru import MinerUProtocol
from batchocr.wire.pixels import share_round
from batchocr.worker.agreement import agreement_of
from benchmarks.text_layer import DPI, TextBlock, layout_line, text_layers
from benchmarks.virtual_gpu import ARCHITECTURE

PROTOCOL = MinerUProtocol(max_new_tokens=8192, penalties=True)
_USES: tuple[TextLayerUse, ...] = ("off", "check", "use")
_CHARACTERS_A_TOKEN = 3.6
_LAYOUT_TOKENS_A_BLOCK = 22


@dataclass(slots=True)
class Asked:
    """Questions, what they take, and what came of the layer."""

    pages: int = 0
    questions: int = 0
    patches: int = 0
    output_tokens: float = 0.0
    from_layer: list[LayerUse] = field(default_factory=list)
    characters: int = 0
    from_layer_characters: int = 0


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--model", help="also read the folder with this model, without and with the layer")
    parser.add_argument("--limit", type=int, help="pages of the folder to read with the model")
    parser.add_argument("--list", type=int, default=10, help="texts that differ to list")
    given = parser.parse_args(arguments)
    measure_host(given.folders)
    foresee(given.folders)
    if given.model:
        compare_runs(given.folders, given.model, given.limit, given.list)


def measure_host(folders: Sequence[str]) -> None:
    """Print the CPU time that a page takes in a worker, and what the layer adds to it."""
    spent = {use: HostTime() for use in _USES}
    for document in find_documents(folders).documents:
        with suppress(PageError), ExitStack() as closing:
            opened = {use: open_document(document.path, password=None, dpi=DPI, text_layer=use) for use in _USES}
            for each in opened.values():
                closing.callback(each.close)
            for index, blocks in enumerate(_texts_of(document)[: opened["off"].page_count]):
                for use in _USES[index % 3 :] + _USES[: index % 3]:
                    spent[use].add(opened[use], index, blocks)
    if not spent["off"].pages:
        return
    print(f"CPU time in a worker, ms a page, {spent['off'].pages} pages:")
    for use, host in spent.items():
        more = host.total_s / spent["off"].total_s - 1
        parts = [1000 * part / host.pages for part in (host.total_s, host.draw_s, host.read_s, host.agree_s)]
        print(
            "  {:5} {:6.1f} ({:+.1%}): draw {:.1f}, read {:.1f}, agree {:.2f}".format(use, parts[0], more, *parts[1:])
        )


@dataclass(slots=True)
class HostTime:
    """CPU time for pages: drawing them, the protocol with its pixels and its answers, and the agreement."""

    pages: int = 0
    draw_s: float = 0.0
    read_s: float = 0.0
    agree_s: float = 0.0

    @property
    def total_s(self) -> float:
        return self.draw_s + self.read_s + self.agree_s

    def add(self, document: RenderableDocument, index: int, blocks: Sequence[TextBlock]) -> None:
        times = [time.process_time()]
        page = document.render(index)
        times.append(time.process_time())
        questions = _Questions(page, blocks)
        ready_s = time.process_time()  # what is asked is known before only to answer it
        for requests in questions.rounds():
            _, descriptor = share_round(0, requests)
            os.close(descriptor)
        times.append(time.process_time() - ready_s + times[-1])
        began_s = time.process_time()
        if page.words:
            agreement_of(page.words, questions.reading.blocks, questions.reading.layer_use)
        self.pages += 1
        self.draw_s += times[1] - times[0]
        self.read_s += times[2] - times[1]
        self.agree_s += time.process_time() - began_s


def foresee(folders: Sequence[str]) -> None:
    """Print what would be asked of a model that reads every letter."""
    without, using = Asked(), Asked()
    for page, blocks in _pages(folders):
        if not blocks:
            continue
        for asked, seen in ((without, Page(page.image, page.dpi)), (using, page)):
            _ask(asked, seen, blocks)
    if not without.pages:
        print("no page with text of its own")
        return
    use = [sum(counts) for counts in zip(*((u.blocks, u.lines) for u in using.from_layer), strict=True)]
    print(f"{without.pages} pages with text of their own, read by a model that sees what the layer says:")
    print(f"  questions     {without.questions:9,} without, {using.questions:9,} with the layer")
    for name in ("patches", "output_tokens"):
        one, other = getattr(without, name), getattr(using, name)
        print(f"  {name:13} {one:9,.0f} without, {other:9,.0f} with the layer: {1 - other / one:6.1%} saved")
    share = using.from_layer_characters / using.characters
    print(f"  {use[0]:,} blocks with {share:.0%} of all characters took theirs from it, {use[1]:,} lines audited")


def _pages(folders: Sequence[str]) -> Iterator[tuple[Page, list[TextBlock]]]:
    for document in find_documents(folders).documents:
        try:
            yield from _pages_of(document)
        except PageError as error:
            print(f"{document.source}: {error}", file=sys.stderr)


def _pages_of(document: Document) -> Iterator[tuple[Page, list[TextBlock]]]:
    opened = open_document(document.path, password=None, dpi=DPI, text_layer="use")
    try:
        for index, blocks in enumerate(_texts_of(document)[: opened.page_count]):
            yield opened.render(index), blocks
    finally:
        opened.close()


def _texts_of(document: Document) -> list[list[TextBlock]]:
    with suppress(RuntimeError, ValueError):  # MuPDF's, about files that are none
        return text_layers(document)
    return []


class _Questions:
    """The rounds of a page, each answered by a model that reads what the layer says, and the reading."""

    reading: Reading

    @property
    def num_letters(self) -> int:
        """In the answers about blocks and lines."""
        return sum(map(len, self._answers[1:]))

    def __init__(self, page: Page, blocks: Sequence[TextBlock]) -> None:
        self._reader = PROTOCOL.read(page)
        spared, lines = _planned(page, blocks)
        texts = [block.text for number, block in enumerate(blocks) if number not in spared]
        self._answers = ["\n".join(map(layout_line, blocks)), *texts, *lines]

    def rounds(self) -> Iterator[list[Request]]:
        """Yield the requests of each round."""
        left = deque(self._answers)
        try:
            requests = next(self._reader)
            while True:
                yield requests
                answers = [left.popleft() if left else "" for _ in requests]
                requests = self._reader.send([Completion(answer, "stop", 0, 0, 1.0, 0.0) for answer in answers])
        except StopIteration as end:
            self.reading = end.value


def _ask(asked: Asked, page: Page, blocks: Sequence[TextBlock]) -> None:
    """Count what is asked about the page."""
    questions = _Questions(page, blocks)
    for requests in questions.rounds():
        asked.questions += len(requests)
        asked.patches += sum(map(_patches, requests))
    asked.pages += 1
    asked.output_tokens += _LAYOUT_TOKENS_A_BLOCK * len(blocks) + questions.num_letters / _CHARACTERS_A_TOKEN
    asked.from_layer.append(questions.reading.layer_use)
    asked.characters += sum(len(block.text) for block in blocks)
    texts = [block.content or "" for block in questions.reading.blocks if block.text_source == "layer"]
    asked.from_layer_characters += sum(map(len, texts))


def _planned(page: Page, blocks: Sequence[TextBlock]) -> tuple[frozenset[int], list[str]]:
    """The blocks that are not asked about at first, and what the lines say that are."""
    if page.layer is None:
        return frozenset(), []
    legible = LegiblePage(page.layer, page.image)
    boxes = (tuple(value / 1000 for value in block.bbox) for block in blocks)
    found = {number: legible.block(box) for number, box in enumerate(boxes) if blocks[number].kind != "equation"}
    known = {number: block for number, block in found.items() if block is not None}
    plan = plan_audit(known)
    return plan.spared, [_said(known[asked.block], asked.first, asked.last) for asked in plan.questions]


def _said(block: LayerBlock, first: int, last: int) -> str:
    lines = block.lines[first : last + 1]
    return " ".join("".join(glyph.text for glyph in word) for line in lines for word in line.words)


def _patches(request: Request) -> int:
    height, width = request.resize_to or (request.pixels.height, request.pixels.width)
    patch, limits = ARCHITECTURE.vision.patch_size, ARCHITECTURE.images
    sides = smart_resize(height, width, factor=2 * patch, min_pixels=limits.min_pixels, max_pixels=limits.max_pixels)
    return (sides[0] // patch) * (sides[1] // patch)


def compare_runs(folders: Sequence[str], model: str, limit: int | None, num_listed: int) -> None:
    """Print what two runs took, and where their texts differ."""
    with tempfile.TemporaryDirectory() as folder:
        reports, tables = [], []
        for use in (_USES[0], _USES[-1]):
            out = Path(folder) / f"{use}.parquet"
            run = partial(batchocr.run, folders, out=out, model=model, limit=limit, max_page_error_rate=1.0)
            reports.append(run(text_layer=use))
            tables.append({(row.source, row.page_index): row for row in batchocr.open_table(out).rows()})
    off, using = reports
    print(f"{off.pages_read} pages read by {model}:")
    for name in ("patches", "image_tokens", "output_tokens"):
        one, other = getattr(off.per_page, name), getattr(using.per_page, name)
        print(f"  {name} a page: {one:,.0f} without, {other:,.0f} with the layer")
    one, other = off.pages_per_second, using.pages_per_second
    print(f"  pages/s: {one:.3f} without, {other:.3f} with the layer, {other / one:.2f} times as many")
    layer = using.text_layer
    assert layer is not None
    error = layer.audit_error or 0.0
    print(f"  {layer.lines_audited} lines audited, {error:.2%} of their letters read otherwise")
    differences = sorted(_differences(*tables), key=lambda found: -found[0])
    changed = [found for found in differences if found[0]]
    print(f"  {len(differences)} blocks took their text from the layer; the model reads {len(changed)} otherwise:")
    for distance, place, read, own in changed[:num_listed]:
        print(f"    {place}, {distance} letters\n      model {read!r}\n      layer {own!r}")


def _differences(off: dict, using: dict) -> Iterator[tuple[int, str, str, str]]:  # type: ignore[type-arg]
    """Of each block with text from the layer: how far the other run's text is from it, where it is, and both texts."""
    for key, row in using.items():
        read = {(block.type, block.bbox): block for block in off[key].blocks} if key in off else {}
        for block in row.blocks:
            other: Block | None = read.get((block.type, block.bbox))
            if block.text_source == "layer" and other is not None:
                texts = ((other.content or "").strip(), (block.content or "").strip())
                yield Levenshtein.distance(*texts), f"{key[0]}, page {key[1] + 1}", *texts


if __name__ == "__main__":
    main()
