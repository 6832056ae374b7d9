"""How much of the machine a container or a job scheduler leaves."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from batchocr import machine
from batchocr.machine import (
    allow_open_files,
    cores_of_nodes,
    multiplies_bfloat16,
    num_oom_kills,
    usable_cores,
    usable_memory_bytes,
)

MIB = 2**20
CORES = len(os.sched_getaffinity(0))
MEMORY_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where /proc and /sys of a machine are found; it has none yet."""
    monkeypatch.setattr(machine, "_ROOT", tmp_path)
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def in_group(root: Path, group: str, limits: dict[str, str]) -> None:
    """Put this process into a control group. limits: contents of files under the control groups' mount."""
    write(root / "proc/self/cgroup", f"4:memory:/elsewhere\n0::{group}")
    for name, text in limits.items():
        write(root / "sys/fs/cgroup" / name, text)


def test_without_control_groups_the_machine_is_the_limit() -> None:
    assert (usable_cores(), usable_memory_bytes()) == (CORES, MEMORY_BYTES)


def test_groups_without_limits_and_limits_beyond_the_machine_change_nothing(root: Path) -> None:
    beyond = {"cpu.max": "900000000 100000", "memory.max": str(2**60)}
    in_group(root, "/job", {"job/cpu.max": "max 100000", "job/memory.max": "max", **beyond})
    assert (usable_cores(), usable_memory_bytes()) == (CORES, MEMORY_BYTES)


@pytest.mark.parametrize("limited", ["", "user.slice/", "user.slice/job/"], ids=["top", "middle", "own"])
def test_a_limit_holds_wherever_above_the_process_it_is_set(root: Path, limited: str) -> None:
    in_group(root, "/user.slice/job", {f"{limited}cpu.max": "20000 100000", f"{limited}memory.max": str(64 * MIB)})
    assert (usable_cores(), usable_memory_bytes()) == (1, 64 * MIB), "less than a core is one"


def test_the_tightest_limit_holds(root: Path) -> None:
    in_group(root, "/job", {"memory.max": str(48 * MIB), "job/memory.max": str(64 * MIB), "other/memory.max": str(MIB)})
    assert usable_memory_bytes() == 48 * MIB


def test_a_group_outside_the_mount_falls_back_to_what_is_mounted(root: Path) -> None:
    in_group(root, "/docker/3f2a", {"memory.max": str(64 * MIB)})
    assert usable_memory_bytes() == 64 * MIB


def test_limits_on_memory_of_the_first_version_hold_too(root: Path) -> None:
    in_group(root, "/", {"memory/memory.limit_in_bytes": "9223372036854771712"})
    write(root / "sys/fs/cgroup/memory/elsewhere/memory.limit_in_bytes", str(64 * MIB))
    assert usable_memory_bytes() == 64 * MIB
    write(root / "proc/self/cgroup", "11:cpu,cpuacct:/x\n4:memory:/docker/3f2a\n1:name=systemd:/")
    assert usable_memory_bytes() == MEMORY_BYTES
    write(root / "sys/fs/cgroup/memory/memory.limit_in_bytes", str(48 * MIB))
    assert usable_memory_bytes() == 48 * MIB
    write(root / "sys/fs/cgroup/memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3")
    assert num_oom_kills() == 3


def test_processes_killed_for_want_of_memory_are_those_of_the_own_group(root: Path) -> None:
    in_group(root, "/job", {"job/memory.events": "low 0\noom 3\noom_kill 2", "memory.events": "oom_kill 9"})
    write(root / "proc/vmstat", "pgfault 1\noom_kill 20")
    assert num_oom_kills() == 2


def test_without_control_groups_they_are_those_of_the_machine(root: Path) -> None:
    assert num_oom_kills() is None
    write(root / "proc/vmstat", "pgfault 1\noom_kill 20")
    assert num_oom_kills() == 20


@pytest.mark.parametrize("limited", ["cpu", "cpu/docker/3f2a"], ids=["top", "own"])
def test_a_quota_on_the_cpu_of_the_first_version_holds_too(root: Path, limited: str) -> None:
    write(root / "proc/self/cgroup", "11:cpu,cpuacct:/docker/3f2a\n4:memory:/x\n1:name=systemd:/")
    write(root / "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1")
    write(root / "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
    assert usable_cores() == CORES
    write(root / "sys/fs/cgroup" / limited / "cpu.cfs_quota_us", "150000")
    write(root / "sys/fs/cgroup" / limited / "cpu.cfs_period_us", "100000")
    assert usable_cores() == 1


def give_nodes(root: Path, *cores: str) -> None:
    for number, text in enumerate(cores):
        write(root / f"sys/devices/system/node/node{number}/cpulist", text)
    write(root / "sys/devices/system/node/possible", "0-9")


def test_each_node_of_memory_has_its_cores(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 12)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)))
    assert cores_of_nodes() == []
    give_nodes(root, "0-3,8,10")
    assert cores_of_nodes() == [], "one node is the whole machine"
    give_nodes(root, "0-3,8,10", "4-7,9,11", "")
    assert sorted(map(sorted, cores_of_nodes())) == [[0, 1, 2, 3, 8, 10], [4, 5, 6, 7, 9, 11]]


def test_nodes_do_not_count_where_something_has_chosen_the_cores_or_limits_them(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 12)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)))
    give_nodes(root, "0-5", "6-11")
    assert cores_of_nodes() == []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)))
    in_group(root, "/job", {"cpu.max": "800000 100000"})
    assert cores_of_nodes() == []


@pytest.mark.parametrize(
    ("flags", "bfloat16"),
    [
        ("fp asimd i8mm bf16", True),
        ("fp asimd asimddp", False),
        ("amx_bf16 amx_int8", True),
        ("avx512_bf16 avx512_vnni", True),
        ("avx_vnni", False),
        ("avx2 avx512f", False),
    ],
)
def test_units_for_bfloat16_are_among_the_flags_of_the_cpu(root: Path, flags: str, bfloat16: bool) -> None:
    assert not multiplies_bfloat16()
    write(root / "proc/cpuinfo", f"processor\t: 0\nflags\t\t: fpu {flags} sse")
    assert multiplies_bfloat16() == bfloat16


def test_the_limit_of_open_files_is_raised_and_never_lowered() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (500, before[1]))
        for number, expected in ((400, 500), (700, 700), (10**12, before[1])):
            allow_open_files(number)
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (expected, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
