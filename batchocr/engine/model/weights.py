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
        self._taken: set[str] = set()
        for file_name in weight_files(folder):
            self._files[file_name] = opened = open_weights(folder / file_name, "pt")
            for stored_name in opened.keys():  # noqa: SIM118 (a handle of safetensors, no mapping)
                self._where[_renamed(stored_name, names)] = (file_name, stored_name)

    def refuse_untaken(self, surplus: tuple[str, ...]) -> None:
        """Raise ModelError if a tensor was not asked for, except those whose names begin so."""
        if untaken := [name for name in self._where if name not in self._taken and not name.startswith(surplus)]:
            raise ModelError(
                f"{self._folder} holds {len(untaken)} tensors that a model of this kind does not have, the first "
                f"'{self._where[untaken[0]][1]}': it is another model"
            )

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def take(self, name: str, shape: Sequence[int]) -> Tensor:
        """The tensor with this name, on the reader's device and in its dtype. Raises ModelError if it does not fit."""
        if name not in self._where:
            raise ModelError(f"{self._folder} holds no tensor '{name}': is the checkpoint complete?")
        self._taken.add(name)
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

    def take_affines(self, names: Sequence[str], *shape: int) -> Affine:
        """Linear layers of this shape with their biases, as one."""
        layers = [self.take_affine(name, *shape) for name in names]
        biases = [layer.bias for layer in layers if layer.bias is not None]
        return Affine(torch.cat([layer.weight for layer in layers]), torch.cat(biases))

    def take_affine(self, name: str, *shape: int) -> Affine:
        """A linear layer of this shape with its bias, or a LayerNorm's weight and bias."""
        return Affine(self.take(f"{name}.weight", shape), self.take(f"{name}.bias", shape[:1]))


def _renamed(name: str, names: Renaming) -> str:
    """The name that the model asks for. The number of a layer, N in `names`, stays."""
    number = next(filter(str.isdigit, name.split(".")), "")
    of_any = name.replace(f".{number}.", ".N.", 1)
    ours = next((ours + of_any.removeprefix(stored) for stored, ours in names if of_any.startswith(stored)), of_any)
    return ours.replace(".N.", f".{number}.", 1)
