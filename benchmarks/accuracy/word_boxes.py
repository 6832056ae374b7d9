"""Where `export` finds words, against PDFs whose words are known.

    python -m benchmarks.accuracy.word_boxes FOLDER_OR_PDF… [--dpi 200] [--worst 10]

Each page is drawn, its text is forgotten, and rows of truth are made of its own text blocks: a table has the cells that
MuPDF finds, and words that are divided at the end of a line are joined, as models do. A word is found if its box and
the true one overlap by half: their intersection is at least half of their union. The true box is that of MuPDF's word,
as high as its font says. Left out are pages that are scans, whose words are where another reader put them; blocks in
whose box there are words of other blocks, which no layout has; and words without a letter or digit.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from html import escape
from pathlib import Path

import pymupdf
from PIL import Image

from batchocr.data import Block, PageResult, shared_area
from batchocr.documents.export.placing.page import BlockWords, Word, page_words

Box = tuple[float, float, float, float]
Placed = tuple[str, Box]


def documents_in(paths: list[str]) -> Iterator[Path]:
    for path in map(Path, paths):
        yield from sorted(path.rglob("*.pdf")) if path.is_dir() else [path]


def opened(path: Path) -> pymupdf.Document:
    """The document; an empty one if it cannot be opened."""
    try:
        document = pymupdf.open(path, filetype="pdf")
    except pymupdf.FileDataError:
        return pymupdf.open()
    return pymupdf.open() if document.needs_pass else document


def is_scan(page: pymupdf.Page) -> bool:
    """Whether the page is an image, with a text layer whose words are where another reader has put them."""
    area = abs(page.rect.get_area())
    return any(
        abs((pymupdf.Rect(image["bbox"]) & page.rect).get_area()) > 0.7 * area for image in page.get_image_info()
    )


def lines_of(page: pymupdf.Page) -> Iterator[tuple[int, list[list[Placed]]]]:
    """Each text block of the page as its angle, and lines of words."""
    words: dict[tuple[int, int], list[Placed]] = defaultdict(list)
    shapes = {}
    flags = pymupdf.TEXTFLAGS_WORDS
    for block in page.get_text("dict", flags=flags)["blocks"]:
        for line in block.get("lines", ()):
            shapes[len(shapes)] = line["dir"]
    number = -1
    seen: set[tuple[int, int]] = set()
    directions: dict[tuple[int, int], tuple[float, float]] = {}
    for x0, y0, x1, y1, text, block_number, line, _ in page.get_text("words", flags=flags, sort=False):
        key = (block_number, line)
        if key not in seen:
            seen.add(key)
            number += 1
            directions[key] = shapes.get(number, (1.0, 0.0))
        words[key].append((text, tuple(pymupdf.Rect(x0, y0, x1, y1) * page.rotation_matrix)))
    blocks: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for key in words:
        blocks[key[0]].append(key)
    for keys in blocks.values():
        x, y = directions[keys[0]]
        angle = {(1, 0): 0, (0, 1): 90, (-1, 0): 180, (0, -1): 270}.get((round(x), round(y)), 0)
        angle = (angle + page.rotation) % 360
        yield angle, [words[key] for key in keys]


def visual_lines(lines: list[list[Placed]]) -> list[list[Placed]]:
    """MuPDF begins a line anew behind a wide gap: lines side by side are one."""
    made: list[list[Placed]] = []
    for line in lines:
        if made:
            (_, a), (_, b) = made[-1][-1], line[0]
            overlap = min(a[3], b[3]) - max(a[1], b[1])
            if overlap > 0.5 * min(a[3] - a[1], b[3] - b[1]) and b[0] >= a[2] - 1:
                made[-1] += line
                continue
        made.append(list(line))
    return made


def bounds(words: list[Placed]) -> Box:
    x0, y0, x1, y1 = zip(*(box for _, box in words), strict=True)
    return min(x0), min(y0), max(x1), max(y1)


def joined_text(lines: list[list[Placed]]) -> str:
    """The words, those that are divided joined."""
    text = ""
    for line in lines:
        said = " ".join(word for word, _ in line)
        divided = re.search(r"[a-z]{2}[-\u00ad\u2010]$", text) and re.match("[a-z]{2}", said)
        text = text[:-1] + said if divided else f"{text} {said}" if text else said
    return text


def truth_of(page: pymupdf.Page) -> Iterator[tuple[str, Block, list[Placed]]]:
    """The blocks of a page as rows have them, with their kinds and their words."""
    width, height = page.rect.width, page.rect.height

    def share(box: Box) -> Box:
        return box[0] / width, box[1] / height, box[2] / width, box[3] / height

    tables = [] if page.rotation else page.find_tables().tables
    of_tables: list[list[Placed]] = [[] for _ in tables]
    everything = [word for _, lines in lines_of(page) for line in lines for word in line]
    for angle, lines in lines_of(page):
        kept: list[list[Placed]] = []
        for line in lines:
            middle = bounds(line)
            x, y = (middle[0] + middle[2]) / 2, (middle[1] + middle[3]) / 2
            inside = [i for i, t in enumerate(tables) if t.bbox[0] <= x <= t.bbox[2] and t.bbox[1] <= y <= t.bbox[3]]
            if inside:
                of_tables[inside[0]] += line
            else:
                kept.append(line)
        if not kept:
            continue
        if angle == 0:
            kept = visual_lines(kept)
        words = [word for line in kept for word in line]
        if holds_others(bounds(words), len(words), everything):
            continue
        kind = "text, one line" if len(kept) == 1 else "text, 2 to 4 lines" if len(kept) < 5 else "text, more lines"
        kind = f"text, turned by {angle}" if angle else kind
        yield kind, Block("text", share(bounds(words)), angle, joined_text(kept)), words
    for table, words in zip(tables, of_tables, strict=True):
        if words:
            content, ordered = table_html(table, words)
            yield "table", Block("table", share(tuple(table.bbox)), 0, content), ordered


def holds_others(box: Box, number: int, everything: list[Placed]) -> bool:
    """Whether there are words of other blocks in a block's box: no layout has such, but where MuPDF takes two columns
    for one, or text flows around something."""
    middles = [((x0 + x1) / 2, (y0 + y1) / 2) for _, (x0, y0, x1, y1) in everything]
    return sum(box[0] < x < box[2] and box[1] < y < box[3] for x, y in middles) > 1.02 * number + 1


def table_html(table: pymupdf.table.Table, words: list[Placed]) -> tuple[str, list[Placed]]:
    """The table as a model writes it, and its words in that order."""
    html, ordered = "", []
    for row in table.rows:
        cells = ""
        for cell in row.cells:
            inside = [
                (text, box)
                for text, box in words
                if cell and cell[0] <= (box[0] + box[2]) / 2 < cell[2] and cell[1] <= (box[1] + box[3]) / 2 < cell[3]
            ]
            cells += f"<td>{escape(' '.join(text for text, _ in inside))}</td>"
            ordered += inside
        html += f"<tr>{cells}</tr>"
    return f"<table>{html}</table>", ordered


def overlap(one: Box, other: Box) -> float:
    both = shared_area(one, other)
    areas = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
    return both / (areas - both) if areas > both else 0.0


def letters(text: str) -> str:
    return re.sub(r"[-\u00ad\u2010\s]", "", text)


def matched(true: list[Placed], found: list[Word]) -> Iterator[tuple[Placed, Word | None]]:
    """Each true word with the one that has most of its letters: both are the same text."""
    spans = []
    at = 0
    for word in found:
        spans.append((at, at + len(letters(word.text)), word))
        at = spans[-1][1]
    at = 0
    for text, box in true:
        start, end = at, at + len(letters(text))
        at = end
        best = max(spans, key=lambda span: min(end, span[1]) - max(start, span[0]), default=None)
        is_same = best is not None and min(end, best[1]) > max(start, best[0])
        if any(letter.isalnum() for letter in text):
            yield (text, box), best[2] if best is not None and is_same else None


def page_row(page: pymupdf.Page, image: Image.Image, dpi: int, blocks: list[Block]) -> PageResult:
    width, height = image.size
    return PageResult("a.pdf", page.number, "ok", width=width, height=height, dpi=dpi, blocks=tuple(blocks))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--dpi", type=int, default=200)
    parser.add_argument("--worst", type=int, default=0, help="how many of the worst blocks are listed")
    options = parser.parse_args()
    pymupdf.TOOLS.mupdf_display_errors(False)
    good: Counter[str] = Counter()
    all_: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    num_blocks: Counter[str] = Counter()
    worst = []
    by_document: dict[str, tuple[int, int]] = {}
    seconds, num_pages = 0.0, 0
    for path in documents_in(options.paths):
        with opened(path) as document:
            done = total = 0
            for page in document:
                found = [] if is_scan(page) else list(truth_of(page))
                if sum(len(words) for _, _, words in found) < 5:
                    continue
                pixmap = page.get_pixmap(dpi=options.dpi)
                image = Image.frombytes("RGB", (pixmap.width, pixmap.height), pixmap.samples)
                row = page_row(page, image, options.dpi, [block for _, block, _ in found])
                started = time.perf_counter()
                made: dict[int, BlockWords] = {block.number: block for block in page_words(row, image)}
                seconds += time.perf_counter() - started
                num_pages += 1
                for number, (kind, block, words) in enumerate(found):
                    num_blocks[kind] += 1
                    here = made.get(number)
                    whole[kind] += here is None or here.is_whole
                    placed = [word for line in here.lines for word in line.words] if here else []
                    hits = count = 0
                    for (_, box), word in matched(words, placed):
                        x0, y0, x1, y1 = box
                        true = (
                            x0 / page.rect.width,
                            y0 / page.rect.height,
                            x1 / page.rect.width,
                            y1 / page.rect.height,
                        )
                        count += 1
                        hits += word is not None and overlap(true, word.box) >= 0.5
                    good[kind] += hits
                    all_[kind] += count
                    done, total = done + hits, total + count
                    worst.append(
                        (count - hits, hits, count, path.name, page.number + 1, kind, (block.content or "")[:70])
                    )
            by_document[path.name] = (done, total)
    print("| kind of block | blocks | words | overlap by half | as one box |\n| --- | --- | --- | --- | --- |")
    for kind in sorted(all_):
        share = good[kind] / max(1, all_[kind])
        print(f"| {kind} | {num_blocks[kind]:,} | {all_[kind]:,} | {share:.1%} | {whole[kind]} |")
    total_words = sum(all_.values())
    share = sum(good.values()) / max(1, total_words)
    print(f"| all | {sum(num_blocks.values()):,} | {total_words:,} | {share:.1%} | {sum(whole.values())} |")
    print(f"\n{num_pages} pages, {1000 * seconds / max(1, num_pages):.0f} ms a page")
    if options.worst:
        for name, (done, total) in by_document.items():
            if total:
                print(f"{done / total:7.1%} of {total:6,} {name}")
        for line in sorted(worst, reverse=True)[: options.worst]:
            print(*line)


if __name__ == "__main__":
    sys.exit(main())
