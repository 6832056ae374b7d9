"""What torch and the memory allocator must know when torch is loaded. Import this first in a process that loads it.

The run's own process loads none, and its environment is its caller's: nothing is set there.
"""

from __future__ import annotations

import ctypes
import os

# By default, torch's threads busy-wait for each other on the cores that render pages: on two cores this makes a run
# take half as long again. If they slept at once, waking them would take a seventh of a decode step. So they busy-wait
# only for 1,000 rounds, well below 0.1 ms.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ["OMP_WAIT_POLICY"] = "passive"
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
# oneDNN caches what it compiles for each batch size, 1,024 of them by default: hundreds of megabytes that a run takes
# thousands of pages to fill. With 256 it is just as fast.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "256")
# glibc gives the memory of a large tensor back to the system, and the next one takes it anew, page by page: up to a
# tenth of the ViT's time on a CPU. With these limits it keeps the memory, until the engine trims it. An older glibc
# refuses the first, and then keeps its own.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # not in every libc
if _mallopt is not None and _mallopt(_M_MMAP_THRESHOLD, 1 << 30):
    _mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)
