"""What a page asks of a model, as far as its size and its own text tell: images, patches, tokens, operations."""

from __future__ import annotations

import math
from dataclasses import dataclass

from batchocr.data import PageSeen
from batchocr.model.architecture import Architecture, ImageLimits, LanguageShape, VisionShape
from batchocr.model.cost import prefill_flop, vision_flop
from batchocr.model.image_size import smart_resize

MINERU = Architecture(
    VisionShape(32, 1280, 16, 5120, 896, 14, 2, 2, 3, 10_000.0),
    LanguageShape(24, 896, 14, 2, 4864, 151_936, 1e-6, 1e6, (8, 12, 12), 32_768, True),
    ImageLimits(3136, 1_605_632, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    151_655,
)
"""MinerU2.5 (2509, Pro-2604, Pro-2605), from its config.json: for when no checkpoint is at hand."""

DENSE = PageSeen(1700, 2200, 0, 0.65)
"""The page that this project's targets are set for: 14 blocks on 65 % of it, 17,900 patches."""

NUM_BLOCKS = 14
TOKENS_PER_BLOCK = 16
"""Of the layout's answer: a block's line takes 12 to 20."""

_PROMPT_TOKENS = 30
_LAYOUT_EDGE = 1036
_UNEVEN = 2.4
"""Blocks differ in size: the sum of their squares is this much above that of equal ones, on the dense page."""

_MOST_COVERED = 0.65
"""More ink than on a dense page is a photograph, which is not read."""

_CHARACTERS_PER_SQUARE_INCH = 60
"""Of what the text of a page without text of its own covers; 45 to 100 on pages that have some."""
_DPI = 200
"""Of scans, which seldom say."""

_CHARACTERS_PER_TOKEN = 3.3
_CHARACTERS_PER_BYTE_TOKEN = 0.85
"""White space left out: of text in Latin letters in a vocabulary of Qwen's size, and in one of single letters, as the
smallest are taken to be."""
_SMALL_VOCABULARY = 10_000


@dataclass(frozen=True, slots=True)
class PageWork:
    """What reading takes. linear_flop, attention_flop: of the vision encoder; prefill_flop: of the language model."""

    images: float = 0.0
    patches: float = 0.0
    output_tokens: float = 0.0
    linear_flop: float = 0.0
    attention_flop: float = 0.0
    prefill_flop: float = 0.0

    def __add__(self, other: PageWork) -> PageWork:
        return PageWork(
            self.images + other.images,
            self.patches + other.patches,
            self.output_tokens + other.output_tokens,
            self.linear_flop + other.linear_flop,
            self.attention_flop + other.attention_flop,
            self.prefill_flop + other.prefill_flop,
        )

    def times(self, number: float) -> PageWork:
        """As much work for so many pages."""
        return PageWork(
            self.images * number,
            self.patches * number,
            self.output_tokens * number,
            self.linear_flop * number,
            self.attention_flop * number,
            self.prefill_flop * number,
        )


def page_work(page: PageSeen, model: Architecture) -> PageWork:
    """The work of one page: its layout, and its blocks, which are taken to be equal parts of what its text covers."""
    covered = page.covered if page.characters else min(page.covered, _MOST_COVERED)
    layout = _patches(_LAYOUT_EDGE, _LAYOUT_EDGE, model)
    area = covered * page.width * page.height / NUM_BLOCKS
    edge = max(1, round(math.sqrt(area)))
    block = _patches(edge, edge, model)
    squares = layout**2 + NUM_BLOCKS * _UNEVEN * block**2
    patches = layout + NUM_BLOCKS * block
    attention = 4.0 * model.vision.width * model.vision.depth * squares
    merged = model.vision.merge_size**2
    prompts = [layout / merged + _PROMPT_TOKENS] + [block / merged + _PROMPT_TOKENS] * NUM_BLOCKS
    return PageWork(
        images=1 + NUM_BLOCKS,
        patches=patches,
        output_tokens=_output_tokens(page, covered, model),
        linear_flop=vision_flop(model.vision, [1]) * patches,
        attention_flop=attention,
        prefill_flop=prefill_flop(model.language, [round(length) for length in prompts]),
    )


def _patches(height: int, width: int, model: Architecture) -> int:
    patch, limits = model.vision.patch_size, model.images
    new_height, new_width = smart_resize(
        height,
        width,
        factor=patch * model.vision.merge_size,
        min_pixels=limits.min_pixels,
        max_pixels=limits.max_pixels,
    )
    return (new_height // patch) * (new_width // patch)


def _output_tokens(page: PageSeen, covered: float, model: Architecture) -> float:
    inches = covered * page.width * page.height / _DPI**2
    characters = page.characters or _CHARACTERS_PER_SQUARE_INCH * inches
    small = model.language.vocab_size < _SMALL_VOCABULARY
    return NUM_BLOCKS * TOKENS_PER_BLOCK + characters / (_CHARACTERS_PER_BYTE_TOKEN if small else _CHARACTERS_PER_TOKEN)
