"""A checkpoint's files: found, or downloaded, and what they say before anything is loaded. Every failure is a
ModelError."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from batchocr.errors import ModelError
from batchocr.planning.architecture import read_json

StoredDType: TypeAlias = Literal["float32", "float16", "bfloat16"]

_DOWNLOADED = ["*.json", "*.jinja", "*.safetensors", "*.txt", "*.model"]
_FILE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_SETTINGS: Final = ("config.json", "generation_config.json", "preprocessor_config.json", "processor_config.json")
_TEXTS: Final = ("tokenizer*.json", "*_tokens*.json", "vocab.json", "merges.txt", "chat_template.j*")
"""Small files that the model's code or its tokenizer reads."""
_SMALL_FILES: Final = ("*.json", "*.jinja", "*.txt")
_STORED_AS: Final[dict[str, StoredDType]] = {"F16": "float16", "BF16": "bfloat16"}

_SAMPLE_BYTES = 1 << 20
_SAMPLE_STRIDE = 64 << 20


def find_checkpoint(name: str, revision: str | None, option: str = "--model") -> Path:
    """The folder of a checkpoint, downloaded if `name` is a Hugging Face id. HF_HUB_OFFLINE is honoured.

    option: what a folder could be given as. Raises ModelError.
    """
    folder = Path(os.path.expanduser(name))
    if os.path.isdir(folder):  # unlike Path.is_dir, it raises nothing for a name that no folder can have
        return folder
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise ModelError(f"{name} is neither a folder nor a Hugging Face id (owner/name)")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, HTTPError  # type: ignore[attr-defined]

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=_DOWNLOADED))
    except (HFValidationError, HTTPError, OSError, RuntimeError) as error:
        # HTTPError: of httpx or httpx2. RuntimeError: hf_xet, which loads the large files, lost its server.
        said = " ".join(str(error).split())
        raise ModelError(
            f"the model {name} cannot be downloaded: run again to continue, or download it on another machine and pass "
            f"its folder as {option} ({type(error).__name__}: {said})"
        ) from error


def weight_files(folder: Path) -> list[str]:
    """Names of the checkpoint's safetensors files: the files in the index only where there is no single file, as in
    transformers. Raises ModelError if there are none, or if one is missing."""
    is_sharded = not (folder / _FILE).is_file() and (folder / _INDEX).exists()
    names = _files_in_index(folder) if is_sharded else [_FILE]
    if not any((folder / name).is_file() for name in names):
        raise ModelError(f"{folder} holds no {names[0]} (batchocr reads no pickled weights)")
    for name in names:
        if not (folder / name).is_file():
            raise ModelError(f"{folder / name} is missing: the checkpoint was not downloaded in full")
    return names


def open_weights(path: Path, framework: Literal["np", "pt"]) -> Any:
    """A safetensors file, which gives tensors of NumPy or of torch. Raises ModelError."""
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(path, framework=framework)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{path} is damaged or cut short ({error}): download it again") from error


def stored_dtype(folder: Path) -> StoredDType:
    """The data type of most values of a checkpoint, by the headers of its files. Raises ModelError."""
    num_values: Counter[str] = Counter()
    for name in weight_files(folder):
        file = open_weights(folder / name, "np")
        for tensor in map(file.get_slice, file.keys()):
            num_values[tensor.get_dtype()] += math.prod(tensor.get_shape())
    [(most, _)] = num_values.most_common(1) or [("", 0)]
    return _STORED_AS.get(most, "float32")


def _files_in_index(folder: Path) -> list[str]:
    weight_map = read_json(folder, _INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelError(f"{folder / _INDEX} has no weight_map")
    names = sorted({str(name) for name in weight_map.values()})
    for name in names:
        if os.path.isabs(name) or ".." in Path(name).parts:
            raise ModelError(
                f"{folder / _INDEX} names {name}, which is not in this folder: no weights are read elsewhere"
            )
    return names


def fingerprints(folder: Path, begun: str | None = None) -> tuple[str, str]:
    """A hash of samples of the checkpoint, in two forms: first the one that new rows are to have.

    That is of the weights and the small files that are read. The older form is also of whatever else lies there as JSON
    or text; without any, both are the same. It comes first if it is `begun`, which rows that are there have, and may go
    once no table or cache is continued that a version before 0.1.0 began. Raises ModelError.
    """
    form = _fingerprint(folder, (*_SETTINGS, *_TEXTS, _INDEX))
    older = _fingerprint(folder, _SMALL_FILES)
    return (older, form) if older == begun else (form, older)


def _fingerprint(folder: Path, names: Sequence[str]) -> str:
    """A hash of samples of the checkpoint's files; a change between the samples leaves it as it is.

    It covers the small files of these names, and of every weight file the length and the first megabyte of every 64,
    the header among them: 2.4 GB take well under a second.
    """
    digest = hashlib.sha256()
    try:
        for path in sorted(path for pattern in names for path in folder.glob(pattern) if path.is_file()):
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
