"""The machine that the recipes run on."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.support.recipes import FailError, Machine, make_task


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    (tmp_path / "data" / "in").mkdir(parents=True)
    (tmp_path / "data" / "out").mkdir()
    machine.install("batchocr", ":")
    return machine


@pytest.fixture
def dag(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The recipe's module, with one shard."""
    sdk = SimpleNamespace(task=make_task, dag=lambda **_: lambda function: function)
    monkeypatch.setitem(sys.modules, "airflow.sdk", sdk)  # type: ignore[arg-type]
    exceptions = SimpleNamespace(AirflowFailException=FailError)
    monkeypatch.setitem(sys.modules, "airflow.sdk.exceptions", exceptions)  # type: ignore[arg-type]
    path = machine.root / "batchocr_dag.py"
    path.write_text(machine.prepared("airflow/batchocr_dag.py").replace("SHARDS = 8", "SHARDS = 1"))
    spec = importlib.util.spec_from_file_location("batchocr_dag", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
