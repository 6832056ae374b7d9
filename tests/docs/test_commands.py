"""The commands in the README and in docs do what they say, one after the other, in a folder like a reader's."""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.conftest import ROOT
from tests.docs.test_docs import METADATA, ROWS, code_in
from tests.support.containers import make_zip
from tests.support.running import draw_pdf, said_by
from tests.support.tables import put_table

pytestmark = [pytest.mark.usefixtures("quick_processes"), pytest.mark.slow]

NOT_RUN = {
    r"make ": "the Makefile's: `make sample` installs from an index, `make test` is this suite",
    r"pip |python3 -m venv|export PATH": "installs from an index",
    r"batchocr doctor|python -m b|export BATCHOCR_REJECT|.* cuda:": "a GPU, or its kernels; tests/cli/test_doctor.py",
    r".*\b(opendatalab|PaddlePaddle)/": "a model on Hugging Face",
    r".*--model \./(glm-ocr|paddleocr-vl)": "the full model; tests/faults/test_runs_of_families.py",
    r".*s3://": "an object store; tests/job/test_object_store_runs.py, test_nights_in_a_store.py",
    r"batchocr ray|batchocr verify /data/out/run1/": "a Ray cluster; tests/ray",
    r"batchocr audit|.* --audit": "18 s a page; tests/cli/test_audit_command.py",
    r"batchocr inspect .*--read 4": "the sample model, 20 s; tests/cli/test_inspect.py",
}
"""Commands that are not run here: how they begin, and what they need, and what else runs such."""

EXIT_CODES = {"batchocr compare before.parquet after.parquet --top 2 --max-change 0.01": 3}
"""What commands end with that show something amiss."""


def commands_of(page: str) -> list[str]:
    """The commands in a page's consoles, in order."""
    consoles = "".join(code_in(page, "console")).replace("\\\n", " ")
    return re.findall(r"^\$ (.+)$", consoles, re.MULTILINE)


def is_run(command: str) -> bool:
    return not any(re.match(beginning, command) for beginning in NOT_RUN)


PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
WITH_COMMANDS = [page for page in PAGES if any(map(is_run, commands_of(page)))]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory, model: Path, quick_processes: None) -> Path:
    """A folder with what the documents take for granted: INPUTs, and tables of them."""
    desk = tmp_path_factory.mktemp("desk")
    for folder in ("docs", "scans", "archive", "reports/2024", "data/in", "data/out"):
        (desk / folder).mkdir(parents=True)
    for number, folder in enumerate(("docs", "scans", "archive", "reports/2024", "data/in")):
        draw_pdf(desk / folder / "letter.pdf", f"Dear reader {number}", "Yours")
        draw_pdf(desk / folder / "note.pdf", f"A note {number}")
    make_zip(desk / "scans", str(desk / "docs/crawl.zip"), ["note.pdf"])
    picture = io.BytesIO()
    Image.new("RGB", (60, 80), "white").save(picture, "PNG")
    images = pa.table({"image": [picture.getvalue()], "path": ["17.png"], "thumbnail": [picture.getvalue()]})
    pq.write_table(images, desk / "images.parquet")
    (desk / "marks.jsonl").write_text('{"source": "letter.pdf", "page_index": 1, "mark": "bad"}\n')
    pq.write_table(pa.table({"source": ["letter.pdf"], "page_index": [0]}), desk / "audit.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(desk)
        patch.setenv("BATCHOCR_MODEL", str(model))
        assert said_by("run", "docs", "--out", "results.parquet")[0] == 0
        for number in (1, 2):
            assert said_by("run", "docs", "--shard", f"{number}/2", "--out", f"part-{number}-of-2.parquet")[0] in (0, 4)
    put_table(desk / "before.parquet", ROWS, METADATA)
    put_table(desk / "after.parquet", [replace(row, markdown="Another text.\n") for row in ROWS], METADATA)
    return desk


@pytest.fixture
def reader(desk: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Runs a command in a desk of its own, with the quick model. `/data` is a folder of the desk."""
    own = shutil.copytree(desk, tmp_path / "desk")
    monkeypatch.chdir(own)
    monkeypatch.setenv("BATCHOCR_MODEL", str(model))

    def run(command: str) -> None:
        _, *arguments = shlex.split(os.path.expandvars(command.replace("/data/", "data/")))
        code, _, log = said_by(*arguments)
        assert code == EXIT_CODES.get(command, 0), f"{command}: {log}"

    return run


@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_the_commands_of_a_page_do_what_they_say(
    page: str, reader: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for command in filter(is_run, commands_of(page)):
        for job in range(1, 9) if "$JOB" in command else [0]:
            monkeypatch.setenv("JOB", str(job))
            reader(command)


def test_every_command_is_run_or_listed_with_why_not() -> None:
    commands = [command for page in PAGES for command in commands_of(page)]
    assert [command for command in commands if is_run(command) and not command.startswith("batchocr ")] == []
    assert [beginning for beginning in NOT_RUN if not any(re.match(beginning, each) for each in commands)] == []
