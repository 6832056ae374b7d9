"""batchocr against MinerU's own client on transformers: the same checkpoint, the same pages, the same machine.

    python -m benchmarks.speed.cpu_vs_transformers --checkpoint sample
    python -m benchmarks.speed.cpu_vs_transformers --checkpoint quick

sample: the model that can read. quick: the tests' model, with short answers.

Each reads the pages in its own process, one after the other: batchocr, then the client with batches of 1, 4 and 16. The
time runs from the first document to the last result, including rendering but not model loading. Both decode greedily
without penalties, so both do the same work; it is an error if their numbers of pages differ, or in float32 those of
characters. bfloat16, which rounds differently in each, is for CPUs with AMX.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from benchmarks import QUICK_MODEL, ROOT

# torch is imported later: each engine's process loads it as that engine does, batchocr's after it has set up OpenMP.

SAMPLE_MODEL = ROOT / "sample_data" / "model"
READABLE = ("article.pdf", "two-columns.pdf", "scanned-letter.png", "fax.tiff")
BATCH_SIZES = (1, 4, 16)
MAX_NEW_TOKENS = 512

DType: TypeAlias = Literal["float32", "bfloat16"]


class ReadBlock(Protocol):
    """A block of a page, in either's form."""

    type: str
    content: str | None


def num_characters(blocks: Iterable[ReadBlock]) -> int:
    """Characters in all blocks, but for tables that could not be parsed: we keep their text, MinerU may drop it."""
    texts = (block.content or "" for block in blocks if block.type != "table" or (block.content or "").startswith("<"))
    return sum(map(len, texts))


def read_with_batchocr(folder: Path, inputs: Sequence[str], limit: int, dtype: DType) -> tuple[int, int, float]:
    """Returns the number of pages, the characters in all blocks, and the seconds."""
    import batchocr

    with batchocr.Ocr(
        model=folder, penalties=False, max_new_tokens=MAX_NEW_TOKENS, limit=limit, device="cpu", dtype=dtype
    ) as ocr:
        started = time.perf_counter()
        pages = [page for page in ocr.process(inputs) if page.status in ("ok", "degraded")]
        seconds = time.perf_counter() - started
    return len(pages), num_characters(block for page in pages for block in page.blocks), seconds


def read_with_transformers(
    folder: Path, inputs: Sequence[str], limit: int, dtype: DType, batch_size: int
) -> tuple[int, int, float]:
    """Returns the same as `read_with_batchocr`. The client gets 16 pages at a time, however small the batch."""
    import torch

    from batchocr.pages.input.render import open_document
    from batchocr.pages.input.sources import find_documents
    from tests.support.mineru_oracle import make_client

    torch_dtype = getattr(torch, dtype)
    client = make_client(folder, batch_size=batch_size, max_new_tokens=MAX_NEW_TOKENS, dtype=torch_dtype)
    started = time.perf_counter()
    images = []
    for document in find_documents(inputs).documents:
        opened = open_document(document.path, password=None, dpi=200)
        images += [opened.render(index).image for index in range(min(opened.page_count, limit - len(images)))]
        opened.close()
    results = []
    for start in range(0, len(images), 16):
        results += client.batch_two_step_extract(images[start : start + 16])
    seconds = time.perf_counter() - started
    return len(results), num_characters(block for blocks in results for block in blocks), seconds


def measure(arguments: argparse.Namespace, engine: str) -> dict[str, float]:
    """Run one engine in its own process."""
    command = [sys.executable, "-m", "benchmarks.speed.cpu_vs_transformers", *sys.argv[1:], "--engine", engine]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    result: dict[str, float] = json.loads(output.splitlines()[-1])
    result["pages_per_second"] = result["pages"] / result["seconds"]
    print(
        f"{engine:16} {result['pages']:4.0f} pages {result['seconds']:8.1f} s {result['pages_per_second']:8.3f} pages/s"
    )
    return result


def run_one(arguments: argparse.Namespace) -> None:
    folder = SAMPLE_MODEL if arguments.checkpoint == "sample" else QUICK_MODEL
    if arguments.engine == "batchocr":
        pages, characters, seconds = read_with_batchocr(folder, arguments.inputs, arguments.limit, arguments.dtype)
    else:
        batch_size = int(arguments.engine.split("-")[1])
        pages, characters, seconds = read_with_transformers(
            folder, arguments.inputs, arguments.limit, arguments.dtype, batch_size
        )
    print(json.dumps({"pages": pages, "characters": characters, "seconds": seconds}))


def compare(arguments: argparse.Namespace) -> None:
    ours = measure(arguments, "batchocr")
    theirs = [measure(arguments, f"transformers-{size}") for size in BATCH_SIZES]
    best = max(theirs, key=lambda result: result["pages_per_second"])
    ratio = ours["pages_per_second"] / best["pages_per_second"]
    print(f"ratio            {ratio:.2f} ({platform.processor() or platform.machine()}, {os.cpu_count()} cores)")
    rounds_alike = arguments.dtype == "float32"
    if ours["pages"] != best["pages"] or (rounds_alike and ours["characters"] != best["characters"]):
        sys.exit("the two did not read the same: the figures cannot be compared")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    documents = ROOT / "sample_data" / "documents"
    parser.add_argument("inputs", nargs="*", default=[str(documents / name) for name in READABLE])
    parser.add_argument("--checkpoint", choices=["sample", "quick"], default="sample")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--limit", type=int, default=64, help="pages at most")
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.engine:
        run_one(arguments)
    else:
        compare(arguments)


if __name__ == "__main__":
    main()
