"""`batchocr ray`: flags to a run on a cluster, its report to an exit code."""

from __future__ import annotations

from typing import Annotated

import typer

from batchocr.cli import options
from batchocr.cli.console import printable_lines, progress_on_stderr, write_line
from batchocr.cli.run import conclude, config_of_run
from batchocr.cli.signals import stop_on_signals
from batchocr.config import CONTINUING, INPUT, MODEL, RUN, Option
from batchocr.job.stop import StopSwitch


@options.takes_options(
    *options.ALL - {"limit"},
    device=Option(MODEL, "Where to run: auto takes the cluster's GPUs, or its CPUs.", "auto|cuda|cpu"),
    cache=Option(
        CONTINUING, "Keep the model's answers in this folder: on a disk of each machine.", "DIR", default="none"
    ),
)
def ray(
    inputs: options.Inputs,
    out: Annotated[
        str,
        options.flag(
            *("--out", "-o"),
            panel=INPUT,
            metavar="FOLDER",
            help="The folder of the table's parts: or a prefix in an object store.",
        ),
    ],
    flags: options.Flags,
    address: Annotated[
        str | None,
        options.flag(
            "--address",
            panel=RUN,
            metavar="ADDRESS",
            help="The Ray cluster: auto for the one that this machine is of, HOST:PORT, or ray://HOST:PORT, which "
            "needs ray[client]. Without it, and without RAY_ADDRESS, Ray is started on this machine alone.",
        ),
    ] = None,
    pages_per_task: Annotated[
        int,
        options.flag(
            "--pages-per-task",
            panel=RUN,
            metavar="N",
            default="1000",
            help="Most pages that an actor reads at a time; longer documents are divided.",
        ),
    ] = 1000,
    actors: Annotated[
        int | None,
        options.flag(
            "--actors",
            panel=RUN,
            metavar="N",
            default="one for each GPU that there is, or for each machine if there is none",
            help="How many actors.",
        ),
    ] = None,
    recipe: options.Recipe = None,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    log_format: options.LogFormat = "text",
) -> None:
    """Read the INPUTs on all machines of a Ray cluster, with an actor for each GPU, into a folder of parts: the table
    that `batchocr run` makes there. Run either again to continue where it was stopped. INPUTs and folder are where all
    machines see them. Exit codes are those of `batchocr run`.

    Examples:
    batchocr ray /shared/scans -o /shared/table/
    batchocr ray s3://bucket/scans/ --address auto -o s3://bucket/table/
    """
    config = config_of_run(flags, recipe, log_format, quiet=quiet, verbose=verbose)
    from batchocr.ray.cluster import Cluster
    from batchocr.ray.cluster_run import run_with

    cluster = Cluster(address, pages_per_task, actors)
    stop = StopSwitch(config.stop_after)
    progress = None if quiet else progress_on_stderr()
    with stop_on_signals(stop, config):
        report = run_with(config, inputs, cluster, out=out, stop=stop, progress=progress)
        if log_format == "text" and not quiet and not report.nothing_to_do:
            write_line(f"\n{printable_lines(report.to_text())}\n")
        conclude(report, config, f"{out.rstrip('/')}/")
    assert report.exit_code is not None  # an error was raised otherwise
    raise typer.Exit(report.exit_code)
