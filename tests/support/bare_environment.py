"""Runs a module as in an environment that holds torch, transformers, Triton and little else, from a checkout.

    python -m tests.support.bare_environment PACKAGES MODULE [options]

The comma-separated packages cannot be imported, and batchocr is not installed.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from importlib import metadata
from importlib.abc import MetaPathFinder


class Missing(MetaPathFinder):
    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname.partition(".")[0] in self._names:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname.partition(".")[0])


def main(packages: str, module: str) -> None:
    installed = metadata.version

    def version(name: str) -> str:
        if name == "batchocr":
            raise metadata.PackageNotFoundError(name)
        return installed(name)

    sys.meta_path.insert(0, Missing(packages.split(",")))
    metadata.version = version
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _, packages, module, *_ = sys.argv
    del sys.argv[1:3]
    main(packages, module)
