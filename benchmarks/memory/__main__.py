"""What a run holds over many pages and documents: memory, shared memory, file descriptors, processes.

    python -m benchmarks.memory --pages 5000

Reads copies of the sample article (two pages each) with the real command. The quick model's image limit is lowered so
that thousands of pages take minutes; pages are still rendered, shared and post-processed at full size. Nothing may grow
with the number of pages; the growth after the first 200 is reported.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks import QUICK_MODEL, ROOT

WARM_UP_PAGES = 200
MAX_PIXELS = 150_000


@dataclass(frozen=True)
class Sample:
    """pages: rows in the journal. main, engine, worker: resident bytes of the main process, of the engine and of the
    largest worker. shared: bytes of shared memory in all processes. descriptors: open files in all processes.
    processes: the command and its children."""

    pages: int
    main: int
    engine: int
    worker: int
    shared: int
    descriptors: int
    processes: int


def make_input(folder: Path, pages: int) -> tuple[Path, Path]:
    """Returns a folder of documents with this many pages in all, and a model with a low image limit."""
    documents = folder / "documents"
    documents.mkdir()
    for index in range(pages // 2):
        shutil.copy(ROOT / "sample_data" / "documents" / "article.pdf", documents / f"{index}.pdf")
    model = folder / "model"
    shutil.copytree(QUICK_MODEL, model)
    limits = json.loads((model / "preprocessor_config.json").read_text())
    (model / "preprocessor_config.json").write_text(json.dumps(limits | {"max_pixels": MAX_PIXELS}))
    return documents, model


def rows_in(journal: Path) -> int:
    if not journal.exists():
        return 0
    with journal.open("rb") as file:
        return max(0, sum(1 for _ in file) - 1)


def look_at(process: psutil.Process, pages: int) -> Sample:
    """Take a sample. Raises NoSuchProcess if a process ends meanwhile."""
    children = process.children(recursive=True)
    engines = [child for child in children if is_engine(child)]
    family = [process, *children]
    return Sample(
        pages=pages,
        main=process.memory_info().rss,
        engine=max((engine.memory_info().rss for engine in engines), default=0),
        worker=max((child.memory_info().rss for child in children if child not in engines), default=0),
        shared=sum(shared_bytes(member.pid) for member in family),
        descriptors=sum(member.num_fds() for member in family),
        processes=len(family),
    )


def is_engine(process: psutil.Process) -> bool:
    """Whether it is an engine of a run, and no worker. Raises NoSuchProcess if it has ended."""
    return "batchocr.engine" in process.cmdline()


def shared_bytes(pid: int) -> int:
    """Return the resident bytes of memory files and shared mappings of a process."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssShmem:"):
                return int(line.split()[1]) * 1024
    return 0


def watch(command: list[str], journal: Path) -> list[Sample]:
    """Run the command and sample its processes once a second."""
    samples = []
    process = psutil.Popen(command)
    while process.poll() is None:
        try:
            samples.append(look_at(process, rows_in(journal)))
        except psutil.NoSuchProcess:
            continue
        time.sleep(1)
    if process.returncode:
        sys.exit(f"the run ended with exit code {process.returncode}")
    return samples


def growth(samples: list[Sample]) -> dict[str, float]:
    """Growth, as the mean of the last tenth of samples minus that of the first tenth after the warm-up; and peaks.

    Sizes are in MB.
    """
    warm = [sample for sample in samples if sample.pages >= WARM_UP_PAGES]
    tenth = max(1, len(warm) // 10)

    def grown(name: str) -> float:
        values = [getattr(sample, name) for sample in warm]
        return float(sum(values[-tenth:]) - sum(values[:tenth])) / tenth

    figures: dict[str, float] = {}
    for name in ("main", "engine", "worker", "shared", "descriptors", "processes"):
        unit, suffix = (1, "") if name in ("descriptors", "processes") else (1e6, "_mb")
        figures[f"{name}_growth{suffix}"] = round(grown(name) / unit, 2)
        figures[f"{name}_peak{suffix}"] = round(max(getattr(sample, name) for sample in samples) / unit, 1)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=5000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        documents, model = make_input(folder, arguments.pages)
        out = folder / "results.parquet"
        command = [sys.executable, "-m", "batchocr", "run", str(documents), "--model", str(model), "--out", str(out)]
        samples = watch(command, out.with_name(out.name + ".journal"))
    for sample in samples[:: max(1, len(samples) // 20)]:
        print(
            f"{sample.pages:6} pages  main {sample.main / 1e6:7.1f} MB  engine {sample.engine / 1e6:7.1f} MB  "
            f"worker {sample.worker / 1e6:7.1f} MB  shared {sample.shared / 1e6:7.1f} MB  "
            f"{sample.descriptors} descriptors  {sample.processes} processes"
        )
    print(json.dumps({"pages": arguments.pages} | growth(samples)))


if __name__ == "__main__":
    main()
