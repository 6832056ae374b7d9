"""The messages between the run (`processes/engines.py`) and an engine process (`engine/__main__.py`).

The run sends UseDevice and LoadModel once each, and hears DeviceFound and Ready, or Refused, which is the engine's last
word. Then each RequestBatch, with the descriptor that came from a worker, is answered with Answers. An engine that is
about to work says so from time to time, and one that breaks says what happened before it ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from batchocr.config import BackendName, DType, VitDType
from batchocr.data import Completion
from batchocr.processes.counts import Counts
from batchocr.processes.messages import RequestBatch, Seconds

REJECT = "BATCHOCR_REJECT"
"""The environment variable that names the candidates that are not to be tried: see engine/backend/trial.py."""
TRYING = "trying the kernel "
"""How a line of an engine's log begins that says which candidate is tried next, as in BATCHOCR_REJECT."""


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Upper limits of the stages, of the queue between them, and of the KV cache."""

    vit_batch_size: int
    vit_max_patches: int
    embedding_queue_tokens: int
    llm_batch_size: int
    prefill_max_tokens: int
    max_new_tokens: int
    """The most tokens of any answer."""
    num_kv_tokens: int
    layout_batch_size: int = 0
    """The most pages in a batch of the layout stage; 0 if there is none."""


@dataclass(frozen=True, slots=True)
class UseDevice:
    """What the engine runs on."""

    device: str
    """The device to use: auto, cpu or a GPU."""
    backend: BackendName
    num_sharing: int = 1
    """How many engines divide the cores on which this one may run."""
    try_bfloat16: bool = False
    """Whether to find out how much faster the CPU is in bfloat16."""
    try_kernels: DType | None = None
    """The dtype to try kernels in, for `batchocr doctor`; None to leave that until a model is loaded."""
    type: Literal["use device"] = "use device"


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """What was chosen for an operation, and why the other candidates were not."""

    operation: str
    taken: str
    error: float = 0.0
    """How far the results are from the reference's, relative to them."""
    seconds: float = 0.0
    """How long one run on the small case took; 0 if nothing was compared."""
    rejected: dict[str, str] = field(default_factory=dict)
    """The reason why each candidate cannot be used here, of those that cannot."""
    others: dict[str, float] = field(default_factory=dict)
    """The seconds of each candidate that could have been taken as well, the reference among them."""
    remark: str = ""
    """Why no other candidate was taken, if one is faster."""

    def reasons(self) -> dict[str, str]:
        """Why each other candidate was not taken, in words."""
        times = {
            name: f"{1e6 * seconds:.0f} µs" + (f", but {self.remark}" if seconds < self.seconds else "")
            for name, seconds in self.others.items()
        }
        return self.rejected | times

    def __str__(self) -> str:
        reasons = "".join(f"; not {name}: {reason}" for name, reason in self.reasons().items())
        return f"{self.operation}: {self.taken} (error {self.error:.1e}, {1e6 * self.seconds:.0f} µs){reasons}"


@dataclass(frozen=True, slots=True)
class KernelsTried:
    """What a run with this dtype would compute with."""

    dtype: DType
    choices: tuple[KernelChoice, ...] = ()
    """The choices, one for each operation of a GPU; empty on a CPU."""
    libraries: dict[str, str] = field(default_factory=dict)
    """The version of each library that brings kernels, or why there is none."""
    error: str = ""
    """Why no kernel could be tried; empty if nothing went wrong."""


@dataclass(frozen=True, slots=True)
class DeviceFound:
    """The device can be used."""

    device: str
    """The device's full name, as torch has it."""
    alike: tuple[str, ...]
    """All devices that `auto` stands for here, this one among them."""
    backend: BackendName
    memory_bytes: int
    """What is free on a GPU; what this process may use of a CPU's memory."""
    bfloat16_speedup: float | None = None
    """How many times as fast as in float32 the CPU is in bfloat16; None if that was not tried."""
    name: str = ""
    """The name of a GPU, with its compute capability; empty for a CPU."""
    total_bytes: int = 0
    """All the memory that the device has."""
    without_bfloat16: tuple[str, ...] = ()
    """All GPUs here that do not compute in bfloat16, or only imitate it."""
    kernels: KernelsTried | None = None
    """What came of trying kernels; None if they were not tried."""
    type: Literal["device found"] = "device found"


@dataclass(frozen=True, slots=True)
class LoadModel:
    """What the engine is to load, once."""

    folder: str
    """The folder of the checkpoint."""
    dtype: DType
    vit_dtype: VitDType
    limits: EngineLimits
    detector: str = ""
    """The folder of the layout detector; empty if there is none."""
    kept_choices: tuple[KernelChoice, ...] = ()
    """The choices of an earlier start on the same card: they are only checked, and not timed."""
    type: Literal["load model"] = "load model"


@dataclass(frozen=True, slots=True)
class Ready:
    """The model is loaded, and a first question is answered."""

    choices: tuple[KernelChoice, ...] = ()
    """The choices of kernels, one for each operation; empty if there was no choice."""
    type: Literal["ready"] = "ready"

    @property
    def kernels(self) -> str:
        """What was chosen for each operation."""
        return "; ".join(f"{choice.operation}: {choice.taken}" for choice in self.choices)


@dataclass(frozen=True, slots=True)
class Refused:
    """The engine cannot start, and ends."""

    error: Literal["usage", "model", "engine"]
    """The class of the error: UsageError, ModelError or EngineError."""
    message: str
    type: Literal["refused"] = "refused"


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop all batches, which nobody waits for any more, and count from zero."""

    type: Literal["forget"] = "forget"


@dataclass(frozen=True, slots=True)
class Working:
    """The engine is about to do something that may take long."""

    seconds: Seconds
    """How long, as far as the engine can tell."""
    begun: tuple[int, ...]
    """The batches that the engine has begun with since it last said so."""
    type: Literal["working"] = "working"


@dataclass(frozen=True, slots=True)
class Answers:
    """All answers to a batch."""

    task_id: int
    completions: Annotated[tuple[Completion, ...], Field(min_length=1)]
    """The completions, in the order of the batch's questions."""
    counts: Counts
    """The counts of all that the engine has done so far."""
    type: Literal["answers"] = "answers"


@dataclass(frozen=True, slots=True)
class Logged:
    """A line for the run's log."""

    level: int
    """The level of the record, as in `logging`."""
    message: str
    type: Literal["logged"] = "logged"


@dataclass(frozen=True, slots=True)
class Broken:
    """The engine ends, because a step failed."""

    message: str
    type: Literal["broken"] = "broken"


ToEngine: TypeAlias = UseDevice | LoadModel | RequestBatch | Forget
FromEngine: TypeAlias = DeviceFound | Ready | Refused | Working | Answers | Logged | Broken
