"""From pixels to patches, against Pillow and transformers' own image processor."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from PIL import Image
from transformers.models.glm46v import image_processing_pil_glm46v as glm46v
from transformers.models.paddleocr_vl import image_processing_pil_paddleocr_vl as paddleocr_vl
from transformers.models.qwen2_vl import image_processing_pil_qwen2_vl as qwen

from batchocr.data import Pixels
from batchocr.engine.backend.cpu import CpuOps
from batchocr.engine.backend.reference import Ops
from batchocr.engine.backend.resize import resize_bicubic
from batchocr.engine.model.preprocess import Preprocessor, smart_resize
from batchocr.engine.model.vision import GREY, patch_projection
from batchocr.planning.architecture import ImageLimits, ResizeRule
from batchocr.planning.families import read_architecture
from tests.support.checkpoints import make_checkpoint

SIZES = [  # (from width, height) → (to width, height)
    ((1, 1), (28, 28)), ((1, 50), (28, 28)), ((300, 1), (56, 28)), ((100, 100), (100, 57)), ((100, 100), (57, 100)),
    ((64, 64), (64, 64)), ((5, 7), (1, 1)), ((1000, 3), (28, 280)), ((3, 1000), (280, 28)), ((640, 480), (28, 28)),
    ((1654, 2339), (1036, 1036)), ((1700, 2200), (1036, 1036)), ((2200, 1700), (1036, 1036)), ((90, 400), (300, 100)),
    ((159, 76), (374, 51)), ((52, 287), (223, 182)), ((389, 198), (21, 216)), ((262, 133), (208, 249)),
    ((361, 167), (98, 33)), ((67, 388), (20, 77)), ((230, 279), (42, 47)), ((245, 156), (299, 184)),
    ((29, 31), (280, 308)), ((500, 20), (1400, 56)), ((20, 500), (56, 1400)), ((333, 333), (111, 111)),
    ((333, 333), (112, 222)), ((222, 333), (333, 222)), ((840, 100), (840, 28)), ((2, 2), (1036, 1036)),
]  # fmt: skip


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    values = torch.randint(0, 256, (height, width, 3), dtype=torch.uint8, generator=torch.manual_seed(seed))
    return Image.fromarray(values.numpy())


def as_tensor(image: Image.Image) -> torch.Tensor:
    return torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).view(image.height, image.width, 3)


@pytest.mark.slow
@pytest.mark.parametrize(("old", "new"), SIZES, ids=str)
def test_the_resize_gives_pillows_bytes(old: tuple[int, int], new: tuple[int, int]) -> None:
    image = noise(*old)
    expected = as_tensor(image.resize(new, Image.Resampling.BICUBIC))
    assert torch.equal(resize_bicubic(as_tensor(image), new[1], new[0]), expected)


@pytest.mark.parametrize("seed", range(4))
def test_a_side_of_any_size_gets_pillows_bytes(seed: int) -> None:
    sizes = random.Random(seed)
    edges = [(1, 28), (28, 1), (2, 28), (3, 3), (5000, 28), (3840, 1036), (28, 4000)]
    for old, new in [(sizes.randint(1, 400), sizes.randint(1, 400)) for _ in range(75)] + edges:
        image = noise(3, old, seed)
        expected = as_tensor(image.resize((3, new), Image.Resampling.BICUBIC))
        assert torch.equal(resize_bicubic(as_tensor(image), new, 3), expected)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint"))


def test_patches_are_those_of_transformers_for_many_sizes_in_one_call(folder: Path) -> None:
    architecture = read_architecture(folder)
    preprocessor = Preprocessor(architecture.vision, architecture.images, CpuOps())
    oracle = qwen.Qwen2VLImageProcessorPil.from_pretrained(folder)
    images = [noise(*size, seed) for seed, size in enumerate([(60, 60), (700, 300), (33, 400), (31, 29), (1200, 900)])]
    expected = oracle(images, return_tensors="pt")
    patches = preprocessor.patches(
        [(Pixels(image.height, image.width, bytearray(image.tobytes())), None) for image in images]
    )
    frames = expected["pixel_values"].view(len(patches), 3, 2, -1)
    mean, std = (torch.tensor(values).view(1, 3, 1) for values in (architecture.images.mean, architecture.images.std))
    normalised = (patches.view(len(patches), 3, -1) / 255 - mean) / std
    assert (normalised - frames[:, :, 0]).abs().max() < 1e-6
    grids = [preprocessor.patch_grid(image.height, image.width, None) for image in images]
    assert [[1, rows, columns] for rows, columns in grids] == expected["image_grid_thw"].tolist()


def test_an_image_is_resized_to_what_the_request_asks_before_its_grid_is_chosen(folder: Path) -> None:
    architecture = read_architecture(folder)
    preprocessor = Preprocessor(architecture.vision, architecture.images, CpuOps())
    image = noise(300, 500)
    resized = image.resize((1036, 1036), Image.Resampling.BICUBIC)
    ours = preprocessor.patches([(Pixels(500, 300, bytearray(image.tobytes())), (1036, 1036))])
    expected = preprocessor.patches([(Pixels(1036, 1036, bytearray(resized.tobytes())), None)])
    assert torch.equal(ours, expected)


def test_every_backend_cuts_the_same_patches() -> None:
    sizes = [(60, 60), (700, 300), (33, 400)]
    images = [as_tensor(noise(*size, seed)) for seed, size in enumerate(sizes)]
    plans = [((56, 56),), ((300, 700), (280, 560)), ((112, 28),)]
    expected = Ops(torch.device("cpu")).patches(images, plans, 14, 2)
    assert torch.equal(CpuOps().patches(images, plans, 14, 2), expected)


def image_limits(min_pixels: int, max_pixels: int, resize: ResizeRule) -> ImageLimits:
    return ImageLimits(min_pixels, max_pixels, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), resize=resize)


def test_sizes_are_those_of_transformers() -> None:
    limits = image_limits(3136, 1_605_632, "single frame")
    sizes = {"factor": 28, "min_pixels": 3136, "max_pixels": 1_605_632}
    for height in (1, 20, 28, 41, 43, 199, 1036, 3500):
        for width in (20, 28, 42, 70, 777, 3500):
            if max(height, width) <= 200 * min(height, width):
                expected = qwen.smart_resize(height, width, **sizes)
                assert smart_resize(height, width, factor=28, limits=limits) == expected
            else:
                with pytest.raises(ValueError, match="too thin"):
                    smart_resize(height, width, factor=28, limits=limits)


def sizes_of_all_kinds() -> Iterator[tuple[int, int]]:
    """Yield every side from 1 to 400 px beside others, squares, both sides of the limit of the aspect ratio, and large
    pages."""
    others = (1, 2, 3, 13, 14, 27, 28, 29, 41, 42, 43, 55, 56, 57, 111, 112, 199, 200, 201, 399, 400, 1700, 5400, 5401)
    for side in range(1, 401):
        yield side, side
        yield side, 200 * side
        yield 200 * side + 1, side
        yield from ((side, other) for other in others)
        yield from ((other, side) for other in others)
    large = random.Random(0)
    yield from ((large.randrange(401, 20_000), large.randrange(401, 20_000)) for _ in range(200))


def test_sizes_with_limits_of_two_frames_are_those_of_transformers_and_so_are_refusals() -> None:
    check_sizes(image_limits(12_544, 9_633_792, "two frames"), partial(glm46v.smart_resize, 2))


def test_sizes_with_raised_sides_are_those_of_transformers_and_so_are_refusals() -> None:
    check_sizes(image_limits(112_896, 1_003_520, "raised sides"), paddleocr_vl.smart_resize)


def check_sizes(limits: ImageLimits, resize: Callable[..., tuple[int, int]]) -> None:
    for height, width in sizes_of_all_kinds():
        try:
            expected = resize(height, width, min_pixels=limits.min_pixels, max_pixels=limits.max_pixels)
        except ValueError:
            with pytest.raises(ValueError, match=f"of {width} x {height} px is too thin"):
                smart_resize(height, width, factor=28, limits=limits)
        else:
            assert smart_resize(height, width, factor=28, limits=limits) == expected, (height, width)


@pytest.mark.parametrize("brightness", [40, 128, 215])
def test_in_bfloat16_the_patch_projection_is_as_exact_as_with_normalised_values(brightness: int) -> None:
    random_numbers = torch.Generator().manual_seed(0)
    limits = ImageLimits(1, 1, (0.481, 0.458, 0.408), (0.269, 0.261, 0.276))
    mean, std = (torch.tensor(values).repeat_interleave(14 * 14) for values in (limits.mean, limits.std))
    frames = (0.02 * torch.randn(256, 3, 2, 14, 14, generator=random_numbers)).bfloat16()
    patches = (brightness + 20 * torch.randn(500, 3 * 14 * 14, generator=random_numbers)).round().clamp(0, 255)
    normalised, weights = (patches / 255 - mean) / std, frames.float().sum(dim=2).flatten(1)
    expected = normalised @ weights.T

    layer = patch_projection(frames, limits)
    assert layer.bias is not None
    ours = (patches.bfloat16() - GREY).float() @ layer.weight.float().T + layer.bias.float()
    usual = normalised.bfloat16().float() @ weights.T  # but for the weights, of which each frame has its own

    assert (ours - expected).norm() < 1.3 * (usual - expected).norm()
