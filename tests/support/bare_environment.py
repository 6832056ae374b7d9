"""Runs a module as in an environment that holds torch, transformers, Triton and little else, from a checkout.

    python -m tests.support.bare_environment PACKAGES MODULE [options]

The comma-separated packages cannot be imported, and batchocr is not installed.
"""

from __future__ import annotations

import runpy
import sys
from importlib import metadata


def main(packages: str, module: str) -> None:
    installed = metadata.version

    def version(name: str) -> str:
        if name == "batchocr":
            raise metadata.PackageNotFoundError(name)
        return installed(name)

    sys.modules.update(dict.fromkeys(packages.split(",")))  # type: ignore[arg-type]
    metadata.version = version
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _, packages, module, *_ = sys.argv
    del sys.argv[1:3]
    main(packages, module)
