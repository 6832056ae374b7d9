"""The resize kernel against Pillow, byte for byte, and the numbers that the host computes for it."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import torch
from PIL import Image
from torch import Tensor

from batchocr.engine.backend import resize
from batchocr.engine.backend.base import ResizePlan
from batchocr.engine.backend.kernels import preprocess, resize_plan
from tests.support.kernel_compilation import Launch, kernel_device

PATCH_SIZE, MERGE_SIZE = 4, 2


@pytest.fixture
def device() -> Iterator[torch.device]:
    with kernel_device(preprocess) as device:
        yield device


@pytest.fixture
def large_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use large tiles, which take the interpreter no longer than small ones."""
    monkeypatch.setattr(preprocess, "TILE", 8192)


def noise(height: int, width: int) -> Tensor:
    """Random values, in one half only 0 and 255, where a bicubic filter overshoots."""
    image = torch.randint(0, 256, (height, width, 3), dtype=torch.uint8)
    image[:, : width // 2] = image[:, : width // 2] // 128 * 255
    return image


def expected(image: Tensor, plan: ResizePlan, patch_size: int = PATCH_SIZE, merge_size: int = MERGE_SIZE) -> Tensor:
    resized = Image.frombytes("RGB", (image.shape[1], image.shape[0]), image.contiguous().numpy().tobytes())
    for height, width in plan:
        resized = resized.resize((width, height), Image.Resampling.BICUBIC)
    pixels = torch.frombuffer(bytearray(resized.tobytes()), dtype=torch.uint8).view(resized.height, resized.width, 3)
    return resize.cut_patches(pixels, patch_size, merge_size)


@pytest.mark.slow
@pytest.mark.usefixtures("large_tiles")
def test_a_batch_of_any_sizes_has_the_bytes_of_pillow(device: torch.device) -> None:
    sizes = random.Random(0)
    images: list[Tensor] = []
    plans: list[ResizePlan] = []
    for _ in range(15):
        images.append(noise(sizes.randint(1, 90), sizes.randint(1, 90)))
        target = 8 * sizes.randint(1, 9), 8 * sizes.randint(1, 9)
        between = sizes.randint(1, 80), sizes.randint(1, 80)
        plans.append((between, target) if sizes.random() < 0.3 else (target,))

    patches = preprocess.patches(images, plans, PATCH_SIZE, MERGE_SIZE, device)

    assert torch.equal(patches.cpu(), torch.cat([*map(expected, images, plans)]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "plan"),
    [
        ((1, 1), ((8, 8),)),
        ((1, 90), ((16, 8),)),
        ((90, 1), ((8, 16),)),
        ((400, 20), ((16, 16),)),
        ((20, 400), ((16, 16),)),
        ((120, 60), ((16, 56),)),
        ((16, 24), ((16, 24),)),
        ((16, 24), ()),
        ((16, 31), ((16, 24),)),
        ((31, 24), ((16, 24),)),
        ((16, 24), ((20, 20), (16, 24))),
        ((30, 30), ((16, 24), (16, 24))),
    ],
)
@pytest.mark.usefixtures("large_tiles")
def test_one_image_has_the_bytes_of_pillow(device: torch.device, size: tuple[int, int], plan: ResizePlan) -> None:
    image = noise(*size)
    patches = preprocess.patches([image], [plan], PATCH_SIZE, MERGE_SIZE, device)
    assert torch.equal(patches.cpu(), expected(image, plan))


def test_tiles_and_patches_of_the_true_size_have_the_bytes_of_pillow(device: torch.device) -> None:
    images, plans = [noise(60, 75), noise(20, 29)], [((56, 84),), ((28, 28),)]
    patches = preprocess.patches(images, plans, 14, 2, device)
    assert torch.equal(patches.cpu(), torch.cat([expected(*case, 14, 2) for case in zip(images, plans, strict=True)]))


@pytest.mark.usefixtures("large_tiles")
def test_an_image_may_be_a_part_of_another(device: torch.device) -> None:
    part = noise(40, 50)[5:30, 10:43]
    patches = preprocess.patches([part], [((24, 32),)], PATCH_SIZE, MERGE_SIZE, device)
    assert torch.equal(patches.cpu(), expected(part, ((24, 32),)))


def test_a_launch_is_shared_by_all_images_that_still_have_a_side_to_resize() -> None:
    sizes = [(100, 80), (56, 80), (56, 56), (2200, 1700)]
    plans: list[ResizePlan] = [((56, 84),), ((56, 84),), ((56, 56),), ((1036, 1036), (1008, 1036))]

    batch = resize_plan.plan_batch(sizes, plans, 1024)

    assert [len(launch.passes) for launch in batch.launches] == [4, 2, 1]


LAUNCHES = (
    Launch(
        "patches",
        lambda: preprocess.patches([noise(60, 56)], [((56, 56),)], 14, 2, torch.device("cpu")),
    ),
)
