"""How an operation is chosen from its candidates, and what is left of the CUDA backend without a GPU."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from triton import knobs

from batchocr.engine import backend, start
from batchocr.engine.backend import cuda_device, cuda_trials
from batchocr.engine.backend.attention_kernels import ATTENTION
from batchocr.engine.backend.base import PagedContext, Segments
from batchocr.engine.backend.cuda import CudaOps
from batchocr.engine.backend.cuda_trials import CudaTrials
from batchocr.engine.backend.kernels import activation, norm, paged_attention, rotary, sampling, vocabulary_piece
from batchocr.engine.backend.reference import Ops
from batchocr.engine.backend.trial import Candidate, Trial, choose, relative_error
from batchocr.engine.start import load_engine
from batchocr.errors import EngineError, UsageError
from batchocr.planning.families import FAMILIES, USUAL
from batchocr.processes.engine_messages import DeviceFound, KernelChoice, LoadModel
from tests.support.checkpoints import SMALL_LIMITS
from tests.support.kernel_compilation import kernel_device
from tests.support.mineru_shape import MINERU

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
Function = Callable[[Tensor], Tensor]
OPERATIONS = {
    "attention",
    "paged_attention",
    "rotary",
    "rotary_store",
    "rms_norm",
    "add_layer_norm",
    "quick_gelu",
    "silu_mul",
    "sample",
    "patches",
}


@pytest.mark.parametrize("home", ["a folder", "a folder/a file", "named"])
def test_kernels_are_compiled_into_a_temporary_folder_only_where_there_is_no_other(
    home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a folder").mkdir()
    (tmp_path / "a folder" / "a file").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / home))
    monkeypatch.delenv("TRITON_HOME", raising=False)
    monkeypatch.setenv("TRITON_CACHE_DIR", "named")
    if home != "named":
        monkeypatch.delenv("TRITON_CACHE_DIR")
    backend.give_kernels_a_folder()
    if home == "a folder/a file":
        kept = Path(knobs.cache.dir)
        assert kept.parent == tmp_path
        assert kept.stat().st_mode & 0o777 == 0o700
    else:
        assert os.environ.get("TRITON_CACHE_DIR") == ("named" if home == "named" else None)


def reference(x: Tensor) -> Tensor:
    return 2 * x


def right(x: Tensor) -> Tensor:
    return x + x


def nearly_right(x: Tensor) -> Tensor:
    return 2.0001 * x


def wrong(x: Tensor) -> Tensor:
    return 2.1 * x


def not_a_number(x: Tensor) -> Tensor:
    return torch.where(x == x.max(), torch.nan, 2 * x)


def too_short(x: Tensor) -> Tensor:
    return 2 * x[:-1]


def broken(x: Tensor) -> Tensor:
    raise RuntimeError("no kernel image is available\nfor this device")


def missing() -> Function:
    raise ImportError("No module named 'fast_math'")


def candidate(name: str, operation: Function) -> Candidate[Function]:
    return Candidate(name, lambda: operation)


class Timer:
    """Runs the call and returns the next of these times, each of which serves for all runs of one candidate."""

    def __init__(self, *seconds: float) -> None:
        self._seconds = [second for second in seconds for _ in range(5)]

    def __call__(self, call: Callable[[], object]) -> float:
        call()
        return self._seconds.pop(0)


def choose_double(
    candidates: Sequence[Candidate[Function]], timer: cuda_trials.Timer, kept: KernelChoice | None = None
) -> tuple[Function, KernelChoice]:
    x = torch.arange(1.0, 9.0)
    return choose(Trial("double", candidates, reference, lambda double: (double(x),), 1e-3), timer, kept)


def test_the_fastest_of_those_that_are_right_is_taken_and_the_others_fall_out_for_a_reason() -> None:
    candidates = [
        Candidate("missing", missing),
        candidate("slow", right),
        candidate("wrong", wrong),
        candidate("fast", nearly_right),
        candidate("nan", not_a_number),
        candidate("broken", broken),
        candidate("short", too_short),
        candidate("slowest", right),
    ]
    taken, choice = choose_double(candidates, Timer(3e-3, 1e-3, 5e-3, 9e-3))

    assert taken is nearly_right
    assert (choice.operation, choice.taken, choice.seconds) == ("double", "fast", 1e-3)
    assert choice.error == pytest.approx(5e-5, rel=0.01)
    reasons = choice.reasons()
    assert reasons.keys() == {"missing", "slow", "wrong", "nan", "broken", "short", "slowest", "reference"}
    assert reasons["missing"] == "ImportError: No module named 'fast_math'"
    assert (reasons["slow"], reasons["slowest"], reasons["reference"]) == ("3000 µs", "5000 µs", "9000 µs")
    assert "differs from the reference by 5.0e-02, more than 1e-03" in reasons["wrong"]
    assert "differs from the reference by nan" in reasons["nan"]
    assert reasons["broken"] == "RuntimeError: no kernel image is available"
    assert reasons["short"].startswith("ArithmeticError: gives [(")
    assert all(f"not {name}: {reason}" in str(choice) for name, reason in reasons.items())


@pytest.mark.parametrize("candidates", [[], [Candidate("missing", missing), candidate("wrong", wrong)]])
def test_the_reference_is_taken_where_none_is_right(candidates: list[Candidate[Function]]) -> None:
    taken, choice = choose_double(candidates, Timer())
    assert taken is reference
    assert (choice.taken, choice.error, choice.seconds) == ("reference", 0.0, 0.0)
    assert choice.rejected.keys() == {candidate.name for candidate in candidates}


KEPT = KernelChoice("double", "kept", 0.0, 3e-3, {"broken": "it was"}, {"fast": 4e-3, "reference": 9e-3})


def test_what_was_the_fastest_before_is_tried_alone_and_not_timed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "batchocr")
    candidates = [Candidate("fast", missing), candidate("kept", nearly_right)]
    taken, choice = choose_double(candidates, Timer(), KEPT)
    assert taken is nearly_right
    assert choice == replace(KEPT, error=pytest.approx(5e-5, rel=0.01))
    assert caplog.messages == ["trying the kernel double:kept"]
    assert choose_double(candidates, Timer(), replace(KEPT, taken="reference"))[0] is reference


@pytest.mark.parametrize("kept", [wrong, broken, not_a_number, None], ids=["wrong", "broken", "NaN", "gone"])
def test_all_are_tried_and_timed_where_what_was_the_fastest_is_right_no_more(kept: Function | None) -> None:
    candidates = [candidate("slow", right), candidate("fast", nearly_right)]
    candidates += [candidate("kept", kept)] if kept else []
    taken, choice = choose_double(candidates, Timer(3e-3, 1e-3, 9e-3), KEPT)
    assert (taken, choice.taken, choice.seconds) == (nearly_right, "fast", 1e-3)
    assert ("kept" in choice.rejected) == (kept is not None)


def test_a_candidate_counts_by_its_quickest_run() -> None:
    seconds = iter([9.0, 1.0, 1.0, 1.0, 1.0, *[2.0] * 5, *[3.0] * 5])
    taken, choice = choose_double(
        [candidate("uneven", right), candidate("even", nearly_right)], lambda _: next(seconds)
    )
    assert taken is right
    assert choice.reasons() == {"even": "2000000 µs", "reference": "3000000 µs"}


def test_the_reference_is_taken_where_it_is_faster() -> None:
    taken, choice = choose_double([candidate("slow", right), candidate("slower", right)], Timer(2e-3, 3e-3, 1e-3))
    assert taken is reference
    assert (choice.taken, choice.error, choice.seconds) == ("reference", 0.0, 1e-3)
    assert choice.reasons() == {"slow": "2000 µs", "slower": "3000 µs"}
    # A little faster is not enough: the reference costs the host more.
    taken, choice = choose_double([candidate("as fast", right)], Timer(1e-3, 0.95e-3))
    assert taken is right
    assert choice.reasons() == {"reference": "950 µs, but not a tenth faster"}


def test_a_kernel_that_is_needed_is_taken_where_the_reference_is_faster_and_the_table_says_why() -> None:
    x = torch.arange(1.0, 9.0)
    trial = Trial("double", [candidate("kernel", right)], reference, lambda double: (double(x),), 1e-3, "a graph")
    taken, choice = choose(trial, Timer(2e-3, 1e-3))
    assert (taken, choice.taken) == (right, "kernel")
    assert choice.reasons() == {"reference": "1000 µs, but a graph needs a kernel"}
    assert choose(trial, Timer(1e-3, 2e-3))[1].reasons() == {"reference": "2000 µs"}


@pytest.mark.parametrize(("needed_for", "num_timed"), [("a graph", 5 + 1), ("", 5 + 5)])
def test_the_reference_is_timed_once_where_its_time_decides_nothing(needed_for: str, num_timed: int) -> None:
    timed = []

    def timer(call: Callable[[], object]) -> float:
        timed.append(call)
        return 1e-3

    choose(
        Trial(
            "double", [candidate("kernel", right)], reference, lambda double: (double(torch.ones(1)),), 1e-3, needed_for
        ),
        timer,
    )
    assert len(timed) == num_timed


def test_the_worst_of_all_outputs_counts() -> None:
    good, bad = torch.tensor([1.0, -4.0]), torch.tensor([1.0, -5.0])
    assert relative_error((good, bad, good), (good, good, good)) == 0.25
    assert relative_error((torch.tensor([3]),), (torch.tensor([4]),)) == 0.25
    assert relative_error((torch.zeros(2),), (torch.zeros(2),)) == 0


_VISION, _LANGUAGE = USUAL.shapes
SHAPES = (_VISION, replace(_LANGUAGE, vocab_size=3000))


@pytest.fixture
def small_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows, and nothing is timed: how long a candidate takes does not matter here."""
    monkeypatch.setattr(cuda_device, "device_seconds", Timer())
    monkeypatch.setenv("TRITON_CACHE_DIR", "none")
    monkeypatch.setattr(cuda_trials, "ROWS", 16)
    monkeypatch.setattr(cuda_trials, "_PATCHES", [324, 76, 4])
    monkeypatch.setattr(cuda_trials, "_DECODED_ROWS", [3])
    monkeypatch.setattr(cuda_trials, "_SAMPLED_ROWS", 3)


def test_a_gpu_without_room_for_the_trials_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(backend, "make_ops", fill)
    monkeypatch.setattr(start, "read_architecture", lambda folder: MINERU)
    load = LoadModel("", "float32", "auto", SMALL_LIMITS)
    with pytest.raises(UsageError, match="see what else uses the GPU"):
        load_engine(DeviceFound("cpu", ("cpu",), "cuda", 1), load)


def test_a_candidate_that_is_rejected_by_name_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHOCR_REJECT", "other:fast, double:fast_kernel 3 ,")
    candidates = [Candidate("fast_kernel 3", missing), candidate("slow", right)]
    taken, choice = choose_double(candidates, Timer(1e-3, 2e-3))
    assert taken is right
    assert choice.rejected == {"fast_kernel 3": "rejected by BATCHOCR_REJECT"}


@pytest.mark.usefixtures("small_cases")
@pytest.mark.parametrize("entry", ["attentoin:triton", "sample:Triton", "sample", "sample:"])
def test_a_rejection_that_cannot_be_meant_is_an_error_that_says_what_there_is(
    entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHOCR_REJECT", f"fp8 linear:triton and torch,rms_norm:triton,{entry}")
    with pytest.raises(UsageError, match=f"there is no {entry}; there is .*rms_norm:triton, .*sample:triton"):
        backend.make_ops("cuda", CPU, torch.float32, shapes=SHAPES)


def test_a_candidate_that_breaks_the_device_ends_the_trials_and_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    is_broken = False

    def working(x: Tensor) -> Tensor:
        if is_broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with")
        return 2 * x

    def break_device(x: Tensor) -> Tensor:
        nonlocal is_broken
        is_broken = True
        return working(x)

    caplog.set_level("INFO", "batchocr")
    x = torch.arange(1.0, 9.0)
    candidates = [candidate("good", working), candidate("bad 3", break_device), candidate("after", working)]
    trial = Trial("double", candidates, working, lambda double: (double(x),), 1e-3)
    with pytest.raises(EngineError, match=r"^double:bad 3 has broken .*illegal.*BATCHOCR_REJECT='double:bad 3'"):
        choose(trial, Timer(1e-3))
    assert caplog.messages == ["trying the kernel double:good", "trying the kernel double:bad 3"]

    is_broken = False
    monkeypatch.setenv("BATCHOCR_REJECT", "double:bad 3")
    taken, choice = choose(trial, Timer(3e-3, 1e-3, 2e-3))
    assert (taken, choice.taken, caplog.messages[-1]) == (working, "after", str(choice))


@pytest.mark.usefixtures("small_cases")
def test_without_a_gpu_every_operation_ends_as_the_reference() -> None:
    ops = backend.make_ops("cuda", CPU, torch.float32, shapes=SHAPES)
    assert isinstance(ops, CudaOps)
    assert {choice.operation for choice in ops.choices} == OPERATIONS
    for choice in ops.choices:
        assert choice.taken == "reference"
        assert choice.rejected and all(choice.rejected.values())
    kept = KernelChoice("rms_norm", "reference", 0.0, 1e-5, {}, {"triton": 3e-5})
    assert kept in backend.make_ops("cuda", CPU, torch.float32, shapes=SHAPES, kept=[kept]).choices
    assert not ops.capturable
    with pytest.raises(UsageError, match=r"compute capability 8\.9"):
        ops.with_fp8()


@pytest.mark.long
@pytest.mark.usefixtures("small_cases")
@pytest.mark.parametrize("family", FAMILIES)
def test_our_kernels_are_right_on_the_cases_they_are_tried_on(family: str) -> None:
    vision, language = FAMILIES[family].shapes
    shapes = (vision, replace(language, vocab_size=3000))
    with kernel_device(activation, norm, paged_attention, rotary, sampling, vocabulary_piece) as device:
        trials = CudaTrials(device, torch.float32, lambda call: 1.0, shapes)
        trials.paged_attention()
        trials.rotary()
        trials.rotary_store()
        trials.rms_norm()
        trials.add_layer_norm()
        trials.vit_gelu()
        trials.silu_mul()
        trials.sample()
    # Attention comes only from libraries, and resizing a page takes the interpreter minutes.
    usual = {"gelu_tanh": "quick_gelu"}
    assert {usual.get(choice.operation, choice.operation) for choice in trials.choices} == OPERATIONS - {
        "attention",
        "patches",
    }
    assert {choice.taken for choice in trials.choices} == {"triton"}


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "causal"), [(16, 16, 80, False), (14, 2, 64, True)], ids=["ViT", "prefill"]
)
def test_the_attention_of_torch_takes_our_call(heads: int, kv_heads: int, head_dim: int, causal: bool) -> None:
    [candidate] = [candidate for candidate in ATTENTION if candidate.name == "torch varlen_attn"]
    attend = candidate.load()
    lengths = [5, 5476, 5476, 1, 9, 5476]
    with FakeTensorMode(), torch.device("cuda"):
        packed = torch.empty(sum(lengths), heads + 2 * kv_heads, head_dim, dtype=torch.bfloat16)
        q, k, v = torch.split(packed, [heads, kv_heads, kv_heads], dim=1)
        segments = Segments(lengths, torch.empty(len(lengths) + 1, dtype=torch.int32))
        attended = attend(q, k, v, segments, causal)
    assert (attended.shape, attended.dtype, attended.device.type) == (q.shape, torch.bfloat16, "cuda")
    assert attended.is_contiguous()


@pytest.mark.parametrize(
    "mistaken",
    [lambda length: (length - 1).clamp(min=1), lambda length: length + 1, lambda length: length.clamp(max=1024)],
    ids=["misses the newest token", "sees one too many", "sees the first 1024"],
)
def test_attention_that_looks_at_wrong_tokens_is_noticed_in_bfloat16(
    mistaken: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    def attend(q: Tensor, cache: Tensor, context: PagedContext) -> Tensor:
        seen = PagedContext(context.block_tables, mistaken(context.lengths))
        return Ops(CPU).paged_attention(q, cache, seen)

    monkeypatch.setattr(cuda_trials, "PAGED_ATTENTION", [Candidate("mistaken", lambda: attend)])
    monkeypatch.setattr(cuda_trials, "_DECODED_ROWS", [16])
    trials = CudaTrials(CPU, torch.bfloat16, Timer(), SHAPES)
    trials.paged_attention()
    [choice] = trials.choices
    assert "differs from the reference" in choice.rejected["mistaken"]
