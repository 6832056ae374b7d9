"""A layout detector's folder: found, or downloaded, and looked at before anything is loaded."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from batchocr.errors import ModelError
from batchocr.planning.architecture import read_json
from batchocr.planning.checkpoint_files import find_checkpoint, fingerprints, stored_dtype, weight_files

_MODEL_TYPES: Final = ("pp_doclayout_v2", "pp_doclayout_v3")


@dataclass(frozen=True, slots=True)
class DetectorFiles:
    """A detector's checkpoint. All fields are empty if there is no detector."""

    folder: str = ""
    fingerprint: str = ""
    """See `checkpoint_files.fingerprints`."""
    weight_bytes: int = 0
    """Of its weights in float32, which they are loaded in."""


def find_detector(name: str | None, begun: str | None = None) -> DetectorFiles:
    """name: a folder, or owner/name or owner/name@revision on Hugging Face; None for no detector. begun: the
    fingerprint in rows that are there. Raises ModelError."""
    if name is None:
        return DetectorFiles()
    model, revision = name, None
    if not os.path.isdir(os.path.expanduser(name)):
        model, _, revision = name.partition("@")
    folder = find_checkpoint(model, revision or None)
    if (found := read_json(folder, "config.json").get("model_type")) not in _MODEL_TYPES:
        raise ModelError(
            f"{folder} is a checkpoint of the type '{found}'. --layout takes PP-DocLayoutV2 and V3 as transformers has "
            "them, such as PaddlePaddle/PP-DocLayoutV2_safetensors"
        )
    stored_bytes = sum(os.path.getsize(folder / file) for file in weight_files(folder))
    is_halved = stored_dtype(folder) != "float32"
    return DetectorFiles(str(folder), fingerprints(folder, begun)[0], stored_bytes * (2 if is_halved else 1))
