"""How much of the machine a container or a job scheduler leaves."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from batchocr.machine import (
    allow_open_files,
    has_amx,
    multiplies_bfloat16,
    multiplies_int8,
    num_oom_kills,
    usable_cores,
    usable_memory_bytes,
)

MIB = 2**20
CORES = len(os.sched_getaffinity(0))
MEMORY_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def machine(root: Path, group: str, limits: dict[str, str]) -> Path:
    """A machine on which this process is in `group`. limits: contents of files under the control groups' mount."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(f"4:memory:/elsewhere\n0::{group}\n")
    for name, text in limits.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


def test_without_control_groups_the_machine_is_the_limit(tmp_path: Path) -> None:
    assert (usable_cores(tmp_path), usable_memory_bytes(tmp_path)) == (CORES, MEMORY_BYTES)


def test_groups_without_limits_and_limits_beyond_the_machine_change_nothing(tmp_path: Path) -> None:
    beyond = {"cpu.max": "900000000 100000", "memory.max": str(2**60)}
    root = machine(tmp_path, "/job", {"job/cpu.max": "max 100000", "job/memory.max": "max", **beyond})
    assert (usable_cores(root), usable_memory_bytes(root)) == (CORES, MEMORY_BYTES)


@pytest.mark.parametrize("limited", ["", "user.slice/", "user.slice/job/"], ids=["top", "middle", "own"])
def test_a_limit_holds_wherever_above_the_process_it_is_set(tmp_path: Path, limited: str) -> None:
    limits = {f"{limited}cpu.max": "100000 100000", f"{limited}memory.max": str(64 * MIB)}
    root = machine(tmp_path, "/user.slice/job", limits)
    assert (usable_cores(root), usable_memory_bytes(root)) == (1, 64 * MIB)


def test_the_tightest_limit_holds(tmp_path: Path) -> None:
    limits = {"memory.max": str(48 * MIB), "job/memory.max": str(64 * MIB), "other/memory.max": str(MIB)}
    assert usable_memory_bytes(machine(tmp_path, "/job", limits)) == 48 * MIB


def test_less_than_a_core_is_one(tmp_path: Path) -> None:
    assert usable_cores(machine(tmp_path, "/", {"cpu.max": "20000 100000"})) == 1


def test_a_group_outside_the_mount_falls_back_to_what_is_mounted(tmp_path: Path) -> None:
    root = machine(tmp_path, "/docker/3f2a", {"memory.max": str(64 * MIB)})
    assert usable_memory_bytes(root) == 64 * MIB


def test_limits_on_memory_of_the_first_version_hold_too(tmp_path: Path) -> None:
    unlimited = {"memory.limit_in_bytes": "9223372036854771712", "elsewhere/memory.limit_in_bytes": str(64 * MIB)}
    root = machine(tmp_path, "/", {f"memory/{name}": text for name, text in unlimited.items()})
    assert usable_memory_bytes(root) == 64 * MIB
    (root / "proc/self/cgroup").write_text("11:cpu,cpuacct:/x\n4:memory:/docker/3f2a\n1:name=systemd:/\n")
    assert usable_memory_bytes(root) == MEMORY_BYTES
    (root / "sys/fs/cgroup/memory/memory.limit_in_bytes").write_text(f"{48 * MIB}\n")
    assert usable_memory_bytes(root) == 48 * MIB
    (root / "sys/fs/cgroup/memory/memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    assert num_oom_kills(root) == 3


def test_processes_killed_for_want_of_memory_are_those_of_the_own_group(tmp_path: Path) -> None:
    root = machine(tmp_path, "/job", {"job/memory.events": "low 0\noom 3\noom_kill 2\n", "memory.events": "oom_kill 9"})
    (root / "proc/vmstat").write_text("pgfault 1\noom_kill 20\n")
    assert num_oom_kills(root) == 2


def test_without_control_groups_they_are_those_of_the_machine(tmp_path: Path) -> None:
    root = machine(tmp_path, "/", {})
    assert num_oom_kills(root) is None
    (root / "proc/vmstat").write_text("pgfault 1\noom_kill 20\n")
    assert num_oom_kills(root) == 20


@pytest.mark.parametrize(("flags", "expected"), [("avx2 amx_bf16", True), ("avx512_bf16", True), ("avx512f", False)])
def test_units_for_bfloat16_are_among_the_flags_of_the_cpu(tmp_path: Path, flags: str, expected: bool) -> None:
    root = machine(tmp_path, "/", {})
    assert not multiplies_bfloat16(root)
    (root / "proc/cpuinfo").write_text(f"processor\t: 0\nflags\t\t: fpu {flags} sse\n")
    assert multiplies_bfloat16(root) is expected


@pytest.mark.parametrize(
    ("flags", "int8", "amx"),
    [
        ("amx_bf16 amx_int8", True, True),
        ("avx512_vnni", True, False),
        ("avx_vnni", True, False),
        ("avx2", False, False),
    ],
)
def test_units_for_int8_are_among_the_flags_of_the_cpu(tmp_path: Path, flags: str, int8: bool, amx: bool) -> None:
    root = machine(tmp_path, "/", {})
    (root / "proc/cpuinfo").write_text(f"flags\t\t: fpu {flags} sse\n")
    assert (multiplies_int8(root), has_amx(root)) == (int8, amx)


def test_the_limit_of_open_files_is_raised_and_never_lowered() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (500, before[1]))
        for number, expected in ((400, 500), (700, 700), (10**12, before[1])):
            allow_open_files(number)
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (expected, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
