"""`python -m batchocr.engine FD`: a process that owns a device and answers questions about images.

FD: its end of the channel. Standard input closes when the run ends. Started by `processes/child.py`.
"""

from __future__ import annotations

import sys

import batchocr.engine.before_torch  # noqa: F401
from batchocr.engine.serve import serve

if __name__ == "__main__":
    serve(int(sys.argv[1]))
