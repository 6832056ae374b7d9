"""A model that is ready to read, and the limits it reads within."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self

from batchocr.config import Config, DType, flag_of
from batchocr.data import valid_text
from batchocr.errors import UsageError
from batchocr.job.kept_kernels import KeptKernels
from batchocr.job.stats.report import Setting
from batchocr.machine import num_gpus, open_standard_descriptors, own_version, usable_cores, usable_memory_bytes
from batchocr.option_values import LEAST_WORKER_BYTES, MOST_WORKER_BYTES, ZIP_ENCODING
from batchocr.pages.input import REVISION as INPUT_REVISION
from batchocr.pages.protocol import revision
from batchocr.pages.protocol.families import VERSIONS
from batchocr.planning.checkpoint_files import find_checkpoint, fingerprints, stored_dtype
from batchocr.planning.cost import num_parameters
from batchocr.planning.detector import find_detector
from batchocr.planning.dtype import VALUE_BYTES, DTypeChoice, choose_dtype
from batchocr.planning.families import FAMILIES, Family, read_architecture, shapes_of
from batchocr.planning.limits import engine_limits, useful_pages_in_flight
from batchocr.processes.answer_cache import AnswerCache, cache_folder
from batchocr.processes.child import ENGINE_COMMAND
from batchocr.processes.engine_messages import DeviceFound, EngineLimits, LoadModel
from batchocr.processes.engines import Engines
from batchocr.tables.earlier import dtype_of
from batchocr.tables.schema import RunMetadata, fingerprint_of_settings

logger = logging.getLogger(__name__)

_GIB = 1 << 30
_PAGE_BYTES = 40 << 20
"""What a page in flight takes on the host: its own pixels, and at most twice as much for the questions asked about
it."""

_SIZES = ("vit_batch_size", "vit_max_patches", "llm_batch_size", "prefill_max_tokens", "embedding_queue_tokens")
"""The limits of an engine that a report names."""

_MOST_WORKERS = 16
_LEAST_SHARE_BYTES = 512 << 20

_ANSWERS_DEPEND_ON = ("model_fingerprint", "dtype", "vit_dtype")
"""What the answers depend on besides the question, of a run's metadata: the other settings are in the questions."""
_RULES = "1"
"""The version of the engine's rules against loops, which changes whenever they may alter an answer."""


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """What is decided once the devices are known."""

    devices: tuple[str, ...]
    """All devices that are to have an engine."""
    found: DeviceFound
    """What was found of the first device."""
    choice: DTypeChoice
    limits: EngineLimits
    """The engine's limits on the first of the devices."""
    pages_in_flight: int


class Session:
    """A model, and engines for it on the devices.

    The model is found, or downloaded, and checked at once. An engine looks at the devices when `device_plan` is first
    asked for, and `load` reads the weights.

    begun_in: the metadata of the rows that its output already has; None if there are none. engine_command: to start an
    engine process with. reads_all: read what has been read already, and ask what has been asked, to compare. Raises
    ModelError if the checkpoint is missing or invalid, UsageError.
    """

    def __init__(
        self,
        config: Config,
        *,
        begun_in: RunMetadata | None = None,
        engine_command: Sequence[str] = ENGINE_COMMAND,
        reads_all: bool = False,
    ) -> None:
        open_standard_descriptors()
        require_usable(config)
        self.reads_all = reads_all
        self.not_loaded: dict[str, str] = {}
        """The devices on which loading failed, and why."""
        self._dtype = dtype_of(begun_in) if config.dtype == "auto" else config.dtype
        """The dtype of the rows: what was asked for, or that of rows that are there; once the devices are known, what
        was chosen; None until then if neither says it."""
        self._folder = find_checkpoint(config.model, config.revision)
        begun = begun_in.settings if begun_in else {}
        self._fingerprints = fingerprints(self._folder, begun.get("model_fingerprint"))
        self.architecture = read_architecture(self._folder)
        self.family = FAMILIES[self.architecture.family]
        self.config = config = config_for(self.family, self.architecture.detectors.usual, config)
        self.detector = find_detector(config.layout, begun.get("layout"), self.architecture.detectors.types)
        self.workers = num_workers(config)
        self.worker_memory_bytes = worker_memory_bytes(config)
        self.engines = Engines(
            config.device, config.backend, try_bfloat16=config.dtype == "auto", command=engine_command
        )
        self._to_load: dict[str, LoadModel] = {}
        """What each device is to load."""
        self._lent = threading.Lock()
        self._closed = False
        self._pid = os.getpid()

    @cached_property
    def device_plan(self) -> DevicePlan:
        """What is decided by the devices, at which an engine looks. Raises UsageError if a device cannot be used or has
        too little memory, OutputMismatchError if none has the data type of the output, EngineError if no engine
        starts."""
        found = self.engines.open()
        try:
            size, stored = num_parameters(self.architecture), stored_dtype(self._folder)
            choice = choose_dtype(
                self.config.dtype,
                found,
                self.engines.devices,
                stored=stored,
                num_parameters=size,
                begun_in=self._dtype,
            )
            self._dtype = choice.dtype
            if choice.devices != self.engines.devices:
                found = self.engines.only(choice.devices, found)
            devices, limits = self.engines.devices, self._what_to_load(found).limits
            pages_in_flight = self.config.pages_in_flight or default_pages_in_flight(
                self.workers, limits.llm_batch_size, len(devices), on_gpu=found.device != "cpu"
            )
            return DevicePlan(devices, found, choice, limits, pages_in_flight)
        except BaseException:
            self.engines.close()
            raise

    @property
    def dtype(self) -> DType:
        """The data type of the rows: what was asked for, or that of rows that are there, until the devices are known.
        Raises as `device_plan` if neither says it."""
        return self._dtype or self.device_plan.choice.dtype

    @property
    def is_of_parent(self) -> bool:
        """Whether this is a copy in a fork: engines, and the workers of its run, are its parent's."""
        return os.getpid() != self._pid

    def require_open(self) -> None:
        """Raises UsageError after `close`, and in a fork."""
        if self._closed:
            raise UsageError("this Ocr is closed: make another one")
        if self.is_of_parent:
            raise UsageError("this Ocr is of the process that this one was forked from: make another one here")

    def load(self) -> None:
        """Have the engines read the weights, unless they have, and count from zero. Raises UsageError if the devices
        have no room for them, after `close`, and in a fork; ModelError; EngineError if no engine starts."""
        self.require_open()
        if self.engines.are_loaded:
            self.engines.forget()  # the time that they have waited since the last run
        else:
            if remark := self.device_plan.choice.remark:
                logger.info("%s", remark)
            self.engines.load(self._what_to_load, max_batches=self.device_plan.pages_in_flight)
            for found, ready in self.engines.loaded:
                self._kernels.keep(found, ready.choices)
            self.not_loaded = {use.device: use.given_up for use in self.engines.uses() if use.given_up}

    @contextmanager
    def lent(self) -> Iterator[Self]:
        """This session, for one run. Raises UsageError while another run has it, and as `require_open`."""
        self.require_open()
        if not self._lent.acquire(blocking=False):
            raise UsageError("this Ocr is already reading: finish or close that loop first, or make another Ocr")
        try:
            yield self
        finally:
            self._lent.release()
            if self._closed:  # meanwhile
                self.close()

    def open_cache(self) -> AnswerCache | None:
        """The cache of the answers of this model; None without --cache, or if this session reads all."""
        if self.config.cache is None or self.reads_all:
            return None
        maker = {name: self.metadata.settings[name] for name in _ANSWERS_DEPEND_ON} | {"rules": _RULES}
        makers = [maker | {"model_fingerprint": of_model} for of_model in self._fingerprints]
        return AnswerCache(cache_folder(self.config.cache), *makers)

    def close(self) -> None:
        """End the engines, for good; if the session is lent, once it is back. A fork leaves them to its parent."""
        self._closed = True
        if not self.is_of_parent and self._lent.acquire(blocking=False):
            self.engines.close()
            self._lent.release()

    @cached_property
    def _kernels(self) -> KeptKernels:
        """The choice of kernels for this model. To be asked for once the data type is known."""
        shapes = repr(shapes_of(self.architecture))
        model = {"shapes": shapes, "dtype": self.dtype, "vit_dtype": self.config.vit_dtype}
        return KeptKernels(self.config.work_dir, model, anew=self.config.retry_kernels)

    def _what_to_load(self, found: DeviceFound) -> LoadModel:
        """What to load on a device, the same whatever becomes of its memory later. Raises UsageError if it has too
        little."""
        if found.device not in self._to_load:
            limits = engine_limits(
                self.config,
                self.architecture,
                on_gpu=found.device != "cpu",
                memory_bytes=self.memory_of(found),
                value_bytes=VALUE_BYTES[self.dtype],
                cores=usable_cores() // len(self.engines.devices),
                layout_tokens=0 if self.config.layout else revision.MAX_LAYOUT_TOKENS,
                detector_bytes=self.detector.weight_bytes,
            )
            self._to_load[found.device] = LoadModel(
                str(self._folder),
                self.dtype,
                self.config.vit_dtype,
                limits,
                detector=self.detector.folder,
            )
        return replace(self._to_load[found.device], kept_choices=self._kernels.of(found))

    def memory_of(self, found: DeviceFound) -> int:
        """What an engine may have of the device's memory."""
        return found.memory_bytes if found.device != "cpu" else found.memory_bytes // len(self.engines.devices)

    def settings(self) -> dict[str, Setting]:
        """The settings in use, for the report; None for those that depend on devices at which no engine has looked."""
        plan = self.device_plan if "device_plan" in self.__dict__ else None  # no engine has looked yet
        sizes = ("layout_batch_size", *_SIZES) if self.config.layout else _SIZES
        settings: dict[str, Setting] = {
            "device": ",".join(plan.devices) if plan else None,
            "backend": plan.found.backend if plan else None,
            "kernels": next((use.kernels for use in self.engines.uses() if use.kernels), ""),
            "dtype": self.dtype,
            "model": valid_text(self.config.model),
            "vit_dtype": self.config.vit_dtype,
            "layout": valid_text(self.config.layout or ""),
            "dpi": self.config.dpi,
            **{name: getattr(plan.limits, name) if plan else None for name in sizes},
            "max_new_tokens": self.config.max_new_tokens,
            "pages_in_flight": plan.pages_in_flight if plan else None,
            "worker_memory": self.worker_memory_bytes,
        }
        return {name: value for name, value in settings.items() if value != ""}

    @property
    def metadata(self) -> RunMetadata:
        """What the rows depend on: everything that changes their text, and nothing else."""
        model_fingerprint = self._fingerprints[0]
        settings = {
            "model_fingerprint": model_fingerprint,
            "dtype": self.dtype,
            **settings_without_model(self.config, self.family.protocol),
        }
        if self.config.layout:
            settings |= {"layout": self.detector.fingerprint, "layout_rules": f"r{revision.DETECTED_LAYOUT}"}
        is_local = self._folder == Path(os.path.expanduser(self.config.model))
        return RunMetadata(  # the folder of a model from Hugging Face is named by its commit
            batchocr_version=own_version(),
            model=valid_text(self.config.model),
            model_revision="" if is_local else self._folder.name,
            model_fingerprint=model_fingerprint,
            settings_fingerprint=fingerprint_of_settings(settings),
            settings=settings,
        )


def settings_without_model(config: Config, protocol: str) -> dict[str, str]:
    """The settings that change the text of rows, or what their documents are called, as far as the options say them.
    protocol: that of the model's family."""
    settings = {
        "protocol": VERSIONS.get(protocol, protocol),
        "input": f"r{INPUT_REVISION}",
        "vit_dtype": config.vit_dtype,
        "dpi": str(config.dpi),
        "max_new_tokens": str(config.max_new_tokens),
        "penalties": str(config.penalties).lower(),
        "text_layer": "off" if config.text_layer == "off" else f"{config.text_layer} r{revision.TRUSTED_TEXT}",
    }
    if config.figures != "skip":
        settings["figures"] = config.figures
    if config.zip_encoding != ZIP_ENCODING:
        settings["zip_encoding"] = config.zip_encoding
    if config.orientation == "turn":
        settings["orientation"] = f"turn r{revision.TURNED_PAGES}"
    return settings


def config_for(family: Family, detector: str | None, config: Config) -> Config:
    """The options with the model's usual detector, if it needs a detector and none is named. Raises UsageError if the
    family does not take one of them."""
    for option, value in family.refuses.items():
        if getattr(config, option) == value:
            raise UsageError(f"{flag_of(option)} {value} is not for {family.name}: leave it out")
    if config.layout or not detector:
        return config
    logger.info("%s finds no layouts itself: as with --layout %s", family.name, detector)
    return replace(config, layout=detector)


def require_usable(config: Config) -> None:
    """Refuse what cannot work on this machine, whatever is to be read and whatever GPUs there are. Raises
    UsageError."""
    if config.cache is not None:
        cache_folder(config.cache)
    on_cpu = "auto" not in config.device and "cuda" not in config.device
    if on_cpu and config.backend == "cuda":
        raise UsageError("--backend cuda needs an NVIDIA GPU (--device cuda); reference runs on CPUs and GPUs")
    if config.vit_dtype == "fp8" and (on_cpu or config.backend not in ("auto", "cuda") or config.dtype == "float32"):
        raise UsageError("--vit-dtype fp8 needs an NVIDIA GPU, --backend cuda and --dtype bfloat16")
    if config.orientation == "turn" and not revision.has_classifier():
        raise UsageError("--orientation turn needs its classifier: pip install '.[orientation]' in a clone of batchocr")
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
    """The number of worker processes: what the user set, or half the cores, as the engines and the run itself need
    theirs, but no more than half the memory is enough for, and no more than 16 for each engine."""
    num_engines = max(1, num_gpus()) if config.device == "auto" else len(config.device.split(","))
    affordable = usable_memory_bytes() // 2 // _LEAST_SHARE_BYTES
    return config.workers or max(1, min(_MOST_WORKERS * num_engines, usable_cores() // 2, affordable))


def default_pages_in_flight(workers: int, llm_batch_size: int, num_engines: int = 1, *, on_gpu: bool) -> int:
    """Enough to fill each engine's decode batch with some pages' blocks while others are rendered and laid out, in at
    most a quarter of the host's memory.

    On a CPU, where a page takes seconds however many there are, just that: pages begun together are finished together,
    so with more the first rows would come later, and the rate is that of the ViT (benchmarks/RESULTS.md).
    """
    useful = useful_pages_in_flight(workers, llm_batch_size, num_engines, on_gpu=on_gpu)
    return max(2, min(useful, usable_memory_bytes() // 4 // _PAGE_BYTES))


def worker_memory_bytes(config: Config) -> int:
    """The memory a worker may hold: what the user set, or its share of half the memory, so that all workers together
    leave room for others."""
    share = usable_memory_bytes() // 2 // num_workers(config)
    return config.worker_memory or min(MOST_WORKER_BYTES, max(_LEAST_SHARE_BYTES, share))
