"""What torch reads from the environment when it is loaded. Import this first in a process that is to load torch.

The run's own process loads none, and its environment is its caller's: nothing is set there.
"""

from __future__ import annotations

import os

# By default, torch's threads busy-wait for each other on the cores that render pages: on two cores this makes a run
# take half as long again.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# oneDNN caches what it compiles for each batch size, 1,024 of them by default: hundreds of megabytes that a run takes
# thousands of pages to fill. With 256 it is just as fast.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "256")
