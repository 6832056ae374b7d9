"""How much of the machine this process may use: containers and job schedulers allow it less than there is.

A limit may be set on the process's own control group and on every one above it; the tightest applies. Those of cgroup
v2 and v1 on memory and on the CPU's time are looked at.
"""

from __future__ import annotations

import ctypes
import glob
import os
import resource
import signal
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

JOB_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""What Ctrl-C, batch systems and service managers send to every process of a job."""

_ROOT = Path("/")
"""Where /proc and /sys are found."""
_BFLOAT16_UNITS = {"amx_bf16", "avx512_bf16", "bf16"}
"""The flags of CPUs that compute in bfloat16, as Linux calls them, the last one on ARM."""
_malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # not in every libc


def open_standard_descriptors() -> None:
    """Open those of the descriptors 0 to 2 that are closed to /dev/null. Otherwise the next file to be opened, such as
    the journal, would become standard error, and whatever a library prints would be written into it."""
    opened = set()
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
            os.set_inheritable(descriptor, True)
            opened.add(descriptor)
    if sys.stdout is None and 1 in opened:  # otherwise it is a file of the program's
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None and 2 in opened:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def own_version() -> str:
    """The version of batchocr that is installed; "unknown" where it runs from a checkout."""
    return installed_version("batchocr") or "unknown"


def installed_version(package: str) -> str:
    """The version of a package; empty if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def num_gpus() -> int:
    """How many NVIDIA GPUs this process may be able to use, by their device files; without loading torch."""
    return len(glob.glob("/dev/nvidia[0-9]*"))


def nvidia_driver() -> str:
    """What the NVIDIA driver says of its version; empty if there is none."""
    try:
        return (_ROOT / "proc/driver/nvidia/version").read_text().splitlines()[0]
    except (OSError, IndexError):
        return ""


def usable_cores() -> int:
    """How many cores this process may keep busy, at least 1."""
    cores = len(os.sched_getaffinity(0))
    # Source of the second: https://docs.kernel.org/scheduler/sched-bwc.html
    first_version = zip(_limits("cpu", "cpu.cfs_quota_us"), _limits("cpu", "cpu.cfs_period_us"), strict=False)
    for quota_us, period_us in (*map(str.split, _limits("", "cpu.max")), *first_version):
        if quota_us not in ("max", "-1"):
            cores = min(cores, int(quota_us) // int(period_us))
    return max(1, cores)


def cores_of_nodes() -> list[set[int]]:
    """The cores of each node of memory; none if there is only one, or if this process may not use the whole machine.

    Source: https://docs.kernel.org/admin-guide/mm/numaperf.html
    """
    if usable_cores() < (os.cpu_count() or 1):
        return []
    lists = (file.read_text().strip() for file in (_ROOT / "sys/devices/system/node").glob("node[0-9]*/cpulist"))
    nodes = [set(_numbers_in(text)) for text in lists if text]  # a node may have memory alone
    return nodes if len(nodes) > 1 else []


def _numbers_in(text: str) -> Iterator[int]:
    """The numbers in a list of the kernel's, such as 0-3,8."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def usable_memory_bytes() -> int:
    """How much main memory this process may hold."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = _memory_limits("memory.max", "memory.limit_in_bytes")
    return min([memory_bytes, *(int(limit) for limit in limits if limit != "max")])


def multiplies_bfloat16() -> bool:
    """Whether the CPU multiplies bfloat16 in units of its own (AMX, AVX512-BF16, ARM's BF16)."""
    try:
        return not _BFLOAT16_UNITS.isdisjoint((_ROOT / "proc/cpuinfo").read_text().split())
    except OSError:
        return False


def num_oom_kills() -> int | None:
    """How many processes the kernel has killed for lack of memory: in this process's control group if it counts them,
    otherwise on the whole machine. None if neither does."""
    counts = next(_memory_limits("memory.events", "memory.oom_control"), None)
    try:
        lines = (counts or (_ROOT / "proc/vmstat").read_text()).splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)


def peak_resident_bytes(pid: int | Literal["self"] = "self") -> int | None:
    """The most memory that a process has held since it started; None if it has ended.

    Read from /proc and not with getrusage, which credits a child with what its parent held when the child was started.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    kilobytes = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(kilobytes[0]) * 1024 if kilobytes else None


def allow_open_files(number: int) -> int:
    """How many files this process may open: its soft limit is raised to `number`, as far as the hard limit allows, and
    never lowered."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = number if hard == resource.RLIM_INFINITY else min(number, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        return allowed
    return number if soft == resource.RLIM_INFINITY else soft


def return_freed_memory() -> None:
    """Return memory that this process has freed to the system. glibc would keep it, tens of megabytes per thread."""
    if _malloc_trim is not None:
        _malloc_trim(0)


def _memory_limits(name: str, name_v1: str) -> Iterator[str]:
    """What the files of these names in cgroup v2 and v1 hold; see `_limits`.

    Source of the second: https://docs.kernel.org/admin-guide/cgroup-v1/memory.html
    """
    yield from _limits("", name)
    yield from _limits("memory", name_v1)


def _limits(controller: str, name: str) -> Iterator[str]:
    """The content of the file `name` for this process's control group and each one above it, where that file exists.

    controller: of cgroup v1; empty for v2. Source: https://docs.kernel.org/admin-guide/cgroup-v2.html
    """
    own = _own_group(controller)
    for group in (own, *own.parents):
        try:
            yield (_ROOT / "sys/fs/cgroup" / controller / group / name).read_text().strip()
        except OSError:
            continue  # in a container the mount may begin further down, at the container's own group


def _own_group(controller: str) -> Path:
    """The path of this process's control group below its mount, or that mount itself.

    Source: `man 7 cgroups`, /proc/PID/cgroup.
    """
    try:
        lines = (_ROOT / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return Path()
    groups = (line.split(":", 2) for line in lines)
    return Path(next((path.lstrip("/") for _, names, path in groups if controller in names.split(",")), ""))
