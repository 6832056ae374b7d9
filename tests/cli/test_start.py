"""The first moments of the command, while it is being loaded, and its last: a library in its way stands for both."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.stand_in import RUN, ended, start


def loaded_by(folder: Path, body: str, shell: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, which runs `body` where it would load Typer. shell: what else its line in the shell holds."""
    (folder / "typer.py").write_text(body)
    path = os.pathsep.join(filter(None, [str(folder), str(Path.cwd()), os.environ.get("PYTHONPATH")]))
    script = f'exec "$0" -m batchocr "$@" {shell}'
    command = ["bash", "-c", script, sys.executable, *arguments]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, env=environment, input="", capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- >&- 2>&-"])
def test_descriptors_that_are_closed_lead_nowhere_before_anything_else_is_opened(tmp_path: Path, closed: str) -> None:
    body = f"""
import os, sys
with open({str(tmp_path / "journal")!r}, "w") as file:
    print("said"); print("said", file=sys.stderr)
    print(file.fileno() > 2, *(os.readlink(f"/proc/self/fd/{{number}}") for number in range(3)), file=file)
os._exit(0)
"""
    assert loaded_by(tmp_path, body, closed).returncode == 0
    is_above, *leads_to = (tmp_path / "journal").read_text().split()
    assert is_above == "True"
    assert leads_to.count("/dev/null") == closed.count("&-")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)], ids=lambda value: str(value))
def test_a_signal_while_the_command_is_being_loaded_ends_it_with_its_exit_code(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    body = f"import os; os.kill(os.getpid(), {number.value}); import time; time.sleep(60)"
    done = loaded_by(tmp_path, body, "", *RUN)
    assert (done.returncode, done.stderr) == (code, "")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda value: str(value))
def test_a_signal_once_the_run_is_done_changes_nothing(number: signal.Signals) -> None:
    body = f"import atexit, os; atexit.register(os.kill, os.getpid(), {number.value}); return report()"
    exit_code, stderr = ended(start(body, *RUN))
    assert exit_code == 0
    assert "the table is table.parquet" in stderr
