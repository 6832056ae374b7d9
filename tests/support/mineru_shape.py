"""MinerU2.5 without its weights."""

from __future__ import annotations

from batchocr.planning.architecture import Architecture, Chat, ImageLimits
from batchocr.planning.families import USUAL

_VISION, _LANGUAGE = USUAL.shapes
MINERU = Architecture(
    family="qwen2_vl",
    vision=_VISION,
    language=_LANGUAGE,
    images=ImageLimits(min_pixels=3_136, max_pixels=1_605_632, mean=(0.5, 0.5, 0.5), std=(0.3, 0.3, 0.3)),
    chat=Chat(image_token_id=151_655, system="You are a helpful assistant.", example="Text Recognition:"),
    names=(),
)
