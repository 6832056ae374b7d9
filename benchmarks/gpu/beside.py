"""batchocr and vLLM in turn on one GPU, on the same requests: how many times as fast is one as the other?

    python -m benchmarks.gpu.beside

Both are measured in two ways: with images prepared within the time, vLLM's by a pool of processes, batchocr's on the
GPU; and with images that were prepared before. batchocr comes first, then vLLM's set-ups (`peer_vllm`), each in
processes of its own, so that the GPU's memory is free for the next. Each row is written when it is measured; a set-up
for which --minutes leave no time is named. A ratio is batchocr's rate by the best of vLLM's with images prepared in the
same way, over all the time: the ramps at both ends are in it.

Expected on an H200: all of the 14 minutes, of which batchocr takes two; 360 s in the plan of `gpu.check`.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import get_args

from batchocr.config import VitDType
from benchmarks.gpu import peer_vllm
from benchmarks.gpu.check import INTERRUPTED, Part, run_part
from benchmarks.record import Record, benchmark_parser, versions

_DEADLINE_S = 300
_VERSIONS = ("vllm", "torch", "transformers", "sglang-kernel")


def measure(part: Part, given: argparse.Namespace, folder: Path, record: Record, until_s: float) -> dict[str, float]:
    """Run one engine, and record what it did, or why it failed. Returns pages a second, by when images are prepared."""
    options = ["--device", given.device, "--checkpoint", str(folder)]
    options += ["--pages", str(given.pages), "--pages-in-flight", str(given.pages_in_flight)]
    written = run_part(part, options, min(part.deadline_s, until_s - time.perf_counter()), smoke=given.smoke)
    if written["error"] == INTERRUPTED:
        sys.exit(f"{part.name}: {INTERRUPTED}")
    if written["error"] is not None:
        print(written["stderr"], flush=True)
        record.note(part.name, written["error"])
    rows = [row | {"engine": part.name} for row in written.get("rows", []) if "pages/s" in row]
    for row in rows:
        record.add(row)
    return {row["images"]: row["pages/s"] for row in rows}


def compare(given: argparse.Namespace, folder: Path, record: Record) -> None:
    """Measure batchocr, then vLLM in each set-up for which there is time."""
    until_s = time.perf_counter() + 60 * given.minutes
    part = Part("batchocr", "benchmarks.speed.throughput", _DEADLINE_S, ("--vit-dtype", given.vit_dtype, "--prepared"))
    ours = measure(part, given, folder, record, until_s)
    if (reason := peer_vllm.missing()) is not None:
        record.note("vllm", reason)
        return
    peer_vllm.note_settings(record, given.set_ups[0], given)
    options = ("--pool", str(given.pool), "--threads", str(given.threads), "--vllm-args", json.dumps(given.vllm_args))
    best: dict[str, float] = {}
    unmeasured = [chosen.text for chosen in given.set_ups]
    try:
        for text in tuple(unmeasured):
            if time.perf_counter() > until_s:
                break
            part = Part(f"vLLM, {text}", "benchmarks.gpu.peer_vllm", _DEADLINE_S, ("--set-up", text, *options))
            for images, rate in measure(part, given, folder, record, until_s).items():
                unmeasured.remove(text)
                best[images] = max(best.get(images, 0.0), rate)
                if images in ours:
                    ratio = ours[images] / best[images]
                    record.note(f"batchocr / vLLM, images prepared {images} the time", round(ratio, 2))
                    record.figure(f"times_vllm_{images}", ratio)
    finally:
        if unmeasured:
            record.note("not measured, for --set-ups", ",".join(unmeasured))


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    peer_vllm.add_vllm_options(parser)
    parser.add_argument("--vit-dtype", choices=get_args(VitDType), default="auto", help="of batchocr")
    parser.add_argument("--set-ups", type=peer_vllm.set_ups, default="4,3,2,4-mps,4-pool,1", help="of vLLM, in turn")
    parser.add_argument("--minutes", type=float, default=14.0, help="for all of it")
    given = parser.parse_args(arguments)
    record = Record("beside", given)
    record.note("versions", [f"{name} {version}" for name, version in versions(_VERSIONS).items()])
    with tempfile.TemporaryDirectory() as temporary:
        # The first that needs the checkpoint makes it.
        compare(given, given.checkpoint or Path(temporary, "checkpoint"), record)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: the engine's processes are ended
    main()
