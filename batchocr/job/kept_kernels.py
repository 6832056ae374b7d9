"""Which kernels were the fastest, kept in the work folder: the next start checks that they are right, and times none.

A file's name is the hash of all that the choice depends on, so none is taken where it was not made.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from batchocr.errors import OutputError, UsageError
from batchocr.machine import installed_version, nvidia_driver
from batchocr.processes.engine_messages import REJECT, DeviceFound, KernelChoice
from batchocr.storage.temporary import work_folder
from batchocr.tables.atomic import atomic_file, writing

logger = logging.getLogger(__name__)

_PACKAGES: Final = ("batchocr", "torch", "triton", "sglang-kernel", "fa3-fwd")
_CHOICES: Final = TypeAdapter(tuple[KernelChoice, ...])


class KeptKernels:
    """The choices for a model on the GPUs of this machine. What goes wrong with the files is one warning at most.

    work_dir: as --work-dir. model: what they depend on besides the GPU and the software. anew: do without those of
    earlier starts.
    """

    def __init__(self, work_dir: str | None, model: Mapping[str, str], *, anew: bool = False) -> None:
        self._work_dir = work_dir
        software = {package: installed_version(package) for package in _PACKAGES}
        self._made_for = {**model, **software, "driver": nvidia_driver(), REJECT: os.environ.get(REJECT, "")}
        self._anew = anew
        self._known: dict[str, tuple[KernelChoice, ...]] = {}
        self._has_warned = False

    def of(self, found: DeviceFound) -> tuple[KernelChoice, ...]:
        """The choices of an earlier start, or of this one; empty if there are none."""
        if found.backend != "cuda":
            return ()
        name = self._name(found)
        if name not in self._known:
            self._known[name] = () if self._anew else self._read(name)
            if self._known[name]:
                logger.info("kernels are those of an earlier start, if they are right; --retry-kernels times them anew")
        return self._known[name]

    def keep(self, found: DeviceFound, choices: Sequence[KernelChoice]) -> None:
        """Keep the choices that were timed; where nothing could be timed, the next start tries again."""
        timed, name = tuple(choice for choice in choices if choice.seconds), self._name(found)
        if not timed or _taken(timed) == _taken(self._known.get(name, ())):
            return
        self._known[name] = timed
        try:
            path = self._path(name)
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(path) as file:
                file.write(_CHOICES.dump_json(timed))
        except (OutputError, UsageError) as error:
            self._warn(f"kernels are timed at every start, unless --work-dir names a folder for the choice: {error}")

    def _read(self, name: str) -> tuple[KernelChoice, ...]:
        try:
            return _CHOICES.validate_json(self._path(name).read_bytes())
        except (FileNotFoundError, UsageError):
            return ()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is damaged"
            self._warn(f"kernels are timed anew: {self._path(name)} cannot be read: {reason}")
            return ()

    def _name(self, found: DeviceFound) -> str:
        made_for = {**self._made_for, "gpu": found.name, "gpu_bytes": found.total_bytes}
        return hashlib.sha256(json.dumps(made_for, sort_keys=True).encode()).hexdigest()[:16]

    def _path(self, name: str) -> Path:
        return work_folder(self._work_dir) / "kernels" / f"{name}.json"

    def _warn(self, message: str) -> None:
        if not self._has_warned:
            logger.warning("%s", message)
        self._has_warned = True


def _taken(choices: Sequence[KernelChoice]) -> dict[str, str]:
    return {choice.operation: choice.taken for choice in choices}
