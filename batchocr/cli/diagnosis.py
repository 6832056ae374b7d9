"""What this machine offers for a run: `batchocr doctor`. Loads no torch: engine processes look at the devices."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version

from PIL import Image

from batchocr.cli.console import printable
from batchocr.cli.device_check import Devices, check_devices
from batchocr.config import Config, DType
from batchocr.data import counted
from batchocr.errors import BatchOcrError, EngineError, ExitCode, ModelError, UsageError
from batchocr.job.session import DevicePlan, Session, num_workers, require_usable, worker_memory_bytes
from batchocr.machine import nvidia_driver, own_version, usable_cores, usable_memory_bytes
from batchocr.pages.input.in_memory import hold
from batchocr.planning.architecture import Architecture
from batchocr.planning.cost import num_parameters
from batchocr.planning.dtype import VALUE_BYTES, bfloat16_remark
from batchocr.planning.families import USUAL
from batchocr.planning.limits import MemoryNeed, memory_need
from batchocr.processes.engine_messages import DeviceFound, KernelChoice
from batchocr.processes.messages import Opened, Setup
from batchocr.processes.pool import WorkerPool

_GIB = 1 << 30
_WORKER_DEADLINE_S = 30.0
_NO_GPU = "none that torch can use; the CPU does the work: expect minutes per page with a real model"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked."""

    name: str
    value: str
    ok: bool | None = None
    """Whether what was checked is good; None if it is neither good nor bad."""
    exit_code: ExitCode = ExitCode.USAGE
    """The exit code of a run that fails because of what was found."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of planning a run, and of loading its model."""

    findings: Sequence[Finding]
    dtype: DType | None
    """What a run would use; None if no run can be planned."""
    plan: Mapping[str, object] | None = None
    """What a run would do, as JSON; None if no run can be planned."""


def try_out(config: Config) -> Tried:
    """Find the model, or download it, plan a run with it, and load the model if it fits."""
    name = "model"
    try:
        with closing(Session(config)) as session:
            name = "memory"  # the device was looked at before: it can only have too little
            return _try_out(session, session.device_plan)
    except (ModelError, UsageError) as error:
        return Tried([Finding(name, str(error), False, error.exit_code)], None)


def _try_out(session: Session, planned: DevicePlan) -> Tried:
    config = session.config
    dtype, memory = planned.choice.dtype, session.memory_of(planned.found)
    need = memory_need(planned.limits, session.architecture, VALUE_BYTES[dtype])
    usable = int(memory * config.memory_fraction) if planned.found.device != "cpu" else memory
    fits = need.total <= usable
    loading = [_loading(session)] if fits else []
    num_engines = len(planned.devices) - len(session.not_loaded)
    plan: dict[str, object] = {"settings": session.settings(), "engines": num_engines, "workers": session.workers}
    plan |= {"needed_bytes": asdict(need), "usable_bytes": usable}  # of the first device's memory
    findings = [
        Finding("model", f"{config.model} ({session.family.name}), {_described(session.architecture)}", True),
        *([Finding("layout", _detector(session), True)] if config.layout else []),
        *([Finding("dtype", planned.choice.remark)] if planned.choice.remark else []),
        Finding("memory", _memory(need, usable, num_engines), fits),
        Finding("plan", _plan(session, num_engines)),
        *loading,
    ]
    return Tried(findings, dtype, plan)


def _loading(session: Session) -> Finding:
    started_s = time.perf_counter()
    try:
        session.load()
    except (ModelError, UsageError, EngineError) as error:
        return Finding("loading", str(error), False, error.exit_code)
    loaded = f"the weights were loaded in {time.perf_counter() - started_s:.1f} s"
    missing = "".join(f"; not on {device}: {reason}" for device, reason in session.not_loaded.items())
    return Finding("loading", loaded + missing, not session.not_loaded)


def _detector(session: Session) -> str:
    million, pages = session.detector.weight_bytes / 4e6, session.device_plan.limits.layout_batch_size
    return f"{session.config.layout}, {million:,.1f} million parameters, up to {counted(pages, 'page')} in a batch"


def _described(architecture: Architecture) -> str:
    vision, language, images = architecture.vision, architecture.language, architecture.images
    return (
        f"{num_parameters(architecture) / 1e6:,.1f} million parameters: ViT of {vision.depth} layers × {vision.width}, "
        f"language model of {language.num_layers} layers × {language.width}, "
        f"images up to {images.max_pixels // images.num_frames:,} px"
    )


def _memory(need: MemoryNeed, usable: int, num_engines: int) -> str:
    by_each = " by each engine" if num_engines > 1 else ""
    parts = f"weights {_gib(need.weights)}, KV cache {_gib(need.kv_cache)}, full batches {_gib(need.batches)}"
    if need.total <= usable:
        return f"{_gib(need.total)} of {_gib(usable)} GiB needed at most{by_each}: {parts}"
    return (
        f"{_gib(need.total)} GiB needed at most{by_each} and {_gib(usable)} there: {parts}; lower --llm-batch-size, "
        "--vit-max-patches and --max-new-tokens, or use a larger machine"
    )


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / _GIB:.1f}"


def _plan(session: Session, num_engines: int) -> str:
    limits = session.device_plan.limits
    where = "the engine" if num_engines == 1 else "each engine"
    return (
        f"{counted(num_engines, 'engine')}, {counted(session.workers, 'worker')}, "
        f"{session.device_plan.pages_in_flight} pages in flight; in {where} up to {limits.vit_batch_size} images or "
        f"{limits.vit_max_patches:,} patches in a ViT batch, {limits.embedding_queue_tokens:,} image tokens waiting, "
        f"{limits.prefill_max_tokens:,} tokens in a prefill, {limits.llm_batch_size} sequences decoded at once"
    )


@dataclass(frozen=True, slots=True)
class Operations:
    """What was chosen for each operation on GPUs of one kind."""

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
    """What `batchocr doctor` says."""

    findings: Sequence[Finding]
    operations: Sequence[Operations]
    plan: Mapping[str, object] | None = None
    """What a run with the model would do, as JSON; None if none was tried."""

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the command: 0 if everything works that a run would use."""
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
        """The diagnosis as one JSON object; times in seconds, memory in bytes."""
        findings = [{"name": found.name, "value": found.value, "ok": found.ok} for found in self.findings]
        operations = [
            {"devices": each.devices, **asdict(choice)} for each in self.operations for choice in each.choices
        ]
        return json.dumps(
            {"findings": findings, "operations": operations, "plan": self.plan, "exit_code": self.exit_code}, indent=2
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
        _workers(config),
    ]
    return Diagnosis(findings, _operations(devices.found), tried.plan)


def _engines(config: Config, found: Sequence[DeviceFound]) -> list[str]:
    """The device of each engine that a run would have."""
    usable = [each.device for each in found]
    if config.dtype != "float32":
        usable = [device for device in usable if device not in found[0].without_bfloat16] or usable
    return config.device.split(",") if usable == ["cpu"] and config.device != "auto" else usable


def _gpus(devices: Devices) -> Iterator[Finding]:
    """A line for each GPU of the run, or why it has none."""
    if driver := nvidia_driver():
        yield Finding("NVIDIA driver", driver)
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
    for each in found:
        if each.kernels is not None and each.device == engines[0]:
            libraries = " (oneDNN, Pillow)" if each.backend == "cpu" else ""
            yield Finding("runs on", f"{where} {each.kernels.dtype}, backend {each.backend}{libraries}", True)
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


def _workers(config: Config) -> Finding:
    """Have a worker open an image."""
    try:
        picture = hold("picture", Image.new("RGB", (28, 28)))
        setup = replace(Setup.of(config, worker_memory_bytes(config)), protocol=USUAL.protocol)
        with WorkerPool(1, setup) as pool:
            found = pool.open_alone(picture.path, _WORKER_DEADLINE_S)
    except BatchOcrError as error:
        return Finding("workers", str(error), False)
    if isinstance(found, Opened):
        return Finding("workers", f"{num_workers(config)}; one was started and opened a picture", True)
    return Finding("workers", " ".join(f"one was started and failed: {found.failure.message}".split()), False)
