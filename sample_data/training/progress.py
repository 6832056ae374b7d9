"""How well the model reads held-out samples during training, decoding greedily, task by task."""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np

from benchmarks.scoring import Box, character_error_rate, matched
from sample_data.training.batches import collate
from sample_data.training.heads import IGNORED
from sample_data.training.model import ReadingModel
from sample_data.training.samples import Sample, Sampler
from sample_data.training.scan import make_page
from sample_data.training.truth import TrainingPage
from sample_data.training.vocabulary import Vocabulary

_HELD_OUT = 900_000
"""The first number in the keys of pages that training never sees."""
_MAX_TOKENS = 800
_BOX = re.compile(r"<\|box_start\|>(\d+) (\d+) (\d+) (\d+)<\|box_end\|>")


class Examiner:
    """Asks a model about the same samples every time."""

    def __init__(self, vocabulary: Vocabulary, num_pages: int = 8) -> None:
        self._vocabulary = vocabulary
        pages = [make_page(_HELD_OUT, number) for number in range(num_pages)]
        rng = np.random.default_rng(_HELD_OUT)
        sampler = Sampler(vocabulary)
        self._samples: dict[str, list[Sample]] = defaultdict(list)
        for page in pages:
            for name, sample in _questions(sampler, page, rng):
                if len(self._samples[name]) < 6:
                    self._samples[name].append(sample)

    def __call__(self, model: ReadingModel) -> dict[str, float]:
        """Return the character error rate by task; for layouts, 1 - F1 at an overlap of a half."""
        return {
            name: _score(name, [self._read(model, each) for each in group]) for name, group in self._samples.items()
        }

    def _read(self, model: ReadingModel, sample: Sample) -> tuple[str, str]:
        """Return the text that should be read, and the text that is read."""
        batch = collate([sample], self._vocabulary)
        most = min(_MAX_TOKENS, 20 + int(1.3 * len(sample.answer)))
        ids = model.read(batch, end=self._vocabulary.end, max_tokens=most)
        told = sample.answer[sample.answer != IGNORED]
        return self._vocabulary.text(told[:-1].tolist()), self._vocabulary.text(ids)


def _questions(sampler: Sampler, page: TrainingPage, rng: np.random.Generator) -> list[tuple[str, Sample]]:
    found: list[tuple[str, Sample | None]] = [("layout", sampler.layout(page))]
    texts = [block for block in page.blocks if block.type == "text"]
    for block in texts[:2]:
        left = float(block.places[0, 0]) - 4
        for name, num_lines, width in (("line 260", 1, 260), ("line 900", 1, 900), ("3 lines", 3, 700)):
            if block.lines[-1] + 1 >= num_lines:
                found.append((name, sampler.fragment(page, block, range(num_lines), (left, width), rng)))
    for block in (*texts[:1], *(b for b in page.blocks if b.type in ("title", "list_item", "table", "equation"))):
        found.append((block.type, sampler.block(page, block, rng)))
    return [(name, sample) for name, sample in found if sample is not None]


def _score(name: str, pairs: list[tuple[str, str]]) -> float:
    if name != "layout":
        return character_error_rate(pairs)
    right = wanted = given = 0
    for truth, reading in pairs:
        expected, found = (layout_boxes(answer) for answer in (truth, reading))
        right += len(matched(expected, found))
        wanted, given = wanted + len(expected), given + len(found)
    return 1 - 2 * right / max(1, wanted + given)


def layout_boxes(answer: str) -> list[Box]:
    """Return the boxes that a layout names."""
    return [(int(x0), int(y0), int(x1), int(y1)) for x0, y0, x1, y1 in _BOX.findall(answer)]
