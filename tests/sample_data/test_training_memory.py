"""What training rehearses from memory is what it saw: the same question, minus what was left out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from sample_data.training import memory as memory_module
from sample_data.training import samples as samples_module
from sample_data.training.batches import Batch, collate
from sample_data.training.heads import IGNORED, heads
from sample_data.training.losses import language_losses
from sample_data.training.memory import Memory
from sample_data.training.model import ReadingModel, Shape
from sample_data.training.samples import LayoutBlock, Sampler
from sample_data.training.scan import make_page
from sample_data.training.vocabulary import Vocabulary

VOCABULARY = Vocabulary()
WIDTH = 32
PAGES = (1, 2)
SIDE = 25
SQUARES = SIDE * SIDE


@pytest.fixture(scope="module")
def layouts() -> Batch:
    sampler = Sampler(VOCABULARY)
    return collate([sampler.layout(make_page(8, number), in_quarters=True) for number in PAGES], VOCABULARY)


@pytest.fixture(scope="module")
def vision(layouts: Batch) -> Tensor:
    return torch.randn(len(layouts.image_index), WIDTH).bfloat16().float()


@pytest.fixture
def memory(layouts: Batch, vision: Tensor) -> Memory:
    remembered = Memory(VOCABULARY)
    remembered.add(layouts, vision)
    return remembered


def test_a_page_of_which_nothing_is_left_out_costs_what_it_cost_at_sight(
    memory: Memory, layouts: Batch, vision: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_module, "_WHOLE", 1.0)
    monkeypatch.setattr(memory_module, "_UNPRUNED", 1.0)
    monkeypatch.setattr(samples_module, "_MOVED_BY", 0.0)
    torch.manual_seed(0)
    shape = Shape(
        len(VOCABULARY), width=WIDTH, depth=3, num_heads=2, mlp_width=48, mrope_section=(2, 2, 4), guided=(1,)
    )
    model = ReadingModel(shape, heads(VOCABULARY.first_number))

    def costs(batch: Batch, seen: Tensor) -> dict[str, float]:
        with torch.no_grad():
            found = language_losses(model, heads(VOCABULARY.first_number), batch, seen)
        return {name: float(value) for name, value in found.items()}

    by_sight = {}
    for number, seen in zip(PAGES, vision.split(SQUARES), strict=True):
        alone = collate([Sampler(VOCABULARY).layout(make_page(8, number), in_quarters=True)], VOCABULARY)
        by_sight[alone.layouts] = costs(alone, seen)
    from_memory = {}
    for seed in range(8):
        batch, seen = memory.rehearsal(np.random.default_rng(seed))
        from_memory[batch.layouts] = costs(batch, seen)
    assert from_memory.keys() == by_sight.keys()
    for layout, found in from_memory.items():
        assert found == pytest.approx(by_sight[layout], rel=1e-4)


def test_blocks_that_are_left_out_are_paper_and_are_not_named(
    memory: Memory, layouts: Batch, vision: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_module, "_WHOLE", 0.0)
    monkeypatch.setattr(memory_module, "_UNPRUNED", 1.0)
    starts = layouts.image_index.view(2, -1)
    pages = [
        dict(zip((order - order.min()).tolist(), part, strict=True))
        for order, part in zip(starts, vision.split(SQUARES), strict=True)
    ]
    for seed in range(10):
        batch, seen = memory.rehearsal(np.random.default_rng(seed))
        [named] = batch.layouts
        page, whole = next((p, b) for p, b in zip(pages, layouts.layouts, strict=True) if set(named) <= set(b))
        left_out = [block for block in whole if block not in named]
        paper = {tuple(page[square].tolist()) for square in set(range(SQUARES)) - _squares_of(whole)}
        for square in _squares_of(left_out) - _squares_of(named):
            assert tuple(seen[square].tolist()) in paper
        for square in _squares_of(named):
            assert torch.equal(seen[square], page[square])


def test_what_is_pruned_keeps_the_corners_and_every_place(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "_UNPRUNED", 1.0)
    whole, seen = memory.rehearsal(np.random.default_rng(3))
    monkeypatch.setattr(memory_module, "_UNPRUNED", 0.0)
    pruned, seen_of_it = memory.rehearsal(np.random.default_rng(3))
    assert pruned.layouts == whole.layouts
    assert 0.3 * SQUARES < len(pruned.image_index) < 0.5 * SQUARES
    guided = whole.guide != IGNORED
    for batch in (whole, pruned):
        assert torch.equal(batch.answer, whole.answer)
    assert torch.equal(pruned.positions[:, pruned.guide[guided]], whole.positions[:, whole.guide[guided]])
    assert torch.equal(pruned.positions[:, pruned.answer_index], whole.positions[:, whole.answer_index])
    place = {tuple(place): number for number, place in enumerate(whole.positions[:, whole.image_index].T.tolist())}
    kept = [place[tuple(each)] for each in pruned.positions[:, pruned.image_index].T.tolist()]
    assert torch.equal(seen_of_it, seen[kept])
    for name, (asked, classes) in pruned.labels.items():
        asked_of_whole, classes_of_whole = whole.labels[name]
        known = dict(zip(asked_of_whole.tolist(), classes_of_whole.tolist(), strict=True))
        assert [known[kept[square]] for square in asked.tolist()] == classes.tolist()


def test_a_memory_comes_back_from_a_checkpoint(memory: Memory, tmp_path: Path) -> None:
    torch.save(memory.state(), tmp_path / "memory.pt")
    restored = Memory(VOCABULARY)
    restored.restore(torch.load(tmp_path / "memory.pt", weights_only=True))
    for seed in range(3):
        (batch, seen), (again, seen_again) = (
            each.rehearsal(np.random.default_rng(seed)) for each in (memory, restored)
        )
        assert torch.equal(batch.token_ids, again.token_ids)
        assert torch.equal(seen, seen_again)


def _squares_of(blocks: Iterable[LayoutBlock]) -> set[int]:
    """The squares that these blocks touch."""
    touched = set()
    for _, (x0, y0, x1, y1) in blocks:
        rows, columns = range(y0 * SIDE // 1000, y1 * SIDE // 1000 + 1), range(x0 * SIDE // 1000, x1 * SIDE // 1000 + 1)
        touched |= {SIDE * row + column for row in rows for column in columns}
    return touched
