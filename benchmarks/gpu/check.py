"""Everything that needs a GPU, in one command: correctness checks, benchmarks, kernel tests.

    python -m benchmarks.gpu.check

Each part runs in its own process with a deadline, the most important first; what one that fails, crashes or is cut off
has measured by then is kept. benchmarks/results/gpu_check.json is rewritten after each part, and continued by the next
command on the same machine and commit. The last line says whether what was checked is right, and which parts are not
done, for --only: one that the total time or Ctrl-C has cut off is one of them. gpu_check.trace.json.gz beside it is a
trace for chrome://tracing. With --family, the parts that any model can run go into a file of its name. Exit code 1 if
something is wrong. With --smoke, tiny versions of the parts run within this process, on a CPU too; the kernel tests are
left out.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchocr.engine import backend
from benchmarks import ROOT
from benchmarks.options import add_checkpoint_option, add_family_option
from benchmarks.record import RESULTS, benchmark_parser, machine_metadata, write_json
from benchmarks.true_shape import USUAL

_TAIL_CHARACTERS = 2000
INTERRUPTED = "interrupted"
_PATIENCE_S = 10.0
"""For a process that was killed; one that waits for a GPU may never end."""


@dataclass(frozen=True, slots=True)
class Part:
    """A benchmark or a check to run. name: the prefix of its figures' names. needs_model: takes --checkpoint. traced:
    takes --chrome-trace. on_cpu: whether a CPU can run it. of_family: takes --family."""

    name: str
    module: str
    deadline_s: float
    arguments: tuple[str, ...] = ()
    needs_model: bool = True
    traced: bool = False
    on_cpu: bool = True
    of_family: bool = False


_THROUGHPUT = "benchmarks.speed.throughput"
PARTS = (
    Part("ops", "benchmarks.gpu.ops_check", 120, ("--dtype", "bfloat16"), needs_model=False),
    Part("model", "benchmarks.gpu.model_check", 150, ("--dtype", "bfloat16"), of_family=True),
    Part("production", "benchmarks.gpu.production_check", 90, of_family=True),
    Part("throughput.dense_bf16", _THROUGHPUT, 180, ("--seconds", "30"), traced=True),
    Part("card", "benchmarks.gpu.card", 40, needs_model=False),
    Part("throughput.layout", _THROUGHPUT, 120, ("--layout", "--seconds", "20"), of_family=True),
    Part("attention", "benchmarks.gpu.attention", 60, needs_model=False),
    Part("ablation", "benchmarks.gpu.ablation", 300, ("--coupled", "64")),
    Part("throughput.dense_fp8", _THROUGHPUT, 120, ("--seconds", "20", "--vit-dtype", "fp8"), on_cpu=False),
    Part("small_images", "benchmarks.speed.small_images", 60),
    Part("decode", "benchmarks.gpu.decode", 60, ("--batch-sizes", "64,256", "--steps", "40"), of_family=True),
    Part("end_to_end", "benchmarks.speed.end_to_end", 120, ("--copies", "40")),
    Part("ops_float32", "benchmarks.gpu.ops_check", 90, ("--dtype", "float32"), needs_model=False, on_cpu=False),
    Part("model_float32", "benchmarks.gpu.model_check", 90, ("--dtype", "float32"), of_family=True),
    Part("kernel_tests", "pytest", 120, needs_model=False, on_cpu=False),
    Part("preprocess", "benchmarks.gpu.preprocess", 40, needs_model=False),
    Part("throughput.peers", _THROUGHPUT, 120, ("--pages", "16", "--transformers", "64", "--peer-pages", "6")),
)
LONG_PARTS = (
    Part("long.bf16", _THROUGHPUT, 200, ("--pages", "1000"), of_family=True),
    Part("long.fp8", _THROUGHPUT, 120, ("--pages", "400", "--vit-dtype", "fp8"), on_cpu=False, of_family=True),
    Part("long.layout", _THROUGHPUT, 120, ("--pages", "400", "--layout"), of_family=True),
    Part("beside", "benchmarks.gpu.beside", 420, ("--minutes", "6", "--set-ups", "4,4-pool,4-mps,3,2,1")),
)
"""What only --only runs. vLLM's pool comes second in `beside`, as there is time for two or three of its set-ups."""
PLAN = {
    "ops": 35, "model": 45, "production": 35, "long.bf16": 110, "long.fp8": 60, "long.layout": 60, "beside": 360,
    "small_images": 35, "end_to_end": 60, "decode": 40,
}  # fmt: skip
"""What tells most in fourteen minutes on a GPU: names of parts, and for how many seconds of an H200 each is expected to
run, which was not measured."""
_CORRECTNESS = ("ops", "model", "production")
"""The parts without which nobody knows whether what is read is right."""


def run_part(part: Part, options: Sequence[str], deadline_s: float, *, smoke: bool) -> dict[str, Any]:
    """What a part wrote, and beside it its `seconds`, the end of its `stderr`, and why it failed: `error`, or None."""
    print(f"\n== {part.name}", flush=True)
    begun_s = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        arguments = [*part.arguments, *options, "--out", str(out)]
        if part.module == "pytest":  # but for compiling for other GPUs
            tests = sorted(map(str, (ROOT / "tests" / "engine").glob("test_kernels_*.py")))
            arguments = ["-q", "-k", "not compile", *tests]
        if smoke:
            error, stderr = _run_here(part, [*arguments, "--smoke"]), ""
        else:
            error, stderr = run_command([sys.executable, "-m", part.module, *arguments], deadline_s)
        written: dict[str, Any] = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    if error is not None:
        print(f"failed: {error}", flush=True)
    return written | {"seconds": round(time.perf_counter() - begun_s, 1), "error": error, "stderr": stderr}


def _run_here(part: Part, arguments: list[str]) -> str | None:
    """Run the smoke version of a part. Returns why it failed, or None."""
    try:
        importlib.import_module(part.module).main(arguments)
    except SystemExit as exit_code:
        return f"exit code {exit_code.code}" if exit_code.code else None
    except ModuleNotFoundError as error:
        return f"needs {error.name}"
    except Exception as error:  # noqa: BLE001 (boundary: one part; the others are still worth knowing)
        return f"{type(error).__name__}: {error}"
    return None


def run_command(command: list[str], deadline_s: float) -> tuple[str | None, str]:
    """Run a command with a deadline, and end all its processes. Returns why it failed, None if it did not, and the end
    of its stderr. Ctrl-C ends the command alone."""
    error: str | None = f"cut off after {deadline_s:.0f} s"
    with tempfile.TemporaryFile("w+", errors="replace") as complaints:
        process = subprocess.Popen(command, cwd=ROOT, stderr=complaints, start_new_session=True)
        try:
            code = process.wait(deadline_s)
            error = _why(code) if code else None
        except subprocess.TimeoutExpired:
            pass
        except KeyboardInterrupt:
            error = INTERRUPTED
        finally:
            for ending in (signal.SIGTERM, signal.SIGKILL):  # `beside` ends its own commands at the first
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, ending)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_PATIENCE_S)
        complaints.seek(0)
        said = complaints.read()
    if error is not None and error.startswith("exit code") and "Traceback" in said:
        missing = re.findall(r"^ModuleNotFoundError: No module named '(\w+)", said, re.MULTILINE)
        error = f"needs {missing[-1]}" if missing else f"{error}: {said.splitlines()[-1]}"
    return error, said[-_TAIL_CHARACTERS:]


def _why(code: int) -> str:
    return f"exit code {code}" if code > 0 else f"killed by {signal.Signals(-code).name}"


def summary(parts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The checks and figures of all parts that ran, the kernels that they used, and which parts failed."""
    checks = {
        " ".join(filter(None, (row["check"], row.get("dtype")))): row
        for part in parts.values()
        for row in part.get("rows", [])
        if "check" in row
    }
    notes = [part.get("notes", {}) for part in parts.values()]
    kernels = next((note[name] for note in notes for name in ("kernels_bfloat16", "kernels") if note.get(name)), [])
    figures = {f"{name}.{key}": value for name, part in parts.items() for key, value in part.get("figures", {}).items()}
    failed = {name: part["error"] for name, part in parts.items() if part["error"] is not None}
    return {"kernels": kernels, "checks": checks, "figures": figures, "failed": failed}


def wrong(found: dict[str, Any]) -> list[str]:
    """The names of checks and parts that failed."""
    return [name for name, check in found["checks"].items() if not check["ok"]] + [*found["failed"]]


def verdict(found: dict[str, Any], parts: dict[str, dict[str, Any]], left: Sequence[str]) -> str:
    """In one line: whether what was checked is right, pages per second, kernels, and what is not done. left: names."""
    unchecked = [name for name in _CORRECTNESS if name not in parts or name in left]
    correct = f"no ({', '.join(wrong(found))})" if wrong(found) else "not known yet" if unchecked else "yes"
    figures = found["figures"]
    rate = figures.get("throughput.dense_bf16.pages_per_second", figures.get("long.bf16.pages_per_second"))
    kernels = ", ".join(kernel.split(" (")[0] for kernel in found["kernels"]) or "not known"
    said = [f"correct: {correct}", f"pages/s: {rate:.2f}" if rate is not None else "pages/s: not measured"]
    return "; ".join([*said, f"kernels: {kernels}", *([f"not done: --only {','.join(left)}"] if left else [])])


def run_parts(left: list[Part], parts: dict[str, dict[str, Any]], given: argparse.Namespace, path: Path | None) -> None:
    """Run the parts in `left` as far as there is time, and take each out of it that is done. parts: what they wrote."""
    metadata = machine_metadata(backend.select_device(given.device))
    if path is not None and path.exists():
        earlier = json.loads(path.read_text(encoding="utf-8"))
        if all(earlier.get(name) == value for name, value in metadata.items()):
            parts |= earlier["parts"]
    until_s = time.perf_counter() + 60 * given.minutes
    with tempfile.TemporaryDirectory() as temporary:
        results = path or Path(temporary, "gpu_check.json")
        results.parent.mkdir(parents=True, exist_ok=True)
        folder = given.checkpoint or Path(temporary, "checkpoint")  # the first part that needs it makes it
        while left and (left_s := until_s - time.perf_counter()) > 0:
            part, deadline_s = left[0], min(left[0].deadline_s, left_s)
            options = ["--device", given.device] + (["--checkpoint", str(folder)] if part.needs_model else [])
            options += ["--family", given.family] if part.of_family else []
            if part.traced:
                options += ["--chrome-trace", str(results.with_suffix(".trace.json.gz"))]
            written = run_part(part, options, deadline_s, smoke=given.smoke)
            error = written["error"] or ""
            is_cut = error == INTERRUPTED or (error.startswith("cut off") and deadline_s < part.deadline_s)
            parts[part.name] = written | ({"error": None} if is_cut else {})
            write_json(results, {**metadata, **summary(parts), "parts": parts})
            if is_cut:
                return
            left.pop(0)


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("--minutes", type=float, default=18.0, help="for all of it")
    planned = ", ".join(f"{name} {seconds}" for name, seconds in PLAN.items())
    by_name = {part.name: part for part in (*PARTS, *LONG_PARTS)}
    parser.add_argument(
        "--only",
        type=lambda text: [*PLAN] if text == "plan" else text.split(","),
        default=[part.name for part in PARTS],
        help=f"these parts, in this order, of {','.join(by_name)}; or `plan`: {planned}, "
        f"together {sum(PLAN.values())} s, as expected on an H200",
    )
    add_checkpoint_option(parser)
    add_family_option(parser)
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.only if name not in by_name]:
        parser.error(f"no part {', '.join(unknown)}: there is {', '.join(by_name)}")
    can_run_all = backend.select_device(given.device).type == "cuda" and not given.smoke
    left = [by_name[name] for name in given.only if by_name[name].on_cpu or can_run_all]
    name = "gpu_check"
    if given.family != USUAL:
        left = [part for part in left if part.of_family or not part.needs_model]
        name += f".{given.family}"
    path = given.out or (None if given.smoke else RESULTS / f"{name}.json")
    parts: dict[str, dict[str, Any]] = {}
    run_parts(left, parts, given, path)
    found = summary(parts)
    print(json.dumps(found["figures"], indent=1))
    print(f"written: {path}" if path else "not written: --smoke without --out")
    print(verdict(found, parts, [part.name for part in left]))
    if wrong(found):
        sys.exit(1)


if __name__ == "__main__":
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.default_int_handler)  # like Ctrl-C: the part's processes are ended
    main()
