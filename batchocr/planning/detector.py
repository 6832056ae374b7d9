"""A layout detector's folder: found, or downloaded, and looked at before anything is loaded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from batchocr.errors import ModelError
from batchocr.planning.architecture import read_json
from batchocr.planning.checkpoint_files import find_checkpoint, fingerprints, stored_dtype, weight_files

_NAMES: Final = {"pp_doclayout_v2": "PP-DocLayoutV2", "pp_doclayout_v3": "PP-DocLayoutV3"}
"""The names of detectors, by the model_type of a checkpoint."""


@dataclass(frozen=True, slots=True)
class DetectorFiles:
    """A detector's checkpoint. All fields are empty if there is no detector."""

    folder: str = ""
    fingerprint: str = ""
    """The fingerprint of the detector's files, see `checkpoint_files.fingerprints`."""
    weight_bytes: int = 0
    """The bytes of the detector's weights in float32, which they are loaded in."""


def find_detector(name: str | None, begun: str | None = None, types: Sequence[str] = tuple(_NAMES)) -> DetectorFiles:
    """The detector's files, found or downloaded. name: a folder, or owner/name or owner/name@revision on Hugging Face;
    None for no detector. begun: the fingerprint in rows that are there. types: those that fit the model. Raises
    ModelError."""
    if name is None:
        return DetectorFiles()
    model, revision = name, None
    if not os.path.isdir(os.path.expanduser(name)):
        model, _, revision = name.partition("@")
    folder = find_checkpoint(model, revision or None, "--layout")
    if (found := read_json(folder, "config.json").get("model_type")) not in types:
        named = " or ".join(_NAMES[each] for each in types)
        raise ModelError(
            f"{folder} is a checkpoint of the type '{found}'. With this model --layout takes {named} as transformers "
            f"has them, such as PaddlePaddle/{_NAMES[types[0]]}_safetensors"
        )
    stored_bytes = sum(os.path.getsize(folder / file) for file in weight_files(folder))
    is_halved = stored_dtype(folder) != "float32"
    return DetectorFiles(str(folder), fingerprints(folder, begun)[0], stored_bytes * (2 if is_halved else 1))
