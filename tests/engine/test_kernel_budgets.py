"""What the compiled kernels may spend: 16-byte accesses where data streams, tensor cores where there is a product.

And every kernel has what the tests of this folder go by: a launch at true widths.
"""

from __future__ import annotations

import importlib
import itertools
import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from batchocr.engine.backend import kernels
from batchocr.engine.backend.kernels.launch import Kernel
from batchocr.planning.families import FAMILIES
from tests.engine import test_kernels_model, test_kernels_preprocess, test_kernels_quantize, test_kernels_sampling
from tests.support.kernel_compilation import (
    ARCHITECTURES,
    BEFORE_BFLOAT16,
    KernelResources,
    Launch,
    resources,
    without_launches,
)


@dataclass(frozen=True, slots=True)
class Budget:
    """wide: the fewest accesses of 16 bytes or more in a thread's code. narrow: the most of fewer bytes.

    tensor_cores: whether products run on them.
    """

    wide: int
    narrow: int = 0
    tensor_cores: bool = False

    def is_kept_by(self, kernel: KernelResources) -> bool:
        return (
            kernel.wide_accesses >= self.wide
            and kernel.narrow_accesses <= self.narrow
            and (kernel.tensor_core_products > 0) == self.tensor_cores
        )


BUDGETS = {
    # Four rows of x in and out, and the bias once.
    "_gelu_bias_kernel": Budget(wide=9),
    "_silu_mul_kernel": Budget(wide=12),
    # Two accesses for each of x, the result and what is learnt.
    "_rms_norm_kernel": Budget(wide=6),
    "_add_layer_norm_kernel": Budget(wide=12),
    "_rotary_kernel": Budget(wide=12),
    # The slot, and two kv heads of 64 over 64 threads: one pair of each for a thread, neighbours side by side.
    "_rotary_store_kernel": Budget(wide=8, narrow=13),
    # Keys and values; block numbers, of which earlier Tritons load more ahead, lengths and a part's weight are single.
    "_attend_kernel": Budget(wide=28, narrow=22, tensor_cores=True),
    "_combine_kernel": Budget(wide=4, narrow=7),
    # A scale is one number for a row.
    "_quantize_kernel": Budget(wide=3, narrow=1),
    "_add_layer_norm_quantize_kernel": Budget(wide=11, narrow=1),
    "_gelu_bias_quantize_kernel": Budget(wide=5, narrow=1),
    # Two passes over the logits; what they gather token by token is little.
    "_choose_kernel": Budget(wide=8, narrow=57),
    "_remember_kernel": Budget(wide=0, narrow=25),
}
LAUNCHES = (*test_kernels_model.LAUNCHES, *test_kernels_quantize.LAUNCHES, *test_kernels_sampling.LAUNCHES)


SHARED_BYTES_OF_SM_86 = 99 * 1024
SPILLED_BYTES = {("_choose_kernel", 120): 8, ("_remember_kernel", 120): 8}
"""Of a kernel on an architecture; 0 for all others."""


def compiled(launches: Sequence[Launch], architecture: int) -> list[KernelResources]:
    there = (launch for launch in launches if architecture in launch.architectures)
    return [kernel for launch in there for kernel in resources(launch, architecture)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "architecture", [90, *(pytest.param(other, marks=pytest.mark.long) for other in ARCHITECTURES if other != 90)]
)
def test_every_kernel_keeps_its_budget_on_every_architecture(architecture: int) -> None:
    kernels = compiled(LAUNCHES, architecture)
    assert [kernel for kernel in kernels if not BUDGETS[kernel.kernel].is_kept_by(kernel)] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "architecture", [each if each == 90 else pytest.param(each, marks=pytest.mark.long) for each in ARCHITECTURES]
)
def test_every_kernel_compiles_for_every_architecture_fits_its_memory_and_spills_nothing(architecture: int) -> None:
    of_families = [test_kernels_model.launches(64, family.shapes) for family in FAMILIES.values()]
    launches = [*LAUNCHES, *test_kernels_preprocess.LAUNCHES, *itertools.chain.from_iterable(of_families)]
    for kernel in compiled(launches, architecture):
        assert kernel.spilled_bytes <= SPILLED_BYTES.get((kernel.kernel, architecture), 0), kernel
        assert kernel.shared_bytes <= SHARED_BYTES_OF_SM_86, kernel


@pytest.mark.long
@pytest.mark.slow
def test_every_kernel_compiles_for_a_t4() -> None:
    for launch in LAUNCHES:
        if launch.architectures == ARCHITECTURES:
            assert resources(launch, BEFORE_BFLOAT16)


def test_every_budget_is_a_kernel_s() -> None:
    assert {kernel.kernel for launch in LAUNCHES for kernel in resources(launch, 90)} == BUDGETS.keys()


@pytest.mark.slow
def test_every_kernel_is_launched_at_true_widths() -> None:
    modules = [
        importlib.import_module(f"{kernels.__name__}.{found.name}") for found in pkgutil.iter_modules(kernels.__path__)
    ]
    ours = {name for module in modules for name, value in vars(module).items() if isinstance(value, Kernel)}
    launched: set[str] = set()
    with without_launches(lambda name, tensors: launched.add(name)):
        for launch in (*LAUNCHES, *test_kernels_preprocess.LAUNCHES):
            launch.call()
    assert ours == launched != set()
