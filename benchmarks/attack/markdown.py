"""Hostile blocks as Markdown, shown to the renderers that people use: nothing in it is active."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from batchocr.pages.protocol.markdown import to_markdown
from benchmarks.attack.tally import Tally

_AT_ONCE = 100


def attack(dice: random.Random, count: int, tally: Tally, folder: Path | None) -> None:
    """Each text in each renderer, and each of its formulas in each formula renderer. folder: unused."""
    from tests.support.active_markup import active_in
    from tests.support.hostile_markdown import any_blocks, formulas_in
    from tests.support.markdown_renderers import FORMULA_RENDERERS, MARKDOWN_RENDERERS

    texts = (to_markdown(any_blocks(dice)) for _ in range(count))
    for some in _batches(texts):
        formulas = [formula for text in some for formula in formulas_in(text)]
        for renderers, sources, of_formulas in (
            (MARKDOWN_RENDERERS, some, False),
            (FORMULA_RENDERERS, formulas, True),
        ):
            for name, render in renderers.items():
                for source, html in zip(sources, render(sources), strict=True):
                    tally.add(f"{'formulas' if of_formulas else 'texts'} shown by {name}")
                    for what in active_in(html, formulas=of_formulas):
                        tally.fault(f"{what} in {name}", source.encode(), ".md")


def _batches(texts: Iterator[str]) -> Iterator[list[str]]:
    while some := list(islice(texts, _AT_ONCE)):
        yield some
