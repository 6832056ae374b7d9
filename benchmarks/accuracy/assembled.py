"""How documents are put together from real answers of MinerU's model, against what MinerU-Popo says of them.

    python -m benchmarks.accuracy.assembled FOLDER [--list]

FOLDER holds trees of MinerU-Popo (github.com/opendatalab/MinerU-Popo, `output_cases/trees`): the blocks of documents as
the model gave them, and the joints of texts over pages and columns and the levels of headings that Popo, itself a
model, gives them. A joint counts if both blocks stand next to each other in one piece. `--list` prints the joints that
only one of both has, to be read, and the headings whose levels differ.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from batchocr.data import Block, PageResult
from batchocr.documents.assembly.assemble import assemble
from batchocr.documents.assembly.document import Piece

At = tuple[int, int]
"""A block: its page, and its index there."""
Joint = tuple[At, At]

_SIZE_PX, _DPI = (1654, 2339), 200.0
_PART = re.compile(r"<\|txt_(split|contd)\|>")
"""Between two blocks of a section: the second is a text of its own, or continues the first."""


@dataclass(slots=True)
class Tree:
    """A document with what Popo says of it."""

    rows: list[PageResult]
    joints: set[Joint]
    levels: dict[At, int]


@dataclass(slots=True)
class _Blocks:
    """What is read of a tree, by the numbers of its blocks, which are in reading order."""

    blocks: dict[int, tuple[int, Block]] = field(default_factory=dict)
    joints: list[tuple[int, int]] = field(default_factory=list)
    levels: dict[int, int] = field(default_factory=dict)

    def add(self, node: dict[str, Any]) -> None:
        kind, content, numbers = node["type"], node["content"] or "", node["block_ids"]
        if kind == "text":
            parts = _PART.split(content) if content else []
            texts = [("text", part) for part in parts[::2]]
            if node["title"] not in ("", None, "Default Title"):
                texts.insert(0, ("title", node["title"]))
                self.levels[numbers[0]] = node["level"]
            first = len(texts) - len(parts[::2])
            self.joints += [
                (numbers[first + at], numbers[first + at + 1])
                for at, mark in enumerate(parts[1::2])
                if mark == "contd" and first + at + 1 < len(numbers)
            ]
        elif kind in ("table", "image"):
            captions = [(f"{kind}_caption", node["title"] if at == 0 else ".") for at in range(len(numbers) - 1)]
            texts = [(kind, content), *captions]
        else:
            texts = [(kind, content or node["title"])] * len(numbers)
        if kind != "root":
            for (type, text), number, place in zip(texts, numbers, node["location"], strict=False):
                self.blocks[number] = (place["page"] - 1, Block(type, tuple(place["bbox"]), 0, text or None))
        for child in node.get("children", ()):
            self.add(child)


def read_tree(path: Path) -> Tree:
    """The document in a tree of Popo's."""
    found = _Blocks()
    found.add(json.loads(path.read_text("utf-8")))
    count = 1 + max(page for page, _ in found.blocks.values())
    pages: list[list[Block]] = [[] for _ in range(count)]
    at: dict[int, At] = {}
    for number, (page, block) in sorted(found.blocks.items()):
        at[number] = (page, len(pages[page]))
        pages[page].append(block)
    width, height = _SIZE_PX
    rows = [
        PageResult(path.name, page, "ok", "0", count, width, height, _DPI, markdown="", blocks=tuple(blocks))
        for page, blocks in enumerate(pages)
    ]
    joints = {(at[one], at[other]) for one, other in found.joints}
    return Tree(rows, joints, {at[number]: level for number, level in found.levels.items()})


def ours(tree: Tree) -> tuple[set[Joint], dict[At, int]]:
    """The joints and the levels that the assembly gives."""
    joints: set[Joint] = set()
    levels: dict[At, int] = {}
    for piece in assemble(tree.rows[0].source, tree.rows).parts:
        if isinstance(piece, Piece):
            places = [(place.page_index, place.block) for place in piece.places]
            if piece.type != "table":
                joints.update(pairwise(places))
            if piece.level is not None:
                levels[places[0]] = piece.level
    return joints, levels


def kind_of(joint: Joint) -> str:
    return "pages" if joint[0][0] != joint[1][0] else "columns"


def measure(trees: Sequence[Tree]) -> Counter[str]:
    """Numbers of joints and levels: Popo's, ours, and those that are the same."""
    counts: Counter[str] = Counter()
    for tree in trees:
        joints, levels = ours(tree)
        for name, some in (("popo", tree.joints), ("ours", joints), ("same", joints & tree.joints)):
            counts.update(f"{kind_of(joint)} {name}" for joint in some)
        counts["levels popo"] += len(tree.levels)
        counts["levels same"] += sum(levels.get(at) == level for at, level in tree.levels.items())
    return counts


def differences(tree: Tree) -> Iterator[str]:
    """Lines that say what only one of both has."""

    def text(at: At) -> str:
        return " ".join((tree.rows[at[0]].blocks[at[1]].content or "").split())

    joints, levels = ours(tree)
    for one, other in sorted(joints ^ tree.joints):
        who = "ours" if (one, other) in joints else "popo"
        yield f"{who}, {kind_of((one, other))}, page {one[0] + 1}: …{text(one)[-60:]} | {text(other)[:60]}…"
    for at, level in sorted(tree.levels.items()):
        if levels.get(at) != level:
            yield f"level {levels.get(at)}, Popo {level}, page {at[0] + 1}: {text(at)[:60]}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--list", action="store_true", help="print what differs")
    options = parser.parse_args(arguments)
    trees = [read_tree(path) for path in sorted(options.folder.glob("*.json"))]
    for line in (line for tree in trees if options.list for line in differences(tree)):
        print(line)
    for name, count in sorted(measure(trees).items()):
        print(f"{name:14} {count}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
