"""A run on a cluster whose documents and parts are in an object store; the cluster is started where that is known."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import batchocr.ray
from batchocr.ray.cluster import connected
from tests.support.object_store import running_store, used
from tests.support.running import draw_pdf, read_rows, texts

pytest.importorskip("ray", reason="needs Ray: pip install '.[ray]'")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("ray_folder"),
    pytest.mark.long,
]


def test_input_and_parts_may_be_in_a_store_and_every_command_reads_these_as_one_table(
    place: Path, tmp_path: Path
) -> None:
    plain = read_rows(place / "plain.parquet")
    out = "s3://pages/out/run1/"
    options: dict[str, Any] = {"out": out, "model": place / "model", "pages_per_task": 2, "actors": 1}
    with running_store() as store, used(store), connected(None):
        store.put("pages", {f"in/{path.name}": path.read_bytes() for path in (place / "in").iterdir()})
        report = batchocr.ray.run("s3://pages/in/", **options)
        there = {key.removeprefix("out/run1/") for key in store.keys("pages") if not key.startswith("in/")}
        [part] = (name for name in there if name.startswith("part-"))
        [staged] = (name for name in there if name.startswith(".batchocr/new/"))
        assert staged.startswith(f".batchocr/new/00000001-{part}.")
        hidden = {f".batchocr/{name}.json" for name in ("table", "report", "run")}
        assert there == {part, staged, *hidden}
        assert report.items_read > 4
        assert texts(batchocr.open_table(out).rows()) == texts(plain)
        assert batchocr.ray.run("s3://pages/in/", retry_failed=False, **options).nothing_to_do
        store.delete("pages", "in/broken.pdf")
        store.put("pages", {"in/letter-1.pdf": draw_pdf(tmp_path / "letter.pdf", "Dear all").read_bytes()})
        report = batchocr.ray.run("s3://pages/in/", prune=True, **options)
        assert {row.source for row in batchocr.open_table(out).rows()} == {row.source for row in plain} - {"broken.pdf"}
        assert report.items.found == len(plain) - 2
        for arguments in (
            ["verify", out, "s3://pages/in/"],
            ["export", out, "--to", "texts"],
            ["view", out, "--out", "review.html"],
            ["compare", out, out],
        ):
            done = subprocess.run(
                [sys.executable, "-m", "batchocr", *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60
            )
            assert done.returncode == 0, done.stdout + done.stderr
        assert len(list((tmp_path / "texts").glob("*.md"))) == 4
