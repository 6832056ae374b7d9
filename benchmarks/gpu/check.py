"""Everything that needs a GPU, in one command of under ten minutes: correctness checks, benchmarks, kernel tests.

    python -m benchmarks.gpu.check

Each part runs in its own process with a deadline, the most important first. If one fails, crashes or is cut off, this
is recorded with what it measured by then, and the next one begins; one that the total time or Ctrl-C has cut off is to
be begun again, and no failure. After a candidate for an operation that ended its process or broke the GPU for it, the
part runs again without that candidate. benchmarks/results/gpu_check.json is rewritten every second, so that it holds
what there is after Ctrl-C too, and continued by the next command on the same GPU and commit: the last line says with
which command, and whether what was checked is right. gpu_check.trace.json.gz beside it is a trace for chrome://tracing.
Exit code 1 if a part failed. With --smoke, tiny versions of the parts run within this process, on a CPU too; the kernel
tests are left out.
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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchocr.engine import backend
from batchocr.processes.engine_messages import REJECT, TRYING
from benchmarks import ROOT
from benchmarks.gpu.ops_cases import CASES
from benchmarks.gpu.ops_check import broke_the_context
from benchmarks.options import add_checkpoint_option
from benchmarks.record import RESULTS, benchmark_parser, machine_metadata, write_json

_TAIL_CHARACTERS = 2000
_LOOK_EVERY_S = 1.0
_PATIENCE_S = 10.0
"""For a process that was killed; one that waits for a GPU may never end."""


@dataclass(frozen=True, slots=True)
class Part:
    """A benchmark or a check to run. name: the prefix of its figures' names. needs_model: takes --checkpoint. traced:
    takes --chrome-trace. on_cpu: whether a CPU can run it."""

    name: str
    module: str
    deadline_s: float
    arguments: tuple[str, ...] = ()
    needs_model: bool = True
    traced: bool = False
    on_cpu: bool = True


PARTS = (
    Part("ops", "benchmarks.gpu.ops_check", 120, ("--dtype", "bfloat16"), needs_model=False),
    Part("model", "benchmarks.gpu.model_check", 150, ("--dtype", "bfloat16")),
    Part("production", "benchmarks.gpu.production_check", 90),
    Part("throughput.dense_bf16", "benchmarks.speed.throughput", 180, ("--seconds", "30"), traced=True),
    Part("decode", "benchmarks.gpu.decode", 60, ("--batch-sizes", "64,256", "--steps", "40")),
    Part("attention", "benchmarks.gpu.attention", 45, needs_model=False),
    Part("preprocess", "benchmarks.gpu.preprocess", 40, needs_model=False),
    Part("small_images", "benchmarks.speed.small_images", 60),
    Part("ops_float32", "benchmarks.gpu.ops_check", 90, ("--dtype", "float32"), needs_model=False, on_cpu=False),
    Part("model_float32", "benchmarks.gpu.model_check", 90, ("--dtype", "float32")),
    Part(
        "throughput.dense_fp8",
        "benchmarks.speed.throughput",
        120,
        ("--seconds", "20", "--vit-dtype", "fp8"),
        on_cpu=False,
    ),
    Part("end_to_end", "benchmarks.speed.end_to_end", 90, ("--copies", "40")),
    Part("ablation", "benchmarks.gpu.ablation", 240, ("--pages", "160", "--pages-in-flight", "80", "--coupled", "64")),
    Part(
        "throughput.peers",
        "benchmarks.speed.throughput",
        120,
        ("--pages", "16", "--transformers", "16", "--peer-pages", "4"),
    ),
)
_CORRECTNESS = ("ops", "model", "production")
"""The parts without which nobody knows whether what is read is right."""
KERNEL_TESTS = Part("kernel_tests", "pytest", 120, needs_model=False, on_cpu=False)


class Results:
    """The results so far, in memory and in the file.

    What the file has from the same machine and commit stays, but for parts that run again; any other is renamed.
    """

    def __init__(self, path: Path | None, metadata: Mapping[str, Any], parts: Sequence[Part] = ()) -> None:
        self.path = path
        self.values: dict[str, Any] = {**metadata, "kernels": [], "checks": {}, "figures": {}, "failed": {}}
        self.values |= {"not_begun": [part.name for part in parts], "parts": {}}
        if path is not None and path.exists():
            self._continue(json.loads(path.read_text(encoding="utf-8")), metadata)
        self._runs: dict[str, list[tuple[dict[str, Any], float]]] = {}
        self._begun_s = 0.0

    def _continue(self, earlier: dict[str, Any], metadata: Mapping[str, Any]) -> None:
        assert self.path is not None
        if any(earlier.get(name) != value for name, value in metadata.items()):
            self.path.rename(self.path.with_suffix(f".{time.time_ns()}.json"))
            return
        not_begun = dict.fromkeys([*self.values["not_begun"], *earlier["not_begun"]])
        self.values |= earlier | {"not_begun": list(not_begun)}

    def begin(self, part: Part) -> None:
        """A process of this part begins; what the part wrote in earlier ones stays."""
        self._begun_s = time.perf_counter()
        self._runs.setdefault(part.name, []).append(({}, 0.0))
        with suppress(ValueError):
            self.values["not_begun"].remove(part.name)
        self.take(part, {}, "unfinished")

    def take(self, part: Part, written: dict[str, Any], error: str | None, stderr: str = "") -> None:
        """Take all that the part's process has written so far. error: why it ended or may end without the rest. stderr:
        the end of it, with warnings."""
        values, runs = self.values, self._runs[part.name]
        runs[-1] = written, time.perf_counter() - self._begun_s
        for row in written.get("rows", []):
            if "check" in row:
                name = " ".join(filter(None, (row["check"], row.get("dtype"))))
                values["checks"][name] = {
                    key: row[key] for key in ("ok", "error", "logit error", "reason") if key in row
                }
        notes = written.get("notes", {})
        values["kernels"] = notes.get("kernels_bfloat16") or notes.get("kernels") or values["kernels"]
        for name, figure in written.get("figures", {}).items():
            values["figures"][f"{part.name}.{name}"] = figure
        values["parts"][part.name] = {
            "seconds": round(sum(seconds for _, seconds in runs), 1),
            "notes": notes,
            "stderr": stderr,
            "rows": [row for each, _ in runs for row in each.get("rows", [])],
        }
        values["failed"].pop(part.name, None)
        if error is not None:
            values["failed"][part.name] = error
        if self.path is not None:
            write_json(self.path, values)

    def put_back(self, part: Part) -> None:
        """Have a part that was cut off made again; what it has measured stays."""
        self.values["failed"].pop(part.name, None)
        self.values["not_begun"].insert(0, part.name)
        if self.path is not None:
            write_json(self.path, self.values)

    def verdict(self) -> str:
        """In one line: whether what was checked is right, pages per second, kernels, and the command for the rest."""
        values, wrong = self.values, self.wrong()
        unchecked = [name for name in _CORRECTNESS if name in values["not_begun"] or name not in values["parts"]]
        correct = f"no ({', '.join(wrong)})" if wrong else "not known yet" if unchecked else "yes"
        rate = values["figures"].get("throughput.dense_bf16.pages_per_second")
        said = [f"correct: {correct}", f"pages/s: {rate:.2f}" if rate is not None else "pages/s: not measured"]
        said += [f"kernels: {', '.join(kernel.split(' (')[0] for kernel in values['kernels']) or 'not known'}"]
        if left := values["not_begun"]:
            said += [f"not done; the rest: python -m benchmarks.gpu.check --only {','.join(left)}"]
        return "; ".join(said)

    def wrong(self) -> list[str]:
        """The names of checks and parts that failed."""
        return [name for name, check in self.values["checks"].items() if not check["ok"]] + [*self.values["failed"]]


@dataclass(frozen=True, slots=True)
class Check:
    """How parts are run. deadline_s: of all of them, by time.perf_counter."""

    results: Results
    smoke: bool
    deadline_s: float

    @property
    def left_s(self) -> float:
        return self.deadline_s - time.perf_counter()

    def run(self, part: Part, options: Sequence[str]) -> tuple[dict[str, Any], str | None]:
        """Run a part. Returns what it wrote, and why it failed."""
        print(f"\n== {part.name}", flush=True)
        results = self.results
        results.begin(part)
        error: str | None = "interrupted"
        stderr, limit_s = "", self.left_s
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            out = folder / "result.json"
            arguments = [*part.arguments, *options, "--out", str(out)]
            if part.traced:
                trace = folder / "trace.json.gz" if results.path is None else results.path.with_suffix(".trace.json.gz")
                arguments += ["--chrome-trace", str(trace)]
            try:
                if self.smoke:
                    error = _run_here(part, arguments)
                else:
                    error, stderr = run_command(
                        [sys.executable, "-m", part.module, *arguments],
                        min(part.deadline_s, limit_s),
                        lambda: results.take(part, _read(out), "unfinished"),
                    )
            finally:
                written = _read(out)
                results.take(part, written, error, stderr)
                if self._put_back_if_cut(part, error, limit_s):
                    error = None
        if error is not None:
            print(f"failed: {error}", flush=True)
        return written, error

    def run_checks(self, part: Part, options: Sequence[str]) -> None:
        """Run the checks of all operations. After one that ends its process or breaks the GPU for it, the others run in
        a new process."""
        left = list(CASES)
        while left and self.left_s > 0:
            written, error = self.run(part, [*options, "--only", ",".join(left)])
            rows = written.get("rows", [])
            if part.name in self.results.values["not_begun"]:
                return
            culprit = written.get("busy_with")
            if culprit is not None:
                row = {"check": culprit, "dtype": part.arguments[-1], "ok": False, "reason": str(error)[:300]}
                rows.append(row)
                self.results.take(part, written, None)
            elif not rows or not broke_the_context(rows[-1]):
                return
            left = left[left.index(rows[-1]["check"]) + 1 :]

    def run_kernel_tests(self, part: Part) -> None:
        """Run the tests of our kernels on the GPU. Compiling for other GPUs is left out."""
        tests = sorted(str(path) for path in (ROOT / "tests" / "engine").glob("test_kernels_*.py"))
        self.results.begin(part)
        command = [sys.executable, "-m", part.module, "-q", "-k", "not compile", *tests]
        limit_s = self.left_s
        self.results.take(part, {}, *run_command(command, min(part.deadline_s, limit_s)))
        self._put_back_if_cut(part, self.results.values["failed"].get(part.name), limit_s)

    def _put_back_if_cut(self, part: Part, error: str | None, left_s: float) -> bool:
        """Whether the part is to be begun again, because not its own time was over. left_s: of the total, when it
        began."""
        is_cut = error == "interrupted" or ((error or "").startswith("cut off") and left_s < part.deadline_s)
        if is_cut:
            print(f"not finished ({error}): it is begun again", flush=True)
            self.results.put_back(part)
        return is_cut


def _read(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return values


def _run_here(part: Part, arguments: list[str]) -> str | None:
    """Run the smoke version of a part. Returns why it failed, or None."""
    try:
        importlib.import_module(part.module).main([*arguments, "--smoke"])
    except SystemExit as exit_code:
        return f"exit code {exit_code.code}" if exit_code.code else None
    except ModuleNotFoundError as error:
        return f"needs {error.name}"
    except Exception as error:  # noqa: BLE001 (boundary: one part; the others are still worth knowing)
        return f"{type(error).__name__}: {error}"
    return None


def run_command(
    command: list[str],
    deadline_s: float,
    look: Callable[[], None] = lambda: None,
) -> tuple[str | None, str]:
    """Run a command with a deadline, and end all its processes. Returns why it failed, None if it did not, and the end
    of its stderr. look: called every second."""
    until_s = time.perf_counter() + deadline_s
    with tempfile.TemporaryFile("w+", errors="replace") as complaints:
        process = subprocess.Popen(command, cwd=ROOT, stderr=complaints, start_new_session=True)
        try:
            while process.poll() is None and time.perf_counter() < until_s:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_LOOK_EVERY_S)
                look()
            code = process.poll()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_PATIENCE_S)
        complaints.seek(0)
        said = complaints.read()[-_TAIL_CHARACTERS:]
    if code is None:
        return f"cut off after {deadline_s:.0f} s{_while_trying(said)}", said
    if code < 0:
        return f"killed by {signal.Signals(-code).name}{_while_trying(said)}", said
    if not code:
        return None, said
    missing = re.findall(r"^ModuleNotFoundError: No module named '(\w+)", said, re.MULTILINE)
    last = said.splitlines()[-1] if "Traceback" in said else ""
    return f"needs {missing[-1]}" if missing else f"exit code {code}: {last}" if last else f"exit code {code}", said


def _while_trying(stderr: str) -> str:
    """The kernel that was being tried in the end, and how to leave it out; empty if none was."""
    choice_or_trial = re.findall(rf"^{TRYING}(.+)|^\S.* \(error ", stderr, re.MULTILINE)
    if not (choice_or_trial and choice_or_trial[-1]):
        return ""
    return f", {TRYING}{choice_or_trial[-1]}: leave it out with {REJECT}='{choice_or_trial[-1]}'"


def run_parts(given: argparse.Namespace, parts: Sequence[Part], check: Check) -> None:
    """Run these parts, as far as there is time."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.checkpoint or Path(temporary)  # the first part that needs it makes it
        for part in parts:
            options = ["--device", given.device] + (["--checkpoint", str(folder)] if part.needs_model else [])
            if check.left_s <= 0:
                return
            if part is KERNEL_TESTS:
                check.run_kernel_tests(part)
            elif part.module == "benchmarks.gpu.ops_check":
                check.run_checks(part, options)
            else:
                check.run(part, options)


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("--minutes", type=float, default=9.0, help="for all of it")
    names = [part.name for part in (*PARTS, KERNEL_TESTS)]
    parser.add_argument("--only", type=lambda text: text.split(","), default=names, help=f"parts: {','.join(names)}")
    add_checkpoint_option(parser)
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.only if name not in names]:
        parser.error(f"no part {', '.join(unknown)}: there is {', '.join(names)}")
    device = backend.select_device(given.device)
    parts = [part for part in (*PARTS, KERNEL_TESTS) if part.name in given.only]
    parts = [part for part in parts if part.on_cpu or (device.type == "cuda" and not given.smoke)]
    path = given.out or (None if given.smoke else RESULTS / "gpu_check.json")
    results = Results(path, machine_metadata(device), parts)
    try:
        run_parts(given, parts, Check(results, given.smoke, time.perf_counter() + 60 * given.minutes))
    except KeyboardInterrupt:
        print("\ninterrupted", flush=True)
    print(json.dumps(results.values["figures"], indent=1))
    print(f"written: {path}" if path else "not written: --smoke without --out")
    print(results.verdict())
    if wrong := results.wrong():
        sys.exit(f"failed: {', '.join(wrong)}")


if __name__ == "__main__":
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.default_int_handler)  # like Ctrl-C: what there is is written
    main()
