"""What a benchmark outputs: a table as it runs, and JSON with the machine and the commit next to the figures."""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import TypeAlias

import torch

from batchocr.engine import backend
from batchocr.machine import usable_cores, usable_memory_bytes
from benchmarks import ROOT

RESULTS = ROOT / "benchmarks" / "results"

Value: TypeAlias = str | int | float | bool | None
Row: TypeAlias = Mapping[str, Value]

_LIBRARIES = ("torch", "triton", "transformers", "sglang-kernel", "sgl-kernel", "fa3-fwd", "vllm")
_MIN_COLUMN = 9


def benchmark_parser(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options that most benchmarks have."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--device", default="auto", help="cpu, cuda:0, …; auto takes a GPU where there is one")
    parser.add_argument("--out", type=Path, help="JSON file; benchmarks/results/NAME.json if not given")
    parser.add_argument(
        "--smoke", action="store_true", help="a size that runs on a CPU in seconds, to see that it runs"
    )
    return parser


class Record:
    """Rows and named figures of one benchmark, printed and written as they come, so that a deadline loses none."""

    def __init__(self, name: str, arguments: argparse.Namespace) -> None:
        # The product's log says which kernel is being tried, should it end the process.
        logging.basicConfig(level=logging.INFO, format="%(message)s")
        self._path: Path | None = arguments.out
        if self._path is None and not arguments.smoke:
            self._path = RESULTS / f"{name}.json"
        self.device = backend.select_device(arguments.device)
        self._columns: dict[str, int] = {}
        self._rows: list[Row] = []
        self._figures: dict[str, float] = {}
        self._notes: dict[str, Value | list[str]] = {}
        self._metadata = {"benchmark": name, "smoke": arguments.smoke, **machine_metadata(self.device)}

    def add(self, row: Row) -> None:
        """Print and record a row of the table."""
        self._rows.append(row)
        print(self._line(row), flush=True)
        self._write()

    def figure(self, name: str, value: float) -> None:
        """Record a figure under a name that stays the same from release to release."""
        self._figures[name] = value
        self._write()

    def note(self, name: str, value: Value | list[str]) -> None:
        """Print and record what a reader must know about the rows."""
        self._notes[name] = value
        print(f"{name}: {', '.join(value) if isinstance(value, list) else value}", flush=True)
        self._write()

    def _line(self, row: Row) -> str:
        header = ""
        if row.keys() != self._columns.keys():
            self._columns = {name: max(_MIN_COLUMN, len(name), len(_text(row[name]))) for name in row}
            header = "  ".join(name.rjust(width) for name, width in self._columns.items()) + "\n"
        return header + "  ".join(_text(row[name]).rjust(width) for name, width in self._columns.items())

    def _write(self) -> None:
        if self._path is not None:
            metadata = {**self._metadata, "notes": self._notes}
            write_json(self._path, {**metadata, "figures": self._figures, "rows": self._rows})


def write_json(path: Path, values: Mapping[str, object]) -> None:
    """Write the values completely or not at all, even if the process is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".new")
    beside.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    beside.replace(path)


def machine_metadata(device: torch.device) -> dict[str, Value]:
    """The machine, the libraries on it and the commit of this checkout."""
    on_gpu = device.type == "cuda"
    return {
        "commit": commit(),
        "gpu": torch.cuda.get_device_name(device) if on_gpu else None,
        "gpu_memory_gb": round(torch.cuda.get_device_properties(device).total_memory / 1e9, 1) if on_gpu else None,
        "cuda": torch.version.cuda,
        "cpu": _processor(),
        "cores": usable_cores(),
        "memory_gb": round(usable_memory_bytes() / 1e9, 1),
        "python": platform.python_version(),
        **versions(_LIBRARIES),
    }


def commit() -> str:
    """The commit of this checkout, with `+` if tracked files differ from it; "unknown" without git."""
    try:
        name = _git("rev-parse", "--short", "HEAD")
        return name + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def versions(names: Iterable[str]) -> dict[str, str]:
    """The versions of those that are installed."""
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine()) + f", {os.cpu_count()} threads"


def _text(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"
    return "–" if value is None else f"{value:,}" if type(value) is int else str(value)
