"""Where the model runs and with which operations: chosen once, when a run starts."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import torch

from batchocr.config import BackendName, VitDType
from batchocr.engine.backend.cpu import CpuOps
from batchocr.engine.backend.cuda import CudaOps
from batchocr.engine.backend.device import Device
from batchocr.engine.backend.reference import Ops
from batchocr.engine.backend.trial import unwanted
from batchocr.errors import UsageError
from batchocr.machine import usable_memory_bytes
from batchocr.planning.families import USUAL, Shapes
from batchocr.processes.engine_messages import REJECT, KernelChoice

logger = logging.getLogger(__name__)

_DEVICE_TYPES = ("cpu", "cuda")


def select_device(name: str) -> torch.device:
    """The device of this name; `auto` takes the first GPU that can be used, or the CPU if there is none at all. Raises
    UsageError if it cannot be used."""
    if name != "auto":
        return _device(name)
    *others, last = all_devices()
    for each in others:
        with suppress(UsageError):
            return _device(each)
    return _device(last)


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        if device.type not in _DEVICE_TYPES:
            raise UsageError(f"--device {name} cannot be used: choose auto, or one of {', '.join(_DEVICE_TYPES)}")
        torch.empty(1, device=device)
        if device.type == "cuda":
            # Triton launches on the thread's current device, so it has to be this one from the first trial on.
            device = torch.device("cuda", device.index or 0)
            torch.cuda.set_device(device)
            # For torch's own attention, which the reference asks for one length after the other: cuDNN, which torch
            # prefers on an H100, makes a plan for each length, in tens of milliseconds.
            torch.backends.cuda.enable_cudnn_sdp(False)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0].partition(". ")[0]
        if name.startswith("cuda") and torch.version.cuda is None:
            reason += "; install a CUDA build of torch, or use --device cpu"
        raise UsageError(f"--device {name} cannot be used here: {reason}") from error
    return device


def all_devices() -> tuple[str, ...]:
    """What `auto` stands for here: every GPU, or the CPU."""
    return tuple(f"cuda:{index}" for index in range(torch.cuda.device_count())) or ("cpu",)


def select_backend(name: BackendName, device: torch.device) -> BackendName:
    """The backend of this name, `auto` resolved for the device. Raises UsageError if it does not run there."""
    if name == "auto":
        return "cuda" if device.type == "cuda" else "cpu" if _runs_cpu_ops(device) else "reference"
    if name == "cpu" and not _runs_cpu_ops(device):
        raise UsageError("--backend cpu needs --device cpu and a torch with oneDNN; reference runs on CPUs and GPUs")
    if name == "cuda" and device.type != "cuda":
        raise UsageError("--backend cuda needs an NVIDIA GPU (--device cuda); reference runs on CPUs and GPUs")
    return name


def make_ops(
    name: BackendName,
    device: torch.device,
    dtype: torch.dtype,
    *,
    vit_dtype: VitDType = "auto",
    shapes: Shapes = USUAL.shapes,
    kept: Sequence[KernelChoice] = (),
) -> Ops:
    """The operations of a backend that `select_backend` returned. For `cuda`, this tries the candidates (seconds).
    shapes: of the model, at which they are tried. kept: choices of an earlier start, which are only checked."""
    match name:
        case "cuda":
            give_kernels_a_folder()
            with_fp8 = vit_dtype == "fp8" and dtype == torch.bfloat16
            return _cuda_ops(device, dtype, shapes, kept, with_fp8=with_fp8)
        case "cpu":
            return CpuOps()
        case _:
            return Ops(device)


def _cuda_ops(
    device: torch.device, dtype: torch.dtype, shapes: Shapes, kept: Sequence[KernelChoice], *, with_fp8: bool
) -> CudaOps:
    """Each operation as the fastest candidate that agrees with the reference. with_fp8: also linear layers in fp8.
    Raises EngineError if a candidate has broken the GPU for this process; UsageError if BATCHOCR_REJECT names one that
    there is not."""
    from batchocr.engine.backend import cuda_device
    from batchocr.engine.backend.cuda_trials import FP8_OPERATIONS, CudaTrials

    ops = CudaTrials(device, dtype, cuda_device.device_seconds, shapes, kept).ops(with_fp8=with_fp8)
    names = [(choice.operation, [choice.taken, *choice.rejected, *choice.others]) for choice in ops.choices]
    known = {f"{operation}:{name}" for operation, each in names for name in each if name != "reference"}
    unknown = [each for each in unwanted() if each not in known and not each.startswith(FP8_OPERATIONS)]
    if unknown:
        raise UsageError(f"{REJECT}: there is no {', '.join(unknown)}; there is {', '.join(sorted(known))}")
    if not ops.capturable:
        logger.warning("no fast paged attention or sampling works on this GPU: decoding is slow; see `batchocr doctor`")
    if any(choice.operation == "attention" and choice.taken == "reference" for choice in ops.choices):
        logger.warning(
            "no fast attention works on this GPU: the ViT is slow, and takes much memory; see `batchocr doctor`"
        )
    return ops


def give_kernels_a_folder() -> None:
    """Have Triton compile into a new temporary folder where it cannot write below the user's home, as in a container
    whose user has none: otherwise it compiles nothing. New, because what is in it is run."""
    if "TRITON_CACHE_DIR" in os.environ:
        return
    folder = Path(os.environ.get("TRITON_HOME") or os.path.expanduser("~"), ".triton", "cache")
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        with suppress(OSError):  # then the trials say what is missing
            os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp(prefix="batchocr-kernels-")


def vision_ops(ops: Ops, vit_dtype: VitDType) -> Ops:
    """The operations for the vision model. Raises UsageError if the backend has no fp8."""
    return ops if vit_dtype == "auto" else ops.with_fp8()


def open_device(device: torch.device, *, one_stream: bool = False) -> Device:
    """The device as the engine sees it: streams and graphs on an NVIDIA GPU, one step after the other elsewhere. Raises
    UsageError if BATCHOCR_STREAMS or BATCHOCR_GRAPHS cannot be meant."""
    if device.type == "cuda":
        from batchocr.engine.backend.cuda_device import CudaDevice

        streams, graphs = _setting("BATCHOCR_STREAMS", "one"), _setting("BATCHOCR_GRAPHS", "0", "lazy")
        return CudaDevice(
            device,
            one_stream=one_stream or streams == "one",
            graphs=graphs != "0",
            lazy_graphs=graphs == "lazy",
        )
    return Device(device)


def _setting(variable: str, *values: str) -> str:
    """The value of an environment variable, empty if it is not set. Raises UsageError if it is none of these values."""
    given = os.environ.get(variable, "")
    if given not in ("", *values):
        raise UsageError(f"{variable} is {given!r}: it can be {', '.join(map(repr, values))}, or not set")
    return given


def _runs_cpu_ops(device: torch.device) -> bool:
    return device.type == "cpu" and bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]


def memory_bytes(device: torch.device) -> int:
    """Memory now free on a GPU; on a CPU, how much of the machine's memory this process may use."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return usable_memory_bytes()


def without_bfloat16() -> tuple[str, ...]:
    """All GPUs here that do not compute in bfloat16: those before sm_80."""
    gpus = (device for device in map(torch.device, all_devices()) if device.type == "cuda")
    return tuple(str(gpu) for gpu in gpus if torch.cuda.get_device_properties(gpu).major < 8)


def describe(device: torch.device) -> tuple[str, int]:
    """The name of a GPU with its compute capability, empty for a CPU; and all the memory that it has, in bytes."""
    if device.type != "cuda":
        return "", usable_memory_bytes()
    properties = torch.cuda.get_device_properties(device)
    return f"{properties.name}, sm_{properties.major}{properties.minor}", properties.total_memory


def peak_device_bytes(device: torch.device) -> int:
    """The most memory that torch has held of a GPU, in use or kept for later; 0 on a CPU. What others cannot have."""
    return int(torch.cuda.max_memory_reserved(device)) if device.type == "cuda" else 0
