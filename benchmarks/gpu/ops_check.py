"""Every operation of the backend, compared with the float32 reference on the device, at the model's true widths.

    python -m benchmarks.gpu.ops_check

Exit code 1 if a check fails. Expected on an H200: 35 s.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor

from batchocr.engine import backend
from batchocr.engine.backend.reference import Ops
from batchocr.engine.backend.trial import relative_error
from benchmarks.gpu.ops_cases import CASES, Bench
from benchmarks.loading import free_memory
from benchmarks.record import Record, Value, benchmark_parser

_MAX_ERROR = {torch.bfloat16: 2e-2, torch.float32: 1e-4}
"""Relative to the largest value: the rounding error, with a margin for a different order of summation."""
_MAX_ERROR_OF = {"patches": 0.0, "sample": 1e-4, "fp8_linear": 6e-2, "fp8_then_layer_norm": 8e-2, "fp8_mlp": 8e-2}


def largest_error(name: str, bench: Bench) -> float:
    """The largest error in all cases of a check, relative to the largest value of the float32 reference."""
    make, sizes = CASES[name]
    reference = Ops(bench.device)
    errors = []
    for size in sizes:
        case = make(bench, *size)
        actual = case(bench.ops, Tensor.clone)
        expected = case(reference, lambda x: x.float().clone() if x.is_floating_point() else x.clone())
        errors.append(relative_error(actual, expected))
    return max(errors)


def check(name: str, bench: Bench) -> dict[str, Value]:
    """A row with whether the operation is right, and its error or the reason why it failed."""
    torch.manual_seed(0)
    bound = _MAX_ERROR_OF.get(name, _MAX_ERROR[bench.dtype])
    row: dict[str, Value] = {"check": name, "dtype": str(bench.dtype).removeprefix("torch.")}
    try:
        error = largest_error(name, bench)
    except Exception as failure:  # noqa: BLE001 (boundary: one check; the others are still worth knowing)
        return row | {"ok": False, "error": None, "reason": f"{type(failure).__name__}: {failure}"[:300]}
    return row | {"ok": error <= bound, "error": error, "reason": None if error <= bound else f"more than {bound:g}"}


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), help="both if not given; float32 on a CPU")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(CASES), help="names of checks")
    given = parser.parse_args(arguments)
    record = Record("ops_check", given)
    torch.set_float32_matmul_precision("highest")
    on_gpu = record.device.type == "cuda"
    kind = backend.select_backend("auto", record.device)
    failed = False
    # bfloat16 first, as in real runs; then float32, to see whether the arithmetic is right.
    dtypes = [dtype for dtype in _MAX_ERROR if given.dtype in (None, str(dtype).removeprefix("torch."))]
    for dtype in dtypes if on_gpu else [torch.float32]:
        with_fp8 = any(name.startswith("fp8_") for name in given.only)
        ops = backend.make_ops(kind, record.device, dtype, vit_dtype="fp8" if with_fp8 else "auto")
        record.note(f"kernels_{str(dtype).removeprefix('torch.')}", [str(one) for one in getattr(ops, "choices", ())])
        most_rows, most_columns = (12, 256) if given.smoke else (1 << 20, 1 << 20)
        bench = Bench(ops, record.device, dtype, most_rows, most_columns)
        for name in given.only:
            if name.startswith("fp8_") and dtype != torch.bfloat16:
                continue
            with torch.inference_mode():
                row = check(name, bench)
            record.add(row)
            failed |= not row["ok"]
            free_memory()
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
