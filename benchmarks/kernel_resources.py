"""What our Triton kernels use on each architecture, as a Markdown table: `python -m benchmarks.kernel_resources`.

Needs no GPU: each kernel is compiled as the model launches it, at MinerU2.5's widths. Registers are per thread, shared
memory is per program, and spilled bytes are a thread's stack. The last three are instructions in a thread's code: loads
and stores of 16 bytes or more of the GPU's memory, those of fewer, and products on tensor cores.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

KERNEL_TESTS = Path(__file__).resolve().parent.parent / "tests" / "engine"


def rows() -> Iterator[tuple[object, ...]]:
    """A row for each kernel of each launch listed in the kernels' tests, on each architecture of the launch."""
    from tests.support.kernel_compilation import resources

    for path in sorted(KERNEL_TESTS.glob("test_kernels_*.py")):
        for launch in getattr(import_module(f"tests.backend.{path.stem}"), "LAUNCHES", ()):
            for architecture in launch.architectures:
                for kernel in resources(launch, architecture):
                    yield (
                        launch.name,
                        kernel.kernel.strip("_"),
                        f"sm_{architecture}",
                        kernel.warps,
                        kernel.registers,
                        kernel.shared_bytes,
                        kernel.spilled_bytes,
                        kernel.wide_accesses,
                        kernel.narrow_accesses,
                        kernel.tensor_core_products,
                    )


def main() -> None:
    columns = (
        *("operator", "kernel", "architecture", "warps", "registers", "shared memory", "spilled"),
        *("wide accesses", "narrow accesses", "tensor core products"),
    )
    for row in (columns, ["---"] * len(columns), *rows()):
        print("| " + " | ".join(map(str, row)) + " |")


if __name__ == "__main__":
    main()
