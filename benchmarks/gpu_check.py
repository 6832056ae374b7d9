"""Everything that needs a GPU, in one command of under ten minutes: correctness checks, benchmarks, kernel tests.

    python -m benchmarks.gpu_check

Each part runs in its own process with a deadline. If one fails or is cut off, this is recorded with what it measured by
then, and the next one begins. benchmarks/results/gpu_check.json is rewritten after every part. Exit code 1 if a part
failed. With --smoke, tiny versions of the parts run within this process, on a CPU too; the kernel tests are left out.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchocr import backend
from benchmarks.ops_cases import CASES
from benchmarks.ops_check import broke_the_context
from benchmarks.options import add_checkpoint_option
from benchmarks.record import RESULTS, ROOT, benchmark_parser, machine_facts, write_json
from benchmarks.true_shape import SMOKE_SHAPE, TRUE_SHAPE, write_checkpoint

_TAIL_CHARACTERS = 2000


@dataclass(frozen=True, slots=True)
class Part:
    """A benchmark or a check to run. name: the prefix of its figures' names. needs_model: takes --checkpoint."""

    name: str
    module: str
    deadline_s: float
    arguments: tuple[str, ...] = ()
    needs_model: bool = True


OPS = Part("ops", "ops_check", 120, needs_model=False)
PARTS = (
    Part("model", "model_check", 120),
    Part("throughput.dense_bf16", "throughput", 120, ("--seconds", "30")),
    Part("throughput.dense_fp8", "throughput", 90, ("--seconds", "20", "--vit-dtype", "fp8")),
    Part("decode", "decode", 60, ("--batch-sizes", "64,256", "--steps", "40")),
    Part("preprocess", "preprocess", 40, needs_model=False),
    Part("small_images", "small_images", 60),
    Part("end_to_end", "end_to_end", 90, ("--copies", "40")),
    Part("attention", "attention", 45, needs_model=False),
    Part("ablation", "ablation", 120, ("--pages", "120", "--pages-in-flight", "40", "--coupled", "64")),
    Part("throughput.peers", "throughput", 120, ("--pages", "16", "--transformers", "16", "--peer-pages", "4")),
)
GPU_PARTS = ("throughput.dense_fp8", "throughput.peers")
"""Left out on a CPU: the first cannot run there, and every smoke run of throughput includes the second."""


class Results:
    """The results so far, written to the file after every part."""

    def __init__(self, path: Path | None, facts: dict[str, Any]) -> None:
        self._path = path
        self.values: dict[str, Any] = {**facts, "kernels": [], "checks": {}, "figures": {}, "failed": {}, "parts": {}}

    def take(self, part: Part, written: dict[str, Any], seconds: float, error: str | None) -> None:
        """Add what a part has written, whether or not it finished."""
        values = self.values
        rows = written.get("rows", [])
        for row in rows:
            if "check" in row:
                name = " ".join(filter(None, (row["check"], row.get("dtype"))))
                values["checks"][name] = {
                    key: row[key] for key in ("ok", "error", "logit error", "reason") if key in row
                }
        notes = written.get("notes", {})
        values["kernels"] = notes.get("kernels_bfloat16") or notes.get("kernels") or values["kernels"]
        for name, figure in written.get("figures", {}).items():
            values["figures"][f"{part.name}.{name}"] = figure
        before = values["parts"].get(part.name, {"seconds": 0.0, "rows": []})
        values["parts"][part.name] = {
            "seconds": round(before["seconds"] + seconds, 1),
            "notes": notes,
            "rows": before["rows"] + rows,
        }
        if error is not None:
            values["failed"][part.name] = error
        self.write()

    def write(self) -> None:
        if self._path is not None:
            write_json(self._path, self.values)


def run_part(part: Part, extra: Sequence[str], results: Results, *, smoke: bool, deadline_s: float) -> dict[str, Any]:
    """Run a part, add what it wrote to the results, and return it."""
    print(f"\n== {part.name}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        arguments = [*extra, "--out", str(out)]
        started = time.perf_counter()
        if smoke:
            error = _run_here(part, arguments)
        else:
            command = [sys.executable, "-m", f"benchmarks.{part.module}", *part.arguments, *arguments]
            error = run_command(command, min(part.deadline_s, deadline_s))
        written = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
        results.take(part, written, time.perf_counter() - started, error)
    if error is not None:
        print(f"failed: {error}", flush=True)
    return written


def _run_here(part: Part, arguments: list[str]) -> str | None:
    """Run the smoke version of a part. Returns why it failed, or None."""
    try:
        importlib.import_module(f"benchmarks.{part.module}").main([*arguments, "--smoke"])
    except SystemExit as exit_code:
        return f"exit code {exit_code.code}" if exit_code.code else None
    except Exception as error:  # noqa: BLE001 (boundary: one part; the others are still worth knowing)
        return f"{type(error).__name__}: {error}"
    return None


def run_command(command: list[str], deadline_s: float) -> str | None:
    """Run a command with a deadline. Returns why it failed, with the end of its stderr, or None."""
    with tempfile.TemporaryFile("w+", errors="replace") as complaints:
        try:
            code = subprocess.run(command, cwd=ROOT, stderr=complaints, timeout=max(1.0, deadline_s)).returncode
            reason = f"exit code {code}" if code else None
        except subprocess.TimeoutExpired:
            reason = f"cut off after {deadline_s:.0f} s"
        complaints.seek(0)
        return reason and f"{reason}; {complaints.read()[-_TAIL_CHARACTERS:]}"


def run_ops(given: argparse.Namespace, results: Results, deadline: float) -> None:
    """Run the checks of all operations. After one that breaks the GPU's context, the others run in a new process."""
    left = list(CASES)
    while left and time.perf_counter() < deadline:
        options = ["--device", given.device, "--only", ",".join(left)]
        remaining = deadline - time.perf_counter()
        written = run_part(OPS, options, results, smoke=given.smoke, deadline_s=remaining)
        rows = written.get("rows", [])
        if not rows or not broke_the_context(rows[-1]):
            return
        left = left[left.index(rows[-1]["check"]) + 1 :]


def run_kernel_tests(results: Results, deadline_s: float) -> None:
    """Run the tests of our kernels, on the GPU if there is one. Compiling for other GPUs is left out."""
    if importlib.util.find_spec("pytest") is None:
        return
    tests = sorted(str(path) for path in (ROOT / "tests" / "backend").glob("test_kernels_*.py"))
    command = [sys.executable, "-m", "pytest", "-q", "-k", "not compile", *tests]
    started = time.perf_counter()
    error = run_command(command, deadline_s)
    results.take(Part("kernel tests", "", deadline_s), {}, time.perf_counter() - started, error)


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("--minutes", type=float, default=9.5, help="for all of it")
    parser.add_argument("--only", type=lambda text: text.split(","), help="parts: ops,model,decode,…")
    add_checkpoint_option(parser)
    given = parser.parse_args(arguments)
    device = backend.select_device(given.device)
    path = given.out or (None if given.smoke else RESULTS / "gpu_check.json")
    results = Results(path, machine_facts(device))
    deadline = time.perf_counter() + 60 * given.minutes
    wanted = given.only or [OPS.name, *(part.name for part in PARTS), "kernel tests"]
    if OPS.name in wanted:
        run_ops(given, results, deadline)
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.checkpoint or Path(temporary)
        if not (folder / "config.json").exists():
            write_checkpoint(folder, SMOKE_SHAPE if given.smoke else TRUE_SHAPE)
        for part in PARTS:
            remaining = deadline - time.perf_counter()
            runs_here = device.type == "cuda" or part.name not in GPU_PARTS
            if part.name in wanted and remaining > 0 and runs_here:
                options = ["--device", given.device] + (["--checkpoint", str(folder)] if part.needs_model else [])
                run_part(part, options, results, smoke=given.smoke, deadline_s=remaining)
    if "kernel tests" in wanted and not given.smoke and (remaining := deadline - time.perf_counter()) > 0:
        run_kernel_tests(results, remaining)
    print(json.dumps(results.values["figures"], indent=1))
    wrong = [name for name, check in results.values["checks"].items() if not check["ok"]]
    if wrong or results.values["failed"]:
        sys.exit(f"failed: {', '.join([*wrong, *results.values['failed']])}")


if __name__ == "__main__":
    main()
