"""A model that is ready to read, and the limits it reads within."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar

import torch

from batchocr import backend
from batchocr.backend.dtype import StoredWeights, choose_dtype
from batchocr.config import LEAST_WORKER_BYTES, Config, DType, flag_of
from batchocr.engine.engine import Engine
from batchocr.engine.limits import engine_limits
from batchocr.errors import UsageError
from batchocr.machine import usable_cores, usable_memory_bytes
from batchocr.model.architecture import read_architecture
from batchocr.model.checkpoint import find_checkpoint, load_model
from batchocr.model.cost import num_parameters
from batchocr.model.weights import fingerprint, stored_dtype
from batchocr.output.schema import RunFacts, fingerprint_of_settings, storable_text
from batchocr.protocol.mineru import MAX_LAYOUT_TOKENS
from batchocr.protocol.mineru import VERSION as PROTOCOL_VERSION
from batchocr.stats.report import Setting

logger = logging.getLogger(__name__)

_GIB = 1 << 30
_PAGE_BYTES = 40 << 20
"""A page in flight, on the host: its own pixels, and at most twice the same for the questions asked about it."""

_LEAST_SHARE_BYTES = 512 << 20
_MOST_WORKER_BYTES = 4 << 30
"""The largest image that is decoded at all takes 2.3 GB."""


class Session:
    """A checkpoint on a device. It is found, or downloaded, and checked at once; `load` reads the weights.

    begun_in: the data type of the rows that its output already has; None if there are none.

    Raises ModelError if the checkpoint is missing or invalid, UsageError if the device cannot be used, and in a fork of
    a process that has read.
    """

    _working_pid: ClassVar[int | None] = None
    """The process in which an engine was made. A fork of it has no copy of torch's threads: the first operation there
    would wait for them for ever."""

    def __init__(self, config: Config, *, begun_in: DType | None = None) -> None:
        self._closed = False
        self._pid = os.getpid()
        self.require_open()
        require_usable(config)
        self.config = config
        self.device = backend.select_device(config.device)
        self.backend = backend.select_backend(config.backend, self.device)
        self._folder = find_checkpoint(config.model, config.revision)
        self.architecture = read_architecture(self._folder)
        weights = StoredWeights(stored_dtype(self._folder), num_parameters(self.architecture))
        chosen = choose_dtype(config.dtype, self.device, self.backend, weights, begun_in=begun_in)
        self.dtype, self.dtype_remark = chosen.dtype, chosen.remark
        self.limits = engine_limits(
            config,
            self.architecture,
            on_gpu=self.device.type == "cuda",
            memory_bytes=backend.memory_bytes(self.device),
            value_bytes=self.dtype.itemsize,
            layout_tokens=MAX_LAYOUT_TOKENS,
        )
        self.workers = num_workers(config)
        self.worker_memory_bytes = worker_memory_bytes(config)
        self.pages_in_flight = config.pages_in_flight or default_pages_in_flight(
            self.workers, self.limits.llm_batch_size, on_gpu=self.device.type == "cuda"
        )
        self.facts = self._facts()
        self._kernels = ""
        self._engine: Engine | None = None
        self._engine_free = threading.Lock()

    def require_open(self) -> None:
        """Raises UsageError after `close`, and in a fork."""
        if self._closed:
            raise UsageError("this Ocr is closed: make another one")
        if os.getpid() != self._pid or Session._working_pid not in (None, os.getpid()):
            raise UsageError(
                "this process was forked from one that has used batchocr, and a fork lacks the threads and the device "
                "that reading needs: use batchocr in one of the two, or the start method 'spawn' or 'forkserver'"
            )

    def load(self) -> Engine:
        """The engine; its weights are read on the first call. Raises UsageError if the GPU has no room for it, after
        `close`, and in a fork."""
        self.require_open()
        if self._engine is None:
            if self.dtype_remark:
                logger.info("%s", self.dtype_remark)
            backend.release_memory(self.device)  # what an engine may have held that was abandoned
            try:
                self._engine = self._make_engine()
            except torch.OutOfMemoryError as error:
                raise UsageError(
                    "the model and its KV cache do not fit into the GPU's memory: lower --memory-fraction or "
                    "--llm-batch-size, or see what else uses the GPU"
                ) from error
        return self._engine

    def _make_engine(self) -> Engine:
        Session._working_pid = os.getpid()
        device = backend.open_device(self.device)
        ops = backend.make_ops(self.backend, self.device, self.dtype)
        self._kernels = backend.kernels_in_use(ops)
        vision_ops = backend.vision_ops(ops, self.config.vit_dtype)
        model = load_model(self._folder, device=device, dtype=self.dtype, ops=ops, vision_ops=vision_ops)
        return Engine(model, self.limits)

    @contextmanager
    def lend_engine(self) -> Iterator[Engine]:
        """The engine, for one pass at a time. Raises UsageError while another pass has it."""
        if not self._engine_free.acquire(blocking=False):
            raise UsageError("this Ocr is already reading: finish or close that loop first, or make another Ocr")
        try:
            yield self.load()
        finally:
            self._engine_free.release()

    def close(self) -> None:
        """Release the engine and its memory, for good. A fork leaves them to its parent."""
        self._closed = True
        if self._engine is not None and os.getpid() == self._pid:
            self._engine = None
            backend.release_memory(self.device)

    def abandon_engine(self) -> None:
        """Never use the engine again, and leave its memory alone: freeing it might wait for a GPU that hangs."""
        self._engine = None

    def settings(self) -> dict[str, Setting]:
        """The settings in use, for the report."""
        return {
            "device": str(self.device),
            "backend": self.backend,
            **({"kernels": self._kernels} if self._kernels else {}),
            "dtype": str(self.dtype).removeprefix("torch."),
            "model": storable_text(self.config.model),
            "vit_dtype": self.config.vit_dtype,
            "dpi": self.config.dpi,
            "vit_batch_size": self.limits.vit_batch_size,
            "vit_max_patches": self.limits.vit_max_patches,
            "llm_batch_size": self.limits.llm_batch_size,
            "prefill_max_tokens": self.limits.prefill_max_tokens,
            "embedding_queue_tokens": self.limits.embedding_queue_tokens,
            "max_new_tokens": self.config.max_new_tokens,
            "pages_in_flight": self.pages_in_flight,
            "worker_memory": self.worker_memory_bytes,
        }

    def _facts(self) -> RunFacts:
        """What the rows depend on: everything that changes their text, and nothing else."""
        settings = {
            "model_fingerprint": fingerprint(self._folder),
            "protocol": PROTOCOL_VERSION,
            "dtype": str(self.dtype).removeprefix("torch."),
            "vit_dtype": self.config.vit_dtype,
            "dpi": str(self.config.dpi),
            "max_new_tokens": str(self.config.max_new_tokens),
            "penalties": str(self.config.penalties).lower(),
        }
        return RunFacts(
            batchocr_version=version("batchocr"),
            model=storable_text(self.config.model),
            model_revision=self._model_revision(),
            model_fingerprint=settings["model_fingerprint"],
            settings_fingerprint=fingerprint_of_settings(settings),
            settings=settings,
        )

    def _model_revision(self) -> str:
        """The commit of a model from Hugging Face, which is in a folder of that name; empty for a local folder."""
        is_local = self._folder == Path(os.path.expanduser(self.config.model))
        return "" if is_local else self._folder.name


def require_usable(config: Config) -> None:
    """Refuse what cannot work on this machine, whatever is to be read. Raises UsageError."""
    name = backend.select_backend(config.backend, backend.select_device(config.device))
    if config.vit_dtype == "fp8":
        backend.require_fp8(name, config.dtype)
    memory = usable_memory_bytes()
    has = f"this process may use {memory / _GIB:.1f} GiB of memory"
    if config.worker_memory is not None and config.worker_memory > memory:
        raise UsageError(f"--worker-memory {config.worker_memory >> 20}M: {has}, so at most {memory >> 20}M")
    for option, each_bytes in (("workers", LEAST_WORKER_BYTES), ("pages_in_flight", _PAGE_BYTES)):
        number = getattr(config, option)
        if number is not None and number > (largest := max(1, memory // each_bytes)):
            raise UsageError(
                f"{flag_of(option)} {number}: {has} and each takes {each_bytes >> 20} MiB, so at most {largest}"
            )


def num_workers(config: Config) -> int:
    """The number of worker processes: what the user set, or half the cores, as the engine and the main thread need
    theirs, but no more than half the memory is enough for."""
    affordable = usable_memory_bytes() // 2 // _LEAST_SHARE_BYTES
    return config.workers or max(1, min(16, usable_cores() // 2, affordable))


def default_pages_in_flight(workers: int, llm_batch_size: int, *, on_gpu: bool) -> int:
    """Enough to fill the decode batch with some pages' blocks while others are rendered and laid out, in at most a
    quarter of the host's memory.

    On a CPU, where a page takes seconds however many there are, just that: pages begun together are finished together,
    so with more the first rows would come later, and the rate is that of the ViT (benchmarks/first_row.py).
    """
    useful = 2 * workers + max(12, llm_batch_size // 4) if on_gpu else workers + max(3, llm_batch_size // 8)
    affordable = usable_memory_bytes() // 4 // _PAGE_BYTES
    return max(2, min(useful, affordable))


def worker_memory_bytes(config: Config) -> int:
    """The memory a worker may hold: what the user set, or its share of half the memory, so that all workers together
    leave room for others."""
    share = usable_memory_bytes() // 2 // num_workers(config)
    return config.worker_memory or min(_MOST_WORKER_BYTES, max(_LEAST_SHARE_BYTES, share))
