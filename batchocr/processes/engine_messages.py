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
"""Of the environment, which names candidates that are not to be tried: see engine/backend/trial.py."""
TRYING = "trying the kernel "
"""How a line of an engine's log begins that says which candidate is tried next, as in BATCHOCR_REJECT."""


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Upper limits of the two stages, of the queue between them, and of the KV cache. max_new_tokens: of any answer.
    layout_batch_size: of the layout stage; 0 if there is none."""

    vit_batch_size: int
    vit_max_patches: int
    embedding_queue_tokens: int
    llm_batch_size: int
    prefill_max_tokens: int
    max_new_tokens: int
    num_kv_tokens: int
    layout_batch_size: int = 0


@dataclass(frozen=True, slots=True)
class UseDevice:
    """What the engine runs on. device: auto, cpu or a GPU. num_sharing: how many engines divide the CPU's cores.
    try_bfloat16: whether to find out how much faster the CPU is in bfloat16. try_kernels: for `batchocr doctor`, the
    dtype to try them in; None to leave that until a model is loaded."""

    device: str
    backend: BackendName
    num_sharing: int = 1
    try_bfloat16: bool = False
    try_kernels: DType | None = None
    type: Literal["use device"] = "use device"


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """What was chosen for an operation, and why the others were not.

    error: relative to the reference. seconds: for one run on the small case; 0 if nothing was compared. rejected: what
    cannot be used here, and why. others: the seconds of what could have been taken as well, the reference among them.
    remark: why none of those was, if one is faster.
    """

    operation: str
    taken: str
    error: float = 0.0
    seconds: float = 0.0
    rejected: dict[str, str] = field(default_factory=dict)
    others: dict[str, float] = field(default_factory=dict)
    remark: str = ""

    def reasons(self) -> dict[str, str]:
        """Why each of the others was not taken, in words."""
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
    """What a run with this dtype would compute with. choices: for each operation of a GPU. libraries: of each that
    brings kernels, its version, or why there is none. error: why none could be tried; empty if nothing went wrong."""

    dtype: DType
    choices: tuple[KernelChoice, ...] = ()
    libraries: dict[str, str] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class DeviceFound:
    """The device can be used. device: its full name. alike: all that `auto` stands for here, this one among them.
    has_bfloat16: whether it computes in it, rather than imitating it. memory_bytes: what is free on it, or, of a CPU,
    what this process may use. bfloat16_speedup, kernels: None if not tried. name: of a GPU, with its compute
    capability; empty for a CPU. total_bytes: of its memory."""

    device: str
    alike: tuple[str, ...]
    backend: BackendName
    memory_bytes: int
    bfloat16_speedup: float | None = None
    name: str = ""
    total_bytes: int = 0
    has_bfloat16: bool = True
    kernels: KernelsTried | None = None
    type: Literal["device found"] = "device found"


@dataclass(frozen=True, slots=True)
class LoadModel:
    """detector: the folder of the layout detector; empty if there is none."""

    folder: str
    dtype: DType
    vit_dtype: VitDType
    limits: EngineLimits
    detector: str = ""
    type: Literal["load model"] = "load model"


@dataclass(frozen=True, slots=True)
class Ready:
    """kernels: what was chosen for each operation; empty if there was no choice."""

    kernels: str
    type: Literal["ready"] = "ready"


@dataclass(frozen=True, slots=True)
class Refused:
    """The engine cannot start, and ends. error: UsageError, ModelError or EngineError."""

    error: Literal["usage", "model", "engine"]
    message: str
    type: Literal["refused"] = "refused"


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop all batches, which nobody waits for any more, and count from zero."""

    type: Literal["forget"] = "forget"


@dataclass(frozen=True, slots=True)
class Working:
    """The engine is about to do something that takes this long, as far as it can tell. begun: the batches that it has
    begun with since it last said so."""

    seconds: Seconds
    begun: tuple[int, ...]
    type: Literal["working"] = "working"


@dataclass(frozen=True, slots=True)
class Answers:
    """All answers to a batch, in the order of its questions. counts: all that the engine has done so far."""

    task_id: int
    completions: Annotated[tuple[Completion, ...], Field(min_length=1)]
    counts: Counts
    type: Literal["answers"] = "answers"


@dataclass(frozen=True, slots=True)
class Logged:
    """A line for the run's log. level: as in `logging`."""

    level: int
    message: str
    type: Literal["logged"] = "logged"


@dataclass(frozen=True, slots=True)
class Broken:
    """The engine ends, because a step failed."""

    message: str
    type: Literal["broken"] = "broken"


ToEngine: TypeAlias = UseDevice | LoadModel | RequestBatch | Forget
FromEngine: TypeAlias = DeviceFound | Ready | Refused | Working | Answers | Logged | Broken
