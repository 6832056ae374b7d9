"""Reads tensors from a checkpoint's safetensors files, under one set of names for both common layouts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from batchocr.engine.backend.base import Affine
from batchocr.errors import ModelError
from batchocr.planning.architecture import Renaming
from batchocr.planning.checkpoint_files import open_weights, weight_files

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class WeightReader:
    """Hands out tensors by the names that the model asks for: `visual.…`, `language_model.…` or `lm_head.weight`.

    names: what stored names begin with, as in `Architecture`.
    """

    def __init__(self, folder: Path, names: Renaming, *, device: torch.device, dtype: torch.dtype) -> None:
        self._folder = folder
        self._device = device
        self._dtype = dtype
        self._files: dict[str, Any] = {}
        self._where: dict[str, tuple[str, str]] = {}
        for file_name in weight_files(folder):
            self._files[file_name] = opened = open_weights(folder / file_name, "pt")
            for stored_name in opened.keys():  # noqa: SIM118 (a handle of safetensors, no mapping)
                self._where[_renamed(stored_name, names)] = (file_name, stored_name)

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def take(self, name: str, shape: Sequence[int]) -> Tensor:
        """The tensor with this name, on the reader's device and in its dtype. Raises ModelError if it does not fit."""
        if name not in self._where:
            raise ModelError(f"{self._folder} holds no tensor '{name}': is the checkpoint complete?")
        file_name, stored_name = self._where[name]
        try:
            tensor: Tensor = self._files[file_name].get_tensor(stored_name)
        except (SafetensorError, OSError) as error:
            raise ModelError(f"{self._folder / file_name}: tensor '{stored_name}' cannot be read: {error}") from error
        if tensor.dtype not in _DTYPES:
            raise ModelError(
                f"{self._folder / file_name}: tensor '{stored_name}' is stored as {tensor.dtype}: batchocr supports no "
                "quantised checkpoints; use the original one, in bfloat16, float16 or float32"
            )
        if tuple(tensor.shape) != tuple(shape):
            raise ModelError(
                f"{self._folder / file_name}: tensor '{stored_name}' has the shape {list(tensor.shape)}, "
                f"but config.json asks for {list(shape)}"
            )
        return tensor.to(device=self._device, dtype=self._dtype)

    def take_affine(self, name: str, *shape: int) -> Affine:
        """A linear layer of this shape with its bias, or a LayerNorm's weight and bias."""
        return Affine(self.take(f"{name}.weight", shape), self.take(f"{name}.bias", shape[:1]))


def _renamed(name: str, names: Renaming) -> str:
    return next((ours + name.removeprefix(stored) for stored, ours in names if name.startswith(stored)), name)
