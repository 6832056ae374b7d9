"""What the card itself can do: how fast it copies, and how fast it multiplies, at once and after seconds of it.

    python -m benchmarks.gpu.card

The other figures are shares of these. A product for seconds shows what heat and the power cap leave of the clock.
"""

from __future__ import annotations

import torch

from benchmarks.clocks import watch
from benchmarks.record import Record, Value, benchmark_parser
from benchmarks.timing import mean_ms

_SIDE = 8192
_COPIED_BYTES = 1 << 31
_LONG_RUNS = 2000
"""Of the product: about three seconds."""


def copy_rate(device: torch.device, num_bytes: int = _COPIED_BYTES) -> float:
    """GB/s of a copy from device memory to device memory; what is read and what is written both count."""
    source = torch.empty(num_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * num_bytes / mean_ms(lambda: target.copy_(source), device, runs=10) / 1e6


def product_rate(device: torch.device, *, runs: int, side: int = _SIDE) -> float:
    """TFLOP/s of a product of two square matrices in bfloat16."""
    x, weight = torch.randn(2, side, side, device=device, dtype=torch.bfloat16)
    out = torch.empty_like(x)
    return 2 * side**3 / mean_ms(lambda: torch.mm(x, weight.t(), out=out), device, runs=runs) / 1e9


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    given = parser.parse_args(arguments)
    record = Record("card", given)
    device = record.device
    side, num_bytes, many = (128, 1 << 20, 2) if given.smoke else (_SIDE, _COPIED_BYTES, _LONG_RUNS)
    rates: dict[str, Value] = {
        "copy_gb_per_s": copy_rate(device, num_bytes),
        "product_tflops": product_rate(device, runs=10, side=side),
    }
    with watch(device) as clocks:
        rates["product_tflops_for_seconds"] = product_rate(device, runs=many, side=side)
    record.add(rates | clocks.columns())
    for name, rate in rates.items():
        record.figure(name, float(str(rate)))


if __name__ == "__main__":
    main()
