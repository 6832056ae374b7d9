"""The families of models that batchocr runs: a row each, by the `model_type` in a checkpoint's config.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from batchocr.errors import ModelError
from batchocr.planning.architecture import Architecture, LanguageShape, VisionShape, read_json
from batchocr.planning.families import glm_ocr, paddleocr_vl, qwen2_vl

Shapes: TypeAlias = tuple[VisionShape, LanguageShape]


@dataclass(frozen=True, slots=True)
class Family:
    """A family of models."""

    name: str
    """What a checkpoint of the family is called in messages."""
    read: Callable[[Path, Mapping[str, Any]], Architecture]
    """A function that reads a checkpoint's configuration."""
    protocol: str
    """The module in `pages/protocol/families` that asks the model and puts its answers together."""
    shapes: Shapes
    """The shapes of the family's best known checkpoint."""
    refuses: Mapping[str, str] = field(default_factory=dict)
    """The options with the value that the family refuses, because it makes no sense there, or was never tried."""


FAMILIES: Final[Mapping[str, Family]] = {
    "qwen2_vl": Family("Qwen2-VL, such as MinerU2.5", qwen2_vl.read, "mineru", qwen2_vl.SHAPES),
    "glm_ocr": Family(
        "GLM-OCR",
        glm_ocr.read,
        "glm",
        glm_ocr.SHAPES,
        refuses={"figures": "read", "text_layer": "trust", "vit_dtype": "fp8"},
    ),
    "paddleocr_vl": Family(
        "PaddleOCR-VL",
        paddleocr_vl.read,
        "paddle",
        paddleocr_vl.SHAPES,
        refuses={"text_layer": "trust", "vit_dtype": "fp8"},
    ),
}


USUAL: Final = FAMILIES["qwen2_vl"]
"""Where no model is named, kernels and workers are tried as for this one."""


def shapes_of(architecture: Architecture) -> Shapes:
    """The shapes of the ViT and the language model of a checkpoint."""
    return architecture.vision, architecture.language


def read_architecture(folder: Path) -> Architecture:
    """What the checkpoint in this folder is. Raises a ModelError that says what does not fit."""
    config = read_json(folder, "config.json")
    family = FAMILIES.get(str(config.get("model_type")))
    if family is None:
        found = config.get("model_type") or ", ".join(config.get("architectures") or []) or "unknown"
        runs = "; ".join(f"{each.name} (model_type '{model_type}')" for model_type, each in FAMILIES.items())
        raise ModelError(f"{folder} is a checkpoint of the architecture '{found}'. batchocr runs {runs}")
    try:
        return family.read(folder, config)
    except KeyError as error:
        raise ModelError(f"{folder / 'config.json'} lacks the field {error}") from error
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
        raise ModelError(f"{folder / 'config.json'} holds a value that does not fit: {error}") from error
