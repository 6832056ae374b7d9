"""A checkpoint's dimensions, as far as its files are on this machine: nothing is loaded, and nothing downloaded."""

from __future__ import annotations

import os
from pathlib import Path

from batchocr.errors import ModelError
from batchocr.model.architecture import Architecture, read_architecture


def architecture_at_hand(name: str, revision: str | None) -> Architecture | None:
    """The dimensions of a checkpoint in a folder, or in the cache of Hugging Face; None if it is in neither.

    Raises ModelError for a folder that holds none that is supported.
    """
    folder = os.path.expanduser(name)
    if os.path.isdir(folder):
        return read_architecture(Path(folder))
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise ModelError(f"{name} is neither a folder nor a Hugging Face id (owner/name)")
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, "config.json", revision=revision)
    except HFValidationError as error:
        raise ModelError(f"{name} is no Hugging Face id: {error}") from error
    return read_architecture(Path(found).parent) if isinstance(found, str) else None
