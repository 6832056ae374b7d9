"""`python -m batchocr.worker FD`: a process that opens, renders and post-processes pages. Loads no torch.

FD: its end of the channel. Standard input closes when the run ends. Started by `pool/child.py`.
"""

from __future__ import annotations

import sys

from batchocr.protocol.base import PageProtocol
from batchocr.protocol.pixels_only import PixelsOnly
from batchocr.wire.messages import Setup
from batchocr.worker.serve import serve


def make_protocol(setup: Setup) -> PageProtocol:
    if setup.protocol == "pixels":
        return PixelsOnly()
    from batchocr.protocol.mineru import MinerUProtocol  # takes most of a worker's start

    return MinerUProtocol(max_new_tokens=setup.max_new_tokens, penalties=setup.penalties)


if __name__ == "__main__":
    serve(int(sys.argv[1]), make_protocol)
