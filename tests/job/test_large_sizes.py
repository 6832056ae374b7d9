"""Sizes far beyond any machine: a sentence, or a run that they do not concern."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import batchocr
from batchocr import UsageError
from tests.support.running import draw_pdf, make_quick_model

pytestmark = pytest.mark.slow

SIZES = (
    "llm_batch_size",
    "vit_max_patches",
    "prefill_max_tokens",
    "embedding_queue_tokens",
    "pages_in_flight",
    "workers",
    "worker_memory",
)
"""Each takes memory for as much as it allows."""

MERE_BOUNDS: dict[str, Any] = {
    "dpi": 10**12,
    "vit_batch_size": 10**12,
    "max_new_tokens": 10**12,
    "limit": 10**12,
    "page_timeout": 1e12,
    "stop_after": "1000000000000h",
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_quick_model(tmp_path_factory.mktemp("large") / "model")


@pytest.mark.parametrize("name", SIZES)
def test_a_size_that_no_machine_has_room_for_is_refused_with_the_largest_that_fits(
    name: str, model: Path, tmp_path: Path
) -> None:
    document = draw_pdf(tmp_path / "in.pdf", "one")
    options: dict[str, Any] = {"model": model, "device": "cpu", name: 10**15}
    with pytest.raises(UsageError, match=f"--{name.replace('_', '-')} [0-9]+.*at most [0-9]+"):
        batchocr.run(document, out=tmp_path / "out.parquet", **options)


def test_options_that_merely_bound_something_may_be_as_large_as_one_likes(model: Path, tmp_path: Path) -> None:
    document = draw_pdf(tmp_path / "in.pdf", "one")
    report = batchocr.run(document, out=tmp_path / "out.parquet", model=model, device="cpu", **MERE_BOUNDS)
    assert (report.items.ok + report.items.degraded, report.exit_code) == (1, 0)
