"""`batchocr inspect`: what it prints, and what it does not load."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from batchocr.cli.inspect import inspect_inputs
from batchocr.config import Config
from batchocr.errors import NoInputError, UsageError
from tests.conftest import ROOT
from tests.support.running import draw_pdf

pytestmark = pytest.mark.slow

DOCUMENTS = str(ROOT / "sample_data" / "documents")
MODEL = str(ROOT / "sample_data" / "model")


def test_the_sample_documents_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    config = Config(model=MODEL, password="batchocr")
    inspect_inputs([DOCUMENTS], config, device_kind="h200", like=None, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "files       6: 3 PDF, 1 PNG, 1 TIFF, 1 damaged",
        "pages       8",
        "page size   1653 × 2339 px (7), 1240 × 1755 px (1)",
        "text layer  on 50% of the pages",
    ]
    assert "a forecast, not measured on one" in lines[5]
    assert lines[-1].startswith("damaged     broken.pdf: the document cannot be opened")


def test_as_json_and_without_loading_torch(tmp_path: Path) -> None:
    said = tmp_path / "said"
    command = (
        "import sys; from batchocr.cli import main; "
        f"main.leave = lambda code: open({str(said)!r}, 'w').write(f'{{code}} {{\"torch\" in sys.modules}}'); "
        f"sys.argv[1:] = ['inspect', {DOCUMENTS!r}, '--model', {MODEL!r}, '--json']; main.run_command('json')"
    )
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, cwd=ROOT, check=True)
    printed = json.loads(done.stdout)
    assert said.read_text() == "0 False"
    assert (printed["documents"], printed["pages"], printed["problems"]) == (6, 7, {"encrypted": 1, "damaged": 1})
    assert printed["estimate"]["device"] == "this CPU"


@pytest.mark.parametrize("content", [b"no document", None], ids=["damaged", "no such page"])
def test_where_nothing_can_be_read_no_time_is_given(
    tmp_path: Path, content: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path, config = tmp_path / "a.pdf", Config(model=MODEL, pages="7")
    path.write_bytes(content) if content else draw_pdf(path, "one page")
    inspect_inputs([str(path)], config, device_kind="h200", like=None, as_json=False)
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("time")]
    assert line == "time        none: there is no page that could be read"
    inspect_inputs([str(path)], config, device_kind="h200", like=None, as_json=True)
    printed = json.loads(capsys.readouterr().out)
    assert (printed["estimate"], printed["remark"]) == (None, "there is no page that could be read")


def test_wrong_usage_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="one of here, cpu, h200"):
        inspect_inputs([DOCUMENTS], Config(), device_kind="b300", like=None, as_json=False)
    with pytest.raises(UsageError, match="--like"):
        inspect_inputs([DOCUMENTS], Config(), device_kind="here", like=tmp_path / "none", as_json=False)
    with pytest.raises(NoInputError):
        inspect_inputs([str(tmp_path)], Config(model=MODEL), device_kind="here", like=None, as_json=False)
