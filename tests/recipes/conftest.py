"""The machine that the recipes run on."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.support.recipes import FailError, Machine, make_task
from tests.support.running import draw_pdf, make_quick_model
from tests.support.stand_in import STAND_IN


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Its `batchocr` is the real one."""
    machine = Machine(tmp_path)
    (tmp_path / "data" / "in").mkdir(parents=True)
    (tmp_path / "data" / "out").mkdir()
    (tmp_path / "models").mkdir()
    draw_pdf(tmp_path / "data" / "in" / "letter.pdf", "Dear reader")
    machine.install("batchocr", f'exec {sys.executable} -m batchocr "$@"')
    return machine


@pytest.fixture
def model(machine: Machine) -> None:
    make_quick_model(machine.root / "models" / "mineru")


UNREAD_TABLE = """
    from hashlib import sha256
    from pathlib import Path
    from batchocr.data import PageResult
    from batchocr.pages.input.sources import find_documents
    from batchocr.tables.schema import RunMetadata
    from batchocr.tables.table import table_for
    assert Path(config.model, "config.json").exists()
    rows = [
        PageResult(
            document.source, 0, "ok", sha256(Path(document.path).read_bytes()).hexdigest(), page_count=1, markdown="-"
        )
        for document in find_documents(inputs, stdin=sys.stdin, shard=config.shard).documents
    ]
    table_for(Path(out)).write(Path(out), rows, RunMetadata("0", config.model, "0", "0", {}))
    return report()
"""


@pytest.fixture
def quick(machine: Machine, model: None) -> None:
    """The machine's `batchocr run` takes its flags and finds its documents, but writes a table without reading them."""
    program = machine.root / "run.py"
    program.write_text(STAND_IN.replace("BODY", UNREAD_TABLE))
    real = f'exec {sys.executable} -m batchocr "$@"'
    machine.install("batchocr", f'[ "$1" = run ] && exec {sys.executable} {program} "$@"\n{real}')


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
