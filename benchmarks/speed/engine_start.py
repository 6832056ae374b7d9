"""How long an engine takes until it is ready, phase by phase, and which packages its imports are.

    python -m benchmarks.speed.engine_start --checkpoint FOLDER

The engine is started as a run does it; `timed_engine.py` is its process. Each phase is the shortest of several starts,
after one that is not counted: so files are in the system's cache, and kernels in Triton's. The imports are timed in
processes of their own, where each module takes a little longer.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from batchocr.config import Config
from batchocr.job.session import Session
from benchmarks.options import add_checkpoint_option
from benchmarks.record import Record, benchmark_parser
from benchmarks.speed.timed_engine import BEGUN
from benchmarks.true_shape import checkpoint

_IMPORTS = "import batchocr.engine.before_torch, batchocr.engine.serve; from transformers import AutoTokenizer"
_IMPORTED = re.compile(r"import time: +(\d+) \| +\d+ \| +([\w]+)", re.MULTILINE)
_PACKAGES = 12


def start_of(config: Config) -> dict[str, float]:
    """The seconds of each phase of a start, and "in all", until the engine is ready."""
    with tempfile.TemporaryDirectory() as folder:
        times = Path(folder) / "times.json"
        session = Session(config, engine_command=(sys.executable, "-m", "benchmarks.speed.timed_engine", str(times)))
        begun_s = time.monotonic()
        try:
            session.load()
            seconds = {"in all": time.monotonic() - begun_s}
        finally:
            session.close()
        phases = json.loads(times.read_text())
    return seconds | {"Python": phases.pop(BEGUN) - begun_s} | phases


def seconds_by_package() -> Counter[str]:
    """What the modules of each package take to import, without those that they import."""
    command = (sys.executable, "-X", "importtime", "-c", _IMPORTS)
    said = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    seconds: Counter[str] = Counter()
    for microseconds, package in _IMPORTED.findall(said):
        seconds[package] += int(microseconds) / 1e6
    return seconds


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    add_checkpoint_option(parser)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--retry-kernels", action="store_true", help="each start times the kernels of a GPU anew")
    given: argparse.Namespace = parser.parse_args(arguments)
    record = Record("engine_start", given)
    with checkpoint(given.checkpoint, smoke=given.smoke) as folder:
        config = Config(model=str(folder), device=str(record.device), retry_kernels=given.retry_kernels)
        starts = [start_of(config) for _ in range(1 if given.smoke else 1 + given.starts)]
    counted = starts[1:] or starts
    for phase in counted[0]:
        record.add({"phase": phase, "seconds": min(start[phase] for start in counted)})
    record.figure("seconds", min(start["in all"] for start in counted))
    for package, seconds in seconds_by_package().most_common(_PACKAGES):
        record.add({"imports of": package, "seconds": seconds})


if __name__ == "__main__":
    main()
