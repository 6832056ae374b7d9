"""One table read by many machines, with Ray (extra `ray`): `batchocr.ray.run`, and the command `batchocr ray`.

    report = batchocr.ray.run(["/data/in"], out="/data/out/run1", address="auto")

The table is a folder of parts, which `open_table` and all commands read as one.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Unpack

from batchocr.api import Inputs, ShowProgress, config_of, find_inputs, progress_of
from batchocr.config import Config, flag_of
from batchocr.errors import UsageError
from batchocr.job.interrupt import finish_on_interrupt
from batchocr.job.progress import Progress
from batchocr.job.session import require_usable
from batchocr.job.stop import StopSwitch
from batchocr.options import Options
from batchocr.ray.cluster import PAGES_PER_TASK, Cluster, load_ray
from batchocr.ray.cluster_run import read_on_cluster
from batchocr.ray.folder import OutputFolder
from batchocr.ray.report import ClusterReport

__all__ = ["ClusterReport", "run"]

_OF_ONE_MACHINE = {
    "limit": None,
    "sample_documents": None,
    "shard": (1, 1),
    "resume": True,
    "max_doubtful_rate": 1.0,
}
"""Options that mean nothing here, as they are when they are not given."""


def run(
    inputs: Inputs,
    *,
    out: str | os.PathLike[str],
    address: str | None = None,
    pages_per_task: int = PAGES_PER_TASK,
    actors: int | None = None,
    stop: StopSwitch | None = None,
    progress: ShowProgress | None = None,
    **options: Unpack[Options],
) -> ClusterReport:
    """Read documents into a folder of parts, with an actor for each GPU of a Ray cluster, and return the report.

    inputs, out: paths that all machines see, or URIs in an object store. address: of the cluster, `auto` for the one
    that this machine is of; None starts Ray on this machine alone, unless the program is connected already.
    pages_per_task: about how many pages an actor reads at a time, and reads again if it is lost. actors: how many,
    instead of one for each GPU, or for each node if there are none. The others are those of `batchocr.run`.

    The same call again continues. Raises as `batchocr.run`, and UsageError if Ray is not installed.
    """
    config = config_of(options)
    cluster = Cluster(address, pages_per_task, actors)
    switch = StopSwitch(config.stop_after, stop)
    with finish_on_interrupt(switch):
        return run_with(config, inputs, cluster, out=os.fspath(out), stop=switch, progress=progress_of(progress))


def run_with(
    config: Config, inputs: Inputs, cluster: Cluster, *, out: str, stop: StopSwitch, progress: Progress | None
) -> ClusterReport:
    """`run` for a Config, with a switch that stops it and a Progress to report to."""
    started_s = time.perf_counter()
    folder = OutputFolder(out)
    for name, usual in _OF_ONE_MACHINE.items():
        if getattr(config, name) != usual:
            raise UsageError(f"{flag_of(name)} is of a run on one machine")
    if os.path.isdir(config.model):
        config = replace(config, model=os.path.abspath(config.model))  # actors have a working directory of their own
    require_usable(config)
    if config.cache is not None:
        config = replace(config, cache=os.path.abspath(config.cache))
    load_ray()
    found = find_inputs(config, inputs)
    if any(document.held is not None for document in found.documents):
        raise UsageError("documents in memory cannot be read on a cluster: put them where all machines see them")
    return read_on_cluster(config, found, folder, cluster, stop, progress, started_s=started_s)
