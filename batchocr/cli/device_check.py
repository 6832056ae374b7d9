"""What the devices of a run are like, for `batchocr doctor`.

Each is looked at by an engine process, as in a run: a GPU that a kernel breaks, or a library that crashes, takes
neither the doctor nor the other devices with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from batchocr.config import Config, DType
from batchocr.errors import EngineError, UsageError
from batchocr.processes.channel import wait_for
from batchocr.processes.child import ENGINE_COMMAND
from batchocr.processes.engine_messages import DeviceFound, KernelsTried, UseDevice
from batchocr.processes.engines import EngineLoss, EngineProcess

_LOOK_INTERVAL_S = 0.5


@dataclass(frozen=True, slots=True)
class Devices:
    """What was found on the devices of a run."""

    found: list[DeviceFound]
    """The devices that can be used, the first of each kind with its kernels."""
    unusable: dict[str, str]
    """Why a device cannot be used, by its name."""


def check_devices(config: Config, dtype: DType, *, try_bfloat16: bool = False) -> Devices:
    """Every device that a run would use, once each. dtype: to try kernels in. Raises UsageError if none can be used,
    EngineError if no engine process can be started."""
    names = config.device.split(",")
    use = UseDevice(names[0], config.backend, len(names), try_bfloat16)
    first = _look_and_try(use, dtype)
    others = names[1:]
    if isinstance(first, DeviceFound):
        others = [name for name in (first.alike if names == ["auto"] else others) if name != first.device]
    uses = [replace(use, device=name) for name in dict.fromkeys(others)]
    answers = {names[0]: first} | dict(zip(others, _look(uses), strict=True))
    kinds = {first.name} if isinstance(first, DeviceFound) else set()
    for device, answer in answers.items():
        if isinstance(answer, DeviceFound) and answer.name not in kinds:
            kinds.add(answer.name)
            answers[device] = _look_and_try(replace(use, device=device), dtype)
    found = [answer for answer in answers.values() if isinstance(answer, DeviceFound)]
    lost = {device: answer for device, answer in answers.items() if isinstance(answer, EngineLoss)}
    if not found and isinstance(refusal := lost[names[0]].refusal, UsageError):
        raise refusal
    return Devices(found, {device: loss.message for device, loss in lost.items()})


def _look_and_try(use: UseDevice, dtype: DType) -> DeviceFound | EngineLoss:
    """What is found on a device, with its kernels; if trying the kernels ended the engine, the reason."""
    [tried] = _look([replace(use, try_kernels=dtype)])
    if isinstance(tried, DeviceFound) or isinstance(tried.refusal, UsageError):
        return tried
    [found] = _look([use])
    return replace(found, kernels=KernelsTried(dtype, error=tried.message)) if isinstance(found, DeviceFound) else found


def _look(uses: Sequence[UseDevice]) -> list[DeviceFound | EngineLoss]:
    """What is found on these devices, or why nothing is, all at once. Raises EngineError if a process cannot be
    started."""
    processes: list[EngineProcess] = []
    try:
        for use in uses:
            processes.append(EngineProcess(use, ENGINE_COMMAND))
        while not all(process.found or process.loss() for process in processes):
            wait_for([process.channel for process in processes], _LOOK_INTERVAL_S)
            for process in processes:
                process.receive()
        return [process.found or process.loss() or EngineLoss("") for process in processes]
    except OSError as error:
        raise EngineError(f"an engine process cannot be started: {error.strerror or error}") from error
    finally:
        for process in processes:
            process.close()
