"""The jobs in `recipes/`: their commands read documents and compare the tables, and exit codes lead where they should.

The schedulers and the reading are stand-ins, apart from systemd's own check of units. Paths are replaced.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from types import ModuleType
from typing import Any, cast

import pytest
import typer.main
import yaml

from batchocr.cli.main import app
from batchocr.errors import ExitCode
from tests.support.recipes import RECIPES, Machine

# systemd


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_the_units(machine: Machine) -> None:
    folder = machine.root / "units"
    folder.mkdir()
    for path in (RECIPES / "systemd").iterdir():
        (folder / path.name).write_text(machine.prepared(f"systemd/{path.name}"))
    done = machine.run(["systemd-analyze", "verify", *map(str, sorted(folder.iterdir()))])
    said = [line for line in done.stderr.splitlines() if str(folder) in line or "batchocr" in line]
    assert (done.returncode, said) == (0, [])


# Several GPUs


def test_a_machine_of_gpus_stops_its_run_when_it_is_told_to_stop(machine: Machine) -> None:
    stop = f"echo stopped > said; exit {ExitCode.STOPPED:d}"
    machine.install("batchocr", f"trap '{stop}' TERM; touch began; sleep 60 & wait")
    (machine.root / "read.sh").write_text(machine.prepared("gpus/read.sh"))
    script = subprocess.Popen(["bash", "-u", "read.sh"], cwd=machine.root, start_new_session=True)
    try:
        while not (machine.root / "began").exists():
            time.sleep(0.02)
        script.terminate()
        assert script.wait(30) == ExitCode.STOPPED
        assert (machine.root / "said").read_text() == "stopped\n"
    finally:
        os.killpg(script.pid, signal.SIGKILL)


# Slurm


def test_slurm_has_as_many_jobs_as_shards() -> None:
    text = (RECIPES / "slurm" / "read.sh").read_text()
    [last] = re.findall(r"#SBATCH --array=1-(\d+)\n", text)
    assert f"\nshards={last} " in text


# Ray


@pytest.mark.parametrize("name", ["read.sbatch", "rayjob.yaml", "cluster.yaml"])
def test_the_commands_of_the_cluster_have_only_options_that_exist(name: str) -> None:
    known = {
        command: {flag for option in found.params for flag in option.opts}
        for command, found in cast(Any, typer.main.get_command(app)).commands.items()
    }
    text = re.sub(r"\\\n", " ", (RECIPES / "ray" / name).read_text())
    commands = re.findall(r"/bin/batchocr (ray|verify) ((?:[^&;'\n]|\n {4}--)*)", text)
    assert {command for command, _ in commands} >= {"ray"}
    for command, arguments in commands:
        assert "/data/in" in arguments
        assert set(re.findall(r"(?<=\s)--[a-z-]+", f" {arguments}")) <= known[command]


def test_a_cluster_has_an_actor_for_each_gpu_and_all_of_its_machines() -> None:
    job = yaml.safe_load((RECIPES / "ray" / "rayjob.yaml").read_text())["spec"]
    workers = job["rayClusterSpec"]["workerGroupSpecs"][0]
    [container] = workers["template"]["spec"]["containers"]
    gpus = container["resources"]["limits"]["nvidia.com/gpu"] * workers["replicas"]
    assert f"--actors {gpus} " in job["entrypoint"]
    assert job["rayClusterSpec"]["rayVersion"] == "2.60.0"
    launcher = yaml.safe_load((RECIPES / "ray" / "cluster.yaml").read_text())
    assert len(launcher["provider"]["worker_ips"]) == launcher["max_workers"]


def test_a_cluster_under_slurm_tells_its_driver_of_the_time_limit(machine: Machine) -> None:
    machine.install("batchocr", "trap 'exit 75' TERM; kill -TERM $PPID; while :; do :; done")
    machine.install("srun", ":")
    machine.install("sleep", ":")
    machine.install("scontrol", '[ "$1" = show ] && echo node1 || echo "$@" >> scontrol')
    path = machine.root / "read.sbatch"
    path.write_text(machine.prepared("ray/read.sbatch"))
    done = machine.run(["bash", "-u", str(path)], SLURM_JOB_ID="17", SLURM_NNODES="1", SLURM_JOB_NODELIST="node1")
    assert done.returncode == ExitCode.STOPPED
    assert (machine.root / "scontrol").read_text() == "requeue 17\n"


# Airflow


def test_a_task_that_airflow_ends_lets_the_pages_in_flight_finish(
    machine: Machine, dag: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.install("batchocr", "trap 'exit 75' TERM; touch begun; while :; do sleep 0.1; done")
    monkeypatch.chdir(machine.root)

    def end_the_task(_number: int, _frame: object) -> None:
        if (machine.root / "begun").exists():
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM), signal.signal(signal.SIGALRM, end_the_task)
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
    try:
        with pytest.raises(RuntimeError, match="exit code 75"):
            dag.call("run")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGALRM, before[1])


def test_every_recipe_is_named_in_the_table_of_recipes() -> None:
    said = (RECIPES / "README.md").read_text()
    assert {path.name for path in RECIPES.iterdir() if path.is_dir()} == set(re.findall(r"\]\((\w+)\) \|", said))
