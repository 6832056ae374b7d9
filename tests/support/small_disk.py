"""A disk of one megabyte that can be filled: it is in memory and disappears with the process that holds it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_SIZE_BYTES = 1 << 20
BLOCK_BYTES = 4096
# In separate namespaces, a user other than root can mount one too.
_HOLDER = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
_MOUNT_AND_HOLD = f'mount -t tmpfs -o size={_SIZE_BYTES} tmpfs "$0" && echo mounted && read -r _'


@dataclass(frozen=True)
class SmallDisk:
    folder: Path

    def fill(self, *, leave_blocks: int) -> None:
        """Fill the disk up to this many free blocks of 4 KiB."""
        used = sum(-(-path.stat().st_size // BLOCK_BYTES) for path in self.folder.iterdir())
        free_blocks = _SIZE_BYTES // BLOCK_BYTES - used
        (self.folder / "of others").write_bytes(bytes((free_blocks - leave_blocks) * BLOCK_BYTES))

    def free(self) -> None:
        """Give back what `fill` took."""
        (self.folder / "of others").unlink()


@contextmanager
def small_disk(mount_point: Path) -> Iterator[SmallDisk | None]:
    """The disk; None if it cannot be mounted."""
    with subprocess.Popen(
        [*_HOLDER, _MOUNT_AND_HOLD, mount_point], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as holder:
        try:
            assert holder.stdout is not None
            mounted = holder.stdout.readline() == b"mounted\n"
            # Other processes can reach it only through the holder.
            yield SmallDisk(Path(f"/proc/{holder.pid}/root{mount_point}")) if mounted else None
        finally:
            holder.kill()
