"""The ViT's attention, by the backend and by each of its candidates.

    python -m benchmarks.gpu.attention

The cases are one image of 7,956 patches (16 heads of 80), for which others measured 2.711 ms with sgl_kernel's FA3,
2.791 with xFormers and 2.906 with SDPA on an RTX 4090D; pages with a layout and 14 blocks each; blocks without layouts;
and small images.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from batchocr.engine import backend
from batchocr.engine.backend.attention_kernels import ATTENTION
from batchocr.engine.backend.base import Segments
from batchocr.engine.backend.dtype import select_dtype
from batchocr.engine.backend.trial import Candidate
from benchmarks.record import Record, benchmark_parser
from benchmarks.timing import mean_ms
from benchmarks.trace import dense_trace

HEADS, HEAD_DIM = 16, 80

_FAILURES = (ImportError, OSError, RuntimeError, ValueError, TypeError, AssertionError, AttributeError)
"""What libraries raise if they are missing or do not support the device or the case."""

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
    loaded: dict[str, Attend] = {}
    for candidate in candidates(record.device, dtype):
        try:
            loaded[candidate.name] = candidate.load()
        except _FAILURES as error:
            record.note(candidate.name, _reason(error))
    for case, lengths in cases().items():
        if given.smoke:
            lengths, given.runs = [min(length, 64) for length in lengths[:4]], 1
        for name, attend in loaded.items():
            try:
                row = _measure(attend, lengths, dtype, record.device, given.runs)
                record.add({"patches": case, "through": name} | row)
            except _FAILURES as error:
                record.note(f"{name}, {case}", _reason(error))


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
