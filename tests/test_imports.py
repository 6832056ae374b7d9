"""What starting up costs: heavy libraries are loaded when they are needed, not before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import batchocr
from batchocr import errors
from batchocr.errors import BatchOcrError, PageError

HEAVY = {"torch", "transformers", "pymupdf", "pyarrow", "PIL", "mineru_vl_utils", "obstore"}


def loaded_after(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded once it has run `code`."""
    probe = f"import sys\ntry:\n    {code}\nexcept SystemExit:\n    pass\nprint('\\n' + ' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_importing_batchocr_loads_nothing_heavy() -> None:
    assert not loaded_after("import batchocr; batchocr.__version__; batchocr.BatchOcrError; batchocr.Block") & HEAVY


@pytest.mark.slow
def test_the_help_loads_nothing_heavy() -> None:
    for arguments in (["--help"], ["run", "--help"]):
        command = "from batchocr.cli import main; main.leave = sys.exit; main.run_command('text')"
        loaded = loaded_after(f"sys.argv[1:] = {arguments!r}; {command}")
        assert "batchocr.cli.main" in loaded
        assert not loaded & HEAVY


@pytest.mark.slow
def test_nothing_but_an_engine_loads_torch() -> None:
    package = Path(batchocr.__file__).parent
    modules = [path.relative_to(package.parent).with_suffix("") for path in package.rglob("*.py")]
    names = [".".join(module.parts) for module in modules if "engine" not in module.parts[:2]]
    names = [name for name in names if not name.endswith("__main__")]
    assert len(names) > 150
    assert not loaded_after(f"import {', '.join(names)}") & {"torch", "triton"}


def test_an_engine_tells_torch_how_to_wait_before_it_loads_it() -> None:
    code = "import sys; sys.modules['torch'] = None; import batchocr.engine.__main__"
    wanted = "os.environ['OMP_WAIT_POLICY'], os.environ['GOMP_SPINCOUNT']"
    probe = f"import os\ntry:\n    {code}\nexcept ImportError:\n    print({wanted})"
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "ONEDNN_"))
    }
    done = subprocess.run([sys.executable, "-c", probe], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "passive 1000\n"


def test_every_public_name_is_there() -> None:
    for name in batchocr.__all__:
        assert getattr(batchocr, name)
    assert batchocr.BatchOcrError is BatchOcrError
    assert set(batchocr.__all__) <= set(dir(batchocr))


def test_every_error_that_reaches_the_caller_has_a_public_name() -> None:
    classes = {name: value for name, value in vars(errors).items() if isinstance(value, type)}
    for name, error in classes.items():
        if issubclass(error, BatchOcrError) and not issubclass(error, PageError):
            assert getattr(batchocr, name) is error


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Reader'"):
        batchocr.Reader  # noqa: B018
