"""What `make dist` builds is whole: it is installed, and started outside the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import batchocr
from tests.support.running import read_rows

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
VARIABLES = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
"""With that one, the checkout may be found."""

Run = Callable[..., str]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the wheel and the source distribution that it was built from."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT]
    subprocess.run(build, capture_output=True, check=True)
    return folder


@pytest.fixture(
    scope="module", params=["packages of the tests", pytest.param("packages of its own", marks=pytest.mark.long)]
)
def environment(request: pytest.FixtureRequest, dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and the packages of the tests, or those that pip fetches because it needs them."""
    folder, is_whole = tmp_path_factory.mktemp("environment"), request.param == "packages of its own"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    install = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--quiet"]
    alone = [] if is_whole else ["--no-deps", "--no-index"]
    subprocess.run([*install, *alone, *dist.glob("*.whl")], cwd=folder, env=VARIABLES, check=True)
    if not is_whole:
        [packages] = folder.glob("lib/*/site-packages")
        (packages / "tests.pth").write_text(sysconfig.get_path("purelib"))
    return folder


@pytest.fixture
def run(environment: Path, tmp_path: Path) -> Run:
    """Runs a program of this environment in an empty folder, and returns what it prints."""

    def run(program: str, *arguments: str | Path) -> str:
        command = [environment / "bin" / program, *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=VARIABLES, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_both_have_every_file_of_the_package_and_none_of_the_tests_or_the_sample_model(dist: Path) -> None:
    package = {str(path.relative_to(ROOT)) for path in (ROOT / "batchocr").rglob("*") if path.is_file()}
    package = {path for path in package if "__pycache__" not in path}
    with zipfile.ZipFile(*dist.glob("*.whl")) as wheel:
        of_wheel = {name for name in wheel.namelist() if ".dist-info/" not in name}
    with tarfile.open(*dist.glob("*.tar.gz")) as source:
        of_source = {name.partition("/")[2] for name in source.getnames() if source.getmember(name).isfile()}
    assert of_wheel == package
    beside = {"CHANGELOG.md", "LICENSE", "MANIFEST.in", "PKG-INFO", "README.md", "constraints.txt", "pyproject.toml"}
    written = {"setup.cfg", *(name for name in of_source if name.startswith("batchocr.egg-info/"))}
    assert of_source - written == package | beside


def test_the_installed_command_says_its_version_its_options_and_what_the_machine_offers(
    run: Run, environment: Path
) -> None:
    found = run("python", "-c", "import batchocr; print(batchocr.__file__)")
    assert Path(found).is_relative_to(environment)
    assert run("batchocr", "--version") == f"batchocr {batchocr.__version__}\n"
    assert "--out" in run("batchocr", "run", "-h")
    assert "runs on     ok" in run("batchocr", "doctor")


def test_the_installed_command_reads_a_page(run: Run, sample_data: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    shutil.copy(sample_data / "documents" / "encrypted.pdf", tmp_path / "in" / "recipe.pdf")
    run("batchocr", "run", "in", "--model", sample_data / "model", "--password", "batchocr", "--out", "table.parquet")
    [row] = read_rows(tmp_path / "table.parquet")
    assert row.status == "ok" and row.markdown
