"""Chooses the operations for an NVIDIA GPU."""

from __future__ import annotations

import logging
from dataclasses import replace

import torch

from batchocr.engine.backend import fp8_trials
from batchocr.engine.backend.cuda import CudaOps
from batchocr.engine.backend.cuda_trials import CudaTrials, Timer
from batchocr.engine.backend.trial import unknown_operations
from batchocr.errors import EngineError, UsageError
from batchocr.processes.engine_messages import REJECT

logger = logging.getLogger(__name__)


def try_all(device: torch.device, dtype: torch.dtype, timer: Timer, *, with_fp8: bool = False) -> CudaOps:
    """The operations for this device and dtype, each the fastest candidate that agrees with the reference.

    with_fp8: also those for linear layers in fp8.

    Raises EngineError if plain PyTorch itself fails, as it does once a kernel has broken the GPU for this process;
    UsageError if the GPU has no room for the trials, or if BATCHOCR_REJECT names an operation that there is not.
    """
    trials = CudaTrials(device, dtype, timer)
    try:
        ops = trials.ops()
        if with_fp8 and dtype == torch.bfloat16:
            fp8 = fp8_trials.try_all(trials)
            ops = replace(ops, fp8=fp8, choices=tuple(trials.choices))
    except torch.OutOfMemoryError as error:
        raise UsageError("the GPU's memory is full before the model is loaded: see what else uses it") from error
    except RuntimeError as error:
        last = trials.choices[-1] if trials.choices else "none"
        raise EngineError(
            f"plain PyTorch failed on {device} ({str(error).splitlines()[0]}); a kernel tried before may have "
            f"broken it for this process: run with --backend reference. The last one tried: {last}"
        ) from error
    operations = list(dict.fromkeys([*(choice.operation for choice in trials.choices), *fp8_trials.OPERATIONS]))
    if unknown := unknown_operations(operations):
        raise UsageError(f"{REJECT}: no operation {', '.join(unknown)}; there is {', '.join(operations)}")
    if not ops.capturable:
        logger.warning("no fast paged attention or sampling works on this GPU: decoding is slow; see `batchocr doctor`")
    if any(choice.operation == "attention" and choice.taken == "reference" for choice in trials.choices):
        logger.warning(
            "no fast attention works on this GPU: the ViT is slow, and takes much memory; see `batchocr doctor`"
        )
    return ops
