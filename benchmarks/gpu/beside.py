"""batchocr and vLLM in turn on one GPU, on the same requests: how many times as fast is one as the other?

    python -m benchmarks.gpu.beside

Each runs in processes of its own, so that the GPU's memory is free for the next: batchocr first, then one process of
vLLM, then several that share the GPU. Each row is written when it is measured. The ratio is batchocr's rate by the
best of vLLM's, over all the time: the ramps at both ends are in it, and weigh the more the fewer pages there are.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any, get_args

from batchocr.config import VitDType
from benchmarks.gpu import peer_vllm
from benchmarks.gpu.check import INTERRUPTED, Part, run_part
from benchmarks.options import numbers
from benchmarks.record import Record, Row, benchmark_parser, versions

_OURS_DEADLINE_S = 300
_COLUMNS = ("pages", "seconds", "pages/s", "of peak", "SM MHz", "W", "max °C", "throttled")
_VERSIONS = ("vllm", "torch", "transformers", "sglang-kernel")


def measure(part: Part, given: argparse.Namespace, folder: Path, record: Record) -> Row | None:
    """Run one engine, and record what it did. None if it failed, which is noted."""
    options = ["--device", given.device, "--checkpoint", str(folder)]
    options += ["--pages-in-flight", str(given.pages_in_flight)]
    written = run_part(part, options, part.deadline_s, smoke=given.smoke)
    if written["error"] == INTERRUPTED:
        sys.exit(f"{part.name}: {INTERRUPTED}")
    rows = [row for row in written.get("rows", []) if "pages/s" in row]
    if written["error"] is not None:
        print(written["stderr"], flush=True)
        record.note(part.name, written["error"])
    if not rows:
        return None
    row: dict[str, Any] = {"engine": part.name} | {name: rows[0][name] for name in _COLUMNS}
    record.add(row)
    return row


def compare(given: argparse.Namespace, folder: Path, record: Record) -> None:
    """Measure batchocr, then vLLM with each number of processes."""
    options: tuple[str, ...] = ("--pages", str(given.pages), "--vit-dtype", given.vit_dtype, "--no-profile")
    part = Part("batchocr", "benchmarks.speed.throughput", _OURS_DEADLINE_S, options)
    ours = measure(part, given, folder, record)
    if (reason := peer_vllm.missing()) is not None:
        record.note("vllm", reason)
        return
    peers: list[Row] = []
    for count in given.processes:
        options = ("--pages", str(given.peer_pages), "--processes", str(count))
        options += ("--threads", str(given.threads), "--vllm-args", json.dumps(given.vllm_args))
        part = Part(f"vLLM in {count}", "benchmarks.gpu.peer_vllm", 60 * given.minutes, options)
        row = measure(part, given, folder, record)
        if row is None:
            continue
        peers.append(row)
        if ours is not None:
            ratio = float(str(ours["pages/s"])) / max(float(str(peer["pages/s"])) for peer in peers)
            record.note("batchocr / vLLM, pages/s", round(ratio, 2))
            record.figure("times_vllm", ratio)


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    peer_vllm.add_vllm_options(parser)
    parser.add_argument("--pages", type=int, default=200, help="for batchocr")
    parser.add_argument("--vit-dtype", choices=get_args(VitDType), default="auto", help="of batchocr")
    parser.add_argument("--peer-pages", type=int, default=60, help="for vLLM, for all of its processes together")
    parser.add_argument("--processes", type=numbers, default=[1, 2, 3], help="of vLLM, one number after the other")
    parser.add_argument("--minutes", type=float, default=5.0, help="deadline for each start of vLLM")
    given = parser.parse_args(arguments)
    record = Record("beside", given)
    record.note("versions", [f"{name} {version}" for name, version in versions(_VERSIONS).items()])
    with tempfile.TemporaryDirectory() as temporary:
        # The first that needs the checkpoint makes it.
        compare(given, given.checkpoint or Path(temporary, "checkpoint"), record)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: the engine's processes are ended
    main()
