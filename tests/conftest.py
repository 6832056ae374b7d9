"""Settings and paths that the tests share."""

from __future__ import annotations

import gc
import logging
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import batchocr.engine.before_torch  # noqa: F401
from batchocr.processes import child
from tests.support.jobs import FULL
from tests.support.object_store import ObjectStore, running_store, used
from tests.support.process_template import ProcessTemplates
from tests.support.running import make_quick_model

ROOT = Path(__file__).resolve().parent.parent

# One thread for torch, here and in engines, if nothing else is said.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # as in a worker

# Tests share their cores with other processes, so the time that an example takes says nothing.
settings.register_profile("untimed", deadline=None, max_examples=100 if FULL else 25)
settings.load_profile("untimed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests first, file by file: what is left at the end is short, so that no process waits long for the other.
    Long ones are skipped, unless this is `make test-all`."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    for item in items if not FULL else []:
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.skip(reason="long: make test-all"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests were skipped, and why."""
    reasons = Counter(
        str(report.longrepr[2]).removeprefix("Skipped: ") for report in terminalreporter.stats.get("skipped", ())
    )
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count} skipped: {reason}")


def pytest_collection_finish() -> None:
    """Each run looks for garbage when it frees its engine; what is loaded by now need not be looked at."""
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let libraries that count their objects at the end find them gone."""
    gc.unfreeze()


@pytest.fixture(scope="session")
def templates() -> Iterator[ProcessTemplates]:
    """What `quick_processes` puts in place of `subprocess`. It takes seconds to start."""
    from tests.support.engine_thread import EngineThread

    with ProcessTemplates(engine=EngineThread) as templates:
        yield templates


@pytest.fixture(scope="module")
def quick_processes(templates: ProcessTemplates) -> Iterator[None]:
    """Runs in this process have their engines on threads, without `engine_processes`; workers and engines that are
    processes are forked, also those of `running.command`. Some folders ask for it in their conftest.py."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(child, "subprocess", templates)
        yield


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that is quick, and cannot read. What changes it makes one of its own: `make_quick_model`."""
    return make_quick_model(tmp_path_factory.mktemp("model") / "quick")


@pytest.fixture(scope="session")
def running() -> Iterator[ObjectStore]:
    """An object store, for `store`."""
    with running_store() as store:
        yield store


@pytest.fixture
def store(running: ObjectStore) -> Iterator[ObjectStore]:
    """A running object store, without what other tests have put there."""
    with used(running) as store:
        yield store


@pytest.fixture(autouse=True)
def _logging_as_imported() -> None:
    """A command that runs in this process configures logging; every test begins with it as it was imported."""
    root = logging.getLogger()
    root.setLevel(logging.WARNING)
    root.handlers = [handler for handler in root.handlers if not type(handler).__module__.startswith("batchocr.")]
    logging.getLogger("batchocr").setLevel(logging.NOTSET)


@pytest.fixture
def engine_processes(quick_processes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines are processes, as in a run outside of tests, though they are forked."""
    monkeypatch.setattr(child.subprocess, "engine", None)


@pytest.fixture(scope="session")
def sample_data() -> Path:
    return ROOT / "sample_data"


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Real, hostile and odd documents from public test suites; they are not part of the repository."""
    if "BATCHOCR_CORPUS" not in os.environ:
        pytest.skip("no corpus: set BATCHOCR_CORPUS to its folder")
    return Path(os.environ["BATCHOCR_CORPUS"])
