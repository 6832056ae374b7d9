"""How the memory of GPUs, from the smallest to the largest, is divided for MinerU2.5."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch

from batchocr.config import Config
from batchocr.engine.backend import peak_device_bytes
from batchocr.errors import UsageError
from batchocr.planning.limits import EngineLimits, engine_limits, max_image_tokens
from tests.support.mineru_shape import MINERU

GIB = 1 << 30
BFLOAT16, FLOAT32 = 2, 4
GPUS = pytest.mark.parametrize("memory_gib", [8, 12, 24, 80, 141])

MAX_IMAGE_TOKENS = 2_048
NUM_WEIGHTS = 1_154_000_000
DETECTOR_BYTES = 214_000_000
KV_VALUES = 24 * 2 * 2 * 64


def limits_of(memory_gib: float, config: Config | None = None, **options: Any) -> EngineLimits:
    return engine_limits(config or Config(), MINERU, memory_bytes=int(memory_gib * GIB), **options)


on_gpu = partial(limits_of, on_gpu=True, value_bytes=BFLOAT16)
on_cpu = partial(limits_of, on_gpu=False, value_bytes=FLOAT32)


def held_bytes(limits: EngineLimits, value_bytes: int) -> int:
    """What the model holds at the largest batches: weights, KV, the wide rows of one layer, logits and embeddings."""
    patches = max(limits.vit_max_patches, 4 * MAX_IMAGE_TOKENS)
    prompts = max(limits.prefill_max_tokens, MAX_IMAGE_TOKENS)
    embeddings = limits.embedding_queue_tokens + limits.llm_batch_size * MAX_IMAGE_TOKENS
    values = (
        NUM_WEIGHTS
        + limits.num_kv_tokens * KV_VALUES
        + patches * (3 * 1280 + 5120)
        + prompts * 3 * 4864
        + embeddings * 896
        + limits.llm_batch_size * 151_936
    )
    float32_logits = 4 * limits.llm_batch_size * 151_936
    counts_and_history = limits.llm_batch_size * (2 * 151_936 + 10 * limits.max_new_tokens)
    return values * value_bytes + float32_logits + counts_and_history


def test_limits_of_two_frames_allow_an_image_half_the_tokens() -> None:
    images = replace(MINERU.images, max_pixels=9_633_792, resize="two frames")
    assert max_image_tokens(replace(MINERU, images=images)) == 6_144
    assert max_image_tokens(MINERU) == MAX_IMAGE_TOKENS


@GPUS
@pytest.mark.parametrize(
    ("value_bytes", "fraction"),
    [(BFLOAT16, 0.9), (BFLOAT16, 0.5), (FLOAT32, 0.9)],
    ids=["bfloat16", "bfloat16 in half of it", "float32"],
)
def test_a_longest_request_fits_and_so_does_all_that_is_held_beside_it(
    memory_gib: float, value_bytes: int, fraction: float
) -> None:
    limits = on_gpu(memory_gib, Config(memory_fraction=fraction), value_bytes=value_bytes)
    assert limits.num_kv_tokens >= MAX_IMAGE_TOKENS + limits.max_new_tokens
    assert held_bytes(limits, value_bytes) <= fraction * memory_gib * GIB


def test_the_least_memory_is_what_the_readme_says() -> None:
    assert on_gpu(3.2).num_kv_tokens > 0
    with pytest.raises(UsageError, match=r"do not fit into 2\.8 GiB"):
        on_gpu(3.1)


def test_more_memory_never_means_less_of_anything() -> None:
    for smaller, larger in pairwise(on_gpu(memory_gib / 4) for memory_gib in range(32, 4 * 141)):
        before = asdict(smaller)
        assert all(value >= before[name] for name, value in asdict(larger).items())


def test_a_large_gpu_runs_larger_batches_than_a_small_one() -> None:
    small, large = (asdict(on_gpu(memory, detector_bytes=DETECTOR_BYTES)) for memory in (8, 141))
    assert all(large[name] > small[name] for name in small if name != "max_new_tokens")


def test_a_detector_has_its_weights_and_its_batch_from_what_the_kv_cache_would_have() -> None:
    many = Config(llm_batch_size=512)  # for which no KV cache is too large
    without, with_one = (on_gpu(20, many, detector_bytes=num_bytes) for num_bytes in (0, DETECTOR_BYTES))
    assert (without.layout_batch_size, with_one.layout_batch_size) == (0, 4)
    lost_bytes = (without.num_kv_tokens - with_one.num_kv_tokens) * KV_VALUES * BFLOAT16
    assert lost_bytes == pytest.approx(DETECTOR_BYTES + 4 * (900 << 20), rel=0.01)
    with pytest.raises(UsageError, match=r"do not fit into .*: lower .*, or what else you have raised"):
        on_gpu(20, Config(layout_batch_size=400), detector_bytes=DETECTOR_BYTES)


def test_too_little_memory_is_refused_with_the_options_that_would_help() -> None:
    scarce = Config(memory_fraction=0.15, vit_max_patches=65_536, llm_batch_size=256, vit_batch_size=10**6)
    with pytest.raises(UsageError, match=r"--memory-fraction 0\.15\): lower --vit-max-patches"):
        on_gpu(24, scarce)
    lowered = replace(scarce, vit_max_patches=8_192, llm_batch_size=16, max_new_tokens=2_048)
    assert held_bytes(on_gpu(24, lowered), BFLOAT16) <= 0.15 * 24 * GIB


@pytest.mark.parametrize("limits", [on_gpu, on_cpu], ids=["GPU", "CPU"])
@pytest.mark.parametrize("name", ["llm_batch_size", "vit_max_patches", "prefill_max_tokens", "embedding_queue_tokens"])
def test_a_size_that_cannot_fit_is_refused(limits: Callable[[float, Config], EngineLimits], name: str) -> None:
    for size in (10**8, 2**63 - 1):
        with pytest.raises(UsageError, match=r"need .* and do not fit"):
            limits(24, Config(**{name: size}))


@pytest.mark.parametrize("limits", [on_gpu, on_cpu], ids=["GPU", "CPU"])
def test_limits_that_only_bound_a_number_may_be_as_large_as_one_likes(
    limits: Callable[[float, Config], EngineLimits],
) -> None:
    large, model_s_own = limits(24, Config(max_new_tokens=10**12)), MINERU.language.max_positions
    assert large.num_kv_tokens == limits(24, Config(max_new_tokens=model_s_own)).num_kv_tokens
    assert limits(24, Config(vit_batch_size=10**12)).vit_batch_size == 10**12


@pytest.mark.parametrize("limits", [on_gpu, on_cpu], ids=["GPU", "CPU"])
@pytest.mark.parametrize("max_new_tokens", [16, 9_000])
def test_the_longest_layout_fits_the_cache_whatever_a_block_may_have(
    limits: Callable[..., EngineLimits], max_new_tokens: int
) -> None:
    planned = limits(1 if limits is on_cpu else 8, Config(max_new_tokens=max_new_tokens), layout_tokens=8_192)
    assert planned.max_new_tokens == max(max_new_tokens, 8_192)
    assert planned.num_kv_tokens >= MAX_IMAGE_TOKENS + planned.max_new_tokens


@pytest.mark.parametrize("limits", [on_gpu, on_cpu], ids=["GPU", "CPU"])
def test_what_the_user_set_is_not_changed(limits: Callable[[float, Config], EngineLimits]) -> None:
    options: dict[str, Any] = {
        "vit_batch_size": 3,
        "vit_max_patches": 12_345,
        "embedding_queue_tokens": 999,
        "llm_batch_size": 7,
        "prefill_max_tokens": 1_234,
        "max_new_tokens": 50,
    }
    taken = asdict(limits(24, Config(**options)))
    assert {name: taken[name] for name in options} == options


def test_a_cpu_runs_the_same_batches_whatever_its_memory() -> None:
    few, many = on_cpu(1), on_cpu(512)
    assert replace(few, num_kv_tokens=0) == replace(many, num_kv_tokens=0)
    assert few.num_kv_tokens >= MAX_IMAGE_TOKENS + few.max_new_tokens
    assert many.num_kv_tokens > few.num_kv_tokens


@pytest.mark.parametrize(
    ("cores", "memory_gib", "rows"),
    [(1, 64, 16), (2, 64, 16), (3, 64, 16), (4, 64, 32), (8, 64, 64), (96, 64, 64), (8, 16, 32), (8, 8, 16)],
)
def test_a_cpu_with_more_cores_decodes_more_sequences_at_once_if_it_has_the_memory(
    cores: int, memory_gib: float, rows: int
) -> None:
    limits = on_cpu(memory_gib, cores=cores)
    assert limits.llm_batch_size == rows
    if rows > 16:
        assert held_bytes(limits, FLOAT32) <= memory_gib * GIB / 2 + limits.num_kv_tokens * KV_VALUES * FLOAT32 / 2
        assert limits.num_kv_tokens >= 2_048 * rows
    assert on_cpu(memory_gib, Config(llm_batch_size=5), cores=cores).llm_batch_size == 5


@pytest.mark.parametrize(
    ("free_gib", "rows", "rows_beside_detector"),
    [
        (7.5, 128, 32),
        (11.6, 128, 128),
        (15.4, 256, 128),
        (21.5, 512, 256),  # an A10 or L4 has 22; a desktop takes one of an RTX 4090's 24
        (39.1, 512, 512),
        (78.0, 512, 512),
    ],
    ids=["8 GB", "12 GB", "16 GB", "24 GB", "40 GB", "80 GB"],
)
def test_a_card_has_the_largest_batches_for_which_there_is_a_kv_cache(
    free_gib: float, rows: int, rows_beside_detector: int
) -> None:
    alone, beside = on_gpu(free_gib), on_gpu(free_gib, detector_bytes=DETECTOR_BYTES)
    assert (alone.llm_batch_size, beside.llm_batch_size) == (rows, rows_beside_detector)
    assert all(limits.num_kv_tokens >= 2_048 * limits.llm_batch_size for limits in (alone, beside))


def test_the_peak_that_is_reported_is_what_others_cannot_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: 5)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda _: 7)
    assert [peak_device_bytes(torch.device(name)) for name in ("cuda:0", "cpu")] == [7, 0]
