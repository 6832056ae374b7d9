"""Loads a model from its folder. Every failure is a ModelError."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from batchocr.engine.backend.device import Device
from batchocr.engine.backend.reference import Ops
from batchocr.engine.model.language import LanguageModel
from batchocr.engine.model.preprocess import Preprocessor
from batchocr.engine.model.prompt import PromptFormat
from batchocr.engine.model.vision import VisionModel
from batchocr.engine.model.weights import WeightReader
from batchocr.planning.architecture import Architecture
from batchocr.planning.families import read_architecture


@dataclass(frozen=True, slots=True)
class Model:
    """A loaded checkpoint."""

    architecture: Architecture
    preprocessor: Preprocessor
    vision: VisionModel
    language: LanguageModel
    prompts: PromptFormat
    ops: Ops
    device: Device


def load_model(folder: Path, *, device: Device, dtype: torch.dtype, ops: Ops, vision_ops: Ops | None = None) -> Model:
    """Load a checkpoint's weights and tokenizer onto the device. Raises ModelError.

    vision_ops: for the vision model, if it has its own.
    """
    architecture = read_architecture(folder)
    weights = WeightReader(folder, architecture.names, device=device.torch_device, dtype=dtype)
    model = Model(
        architecture=architecture,
        preprocessor=Preprocessor(architecture.vision, architecture.images, ops),
        vision=VisionModel(architecture.vision, architecture.images, weights, vision_ops or ops, device),
        language=LanguageModel(architecture.language, weights, ops, device.torch_device),
        prompts=PromptFormat(folder, architecture),
        ops=ops,
        device=device,
    )
    if architecture.surplus is not None:
        weights.refuse_untaken(architecture.surplus)
    return model
