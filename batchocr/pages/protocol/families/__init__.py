"""The protocols of families of models: a module each, named in `planning/families`, with a function `protocol`."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import Final, cast

from batchocr.pages.protocol.base import PageProtocol
from batchocr.processes.messages import Setup

_MINERU, _GLM, _PADDLE = 18, 2, 1
"""The revisions of the families. Each goes up with every change that may alter the text of a page, or its status: in
its module and what that uses, or in the engine's rules against loops."""

VERSIONS: Final = {
    "mineru": f"mineru {version('mineru-vl-utils')} r{_MINERU}",
    "glm": f"glm r{_GLM}",
    "paddle": f"paddle r{_PADDLE}",
}
"""What rows depend on in each module, for a run that loads none of them."""


def make_protocol(setup: Setup) -> PageProtocol:
    """The protocol that the setup names."""
    module = import_module(f"{__name__}.{setup.protocol}")  # takes most of a worker's start
    return cast(PageProtocol, module.protocol(setup))
