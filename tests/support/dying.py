"""Commands that are killed at one of their steps: at a call that names a file, or makes it last, below a folder.

What the process itself runs of this is `die_at`, which `arguments_of` has it call ahead of the command; so nothing is
imported here that a command does not have anyway.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CALLS = ("fdatasync", "fsync", "link", "mkdir", "remove", "rename", "replace", "rmdir", "symlink", "unlink")
_DEADLINE_S = 120.0


@dataclass(frozen=True)
class Ended:
    """A command that has ended, or was killed."""

    code: int
    said: str
    """What it wrote to standard error."""
    steps: list[str]
    """Those that it had come to, the last one that of its death: the call, and the name of the file."""
    seconds: float

    @property
    def is_killed(self) -> bool:
        return self.code == -signal.SIGKILL

    @property
    def warnings(self) -> list[str]:
        return [line for line in self.said.splitlines() if line.startswith("batchocr: warning: ")]


def before(below: Path, step: int, log: Path) -> str:
    """What `running.command` is to run ahead of a command that dies as it comes to this step; with 0 it lives."""
    return f"from tests.support.dying import die_at\ndie_at({str(below)!r}, {step}, {str(log)!r})"


def die_at(below: str, step: int, log: str) -> None:
    """From now on, count this process's steps, note them in the log, and kill its group at this one."""
    noted = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    left = step

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            paths = [_path_of(argument, options) for argument in arguments if isinstance(argument, _PATH)]
            if of_this := [path for path in paths if path.startswith(below)]:
                os.write(noted, f"{name} {of_this[-1].removeprefix(below)}\n".encode())
                left -= 1
                if left == 0:
                    os.killpg(0, signal.SIGKILL)
            return call(*arguments, **options)

        return counting

    for name in _CALLS:
        setattr(os, name, counted(name, getattr(os, name)))


_PATH = (str, bytes, int, os.PathLike)


def _path_of(argument: Any, options: Mapping[str, Any]) -> str:
    """Where the file is that a call is about; empty for what is no file."""
    folder = options.get("dst_dir_fd") or options.get("dir_fd")
    with suppress(OSError):
        if isinstance(argument, int):
            return os.readlink(f"/proc/self/fd/{argument}")
        parent = os.getcwd() if folder is None else os.readlink(f"/proc/self/fd/{folder}")
        return os.path.join(parent, os.fsdecode(argument))
    return ""


class Command:
    """A command at work, in a process group of its own."""

    def __init__(self, arguments: Sequence[str | Path], log: Path, *, more: Mapping[str, str] | None = None) -> None:
        """log: of its steps, from `before`. more: variables that it has beside those of this process."""
        self._log, self._out = log, log.with_name(f"{log.name}.said")
        self._began_s = time.monotonic()
        with self._out.open("wb") as out:
            self.process = subprocess.Popen(
                arguments,
                stdout=subprocess.DEVNULL,
                stderr=out,
                env={**os.environ, **(more or {})},
                start_new_session=True,
            )

    def kill(self) -> None:
        """Kill the command, and what it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def kill_within(self, seconds: float) -> None:
        """Kill it then, if it has not ended."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def ended(self) -> Ended:
        """Wait for its end."""
        try:
            code = self.process.wait(_DEADLINE_S)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise TimeoutError(f"a command that did not end: {self._out.read_text()}") from error
        said = self._out.read_text(errors="replace")
        steps = self._log.read_text().splitlines() if self._log.exists() else []
        return Ended(code, said, steps, time.monotonic() - self._began_s)
