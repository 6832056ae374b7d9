"""`python -m batchocr.worker FD`: a process that opens, renders and post-processes pages. Loads no torch.

FD: its end of the channel. Standard input closes when the run ends. Started by `pool/child.py`.
"""

from __future__ import annotations

import sys

from batchocr.protocol.mineru import MinerUProtocol
from batchocr.wire.messages import Setup
from batchocr.worker.serve import serve


def make_protocol(setup: Setup) -> MinerUProtocol:
    return MinerUProtocol(max_new_tokens=setup.max_new_tokens, penalties=setup.penalties)


if __name__ == "__main__":
    serve(int(sys.argv[1]), make_protocol)
