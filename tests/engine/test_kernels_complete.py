"""Every kernel has what the tests of this folder go by: a fake twin, and a launch at true widths."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from batchocr.engine.backend import kernels
from tests.engine import test_kernels_model, test_kernels_preprocess, test_kernels_quantize, test_kernels_sampling

pytestmark = pytest.mark.slow


class CalledOps(TorchDispatchMode):
    """Notes the names of the operations that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func._schema.name)
        return func(*args, **(kwargs or {}))


def operators_of_kernels() -> set[str]:
    """The names of the operators defined in `backend/kernels`."""
    modules: list[ModuleType] = [
        importlib.import_module(f"{kernels.__name__}.{found.name}") for found in pkgutil.iter_modules(kernels.__path__)
    ]
    assert modules
    return {name for name in torch._C._dispatch_get_all_op_names() if name.startswith("batchocr::")}


def test_every_kernel_is_launched_at_true_widths_and_has_a_fake_twin() -> None:
    with FakeTensorMode(allow_non_fake_inputs=True), CalledOps() as called:
        for module in (test_kernels_model, test_kernels_preprocess, test_kernels_quantize, test_kernels_sampling):
            for launch in module.LAUNCHES:
                launch.call()
    assert operators_of_kernels() - called.names == set()
