"""What the compiled kernels may spend: 16-byte accesses where data streams, tensor cores where there is a product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from batchocr.engine.backend.kernels import activation, norm, paged_attention, rotary
from tests.engine import test_kernels_model, test_kernels_preprocess, test_kernels_quantize, test_kernels_sampling
from tests.support.kernel_compilation import ARCHITECTURES, BEFORE_BFLOAT16, KernelResources, Launch, resources


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
    "_layer_norm_kernel": Budget(wide=8),
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
    "_choose_kernel": Budget(wide=8, narrow=44),
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
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_kernel_keeps_its_budget_on_every_architecture(architecture: int) -> None:
    kernels = compiled(LAUNCHES, architecture)
    assert [kernel for kernel in kernels if not BUDGETS[kernel.kernel].is_kept_by(kernel)] == []


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_kernel_compiles_for_every_architecture_fits_its_memory_and_spills_nothing(architecture: int) -> None:
    for kernel in compiled((*LAUNCHES, *test_kernels_preprocess.LAUNCHES), architecture):
        assert kernel.spilled_bytes <= SPILLED_BYTES.get((kernel.kernel, architecture), 0), kernel
        assert kernel.shared_bytes <= SHARED_BYTES_OF_SM_86, kernel


@pytest.mark.slow
def test_every_kernel_compiles_for_a_t4() -> None:
    for launch in LAUNCHES:
        if launch.architectures == ARCHITECTURES:
            assert resources(launch, BEFORE_BFLOAT16)


def test_every_budget_is_a_kernel_s() -> None:
    assert {kernel.kernel for launch in LAUNCHES for kernel in resources(launch, 90)} == BUDGETS.keys()


def unaligned(rows: int, width: int) -> Tensor:
    return torch.zeros(rows * width + 1, dtype=torch.bfloat16)[1:].view(rows, width)


def turn_unaligned_heads() -> None:
    q, k, _ = torch.zeros(64, 3 * 16 * 80 + 1, dtype=torch.bfloat16)[:, 1:].unflatten(1, (3, 16, 80)).unbind(1)
    rotary.rotary_(q, k, torch.zeros(64, 40), torch.zeros(64, 40))


def attend_without_tensor_cores() -> None:
    """In float32, whose products are exact."""
    q, cache = torch.zeros(64, 14, 64), torch.zeros(2, 4, 256, 2, 64)
    paged_attention.paged_attention(q, cache, torch.zeros(64, 95, dtype=torch.int32), torch.zeros(64).int())


def attend_unaligned() -> None:
    q = torch.zeros(64, 14, 64, dtype=torch.bfloat16)
    cache = torch.zeros(2 * 4 * 256 * 2 * 64 + 1, dtype=torch.bfloat16)[1:].view(2, 4, 256, 2, 64)
    paged_attention.paged_attention(q, cache, torch.zeros(64, 95, dtype=torch.int32), torch.zeros(64).int())


ONES = torch.ones(5120, dtype=torch.bfloat16)
OVER_BUDGET = (
    Launch("quick_gelu_bias_, unaligned", lambda: activation.quick_gelu_bias_(unaligned(64, 5120), ONES)),
    Launch("silu_mul, unaligned", lambda: activation.silu_mul(unaligned(64, 2 * 4864))),
    Launch("rms_norm, unaligned", lambda: norm.rms_norm(unaligned(64, 896), ONES[:896], 1e-6)),
    Launch("rms_norm, odd width", lambda: norm.rms_norm(torch.zeros(64, 897), torch.zeros(897), 1e-6)),
    Launch("layer_norm, unaligned", lambda: norm.layer_norm(unaligned(64, 1280), ONES[:1280], ONES[:1280], 1e-6)),
    Launch("rotary_, unaligned", turn_unaligned_heads),
    Launch("paged_attention, float32", attend_without_tensor_cores),
    Launch("paged_attention, unaligned", attend_unaligned),
)


@pytest.mark.parametrize("launch", OVER_BUDGET, ids=lambda launch: launch.name)
def test_scalar_accesses_or_products_without_tensor_cores_break_a_budget(launch: Launch) -> None:
    kernel, *_ = resources(launch, 90)
    assert not BUDGETS[kernel.kernel].is_kept_by(kernel)
