"""Finds, checks and loads a model from a Hugging Face folder or id. Every failure is a ModelError."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

import torch

from batchocr.backend.base import Ops
from batchocr.backend.device import Device
from batchocr.errors import ModelError
from batchocr.model.architecture import Architecture, read_architecture
from batchocr.model.language import LanguageModel
from batchocr.model.preprocess import Preprocessor
from batchocr.model.prompt import PromptFormat
from batchocr.model.vision import VisionModel
from batchocr.model.weights import WeightReader

logger = logging.getLogger(__name__)

_FILES = ["*.json", "*.jinja", "*.safetensors", "*.txt", "*.model"]


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


def find_checkpoint(name: str, revision: str | None) -> Path:
    """The folder of a checkpoint, downloaded if `name` is a Hugging Face id. HF_HUB_OFFLINE is honoured.

    Raises ModelError.
    """
    folder = Path(os.path.expanduser(name))
    if os.path.isdir(folder):  # unlike Path.is_dir, it raises nothing for a name that no folder can have
        return folder
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise ModelError(f"{name} is neither a folder nor a Hugging Face id (owner/name)")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (  # type: ignore[attr-defined]
        HfHubHTTPError,
        HFValidationError,
        HTTPError,  # from the HTTP library that it was written for: httpx or httpx2
        LocalEntryNotFoundError,
    )

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=_FILES))
    except LocalEntryNotFoundError as error:
        raise ModelError(
            f"the model {name} is not on this machine and cannot be downloaded (no network, or HF_HUB_OFFLINE is set): "
            "download it on another machine and pass its folder as --model"
        ) from error
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise ModelError(f"the model {name} cannot be downloaded: {error}") from error
    except (HTTPError, RuntimeError) as error:  # RuntimeError: hf_xet, which loads the large files, lost its server
        raise ModelError(
            f"the download of the model {name} broke off ({type(error).__name__}: {error}): run again to continue it, "
            "or download it on another machine and pass its folder as --model"
        ) from error


def load_model(folder: Path, *, device: Device, dtype: torch.dtype, ops: Ops, vision_ops: Ops | None = None) -> Model:
    """Load a checkpoint's weights and tokenizer onto the device. Raises ModelError.

    vision_ops: for the vision model, if it has its own.
    """
    architecture = read_architecture(folder)
    weights = WeightReader(folder, device=device.torch_device, dtype=dtype)
    return Model(
        architecture=architecture,
        preprocessor=Preprocessor(architecture.vision, architecture.images, ops),
        vision=VisionModel(architecture.vision, architecture.images, weights, vision_ops or ops, device),
        language=LanguageModel(architecture.language, weights, ops, device.torch_device),
        prompts=PromptFormat(folder, architecture),
        ops=ops,
        device=device,
    )
