"""Renders pages as the product would see them, and degrades some of them as scanners and fax machines do."""

from __future__ import annotations

import io

import numpy as np
import pymupdf
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from batchocr.pages.input.render import MAX_EDGE
from sample_data.training.pages import compose_page
from sample_data.training.truth import TrainingPage, moved
from sample_data.training.typesetting import Sheet

DPI = 200
_POINTS_PER_INCH = 72


def make_page(*key: int) -> TrainingPage:
    """Return the page with this key; it is always the same."""
    rng = np.random.default_rng(key)
    return _aged(rng, render(compose_page(rng)))


def render(sheet: Sheet, dpi: int = DPI) -> TrainingPage:
    """Return the page at this resolution, its long side at most 3500 px."""
    scale = min(dpi / _POINTS_PER_INCH, MAX_EDGE / max(sheet.width, sheet.height))
    pixmap = sheet.close().get_pixmap(matrix=pymupdf.Matrix(scale, scale), colorspace=pymupdf.csGRAY)
    image = np.frombuffer(pixmap.samples, dtype=np.uint8).reshape(pixmap.height, pixmap.width)
    matrix = np.array([[scale, 0.0, 0.0], [0.0, scale, 0.0]])
    return TrainingPage(image, tuple(moved(block, matrix) for block in sheet.blocks))


def _aged(rng: np.random.Generator, page: TrainingPage) -> TrainingPage:
    """Return the page as it is (most are), as a scanner leaves it (greyer, grainier, askew), or in black and white."""
    kind = rng.choice(3, p=(0.66, 0.27, 0.07))
    if kind == 0:
        return page
    if rng.uniform() < 0.6:
        page = skewed(page, float(np.clip(rng.normal(0, 0.35), -0.95, 0.95)))
    if kind == 2:
        return TrainingPage(np.where(page.image > rng.uniform(120, 190), np.uint8(255), np.uint8(0)), page.blocks)
    image = Image.fromarray(page.image)
    if rng.uniform() < 0.4:
        image = image.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 0.8)))
    pixels = _on_paper(rng, np.asarray(image))
    if rng.uniform() < 0.5:
        pixels = _through_jpeg(pixels, int(rng.integers(45, 90)))
    return TrainingPage(pixels, page.blocks)


def skewed(page: TrainingPage, degrees: float) -> TrainingPage:
    """Return the page turned anticlockwise."""
    height, width = page.image.shape
    turned = Image.fromarray(page.image).rotate(degrees, Image.Resampling.BICUBIC, fillcolor=255)
    angle = np.deg2rad(degrees)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    centre = np.array([width / 2, height / 2])
    matrix = np.concatenate([turn, (centre - turn @ centre)[:, None]], axis=1)
    return TrainingPage(np.asarray(turned), tuple(moved(block, matrix) for block in page.blocks))


def _on_paper(rng: np.random.Generator, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return grey ink on uneven, grainy paper."""
    height, width = pixels.shape
    white, black = rng.uniform(205, 255), rng.uniform(0, 70)
    slope = np.linspace(0, rng.uniform(-14, 6), height, dtype=np.float32)[:, None]
    grain_size = 512
    grain = rng.normal(0, rng.uniform(1, 9), (grain_size, grain_size)).astype(np.float32)
    grain = np.tile(grain, (height // grain_size + 1, width // grain_size + 1))[:height, :width]
    scan = pixels.astype(np.float32) * np.float32((white - black) / 255) + np.float32(black) + slope + grain
    if rng.uniform() < 0.4:
        rows, columns = rng.integers(height, size=300), rng.integers(width, size=300)
        scan[rows, columns] = rng.uniform(70, 180)
    return scan.clip(0, 255).astype(np.uint8)


def _through_jpeg(pixels: NDArray[np.uint8], quality: int) -> NDArray[np.uint8]:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=quality)
    return np.asarray(Image.open(buffer))
