"""How long ten sound documents take behind a hostile one, compared with how long they take alone.

    python -m benchmarks.attack.fairness --workers 2 --page-timeout 5

Runs the real command with the quick model. Counted from when the workers and the model are ready to when the last row
of the sound documents is in the journal; and to when the run ends, which is what the hostile document costs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support.hostile import gif_chain, hanging_pdf, tiff_chain, webp_chain
from tests.support.running import draw_pdf, environment, journal, make_quick_model

HOSTILE: dict[str, tuple[str, Callable[[], bytes]]] = {
    "a PDF whose every fourth page hangs": (".pdf", lambda: hanging_pdf(2000, every=4)),
    "a PDF whose every page hangs": (".pdf", lambda: hanging_pdf(200, every=1)),
    "a TIFF of 32,000 empty directories": (".tif", lambda: tiff_chain(32_000)),
    "a WebP of 200 frames of 144 Mpx": (".webp", lambda: webp_chain(200, 12_000)),
    "a WebP whose frames from 100 on are broken": (".webp", lambda: webp_chain(200, 4_000, num_sound=100)),
    "a GIF of 200 frames of 36 Mpx": (".gif", lambda: gif_chain(200, 6_000)),
}


@dataclass(frozen=True)
class Measured:
    """Seconds until the last sound row, and until the end; the number of rows, by status and error kind."""

    sound_s: float
    whole_s: float
    sound: dict[str, int]
    hostile: dict[str, int]


def main() -> None:
    parser = argparse.ArgumentParser(description="Sound documents behind hostile ones.")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--page-timeout", type=float, default=5.0)
    parser.add_argument("--only", default="", help="part of the names of the hostile documents to try")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        alone = measure(Path(folder) / "alone", None, options.workers, options.page_timeout)
        sys.stdout.write(f"alone: {alone.sound_s:.1f} s\n")
        for number, name in enumerate(name for name in HOSTILE if options.only in name):
            found = measure(Path(folder) / str(number), name, options.workers, options.page_timeout)
            ratio = found.sound_s / alone.sound_s
            sys.stdout.write(
                f"behind {name}: {found.sound_s:.1f} s ({ratio:.2f} times), {found.sound}; "
                f"in all {found.whole_s:.1f} s, {found.hostile}\n"
            )
            sys.stdout.flush()


def measure(folder: Path, hostile: str | None, workers: int, page_timeout_s: float) -> Measured:
    """Read ten sound documents, behind a hostile one or alone."""
    documents = folder / "documents"
    documents.mkdir(parents=True)
    for number in range(10):
        draw_pdf(documents / f"z-sound-{number}.pdf", *(f"Letter {number}, page {page}" for page in range(4)))
    if hostile is not None:
        suffix, make = HOSTILE[hostile]
        (documents / f"a-hostile{suffix}").write_bytes(make())
    out = folder / "table.jsonl"
    model = make_quick_model(folder / "model")
    arguments = [documents, "--out", out, "--model", model, "--max-new-tokens", "32"]
    limits = ["--workers", str(workers), "--page-timeout", str(page_timeout_s)]
    command = [sys.executable, "-m", "batchocr", "run", *map(str, arguments), *limits]
    started_s = time.monotonic()
    sound_at_s = 0.0
    with subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            time.sleep(0.02)
            if not sound_at_s and num_sound_rows(out) == 40:
                sound_at_s = time.monotonic() - started_s
        whole_s = time.monotonic() - started_s
    start_up_s = json.loads(Path(f"{out}.report.json").read_text())["start_up_seconds"]
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    return Measured(
        sound_s=(sound_at_s or whole_s) - start_up_s,
        whole_s=whole_s - start_up_s,
        sound=count(rows, "z-"),
        hostile=count(rows, "a-"),
    )


def num_sound_rows(out: Path) -> int:
    return journal(out).read_bytes().count(b'"z-sound') if journal(out).exists() else 0


def count(rows: list[dict[str, str | None]], prefix: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in rows:
        if (row["source"] or "").startswith(prefix):
            name = row["error_kind"] or row["status"] or ""
            found[name] = found.get(name, 0) + 1
    return found


if __name__ == "__main__":
    main()
