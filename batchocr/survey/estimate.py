"""How long a run would take: by a model of the CPU here, a forecast for a GPU, or an earlier run's report."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from batchocr.errors import UsageError
from batchocr.model.architecture import Architecture
from batchocr.model.cost import decode_flop
from batchocr.survey.devices import Gpu
from batchocr.survey.page_work import PageWork

Basis = Literal["calculated", "forecast", "earlier run"]

# The CPU: fitted to runs of three models on two cores (layers 32, 128 and 1280 wide; benchmarks/RESULTS.md).
_CPU_EFFICIENCY = 0.8
"""Of the rate of large products, in the ViT's and the language model's."""
_FLOP_PER_SOFTMAX = 320.0
"""What an attention score costs beside its products."""
_PATCH_S = 8e-6
"""Resizing and cutting."""
_PREFILL_LAYER_S = 3e-3
"""Of an image in a layer, beside its products."""
_STEP_LAYER_S = 1.6e-3
"""Of a decode step in a layer, beside its products."""
_CPU_ROWS = 8
"""Sequences in a decode step, on average over a run with at most 16."""
_CPU_MEMORY = 15e9
"""Bytes/s at which a decode step reads the weights."""
_CPU_START_S = 3.0
_HOST_S = 0.1
"""What a page costs a worker: rendering, cropping, parsing."""

# A GPU: the stages of a dense page on an H200, as inferred in docs/gpus.md.
_ELEMENTWISE_BYTES = 1.8e6 / (1280 * 32)
"""Of a patch in the ViT, for each layer and unit of its width."""
_PREFILL_EFFICIENCY = 0.64
_GPU_ROWS = 100
_GPU_STEP_S = 1e-3
_STEP_READS = 1.7
"""What a decode step reads, in weights of the language model: those, and the KV cache of its rows."""
_OVERLAP = 1.3
"""A run's time over the sum of its stages: 1.23 and 1.31 in two simulations of the scheduler on a virtual clock."""
_GPU_START_S = 30.0

_MOST_FROM_CACHE = 0.05
"""Of a run's questions, where its rate is to stand for other pages."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """seconds: of the whole run, its start included. basis: what it rests on; only `earlier run` was measured."""

    device: str
    basis: Basis
    seconds: float
    pages_per_second: float


def estimate_on_cpu(work: PageWork, pages: float, model: Architecture, *, rate: float, workers: int) -> Estimate:
    """The time on this CPU, in float32. work: of all pages. rate: see `measured_cpu_rate`."""
    vision, language = model.vision, model.language
    softmax_flop = _FLOP_PER_SOFTMAX * work.attention_flop / (4.0 * vision.head_dim)
    products_s = (work.linear_flop + work.attention_flop + softmax_flop + work.prefill_flop) / (rate * _CPU_EFFICIENCY)
    weights = _language_weights(model)
    row_s = 2.0 * weights / (rate * _CPU_EFFICIENCY)
    step_s = language.num_layers * _STEP_LAYER_S + 4 * weights / _CPU_MEMORY + _CPU_ROWS * row_s
    engine_s = products_s + work.patches * _PATCH_S + work.images * language.num_layers * _PREFILL_LAYER_S
    engine_s += work.output_tokens / _CPU_ROWS * step_s
    return _estimate("this CPU", "calculated", max(engine_s, pages * _HOST_S / workers), _CPU_START_S, pages)


def forecast_on_gpu(work: PageWork, pages: float, model: Architecture, gpu: Gpu) -> Estimate:
    """The time on a GPU, in bfloat16, with as many workers as it takes."""
    vision = model.vision
    stages_s = work.linear_flop / gpu.linear + work.attention_flop / gpu.attention
    stages_s += work.patches * _ELEMENTWISE_BYTES * vision.width * vision.depth / gpu.memory
    stages_s += work.prefill_flop / (gpu.linear * _PREFILL_EFFICIENCY)
    step_s = _GPU_STEP_S + _STEP_READS * 2 * _language_weights(model) / gpu.memory
    stages_s += work.output_tokens / _GPU_ROWS * step_s
    return _estimate(f"one {gpu.name}", "forecast", stages_s * _OVERLAP, _GPU_START_S, pages)


def estimate_like(report: Path, pages: float) -> Estimate:
    """The time at the rate of an earlier run. report: what it wrote at its end. Raises UsageError."""
    try:
        run = _REPORT.validate_python(json.loads(report.read_bytes()))
    except (OSError, ValueError, RecursionError) as error:  # those from json, and ValidationError
        reason = getattr(error, "strerror", None) or "it is not the report of a run that read pages"
        raise UsageError(f"--like {report}: {reason}") from error
    if run.saved.from_cache > _MOST_FROM_CACHE * run.saved.questions:
        raise UsageError(
            f"--like {report}: {run.saved.from_cache:,} of {run.saved.questions:,} questions were answered from a "
            "cache, so that its rate says little of pages that are new; give the report of a run without --cache"
        )
    device = str(run.settings.get("device", "its device"))
    return _estimate(device, "earlier run", pages * run.work_seconds / run.pages_read, run.start_up_seconds, pages)


@dataclass(frozen=True, slots=True)
class _Saved:
    questions: int = 0
    from_cache: int = 0


@dataclass(frozen=True, slots=True)
class _Report:
    """The fields of a Report that count here."""

    pages_read: Annotated[int, Field(gt=0)]
    work_seconds: Annotated[float, Field(gt=0)]
    start_up_seconds: float
    settings: dict[str, Any]
    saved: _Saved = field(default_factory=_Saved)


_REPORT = TypeAdapter(_Report)


def _estimate(device: str, basis: Basis, work_s: float, start_s: float, pages: float) -> Estimate:
    return Estimate(device, basis, start_s + work_s, pages / work_s if work_s else 0.0)


def _language_weights(model: Architecture) -> float:
    """Weights that a decode step reads: the layers of the language model and its head."""
    return decode_flop(model.language, [0]) / 2
