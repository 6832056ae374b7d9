"""How well something was read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

Box: TypeAlias = tuple[float, float, float, float]
_BOX = re.compile(r"<\|box_start\|>(\d+) (\d+) (\d+) (\d+)<\|box_end\|><\|ref_start\|>(\w+)<\|ref_end\|>")


def edit_distance(first: str, second: str) -> int:
    """Return how many characters must be put in, taken out or replaced to make one string the other."""
    codes = np.array([ord(character) for character in second])
    steps = np.arange(len(second) + 1)
    row = steps.copy()
    for number, character in enumerate(first, start=1):
        replaced = row[:-1] + (codes != ord(character))
        best = np.minimum(row[1:] + 1, replaced)
        row = np.concatenate([[number], best])
        row = np.minimum.accumulate(row - steps) + steps
    return int(row[-1])


def character_error_rate(pairs: Sequence[tuple[str, str]]) -> float:
    """Return the edit distances of (truth, reading) over the characters of the truths."""
    distance = sum(edit_distance(truth, reading) for truth, reading in pairs)
    return distance / max(1, sum(len(truth) for truth, _ in pairs))


def overlap(a: Box, b: Box) -> float:
    """Return the intersection over the union."""
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    area = width * height
    return area / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - area)


def matched(truth: Sequence[Box], found: Sequence[Box], threshold: float = 0.5) -> list[tuple[int, int]]:
    """Return pairs of indices of boxes that overlap enough, the best first, none in two pairs."""
    overlaps = sorted(
        ((overlap(a, b), i, j) for i, a in enumerate(truth) for j, b in enumerate(found)), key=lambda pair: -pair[0]
    )
    pairs: list[tuple[int, int]] = []
    for share, i, j in overlaps:
        if share >= threshold and all(i != p[0] and j != p[1] for p in pairs):
            pairs.append((i, j))
    return pairs


def layout_boxes(answer: str) -> list[tuple[str, Box]]:
    """Return type and box of each block that a layout names."""
    return [(kind, (int(x0), int(y0), int(x1), int(y1))) for x0, y0, x1, y1, kind in _BOX.findall(answer)]
