"""Families of models beside transformers: how a tiny checkpoint of each is made, and what transformers makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from transformers import PreTrainedModel
from transformers.models.glm46v.image_processing_pil_glm46v import Glm46VImageProcessorPil
from transformers.models.paddleocr_vl.image_processing_pil_paddleocr_vl import PaddleOCRVLImageProcessorPil

from tests.support.glm_checkpoints import GLM_SHAPES, glm_oracle, make_glm_checkpoint
from tests.support.paddle_checkpoints import PADDLE_SHAPES, make_paddle_checkpoint, paddle_oracle


@dataclass(frozen=True)
class FamilyOracle:
    """A family of models."""

    make: Callable[..., Path]
    """Writes a checkpoint of a shape, the first one's if it is None."""
    shapes: Mapping[str, Any]
    oracle: Callable[[Path], PreTrainedModel]
    processor: Callable[[Path], Any]
    """The image processor."""
    embeddings: Callable[[PreTrainedModel, Any, Any], Any]
    """What the language model is given of images: (model, pixel values, grids)."""
    prompts: Sequence[str]
    repetition_penalties: Sequence[float] = (1.0,)


def _paddle_processor(_: Path) -> PaddleOCRVLImageProcessorPil:
    half = [0.5] * 3  # and the limits that the authors' pipeline sets
    return PaddleOCRVLImageProcessorPil(
        image_mean=half, image_std=half, size={"shortest_edge": 112_896, "longest_edge": 1_003_520}
    )


ORACLES: Final[Mapping[str, FamilyOracle]] = {
    "glm_ocr": FamilyOracle(
        make_glm_checkpoint,
        GLM_SHAPES,
        glm_oracle,
        lambda folder: Glm46VImageProcessorPil.from_pretrained(folder, local_files_only=True),
        lambda model, pixels, grids: model.model.visual(pixels, grids).pooler_output,
        ["Text Recognition:", "Table Recognition:", "Formula Recognition:"],
        (1.0, 1.1),
    ),
    "paddleocr_vl": FamilyOracle(
        make_paddle_checkpoint,
        PADDLE_SHAPES,
        paddle_oracle,
        _paddle_processor,
        lambda model, pixels, grids: torch.cat(model.get_image_features(pixels, grids).pooler_output),
        ["OCR:", "Table Recognition:", "Formula Recognition:", "Chart Recognition:"],
    ),
}
"""By the `model_type` of a checkpoint."""
