"""From pixels to patches: Pillow on the host against the device, for pages, crops and 4K images.

    python -m benchmarks.gpu.preprocess

`ms an image` is the time of the whole call, upload included. On a GPU, `upload ms` and `kernels ms` are the time that
the device spends on copies and on kernels, per image, according to torch's profiler.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from batchocr.data import Pixels
from batchocr.engine import backend
from batchocr.engine.backend.cpu import CpuOps
from batchocr.engine.backend.dtype import select_dtype
from batchocr.engine.backend.reference import Ops
from batchocr.engine.model.preprocess import Preprocessor
from batchocr.planning.families import read_architecture
from benchmarks import QUICK_MODEL
from benchmarks.record import Record, Value, benchmark_parser
from benchmarks.timing import mean_ms, spans
from benchmarks.trace import Noise

IMAGES: dict[str, tuple[int, int, tuple[int, int] | None]] = {
    "4K": (2160, 3840, None),
    "page for its layout": (2200, 1700, (1036, 1036)),
    "crop of a page": (300, 1500, None),
    "448 × 448": (448, 448, None),
}
"""Height and width, and the size they are resized to before the model's own resize, in px."""


def measure(call: Callable[[], object], device: torch.device, batch_size: int, runs: int) -> dict[str, Value]:
    """Table columns for one way to make the patches of a batch."""
    times: dict[str, Value] = {"ms an image": mean_ms(call, device, runs=runs) / batch_size}
    times["images/s"] = 1000 / float(str(times["ms an image"]))
    copies = kernels = None
    if device.type == "cuda":
        seen = spans(call, device)
        copies = sum(span.end - span.start for span in seen if span.name.startswith("Mem")) / 1e6 / batch_size
        kernels = sum(span.end - span.start for span in seen if not span.name.startswith("Mem")) / 1e6 / batch_size
    return times | {"upload ms": copies, "kernels ms": kernels}


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args(arguments)
    if given.smoke:
        given.batch_size, given.runs = 2, 1
    record = Record("preprocess", given)
    noise = Noise()
    host = torch.device("cpu")
    dtype = select_dtype("auto", record.device)
    chosen = backend.make_ops(backend.select_backend("auto", record.device), record.device, dtype)
    record.note("kernels", [str(choice) for choice in getattr(chosen, "choices", ())])
    ways: list[tuple[str, Ops, torch.device]] = [
        (f"Pillow, {torch.get_num_threads()} threads", CpuOps(), host),
        ("torch, the reference", Ops(record.device), record.device),
        (f"{chosen.name} backend", chosen, record.device),
    ]
    for image, (height, width, resize_to) in IMAGES.items():
        if given.smoke:
            height, width = height // 10, width // 10
        for way, ops, device in ways:
            for size in (1, given.batch_size):
                batch = [(noise.pixels(height, width), resize_to) for _ in range(size)]
                row = _measure_ops(ops, batch, device, given.runs)
                record.add({"image": image.ljust(20), "way": way.ljust(20), "batch": size} | row)
                if image == "4K" and ops is chosen and size == 1:
                    kernels, whole = row["kernels ms"], row["ms an image"]
                    record.figure("resize_4k_ms", float(str(whole if kernels is None else kernels)))
                    record.figure("upload_and_resize_4k_ms", float(str(whole)))


def _measure_ops(
    ops: Ops, batch: list[tuple[Pixels, tuple[int, int] | None]], device: torch.device, runs: int
) -> dict[str, Value]:
    architecture = read_architecture(QUICK_MODEL)
    preprocessor = Preprocessor(architecture.vision, architecture.images, ops)
    return measure(lambda: preprocessor.patches(batch), device, len(batch), runs)


if __name__ == "__main__":
    main()
