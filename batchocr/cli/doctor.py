"""What this machine offers for a run: `batchocr doctor`."""

from __future__ import annotations

import importlib
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from PIL import Image

from batchocr import backend
from batchocr.backend.base import Ops
from batchocr.backend.dtype import bfloat16_speedup, select_dtype
from batchocr.backend.trial import Choice
from batchocr.cli.console import printable
from batchocr.cli.finding import Finding
from batchocr.cli.model_check import Plan, Tried, try_out
from batchocr.config import Config
from batchocr.data import Pixels, Request, Sampling
from batchocr.engine.dtype import bfloat16_remark
from batchocr.errors import BatchOcrError, ExitCode
from batchocr.input.in_memory import hold
from batchocr.job.session import num_workers, require_usable, worker_memory_bytes
from batchocr.machine import multiplies_bfloat16, usable_cores, usable_memory_bytes
from batchocr.pool.pool import WorkerPool
from batchocr.wire.messages import Opened, Setup
from batchocr.wire.pixels import SharedRound, share_round

_GIB = 1 << 30
_KERNEL_LIBRARIES = {"triton": "triton", "sgl_kernel": "sglang-kernel"}
_WORKER_DEADLINE_S = 30.0
_NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """plan: what a run with the model would do; None if none was tried."""

    findings: Sequence[Finding]
    choices: Sequence[Choice]
    plan: Plan | None = None

    @property
    def exit_code(self) -> ExitCode:
        """0 if a run can work here."""
        failing = (finding.exit_code for finding in self.findings if finding.ok is False)
        return next(failing, ExitCode.DONE)

    def to_text(self) -> str:
        signs = {True: "ok", False: "NO", None: ""}
        width = max(len(finding.name) for finding in self.findings)
        lines = [
            f"{finding.name:{width}}  {signs[finding.ok]:2}  {printable(finding.value)}" for finding in self.findings
        ]
        lines += ["", "operation         taken              error against reference        time"]
        for choice in self.choices:
            lines.append(f"{choice.operation:17} {choice.taken:18} {choice.error:23.1e} {1e6 * choice.seconds:8.0f} µs")
            lines += [f"{'':17} not {name}: {reason}" for name, reason in choice.reasons().items()]
        return "\n".join(lines)

    def to_json(self) -> str:
        """One object; times in seconds, memory in bytes."""
        findings = [{"name": found.name, "value": found.value, "ok": found.ok} for found in self.findings]
        operations = [asdict(choice) for choice in self.choices]
        plan = asdict(self.plan) if self.plan else None
        return json.dumps(
            {"findings": findings, "operations": operations, "plan": plan, "exit_code": self.exit_code}, indent=2
        )


def examine(config: Config, *, try_model: bool = False) -> Diagnosis:
    """Check everything a run needs but documents, the model only if `try_model`. Raises UsageError if the device cannot
    be used."""
    require_usable(config)
    device = backend.select_device(config.device)
    name = backend.select_backend(config.backend, device)
    tried = try_out(config) if try_model else Tried([], None)
    dtype = select_dtype(tried.dtype or config.dtype, device)
    ops = backend.make_ops(name, device, dtype)
    findings = [
        Finding("batchocr", f"{version('batchocr')}, Python {platform.python_version()}, {platform.system()}"),
        Finding("host", f"{usable_cores()} cores, {usable_memory_bytes() / _GIB:.1f} GiB of memory, for this process"),
        Finding("torch", f"{torch.__version__}, built {_cuda_build()}"),
        _gpu(device),
        *(_library(module, package) for module, package in _KERNEL_LIBRARIES.items()),
        Finding("runs on", f"{device}, {str(dtype).removeprefix('torch.')}, backend {name}", True),
        *([Finding("bfloat16", remark)] if not try_model and (remark := _bfloat16(device)) else []),
        *tried.findings,
        _shared_memory(),
        _workers(config),
    ]
    return Diagnosis(findings, _choices(ops, dtype), tried.plan)


def _bfloat16(device: torch.device) -> str:
    return bfloat16_remark(bfloat16_speedup()) if device.type == "cpu" and multiplies_bfloat16() else ""


def _choices(ops: Ops, dtype: torch.dtype) -> Sequence[Choice]:
    match ops.name:
        case "cuda":
            from batchocr.backend.cuda import CudaOps

            assert isinstance(ops, CudaOps)
            return ops.choices
        case "cpu":
            from batchocr.backend.cpu_trials import measure_all

            return measure_all(dtype)
        case _:
            return [Choice("all", "reference")]


def _cuda_build() -> str:
    return f"for CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"


def _gpu(device: torch.device) -> Finding:
    if not torch.cuda.is_available():
        why = "torch was built without CUDA" if torch.version.cuda is None else "no driver, or no device, was found"
        return Finding("NVIDIA GPU", f"none ({why}); the CPU does the work: expect minutes per page with a real model")
    number = device.index or 0
    properties = torch.cuda.get_device_properties(number)
    free, total = (size / _GIB for size in torch.cuda.mem_get_info(number))
    driver = _NVIDIA_DRIVER.read_text().splitlines()[0] if _NVIDIA_DRIVER.exists() else "unknown driver"
    return Finding(
        "NVIDIA GPU",
        f"{properties.name}, sm_{properties.major}{properties.minor}, {free:.1f} of {total:.1f} GiB free, {driver}",
        True,
    )


def _library(module: str, package: str) -> Finding:
    try:
        importlib.import_module(module)
        return Finding(module, version(package))
    except PackageNotFoundError:
        return Finding(module, "found")
    except Exception as error:  # noqa: BLE001 (boundary: a backend's trial run; wheels fail at import in many ways)
        if isinstance(error, ModuleNotFoundError) and error.name == module:
            return Finding(module, "not installed (for NVIDIA GPUs: pip install '.[cuda]' in a clone of batchocr)")
        return Finding(module, f"not usable: {error}".splitlines()[0][:150])


def _shared_memory() -> Finding:
    """Send a dense page's pixels the way a worker does."""
    page = Pixels(2200, 1700, os.urandom(2200 * 1700 * 3))
    try:
        [received] = SharedRound(*share_round(0, [Request(page, "", Sampling(1))])).requests()
    except BatchOcrError as error:
        return Finding("shared memory", str(error), False)
    intact = bytes(received.pixels.data) == bytes(page.data)
    return Finding("shared memory", "a page of 11 MB crosses it" if intact else "a page is damaged on its way", intact)


def _workers(config: Config) -> Finding:
    """Have a worker open an image."""
    try:
        picture = hold("picture", Image.new("RGB", (28, 28)))
        with WorkerPool(1, Setup.of(config, worker_memory_bytes(config))) as pool:
            found = pool.open_alone(picture.path, _WORKER_DEADLINE_S)
    except BatchOcrError as error:
        return Finding("workers", str(error), False)
    if isinstance(found, Opened):
        return Finding("workers", f"{num_workers(config)}; one was started and opened a picture", True)
    return Finding("workers", " ".join(f"one was started and failed: {found.failure.message}".split()), False)
