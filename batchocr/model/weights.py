"""Reads tensors from a checkpoint's safetensors files, under one set of names for both common layouts."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from batchocr.backend.base import Affine
from batchocr.errors import ModelError
from batchocr.model.architecture import read_json

_SAMPLE_BYTES = 1 << 20
_SAMPLE_STRIDE = 64 << 20

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_MAX_HEADER_BYTES = 100_000_000  # safetensors' own limit
_STORED_AS = {"F16": torch.float16, "BF16": torch.bfloat16}
_FILE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_SMALL_FILES = ("*.json", "*.jinja", "*.txt")


class WeightReader:
    """Hands out tensors by canonical name: `visual.…`, `language_model.…` or `lm_head.weight`.

    Older checkpoints store `visual.…` and `model.layers.…`, newer ones `model.visual.…` and
    `model.language_model.layers.…`.
    """

    def __init__(self, folder: Path, *, device: torch.device, dtype: torch.dtype) -> None:
        self._folder = folder
        self._device = device
        self._dtype = dtype
        self._files: dict[str, Any] = {}
        self._where: dict[str, tuple[str, str]] = {}
        for file_name in weight_files(folder):
            opened = self._open(file_name)
            for stored_name in opened.keys():  # noqa: SIM118 (a handle of safetensors, no mapping)
                self._where[_canonical(stored_name)] = (file_name, stored_name)

    def _open(self, file_name: str) -> Any:
        path = self._folder / file_name
        try:
            self._files[file_name] = safe_open(path, framework="pt")
        except (SafetensorError, OSError) as error:
            raise ModelError(f"{path} is damaged or cut short ({error}): download it again") from error
        return self._files[file_name]

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


def weight_files(folder: Path) -> list[str]:
    """Names of the checkpoint's safetensors files: those in the index only where there is no single one, as in
    transformers. Raises ModelError if there are none, or if one is missing."""
    is_sharded = not (folder / _FILE).is_file() and (folder / _INDEX).exists()
    names = _files_in_index(folder) if is_sharded else [_FILE]
    if not any((folder / name).is_file() for name in names):
        raise ModelError(f"{folder} holds no {names[0]} (batchocr reads no pickled weights)")
    for name in names:
        if not (folder / name).is_file():
            raise ModelError(f"{folder / name} is missing: the checkpoint was not downloaded in full")
    return names


def stored_dtype(folder: Path) -> torch.dtype:
    """The data type of most values of a checkpoint, by the headers of its files. Raises ModelError."""
    num_values: Counter[str] = Counter()
    for name in weight_files(folder):
        for tensor in _header(folder / name):
            num_values[tensor["dtype"]] += math.prod(tensor["shape"])
    [(most, _)] = num_values.most_common(1) or [("", 0)]
    return _STORED_AS.get(most, torch.float32)


def _header(path: Path) -> list[dict[str, Any]]:
    """What a file says of each of its tensors. Source: https://huggingface.co/docs/safetensors, "Format"."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            entries = json.loads(file.read(min(length, _MAX_HEADER_BYTES)))
        return [
            {"dtype": str(entries[name]["dtype"]), "shape": [int(size) for size in entries[name]["shape"]]}
            for name in entries
            if name != "__metadata__"
        ]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ModelError(f"{path} is damaged or cut short ({error}): download it again") from error


def _files_in_index(folder: Path) -> list[str]:
    weight_map = read_json(folder, _INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelError(f"{folder / _INDEX} has no weight_map")
    return sorted({str(name) for name in weight_map.values()})


def fingerprint(folder: Path) -> str:
    """A hash of samples of the checkpoint; a change between them leaves it as it is.

    It covers the small files, and of every weight file the length and the first megabyte of every 64, the header among
    them: 2.4 GB take well under a second. Raises ModelError.
    """
    digest = hashlib.sha256()
    try:
        for path in sorted(path for pattern in _SMALL_FILES for path in folder.glob(pattern) if path.is_file()):
            digest.update(path.name.encode() + path.read_bytes())
        for name in weight_files(folder):
            for sample in _samples(folder / name):
                digest.update(sample)
    except OSError as error:
        raise ModelError(f"{folder} cannot be read: {error}") from error
    return digest.hexdigest()


def _samples(path: Path) -> Iterator[bytes]:
    size = path.stat().st_size
    yield json.dumps([path.name, size]).encode()
    with path.open("rb") as file:
        for offset in range(0, size, _SAMPLE_STRIDE):
            file.seek(offset)
            yield file.read(_SAMPLE_BYTES)


def _canonical(name: str) -> str:
    name = name.removeprefix("model.")
    if name.startswith(("visual.", "language_model.", "lm_head.")):
        return name
    return f"language_model.{name}"
