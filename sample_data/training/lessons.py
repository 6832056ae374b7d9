"""What the model is shown in one step: text of all sizes, tables, formulas, and page layouts.

Within a setting, a lesson depends only on the seed and its number, so a run can be interrupted and continued.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from sample_data.training.batches import Batch, collate
from sample_data.training.familiar import TrainingVoice, make_familiar_page, make_plain_page
from sample_data.training.samples import Sample, Sampler
from sample_data.training.scan import make_page
from sample_data.training.truth import Block, TrainingPage
from sample_data.training.vocabulary import Vocabulary

Lesson: TypeAlias = list[Batch]

_TEXT_TYPES = (
    "text",
    "list_item",
    "title",
    "table_caption",
    "image_caption",
    "page_footnote",
    "table_footnote",
    "header",
)
_RARE_TYPES = ("page_number", "table_caption", "image_caption", "page_footnote", "table_footnote")
_TEXT_SHARES = {
    "text": 0.47,
    "list_item": 0.13,
    "title": 0.15,
    "header": 0.07,
    "footer": 0.04,
    **dict.fromkeys(_RARE_TYPES, 0.028),
}
_FORMULAS = 0.16 / 0.3
"""The share of formulas among lessons with tables or formulas."""


_MAX_DRAWS = 5000


@dataclass(frozen=True, slots=True)
class Stage:
    """until: the step at which it ends. line, lines: the shares of lessons with single and with several lines.

    The other lessons have whole blocks. layouts: whether there are any. eyes_only: only the ViT learns, from its heads,
    because the language model would have nothing to go by yet. eyes_rest: only the language model learns.
    """

    until: float
    line: float
    lines: float
    layouts: bool = True
    eyes_only: bool = False
    eyes_rest: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """How lessons are filled.

    patches: of text in a lesson, approximately; samples: of text, at most; text_parts: batches that they make, to keep
    two cores busy. layout_every: every how many lessons there are layouts; layout_pages: layouts in each of those;
    quartered: the share of layouts that the ViT sees in quarters. pool: pages to choose from; pages_per_lesson: how
    many of them are replaced in each lesson. familiar: the share of pages that are set like the sample documents;
    plain: of plain ones. texts: the share of texts among lessons with whole blocks; tables and formulas have lessons
    of their own, as they are short beside paragraphs and would hardly count among them.
    """

    patches: int
    samples: int
    text_parts: int
    layout_every: int
    layout_pages: int
    quartered: float
    pool: int
    pages_per_lesson: float
    familiar: float
    plain: float
    texts: float
    stages: tuple[Stage, ...]

    def stage(self, step: int) -> Stage:
        return next(stage for stage in self.stages if step < stage.until)


class Teacher:
    """Draws lessons from pages."""

    def __init__(self, plan: Plan, vocabulary: Vocabulary) -> None:
        self._plan = plan
        self._vocabulary = vocabulary
        self._sampler = Sampler(vocabulary)

    def lesson(self, rng: np.random.Generator, pages: Sequence[TrainingPage], step: int) -> Lesson:
        """Return the batches of one step: texts in parts of about the same size, and layouts."""
        stage = self._plan.stage(step)
        kind = rng.uniform()
        if kind < stage.line + stage.lines:
            texts = self._fragments(rng, pages, 1 if kind < stage.line else int(rng.integers(2, 7)))
        else:
            texts = self._blocks(rng, pages)
        layouts: list[Sample] = []
        if stage.layouts and step % self._plan.layout_every == 0:
            chosen = rng.choice(len(pages), self._plan.layout_pages, replace=False)
            in_quarters = bool(rng.uniform() < self._plan.quartered)
            layouts = [self._sampler.layout(pages[number], rng, in_quarters=in_quarters) for number in chosen]
        by_core = [texts[number :: self._plan.text_parts] for number in range(self._plan.text_parts)]
        parts = [part for part in (layouts, *by_core) if part]
        return [collate(part, self._vocabulary) for part in parts]

    def _fragments(self, rng: np.random.Generator, pages: Sequence[TrainingPage], num_lines: int) -> list[Sample]:
        """Return text fragments of the same width, each with this many lines."""
        width = int(np.exp(rng.uniform(np.log(60), np.log(900))))

        def draw() -> Sample | None:
            return self._fragment(rng, pages[rng.integers(len(pages))], num_lines, width)

        return self._filled(draw)

    def _fragment(self, rng: np.random.Generator, page: TrainingPage, num_lines: int, width: int) -> Sample | None:
        """Return some lines of a text in a window of this width that begins with a word; None if there are none."""
        blocks = [block for block in page.blocks if block.type in _TEXT_TYPES and block.lines[-1] + 1 >= num_lines]
        if not blocks:
            return None
        sizes = np.array([len(block.tokens) for block in blocks], dtype=float)
        block = blocks[rng.choice(len(blocks), p=sizes / sizes.sum())]
        first = int(rng.integers(block.lines[-1] + 2 - num_lines))
        start = _word_start(rng, block, first)
        left = float(block.places[start, 0]) - rng.uniform(1, 8)
        return self._sampler.fragment(page, block, range(first, first + num_lines), (left, width), rng)

    def _blocks(self, rng: np.random.Generator, pages: Sequence[TrainingPage]) -> list[Sample]:
        """Return whole blocks: tables, formulas, or texts of common and rare types."""
        others = 1 - self._plan.texts
        shares = {"table": (1 - _FORMULAS) * others, "equation": _FORMULAS * others, "texts": self._plan.texts}
        subject = _chosen(rng, shares)

        def draw() -> Sample | None:
            page = pages[rng.integers(len(pages))]
            kind = _chosen(rng, _TEXT_SHARES) if subject == "texts" else subject
            blocks = [block for block in page.blocks if block.type == kind]
            return self._sampler.block(page, blocks[rng.integers(len(blocks))], rng) if blocks else None

        return self._filled(draw)

    def _filled(self, draw: Callable[[], Sample | None]) -> list[Sample]:
        """Return enough samples to fill a lesson."""
        samples: list[Sample] = []
        left = self._plan.patches
        for _ in range(_MAX_DRAWS):
            sample = draw()
            if sample is not None:
                samples.append(sample)
                left -= sample.num_patches
            if left <= 0 or len(samples) == self._plan.samples:
                return samples
        if not samples:
            raise ValueError("no page at hand has a text of the kind that the lesson is about")
        return samples


def _chosen(rng: np.random.Generator, shares: dict[str, float]) -> str:
    return str(rng.choice(list(shares), p=list(shares.values())))


def _word_start(rng: np.random.Generator, block: Block, line: int) -> int:
    """Return the index of a mark in this line that begins a word, often the line's first."""
    indices = np.flatnonzero((block.lines == line) & ~np.isnan(block.places[:, 0]))
    starts = [i for i in indices if block.tokens[i] != " " and (i == indices[0] or block.tokens[i - 1] == " ")]
    return int(starts[0] if rng.uniform() < 0.3 else starts[rng.integers(len(starts))])


class LessonStream(IterableDataset[bytes]):
    """Lessons from `start` on, pickled. Each of the loader's n workers makes every n-th lesson, from its own pages.

    They are pickled because each tensor would need a file descriptor to reach the trainer.
    """

    def __init__(self, plan: Plan, seed: int, start: int) -> None:
        self._plan = plan
        self._seed = seed
        self._start = start

    def __iter__(self) -> Iterator[bytes]:
        worker = get_worker_info()
        num_lanes, offset = (worker.num_workers, worker.id) if worker else (1, 0)
        lane = (self._start + offset) % num_lanes
        teacher = Teacher(self._plan, Vocabulary())
        pages: deque[TrainingPage] = deque(maxlen=self._plan.pool)
        made = 0
        for step in _every(self._start + offset, num_lanes):
            oldest = int(self._plan.pages_per_lesson * (step // num_lanes))
            for number in range(max(made, oldest), oldest + self._plan.pool):
                pages.append(self._make_page(lane, number))
            made = oldest + self._plan.pool
            yield pickle.dumps(teacher.lesson(np.random.default_rng((self._seed, step, 1)), pages, step))

    def _make_page(self, lane: int, number: int) -> TrainingPage:
        key = (self._seed, lane, number)
        kind = np.random.default_rng((*key, 3)).uniform()
        if kind < self._plan.plain:
            return make_plain_page(TrainingVoice(), *key)
        if kind < self._plan.plain + self._plan.familiar:
            return make_familiar_page(TrainingVoice(), *key)
        return make_page(*key)


def _every(start: int, stride: int) -> Iterator[int]:
    while True:
        yield start
        start += stride


def load_lessons(plan: Plan, seed: int, start: int, num_workers: int) -> Iterator[Lesson]:
    """Return the lessons from number `start` on, made ahead by other processes, or in this one if num_workers is 0."""
    loader = DataLoader(
        LessonStream(plan, seed, start),
        batch_size=None,
        num_workers=num_workers,
        prefetch_factor=6 if num_workers else None,
        worker_init_fn=_alone_on_a_core,
    )
    return (pickle.loads(lesson) for lesson in loader)  # noqa: S301, from our own process


def _alone_on_a_core(worker: int) -> None:
    torch.set_num_threads(1)
