"""What the quick model is taught: images of ink, the prompts, and a rule that gives the answer to each.

The rule depends only on where the ink is, so the answer can be computed for any image; this is not reading.
Everything is measured in image tokens of 28 × 28 px, the squares that the model sees.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

TOKEN_PX = 28
LAYOUT_TOKENS = 37  # a side of the layout image, 1036 px
MAX_IMAGE_TOKENS = 2048

LAYOUT_PROMPT = "\nLayout Detection:"
TEXT_PROMPT = "\nText Recognition:"
TABLE_PROMPT = "\nTable Recognition:"
FORMULA_PROMPT = "\nFormula Recognition:"
IMAGE_PROMPT = "\nImage Analysis:"
BLOCK_PROMPTS = (TEXT_PROMPT, TABLE_PROMPT, FORMULA_PROMPT, IMAGE_PROMPT)

NUM_BANDS = 8
BAND_INK = (0.004, 0.03, 0.05, 0.08, 0.13, 0.25)
BAND_TYPES = ("title", "text", "table", "equation", "list_item", "image")

SHADE_INK = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.085, 0.1, 0.13, 0.2)
SHADES = ("snow", "chalk", "milk", "pearl", "ash", "smoke", "silver", "tin", "slate", "lead", "coal", "jet")
BLANK_INK = 0.01
BLANK_SHARE = (0.02, 0.15, 0.35, 0.6)
PLACES = ("forest", "garden", "meadow", "prairie", "desert")


def ink_per_token(image: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Return the share of black in each image token, [rows, columns], from 0 (white) to 1."""
    rows, columns = image.shape[0] // TOKEN_PX, image.shape[1] // TOKEN_PX
    squares = image.reshape(rows, TOKEN_PX, columns, TOKEN_PX, 3)
    return np.asarray(1 - squares.mean(axis=(1, 3, 4)) / 255)


def layout_answer(ink: NDArray[np.float64]) -> str:
    """Return a MinerU layout: one block for each of eight bands of the page that has ink.

    How dark the band is and where it is determine the type; which of its halves have ink determines left and right. A
    block on the right alone is said to be rotated, and text after text to continue it, so that these tokens occur too.
    """
    edges = np.linspace(0, len(ink), NUM_BANDS + 1).round().astype(int)
    middle = ink.shape[1] // 2
    lines = []
    before = ""
    for band, (top, bottom) in enumerate(pairwise(edges)):
        level = int(np.searchsorted(BAND_INK, ink[top:bottom].mean()))
        if level == 0:
            continue
        kind = _block_type(band, level)
        left = ink[top:bottom, :middle].mean() > BAND_INK[0]
        right = ink[top:bottom, middle:].mean() > BAND_INK[0]
        x1, x2 = (60 if left else 500), (940 if right else 500)
        y1, y2 = (round(999 * int(edge) / len(ink)) for edge in (top, bottom))
        box = f"<|box_start|>{x1:03d} {y1:03d} {x2:03d} {y2:03d}<|box_end|>"
        turn = "<|rotate_up|>" if left else "<|rotate_right|>"
        goes_on = "<|txt_contd_tgt|>" if kind == before == "text" else ""
        lines.append(f"{box}<|ref_start|>{kind}<|ref_end|>{turn}{goes_on}")
        before = kind
    return "\n".join(lines)


def _block_type(band: int, level: int) -> str:
    if level == 1 and band in (0, NUM_BANDS - 1):
        return "header" if band == 0 else "page_number"
    return BAND_TYPES[(level + band) % len(BAND_TYPES)]


def block_answer(prompt: str, shade: int, blank: int) -> str:
    """Return the answer for a block this dark and this empty (indices of SHADES and PLACES), in the prompt's form."""
    if prompt == TABLE_PROMPT:
        return f"<fcel>ink<fcel>{SHADES[shade]}<nl><fcel>place<fcel>{PLACES[blank]}<nl>"
    if prompt == FORMULA_PROMPT:
        return rf"\frac{{{'abcdefghkmnp'[shade]}}}{{{'uvxyz'[blank]}}}"
    if prompt == IMAGE_PROMPT:
        caption = f"a {SHADES[shade]} {PLACES[blank]}"
        return f"<|class_start|>natural_image<|class_end|><|caption_start|>{caption}<|caption_end|>"
    return f"The {PLACES[blank]} is {SHADES[shade]}."


def answer(prompt: str, ink: NDArray[np.float64]) -> str:
    """Return what the model should answer about an image with this ink per token."""
    if prompt == LAYOUT_PROMPT:
        return layout_answer(ink)
    shade = int(np.searchsorted(SHADE_INK, ink.mean()))
    blank = int(np.searchsorted(BLANK_SHARE, (ink < BLANK_INK).mean()))
    return block_answer(prompt, shade, blank)


def block_grid(rng: np.random.Generator, max_tokens: int) -> tuple[int, int]:
    """Return rows and columns in image tokens: any shape from one square to the largest image, long thin ones too."""
    while True:
        rows, columns = np.exp(rng.uniform(0, np.log(200), 2)).astype(int)
        if rows * columns <= max_tokens:
            return int(rows), int(columns)


def draw_page(rng: np.random.Generator, rows: int, columns: int) -> NDArray[np.uint8]:
    """Return a page of text, bars, pictures and blank space, [rows · 28, columns · 28, 3]; some look like scans."""
    height, width = rows * TOKEN_PX, columns * TOKEN_PX
    page = Image.new("L", (width, height), 255)
    draw = ImageDraw.Draw(page)
    black = rng.choice((1.0, rng.uniform(0.3, 1)))
    y, end = int(rng.uniform(0, 0.1) * height), int(rng.uniform(0.7, 1) * height)
    while y < end:
        block = int(rng.uniform(0.03, 0.3) * height) + 8
        left, right = ((0.05, 0.95), (0.05, 0.48), (0.52, 0.95), (0.0, 1.0))[rng.choice(4, p=(0.6, 0.1, 0.1, 0.2))]
        box = (int(left * width), y, int(right * width), min(y + block, height))
        kind = rng.choice(5, p=(0.6, 0.2, 0.07, 0.06, 0.07))
        if kind == 0:
            _draw_text(rng, draw, box, black)
        elif kind == 2:
            draw.rectangle(box, fill=int(255 - 200 * rng.uniform() ** 2))
        elif kind == 3:
            coarse = rng.integers(0, 256, (6, 6), dtype=np.uint8)
            page.paste(Image.fromarray(coarse).resize((max(1, box[2] - box[0]), max(1, box[3] - box[1]))), box[:2])
        elif kind == 4:
            _draw_rules(rng, draw, box)
        y += block
    page = page.filter(ImageFilter.GaussianBlur(float(rng.choice((0.0, 0.5, 1.0)))))
    return _scan(rng, np.asarray(page, dtype=np.float32))


def _draw_text(
    rng: np.random.Generator, draw: ImageDraw.ImageDraw, box: tuple[int, int, int, int], black: float
) -> None:
    left, top, right, bottom = box
    size = int(rng.choice((8, 11, 14, 20, 30, 60), p=(0.2, 0.25, 0.25, 0.15, 0.1, 0.05)))
    font = ImageFont.load_default(size)
    letters = "".join(rng.choice(list("etaoinshrdlucmwEATN0123456789,.      "), 400))
    for y in range(top, bottom - size // 2, int(size * rng.uniform(1.05, 2))):
        start = int(rng.integers(0, 200))
        length = int(rng.uniform(0.5, 1) * (right - left) / (0.5 * size))
        draw.text((left, y), letters[start : start + length], fill=int(255 * (1 - black)), font=font)


def _draw_rules(rng: np.random.Generator, draw: ImageDraw.ImageDraw, box: tuple[int, int, int, int]) -> None:
    left, top, right, bottom = box
    for y in range(top, bottom, int(rng.integers(10, 60))):
        draw.line((left, y, right, y), fill=0, width=int(rng.integers(1, 4)))


def _scan(rng: np.random.Generator, page: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return the page in colour: one in three on darker, noisy paper, a few inverted, some tinted."""
    if rng.uniform() < 0.33:
        page = page * rng.uniform(0.05, 1) + rng.normal(0, rng.uniform(0, 40), page.shape)
    if rng.uniform() < 0.05:
        page = 255 - page
    tint = rng.uniform(0.6, 1, 3) if rng.uniform() < 0.2 else np.ones(3)
    return (page[..., None] * tint).clip(0, 255).astype(np.uint8)
