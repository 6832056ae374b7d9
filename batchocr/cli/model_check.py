"""Whether a model loads and fits on this machine, and what a run with it would plan: `batchocr doctor --model`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass

from batchocr.cli.finding import Finding
from batchocr.config import Config, DType
from batchocr.data import counted
from batchocr.errors import EngineError, ModelError, UsageError
from batchocr.job.session import Session
from batchocr.job.stats.report import Setting
from batchocr.planning.architecture import Architecture
from batchocr.planning.cost import num_parameters
from batchocr.planning.dtype import VALUE_BYTES
from batchocr.planning.limits import MemoryNeed, memory_need

_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What a run would do. engines: how many. needed_bytes, usable_bytes: of the first device's memory, for the model
    and its batches."""

    settings: Mapping[str, Setting]
    engines: int
    workers: int
    needed_bytes: Mapping[str, int]
    usable_bytes: int


@dataclass(frozen=True, slots=True)
class Tried:
    """dtype: what a run would use. plan, dtype: None if there can be none."""

    findings: Sequence[Finding]
    dtype: DType | None
    plan: MemoryPlan | None = None


def try_out(config: Config) -> Tried:
    """Find the model, or download it, plan a run with it, and load it if it fits."""
    try:
        session = Session(config)
    except ModelError as error:
        return _failed("model", error)
    except UsageError as error:  # the device was looked at before: it has too little memory
        return _failed("memory", error)
    with closing(session):
        return _try_out(session)


def _try_out(session: Session) -> Tried:
    config = session.config
    need = memory_need(session.limits, session.architecture, VALUE_BYTES[session.dtype])
    usable = int(session.memory_bytes * config.memory_fraction) if session.on_gpu else session.memory_bytes
    fits = need.total <= usable
    loading = [_loading(session)] if fits else []
    num_engines = len(session.devices) - len(session.not_loaded)
    plan = MemoryPlan(session.settings(), num_engines, session.workers, asdict(need), usable)
    findings = [
        Finding("model", f"{config.model}, {_described(session.architecture)}", True),
        *([Finding("dtype", session.dtype_remark)] if session.dtype_remark else []),
        Finding("memory", _memory(need, usable, num_engines), fits),
        Finding("plan", _plan(session, num_engines)),
        *loading,
    ]
    return Tried(findings, session.dtype, plan)


def _failed(name: str, error: ModelError | UsageError) -> Tried:
    return Tried([Finding(name, str(error), False, error.exit_code)], None)


def _loading(session: Session) -> Finding:
    started_s = time.perf_counter()
    try:
        session.load()
    except (ModelError, UsageError, EngineError) as error:
        return Finding("loading", str(error), False, error.exit_code)
    loaded = f"the weights were loaded in {time.perf_counter() - started_s:.1f} s"
    missing = "".join(f"; not on {device}: {reason}" for device, reason in session.not_loaded.items())
    return Finding("loading", loaded + missing, not session.not_loaded)


def _described(architecture: Architecture) -> str:
    vision, language = architecture.vision, architecture.language
    return (
        f"{num_parameters(architecture) / 1e6:,.1f} million parameters: ViT of {vision.depth} layers × {vision.width}, "
        f"language model of {language.num_layers} layers × {language.width}, "
        f"images up to {architecture.images.max_pixels:,} px"
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
    limits = session.limits
    where = "the engine" if num_engines == 1 else "each engine"
    return (
        f"{counted(num_engines, 'engine')}, {counted(session.workers, 'worker')}, "
        f"{session.pages_in_flight} pages in flight; in {where} up to {limits.vit_batch_size} images or "
        f"{limits.vit_max_patches:,} patches in a ViT batch, {limits.embedding_queue_tokens:,} image tokens waiting, "
        f"{limits.prefill_max_tokens:,} tokens in a prefill, {limits.llm_batch_size} sequences decoded at once"
    )
