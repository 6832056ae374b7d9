"""What a run holds over many pages and documents: memory, shared memory, file descriptors, processes.

    python -m benchmarks.memory --pages 5000

Reads copies of the sample article (two pages each) with the real command, each with other specks on it, as a run reads
nothing twice. The quick model's image limit is lowered so that thousands of pages take minutes; pages are still
rendered, shared and post-processed at full size. Nothing may grow with the number of pages; the growth after the first
200 is reported.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pymupdf

from benchmarks import QUICK_MODEL, ROOT

WARM_UP_PAGES = 200
MAX_PIXELS = 150_000
SPECKS = 200
"""On a page: enough that no block is without one."""


def make_input(folder: Path, pages: int) -> tuple[Path, Path]:
    """Returns a folder of documents with this many pages in all, and a model with a low image limit."""
    documents = folder / "documents"
    documents.mkdir()
    dice = random.Random(0)
    for index in range(pages // 2):
        with pymupdf.open(ROOT / "sample_data" / "documents" / "article.pdf") as document:
            for page in document:
                specks = page.new_shape()
                for _ in range(SPECKS):
                    x, y = dice.uniform(0, page.rect.width), dice.uniform(0, page.rect.height)
                    specks.draw_rect((x, y, x + 1, y + 1))
                specks.finish(fill=0)
                specks.commit()
            document.save(documents / f"{index}.pdf")
    model = folder / "model"
    shutil.copytree(QUICK_MODEL, model)
    limits = json.loads((model / "preprocessor_config.json").read_text())
    (model / "preprocessor_config.json").write_text(json.dumps(limits | {"max_pixels": MAX_PIXELS}))
    return documents, model


def rows_in(journal: Path) -> int:
    return max(0, journal.read_bytes().count(b"\n") - 1) if journal.exists() else 0


def look_at(run: psutil.Process) -> dict[str, float]:
    """What the run's processes hold, resident memory in MB. Raises NoSuchProcess if one ends meanwhile."""
    children = run.children(recursive=True)
    engines = [child for child in children if "batchocr.engine" in child.cmdline()]
    family = [run, *children]
    return {
        "main": run.memory_info().rss / 1e6,
        "engine": max((engine.memory_info().rss for engine in engines), default=0) / 1e6,
        "largest worker": max((child.memory_info().rss for child in children if child not in engines), default=0) / 1e6,
        "shared": sum(shared_bytes(member.pid) for member in family) / 1e6,
        "descriptors": sum(member.num_fds() for member in family),
        "processes": len(family),
    }


def shared_bytes(pid: int) -> int:
    """Return the resident bytes of memory files and shared mappings of a process."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssShmem:"):
                return int(line.split()[1]) * 1024
    return 0


def watch(command: list[str], journal: Path) -> list[dict[str, float]]:
    """Run the command, and look at its processes once a second."""
    samples = []
    process = psutil.Popen(command)
    while process.poll() is None:
        with suppress(psutil.NoSuchProcess):
            samples.append({"pages": rows_in(journal), **look_at(process)})
        time.sleep(1)
    if process.returncode:
        sys.exit(f"the run ended with exit code {process.returncode}")
    return samples


def growth(samples: Sequence[Mapping[str, float]], name: str) -> float:
    """The mean of the last tenth of the samples minus that of the first tenth, after the warm-up."""
    values = [sample[name] for sample in samples if sample["pages"] >= WARM_UP_PAGES]
    tenth = max(1, len(values) // 10)
    return (sum(values[-tenth:]) - sum(values[:tenth])) / tenth


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=5000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        documents, model = make_input(folder, given.pages)
        out = folder / "results.parquet"
        command = [sys.executable, "-m", "batchocr", "run", str(documents), "--model", str(model), "--out", str(out)]
        samples = watch(command, out.with_name(out.name + ".journal"))
    for sample in samples[:: max(1, len(samples) // 20)]:
        print("  ".join(f"{name} {value:,.0f}" for name, value in sample.items()))
    for name in list(samples[0])[1:]:
        print(f"{name}: grew by {growth(samples, name):.2f}, at most {max(sample[name] for sample in samples):,.1f}")


if __name__ == "__main__":
    main()
