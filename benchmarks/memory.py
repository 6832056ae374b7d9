"""Resident memory of every process of a run, over many pages and many documents.

    python benchmarks/memory.py --pages 2000

Reads copies of the sample article (two pages each) with the real command. The sample model's image limit is lowered so
that thousands of pages take minutes; pages are rendered, shared and post-processed at full size all the same. Memory
must not grow with the number of pages: the growth after the first 200 is what is reported.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
WARM_UP_PAGES = 200
MAX_PIXELS = 150_000


@dataclass(frozen=True)
class Sample:
    """pages: rows in the journal. main, workers: resident bytes, of the worker that holds most."""

    pages: int
    main: int
    workers: int


def make_input(folder: Path, pages: int) -> tuple[Path, Path]:
    """Returns a folder of documents with so many pages, and a model with a low image limit."""
    documents = folder / "documents"
    documents.mkdir()
    for index in range(pages // 2):
        shutil.copy(ROOT / "sample_data" / "documents" / "article.pdf", documents / f"{index}.pdf")
    model = folder / "model"
    shutil.copytree(ROOT / "sample_data" / "model", model)
    limits = json.loads((model / "preprocessor_config.json").read_text())
    (model / "preprocessor_config.json").write_text(json.dumps(limits | {"max_pixels": MAX_PIXELS}))
    return documents, model


def rows_in(journal: Path) -> int:
    if not journal.exists():
        return 0
    with journal.open("rb") as file:
        return max(0, sum(1 for _ in file) - 1)


def watch(command: list[str], journal: Path) -> list[Sample]:
    """Run the command and sample the memory of its processes once a second."""
    samples = []
    process = psutil.Popen(command)
    while process.poll() is None:
        try:
            children = [child.memory_info().rss for child in process.children()]
            samples.append(Sample(rows_in(journal), process.memory_info().rss, max(children, default=0)))
        except psutil.NoSuchProcess:
            continue
        time.sleep(1)
    if process.returncode:
        sys.exit(f"the run ended with exit code {process.returncode}")
    return samples


def growth(samples: list[Sample]) -> dict[str, float]:
    """MB by which the mean of the last tenth of samples exceeds that of the first tenth after the warm-up."""
    warm = [sample for sample in samples if sample.pages >= WARM_UP_PAGES]
    tenth = max(1, len(warm) // 10)

    def grown(values: list[int]) -> float:
        return (sum(values[-tenth:]) - sum(values[:tenth])) / tenth / 1e6

    return {
        "main_growth_mb": grown([sample.main for sample in warm]),
        "worker_growth_mb": grown([sample.workers for sample in warm]),
        "main_peak_mb": max(sample.main for sample in samples) / 1e6,
        "worker_peak_mb": max(sample.workers for sample in samples) / 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=2000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        documents, model = make_input(folder, arguments.pages)
        out = folder / "results.parquet"
        command = [sys.executable, "-m", "batchocr", "run", str(documents), "--model", str(model), "--out", str(out)]
        samples = watch(command, out.with_name(out.name + ".journal"))
    for sample in samples[:: max(1, len(samples) // 20)]:
        print(f"{sample.pages:6} pages  main {sample.main / 1e6:7.1f} MB  workers {sample.workers / 1e6:7.1f} MB")
    print(json.dumps({"pages": arguments.pages} | growth(samples)))


if __name__ == "__main__":
    main()
