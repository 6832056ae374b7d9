"""Clusters of machines that have host names of their own, on this one: each node of Ray in a UTS namespace."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

_RAY = str(Path(sys.executable).with_name("ray"))
_STARTED_S = 150.0
_ENVIRONMENT = {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_raylet_start_wait_time_s": "150",
}


class Machine:
    """A node of Ray. All its processes are killed at once, as by a power cut or a spot reclaim."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self._process = process
        self._log = log

    def wait_until_started(self) -> None:
        deadline = time.monotonic() + _STARTED_S
        while b"Ray runtime started" not in self._log.read_bytes():
            assert time.monotonic() < deadline and self._process.poll() is None, self._log.read_text()
            time.sleep(0.1)

    def processes(self, call: str = "") -> list[psutil.Process]:
        """Its processes; with the name of a call, the actors that are at it."""
        try:
            found = [*psutil.Process(self._process.pid).children(recursive=True)]
            title = [f"ray::Reader.{call}"]
            return [each for each in found if not call or each.cmdline()[:1] == title]
        except psutil.Error:
            return []

    @property
    def is_there(self) -> bool:
        return self._process.poll() is None

    def cut_off(self) -> None:
        for process in [*self.processes()]:
            process.kill()
        self._process.kill()
        self._process.wait()


class RayCluster:
    """Machines that come and go; the first one has no room for actors, and stays."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self._port = found.getsockname()[1]
        self.address = f"127.0.0.1:{self._port}"
        self.machines: list[Machine] = []
        head = ("--head", f"--port={self._port}", "--include-dashboard=false", f"--temp-dir={folder}/t")
        self._start("head", *head, "--num-cpus=0").wait_until_started()

    def add(self, *names: str, actors: int = 1, before: str = "true") -> list[Machine]:
        """Start machines with room for so many actors. before: a command of the shell, which may mount for them."""
        where = f"--address={self.address}", f"--num-cpus={actors}"
        machines = []
        for name in names:  # one after the other: of two that start at once, one may not find the cluster
            machines.append(self._start(name, *where, before=before))
            machines[-1].wait_until_started()
        return machines

    def close(self) -> None:
        for machine in reversed(self.machines):
            machine.cut_off()

    def _start(self, name: str, *options: str, before: str = "true") -> Machine:
        ray = " ".join([_RAY, "start", "--block", "--object-store-memory=100000000", *options])
        command = ["unshare", "-u", "-m", "sh", "-c", f"hostname {name} && {before} && exec {ray}"]
        log = self._folder / f"{name}.log"
        with log.open("wb") as said:
            process = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)
        self.machines.append(Machine(name, process, log))
        return self.machines[-1]


@contextmanager
def running_cluster(folder: Path) -> Iterator[RayCluster]:
    """A cluster that ends with the block. Skips the test where machines cannot have names of their own."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-u", "-m", "true"], check=False).returncode:
        pytest.skip("no UTS namespaces are allowed here")
    with pytest.MonkeyPatch.context() as patched:
        for name, value in _ENVIRONMENT.items():
            patched.setenv(name, value)
        cluster = RayCluster(folder)
        try:
            yield cluster
        finally:
            cluster.close()


def ended(process: subprocess.Popen[str], timeout_s: float) -> tuple[int, str]:
    """How a command ended, and what it said; it is killed if it does not end in time."""
    try:
        _, said = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        _, said = process.communicate()
        raise AssertionError(f"it does not end: {said}") from None
    return process.returncode, said
