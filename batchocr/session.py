"""A model that is ready to read, and one pass of it over some documents."""

from __future__ import annotations

import gc
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from types import TracebackType
from typing import Self

import torch

from batchocr import backend
from batchocr.config import Config
from batchocr.data import Document, PageResult
from batchocr.engine.engine import Engine
from batchocr.engine.limits import engine_limits
from batchocr.engine.thread import EngineThread
from batchocr.errors import UsageError
from batchocr.input.page_spec import parse_page_spec
from batchocr.intake import FinishedRows, Intake, RowKey
from batchocr.machine import peak_resident_bytes, return_freed_memory, usable_cores, usable_memory_bytes
from batchocr.meter import Ledger, Meter
from batchocr.model.architecture import read_architecture
from batchocr.model.checkpoint import find_checkpoint, load_model
from batchocr.model.weights import fingerprint
from batchocr.output.schema import RunFacts
from batchocr.pipeline import Pipeline
from batchocr.protocol.mineru import VERSION as PROTOCOL_VERSION
from batchocr.report import Circumstances, ExitReason, Report, Setting, make_report
from batchocr.stop import StopSwitch
from batchocr.worker.messages import Setup
from batchocr.worker.pool import WorkerPool

_TRIM_INTERVAL_S = 10.0

_PAGE_BYTES = 40 << 20
"""A page in flight, on the host: its own pixels, and the same again for the questions asked about it."""


_LEAST_WORKER_BYTES = 512 << 20
_MOST_WORKER_BYTES = 4 << 30
"""The largest image that is decoded at all takes 2.3 GB."""


class Session:
    """A checkpoint on a device. It is found, or downloaded, and checked at once; `load` reads the weights.

    Raises ModelError if the checkpoint is missing or invalid, UsageError if the device cannot be used.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.device = backend.select_device(config.device)
        self.dtype = backend.select_dtype(config.dtype, self.device)
        self.backend = backend.select_backend(config.backend, self.device)
        self._folder = find_checkpoint(config.model, config.revision)
        self.architecture = read_architecture(self._folder)
        self.limits = engine_limits(
            config,
            self.architecture,
            on_gpu=self.device.type == "cuda",
            memory_bytes=backend.memory_bytes(self.device),
            value_bytes=self.dtype.itemsize,
        )
        self.workers = num_workers(config)
        self.pages_in_flight = config.pages_in_flight or self._pages_in_flight()
        self.facts = self._facts()
        self._kernels = ""
        self._engine: Engine | None = None
        self._engine_free = threading.Lock()

    def load(self) -> Engine:
        """The engine; its weights are read on the first call. Raises UsageError if the GPU has no room for it."""
        if self._engine is None:
            try:
                self._engine = self._make_engine()
            except torch.OutOfMemoryError as error:
                raise UsageError(
                    "the model and its KV cache do not fit into the GPU's memory: lower --memory-fraction or "
                    "--llm-batch-size, or see what else uses the GPU"
                ) from error
        return self._engine

    def _make_engine(self) -> Engine:
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

    def unload(self) -> None:
        """Release the engine and its memory."""
        self._engine = None
        gc.collect()  # the engine's parts refer to each other
        backend.release_memory(self.device)

    def settings(self) -> dict[str, Setting]:
        """The settings in use, for the report."""
        return {
            "device": str(self.device),
            "backend": self.backend,
            **({"kernels": self._kernels} if self._kernels else {}),
            "dtype": str(self.dtype).removeprefix("torch."),
            "model": self.config.model,
            "vit_dtype": self.config.vit_dtype,
            "dpi": self.config.dpi,
            "vit_batch_size": self.limits.vit_batch_size,
            "vit_max_patches": self.limits.vit_max_patches,
            "llm_batch_size": self.limits.llm_batch_size,
            "prefill_max_tokens": self.limits.prefill_max_tokens,
            "embedding_queue_tokens": self.limits.embedding_queue_tokens,
            "max_new_tokens": self.limits.max_new_tokens,
            "pages_in_flight": self.pages_in_flight,
            "worker_memory": worker_memory_bytes(self.config),
        }

    def _pages_in_flight(self) -> int:
        """Enough to fill the decode batch with some pages' blocks while others are rendered and laid out, in at most a
        quarter of the host's memory."""
        useful = 2 * self.workers + max(12, self.limits.llm_batch_size // 4)
        affordable = backend.memory_bytes(torch.device("cpu")) // 4 // _PAGE_BYTES
        return max(2, min(useful, affordable))

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
            model=self.config.model,
            model_fingerprint=settings["model_fingerprint"],
            settings_fingerprint=hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest(),
            settings=settings,
        )


def num_workers(config: Config) -> int:
    """The number of worker processes: what the user set, or half the cores, as the engine and the main thread need
    theirs, but no more than half the memory is enough for."""
    affordable = usable_memory_bytes() // 2 // _LEAST_WORKER_BYTES
    return config.workers or max(1, min(16, usable_cores() // 2, affordable))


def worker_memory_bytes(config: Config) -> int:
    """The memory a worker may hold: what the user set, or its share of half the memory, so that all workers together
    leave room for others."""
    share = usable_memory_bytes() // 2 // num_workers(config)
    return config.worker_memory or min(_MOST_WORKER_BYTES, max(_LEAST_WORKER_BYTES, share))


class Pass:
    """One pass over some documents: its counts, and inside its `with` block its workers and its engine's thread.

    finished: rows that need not be read again. max_unreleased: see Intake. started_s: when the whole run began, on
    time.perf_counter. Entering it raises ModelError, and BatchOcrError if no worker can be started.
    """

    def __init__(
        self,
        session: Session,
        documents: Sequence[Document],
        stop: StopSwitch,
        *,
        finished: FinishedRows | None,
        max_unreleased: int | None = None,
        started_s: float,
    ) -> None:
        config = session.config
        self._session = session
        self._stop = stop
        self._started_s = started_s
        self._work_started_s: float | None = None
        self._work_ended_s: float | None = None
        self._pool: WorkerPool | None = None
        self._closing = ExitStack()
        self._engine_meter = Meter()
        self.meter = Meter()
        self.ledger = Ledger(documents=len(documents))
        self.intake = Intake(
            documents,
            parse_page_spec(config.pages) if config.pages else None,
            finished,
            limit=config.limit,
            retry_failed=config.retry_failed,
            max_unreleased=max_unreleased,
        )

    def __enter__(self) -> Self:
        config = self._session.config
        memory_bytes = worker_memory_bytes(config)
        setup = Setup.of(config, memory_bytes)
        with ExitStack() as undo:
            # The workers start up while the weights are being read.
            self._pool = undo.enter_context(WorkerPool(self._session.workers, setup))
            engine = undo.enter_context(self._session.lend_engine())
            self._engine = EngineThread(engine, self._engine_meter, self._pool.wake)
            undo.callback(self._close_engine)
            self._closing = undo.pop_all()
        self._work_started_s = time.perf_counter()
        self._stop.reading = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the engine's thread and the workers, whatever they are doing."""
        if self._work_ended_s is None:
            self._work_ended_s = time.perf_counter()
        self._stop.reading = False
        self._closing.close()

    def _close_engine(self) -> None:
        """End the engine's thread; an engine that is broken, or still at work for whatever reason, is abandoned."""
        reusable = False
        try:
            reusable = self._engine.close(patient=not self._stop.grace_is_over)
        finally:
            if not reusable:
                self._session.unload()

    def results(self, tick: Callable[[], None]) -> Iterator[tuple[RowKey, PageResult]]:
        """Rows as they are finished; see Pipeline.results."""
        assert self._pool is not None
        pipeline = Pipeline(
            self.intake,
            self._pool,
            self._engine,
            self.meter,
            pages_in_flight=self._session.pages_in_flight,
            page_timeout_s=self._session.config.page_timeout,
        )
        trimmed_s = time.monotonic()
        for key, result in pipeline.results(self._stop, tick):
            yield key, result
            self.ledger.add_result(result)
            if time.monotonic() - trimmed_s > _TRIM_INTERVAL_S:
                return_freed_memory()
                trimmed_s = time.monotonic()

    @property
    def complete(self) -> bool:
        """Whether every row was read; a stop that came too late to leave any out does not count."""
        return self.intake.exhausted

    def _exit_reason(self, error: str | None) -> ExitReason:
        if error is not None:
            return "failed"
        if self.complete:
            return "finished"
        return "interrupted" if self._stop.reason == "interrupted" else "stopped"

    def report(self, *, table_s: float = 0.0, error: str | None = None) -> Report:
        """The throughput report of what was read, once the pass has been closed: until then, the engine's counts belong
        to its thread.

        table_s: how long it took to build the table. error: what ended the run, even before there was a worker; None if
        nothing went wrong.
        """
        ended_s = self._work_ended_s or time.perf_counter()
        work_started_s = self._work_started_s or ended_s
        self.meter.absorb(self._engine_meter)
        return make_report(
            self.ledger,
            self.meter,
            Circumstances(
                exit_reason=self._exit_reason(error),
                error=error,
                start_up_s=work_started_s - self._started_s,
                work_s=ended_s - work_started_s,
                table_s=table_s,
                workers=self._session.workers,
                settings=self._session.settings(),
                peak_main_bytes=peak_resident_bytes(),
                peak_worker_bytes=self._pool.peak_worker_bytes if self._pool else None,
                device_flop_per_s=backend.peak_flop_per_s(self._session.device, self._session.dtype),
                peak_device_bytes=backend.peak_device_bytes(self._session.device) or None,
            ),
        )
