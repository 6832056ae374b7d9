"""`python -m batchocr.pages FD`: a process that opens, renders and post-processes pages. Loads no torch.

FD: its end of the channel. Standard input closes when the run ends. Started by `processes/child.py`.
"""

from __future__ import annotations

import sys

from batchocr.pages.protocol.base import PageProtocol, PixelsOnly
from batchocr.pages.serve import serve
from batchocr.processes.messages import Setup


def make_protocol(setup: Setup) -> PageProtocol:
    if setup.protocol == "pixels":
        return PixelsOnly()
    if setup.protocol == "lines":
        from batchocr.pages.protocol.second_reader import SecondReader  # an extra

        return SecondReader()
    from batchocr.pages.protocol.mineru import MinerUProtocol  # takes most of a worker's start

    return MinerUProtocol(
        max_new_tokens=setup.max_new_tokens,
        penalties=setup.penalties,
        read_figures=setup.figures == "read",
        detector=setup.detector,
    )


if __name__ == "__main__":
    serve(int(sys.argv[1]), make_protocol)
