"""The ViT's attention, and that of decode steps, by the backend and by each of its candidates.

    python -m benchmarks.gpu.attention

Of decode steps, what they read counts: keys and values of sequences as long as those of a run, in the layers of a model
one after the other, so that none is still in the cache of the GPU, and in a graph, so that launching takes no time. The
rate to compare with is the card's own for copies (`card.py`). FA3 is also called in ways in which the product does not
call it; `off` is the relative error against the first that is there.

The ViT's cases are one image of 7,956 patches (16 heads of 80), for which others measured 2.711 ms with sgl_kernel's
FA3, 2.791 with xFormers and 2.906 with SDPA on an RTX 4090D; pages with a layout and 14 blocks each; blocks without
layouts; and small images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from batchocr.engine import backend
from batchocr.engine.backend.attention_kernels import ATTENTION, PAGED_ATTENTION, PagedAttention
from batchocr.engine.backend.base import PagedContext, Segments
from batchocr.engine.backend.cuda_trials import CudaTrials, _decoded_lengths
from batchocr.engine.backend.device import CaptureError
from batchocr.engine.backend.dtype import select_dtype
from batchocr.engine.backend.reference import Ops
from batchocr.engine.backend.trial import Candidate, relative_error
from benchmarks.gpu.card import copy_rate
from benchmarks.record import Record, benchmark_parser
from benchmarks.timing import mean_ms
from benchmarks.trace import dense_trace

HEADS, HEAD_DIM = 16, 80
_LAYERS = 24
"""Of the language model."""
_DECODED_ROWS = (64, 256, 512)

_FAILURES = (
    *(ImportError, OSError, RuntimeError, ValueError, TypeError, AssertionError, AttributeError),
    CaptureError,
)
"""What libraries raise if they are missing or do not support the device or the case."""

Operation = TypeVar("Operation")

Attend = Callable[[Tensor, Tensor, Tensor, Segments, bool], Tensor]
"""(q, k, v, segments, causal) → the output, with the shape of q: [patches, heads, head_dim]."""


def cases() -> dict[str, list[int]]:
    """The number of patches of each image in a batch, by name of the case."""
    blocks = [ask.height // 14 * (ask.width // 14) for ask in dense_trace(1).pages[0].blocks]
    page = [5476, *blocks]
    return {
        "7,956": [7956],
        "1 page": page,
        "3 pages": 3 * page,
        "4 pages' blocks": 4 * blocks,
        "64 small": [1024] * 64,
    }


def candidates(device: torch.device, dtype: torch.dtype) -> list[Candidate[Attend]]:
    """The backend and its candidates."""
    ops = backend.make_ops(backend.select_backend("auto", device), device, dtype)

    def load_ops() -> Attend:
        return lambda q, k, v, segments, causal: ops.attention(q, k, v, segments, causal)

    return [*ATTENTION, Candidate(f"{ops.name} backend", load_ops)]


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("--runs", type=int, default=10)
    given = parser.parse_args(arguments)
    record = Record("attention", given)
    dtype = select_dtype("auto", record.device)
    record.note("dtype", str(dtype).removeprefix("torch."))
    loaded = _loaded(candidates(record.device, dtype), record, "attention")
    for case, lengths in cases().items():
        if given.smoke:
            lengths, given.runs = [min(length, 64) for length in lengths[:4]], 1
        for name, attend in loaded.items():
            try:
                row = _measure(attend, lengths, dtype, record.device, given.runs)
                record.add({"patches": case, "through": name} | row)
            except _FAILURES as error:
                record.note(f"{name}, {case}", _reason(error))
    measure_paged(record, dtype, runs=given.runs, smoke=given.smoke)


def _fa3_paged(*, metadata: bool = False, **options: object) -> Callable[[], PagedAttention]:
    """Loads FA3 as the product calls it, with other options. metadata: plan the work once for all layers of a step."""

    def load() -> PagedAttention:
        from sgl_kernel.flash_attn import flash_attn_with_kvcache, get_scheduler_metadata

        planned: dict[int, tuple[PagedContext, Tensor]] = {}

        def plan(q: Tensor, cache: Tensor, context: PagedContext) -> Tensor:
            num_heads, head_dim = q.shape[1:]
            block_size, kv_heads = cache.shape[2:4]
            longest = context.block_tables.shape[1] * block_size
            sizes = (len(q), 1, longest, num_heads, kv_heads, head_dim)
            plan: Tensor = get_scheduler_metadata(
                *sizes, context.lengths, qkv_dtype=q.dtype, page_size=block_size, causal=True
            )
            return plan

        def attend(q: Tensor, cache: Tensor, context: PagedContext) -> Tensor:
            given = dict(options)
            if metadata:
                if id(context) not in planned:
                    planned[id(context)] = context, plan(q, cache, context)
                given["scheduler_metadata"] = planned[id(context)][1]
            out: Tensor = flash_attn_with_kvcache(
                q.unsqueeze(1),
                cache[0],
                cache[1],
                cache_seqlens=context.lengths,
                page_table=context.block_tables,
                causal=True,
                **given,
            )
            return out.squeeze(1)

        return attend

    return load


FA3_PAGED = (
    Candidate("FA3 without splits", _fa3_paged(num_splits=1)),
    Candidate("FA3 with packed heads", _fa3_paged(pack_gqa=True)),
    Candidate("FA3 planned once", _fa3_paged(metadata=True)),
)


def _loaded(candidates: Sequence[Candidate[Operation]], record: Record, operation: str) -> dict[str, Operation]:
    """By name, those that can be loaded here; why the others cannot is noted."""
    found: dict[str, Operation] = {}
    for candidate in candidates:
        try:
            found[candidate.name] = candidate.load()
        except _FAILURES as error:
            record.note(f"{operation}: {candidate.name}", _reason(error))
    return found


def measure_paged(record: Record, dtype: torch.dtype, *, runs: int, smoke: bool) -> None:
    """Add a row for each candidate and number of sequences."""
    device = record.device
    reference = [Candidate("reference", lambda: Ops(device).paged_attention)] if device.type == "cpu" else []
    loaded = _loaded([*PAGED_ATTENTION, *FA3_PAGED, *reference], record, "paged attention")
    record.figure("copy_gb_per_s", copy_rate(device, 1 << 20 if smoke else 1 << 31))
    expected: dict[int, Tensor] = {}
    for name, attend in loaded.items():
        for rows in _DECODED_ROWS[: 1 if smoke else None]:
            try:
                row, attended = _measure_paged(attend, rows, dtype, device, runs)
                off = relative_error((attended,), (expected.setdefault(rows, attended),))
                record.add({"sequences": rows, "through": name.ljust(22), "off": off} | row)
                record.figure(f"paged_{rows}_{name.replace(' ', '_')}_gb_per_s", row["GB/s"])
            except _FAILURES as error:
                record.note(f"{name}, {rows} sequences", _reason(error))


def _measure_paged(
    attend: PagedAttention, rows: int, dtype: torch.dtype, device: torch.device, runs: int
) -> tuple[dict[str, float], Tensor]:
    """Table columns, and what was attended."""
    lengths = _decoded_lengths(rows)
    q, cache, context = CudaTrials(device, dtype, lambda call: 0.0)._decode_step(lengths)
    layers = [cache.clone() for _ in range(_LAYERS if device.type == "cuda" else 1)]

    def step() -> list[Tensor]:
        return [attend(q, layer, context) for layer in layers]

    graphs = list(backend.open_device(device).capture([step]))
    milliseconds = mean_ms(graphs[0] if graphs else step, device, runs=runs) / len(layers)
    num_bytes = sum(lengths) * 2 * cache[0, 0, 0].nbytes
    row = {"tokens": sum(lengths), "us a layer": 1000 * milliseconds, "GB/s": num_bytes / milliseconds / 1e6}
    return row, attend(q, cache, context)


def _measure(
    attend: Attend, lengths: list[int], dtype: torch.dtype, device: torch.device, runs: int
) -> dict[str, float]:
    generator = torch.Generator(device).manual_seed(0)
    qkv = torch.randn(sum(lengths), 3, HEADS, HEAD_DIM, device=device, dtype=dtype, generator=generator)
    segments = Segments.of(lengths, lambda ends: ends.to(device))
    q, k, v = qkv.unbind(1)
    milliseconds = mean_ms(lambda: attend(q, k, v, segments, False), device, runs=runs)
    flop = 4 * HEADS * HEAD_DIM * sum(length**2 for length in lengths)
    return {"ms": milliseconds, "TFLOP/s": flop / milliseconds / 1e9}


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]


if __name__ == "__main__":
    main()
