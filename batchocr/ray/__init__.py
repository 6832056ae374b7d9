"""One table read by many machines, with Ray (extra `ray`): `batchocr.ray.run`, and the command `batchocr ray`.

    report = batchocr.ray.run(["/data/in"], out="/data/out/run1", address="auto")

The table is a folder of parts, which `open_table` and all commands read as one.
"""

from batchocr.ray.cluster_run import run
from batchocr.ray.report import ClusterReport

__all__ = ["ClusterReport", "run"]
