"""`python -m batchocr.pages FD`: a process that opens, renders and post-processes pages. Loads no torch.

FD: its end of the channel. Standard input closes when the run ends. Started by `processes/child.py`.
"""

from __future__ import annotations

import sys

from batchocr.pages.serve import serve

if __name__ == "__main__":
    serve(int(sys.argv[1]))
