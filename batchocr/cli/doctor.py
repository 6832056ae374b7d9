"""What this machine offers for a run: `batchocr doctor`. Loads no torch: engine processes look at the devices."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from PIL import Image

from batchocr.cli.console import printable
from batchocr.cli.device_check import Devices, check_devices
from batchocr.cli.finding import Finding
from batchocr.cli.model_check import MemoryPlan, Tried, try_out
from batchocr.config import Config
from batchocr.data import Pixels, Request, Sampling
from batchocr.errors import BatchOcrError, ExitCode
from batchocr.job.session import num_workers, require_usable, worker_memory_bytes
from batchocr.machine import own_version, usable_cores, usable_memory_bytes
from batchocr.pages.input.in_memory import hold
from batchocr.planning.dtype import bfloat16_remark
from batchocr.processes.engine_messages import DeviceFound, KernelChoice
from batchocr.processes.messages import Opened, Setup
from batchocr.processes.pixels import SharedBatch, share_batch
from batchocr.processes.pool import WorkerPool

_GIB = 1 << 30
_WORKER_DEADLINE_S = 30.0
_NO_GPU = "none that torch can use; the CPU does the work: expect minutes per page with a real model"
_NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True, slots=True)
class Operations:
    """What was chosen for each operation on devices of one kind. kind: empty for a CPU."""

    kind: str
    devices: Sequence[str]
    choices: Sequence[KernelChoice]

    def to_lines(self) -> Iterator[str]:
        yield f"{'operation':17} taken              error against reference        time"
        for choice in self.choices:
            yield f"{choice.operation:17} {choice.taken:18} {choice.error:23.1e} {1e6 * choice.seconds:8.0f} µs"
            yield from (f"{'':17} not {name}: {reason}" for name, reason in choice.reasons().items())
        yield "taken: the fastest kernel whose result is right; error: its largest difference from the"
        yield "reference, as a share of the largest value; time: of one trial. Below it, why others were not."


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """plan: what a run with the model would do; None if none was tried."""

    findings: Sequence[Finding]
    operations: Sequence[Operations]
    plan: MemoryPlan | None = None

    @property
    def exit_code(self) -> ExitCode:
        """0 if everything works that a run would use."""
        failing = (finding.exit_code for finding in self.findings if finding.ok is False)
        return next(failing, ExitCode.DONE)

    def to_text(self) -> str:
        signs = {True: "ok", False: "NO", None: ""}
        width = max(len(finding.name) for finding in self.findings)
        lines = [
            f"{finding.name:{width}}  {signs[finding.ok]:2}  {printable(finding.value)}" for finding in self.findings
        ]
        for each in self.operations:
            on = [f"On {', '.join(each.devices)} ({printable(each.kind)}):"] if len(self.operations) > 1 else []
            lines += ["", *on, *each.to_lines()]
        return "\n".join(lines)

    def to_json(self) -> str:
        """One object; times in seconds, memory in bytes."""
        findings = [{"name": found.name, "value": found.value, "ok": found.ok} for found in self.findings]
        operations = [
            {"devices": each.devices, **asdict(choice)} for each in self.operations for choice in each.choices
        ]
        plan = asdict(self.plan) if self.plan else None
        return json.dumps(
            {"findings": findings, "operations": operations, "plan": plan, "exit_code": self.exit_code}, indent=2
        )


def examine(config: Config, *, try_model: bool = False) -> Diagnosis:
    """Check everything a run needs but documents, the model only if `try_model`. Raises UsageError if no device can be
    used, EngineError if no engine process can be started."""
    require_usable(config)
    tried = try_out(config) if try_model else Tried([], None)
    devices = check_devices(config, tried.dtype or config.dtype, try_bfloat16=not try_model)
    engines = _engines(config, devices.found)
    tried_on = next((each.kernels.libraries for each in devices.found if each.kernels), {})
    libraries = tried_on or {"torch": version("torch")}
    findings = [
        Finding("batchocr", f"{own_version()}, Python {platform.python_version()}, {platform.system()}"),
        Finding("host", f"{usable_cores()} cores, {usable_memory_bytes() / _GIB:.1f} GiB of memory, for this process"),
        *(Finding(name, value) for name, value in libraries.items()),
        *_gpus(devices),
        *_runs_on(devices.found, engines),
        *tried.findings,
        _shared_memory(),
        _workers(config, max(1, len(engines))),
    ]
    return Diagnosis(findings, _operations(devices.found), tried.plan)


def _engines(config: Config, found: Sequence[DeviceFound]) -> list[str]:
    """The device of each engine that a run would have."""
    usable = [each.device for each in found]
    return config.device.split(",") if usable == ["cpu"] and config.device != "auto" else usable


def _gpus(devices: Devices) -> Iterator[Finding]:
    """A line for each GPU of the run, or why it has none."""
    if _NVIDIA_DRIVER.exists():
        yield Finding("NVIDIA driver", _NVIDIA_DRIVER.read_text().splitlines()[0])
    for each in devices.found:
        if each.device == "cpu":
            gpus = [name for name in each.alike if name != "cpu"]
            yield Finding("NVIDIA GPU", f"not used: {', '.join(gpus)}" if gpus else _NO_GPU)
        else:
            free, total = each.memory_bytes / _GIB, each.total_bytes / _GIB
            yield Finding(each.device, f"{each.name}, {free:.1f} of {total:.1f} GiB free", True)
    for device, reason in devices.unusable.items():
        yield Finding(device, reason, False)


def _runs_on(found: Sequence[DeviceFound], engines: Sequence[str]) -> Iterator[Finding]:
    where = f"{engines[0]}," if len(engines) == 1 else f"{len(engines)} engines, on {' and '.join(engines)};"
    for number, each in enumerate(found):
        if each.kernels is not None and number == 0:
            yield Finding("runs on", f"{where} {each.kernels.dtype}, backend {each.backend}", True)
        if each.kernels is not None and each.kernels.error:
            yield Finding(f"kernels on {each.device}", each.kernels.error, False)
        if remark := bfloat16_remark(each.bfloat16_speedup):
            yield Finding("bfloat16", remark)


def _operations(found: Sequence[DeviceFound]) -> list[Operations]:
    return [
        Operations(each.name, [other.device for other in found if other.name == each.name], each.kernels.choices)
        for each in found
        if each.kernels is not None and each.kernels.choices
    ]


def _shared_memory() -> Finding:
    """Send a dense page's pixels the way a worker does."""
    page = Pixels(2200, 1700, os.urandom(2200 * 1700 * 3))
    try:
        [received] = SharedBatch(*share_batch(0, [Request(page, "", Sampling(1))])).requests()
    except BatchOcrError as error:
        return Finding("shared memory", str(error), False)
    intact = bytes(received.pixels.data) == bytes(page.data)
    return Finding("shared memory", "a page of 11 MB crosses it" if intact else "a page is damaged on its way", intact)


def _workers(config: Config, num_engines: int) -> Finding:
    """Have a worker open an image."""
    try:
        picture = hold("picture", Image.new("RGB", (28, 28)))
        with WorkerPool(1, Setup.of(config, worker_memory_bytes(config, num_engines))) as pool:
            found = pool.open_alone(picture.path, _WORKER_DEADLINE_S)
    except BatchOcrError as error:
        return Finding("workers", str(error), False)
    if isinstance(found, Opened):
        return Finding("workers", f"{num_workers(config, num_engines)}; one was started and opened a picture", True)
    return Finding("workers", " ".join(f"one was started and failed: {found.failure.message}".split()), False)
