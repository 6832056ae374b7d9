"""Real workers: a document that hangs, and a long animation, cost what they may and no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchocr.data import PageResult
from batchocr.processes.child import WORKER_COMMAND
from tests.faults.test_worker_faults import read
from tests.support.hostile import gif_chain, hanging_pdf
from tests.support.running import draw_pdf

pytestmark = pytest.mark.slow


@pytest.mark.long
def test_documents_behind_one_whose_every_fourth_page_hangs_are_read_before_it_is_given_up(tmp_path: Path) -> None:
    (tmp_path / "hostile.pdf").write_bytes(hanging_pdf(400, every=4))
    sound = [draw_pdf(tmp_path / f"{number}.pdf", "read", "me") for number in range(10)]
    order: list[str] = []
    rows = read(
        [tmp_path / "hostile.pdf", *sound],
        page_timeout_s=1.0,
        command=WORKER_COMMAND,
        each=lambda row: note(order, row),
    )
    assert {row.status for row in rows.values() if row.source != "hostile.pdf"} == {"ok"}
    assert "timeout" not in order[: len(order) - order[::-1].index("sound")], (
        "they waited until a page had failed twice"
    )
    assert 3 <= sum("took longer than" in (row.error_message or "") for row in rows.values()) <= 4
    assert len(rows) == 20 + 400


def note(order: list[str], row: PageResult) -> None:
    order.append(row.error_kind or row.status if row.source == "hostile.pdf" else "sound")


@pytest.mark.long
def test_a_late_frame_of_a_long_animation_is_read_although_all_before_it_take_longer_than_a_page_may(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.gif").write_bytes(gif_chain(80, 4000))
    rows = read([tmp_path / "a.gif"], workers=1, page_timeout_s=2.0, command=WORKER_COMMAND, pages="r1")
    [row] = rows.values()
    assert (row.page_index, row.status, row.attempts) == (79, "ok", 1)
