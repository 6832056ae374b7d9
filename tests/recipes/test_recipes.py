"""The jobs in `recipes/`: their commands read documents and compare the tables, and exit codes lead where they should.

The schedulers are stand-ins, apart from systemd's own check of units; so is the reading, apart from Slurm's. Paths and
the number of shards are replaced.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest
import typer.main
import yaml

from batchocr.cli.main import app
from batchocr.errors import ExitCode
from tests.support.recipes import RECIPES, FailError, Machine, unit
from tests.support.running import draw_pdf

STOPPED = {ExitCode.STOPPED, ExitCode.INTERRUPTED}
MAY_BE_TEMPORARY = {ExitCode.BUG, ExitCode.MODEL, ExitCode.OUTPUT}
OF_NO_USE = {ExitCode.USAGE, ExitCode.TOO_MANY_FAILURES, ExitCode.NO_INPUT}


# systemd


@pytest.mark.slow
def test_systemd_reads_and_then_verifies(machine: Machine, quick: None) -> None:
    service = unit(machine, "batchocr.service")
    machine.succeed(shlex.split(service["Service"]["ExecStart"]))
    assert machine.tables() == ["results.parquet"]
    after = unit(machine, service["Unit"]["OnSuccess"])
    assert "nothing wrong" in machine.succeed(shlex.split(after["Service"]["ExecStart"]))


def test_systemd_restarts_what_another_start_can_help(machine: Machine) -> None:
    service = unit(machine, "batchocr.service")["Service"]
    assert {int(code) for code in service["RestartForceExitStatus"].split()} == STOPPED | MAY_BE_TEMPORARY
    assert service["OOMPolicy"] == "continue"
    assert int(service["TimeoutStopSec"]) >= 120


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_the_units(machine: Machine) -> None:
    folder = machine.root / "units"
    folder.mkdir()
    for path in (RECIPES / "systemd").iterdir():
        (folder / path.name).write_text(machine.prepared(f"systemd/{path.name}"))
    done = machine.run(["systemd-analyze", "verify", *map(str, sorted(folder.iterdir()))])
    said = [line for line in done.stderr.splitlines() if str(folder) in line or "batchocr" in line]
    assert (done.returncode, said) == (0, [])


# cron


@pytest.mark.long
@pytest.mark.slow
def test_cron_reads_and_then_verifies(machine: Machine, quick: None) -> None:
    [line] = [line for line in machine.prepared("cron/batchocr").splitlines() if not line.startswith("#")]
    *when, user, command = line.split(maxsplit=6)
    assert all(re.fullmatch(r"\*|[0-9]+", part) for part in when) and len(when) == 5
    assert user == "batchocr"
    assert "%" not in command  # cron takes it for the end of the line
    assert machine.succeed(["sh", "-c", command]) == ""
    assert machine.tables() == ["results.parquet"]
    draw_pdf(machine.root / "data" / "in" / "letter.pdf", "Another one")
    machine.install("batchocr", f'[ "$1" = run ] && exit 0; exec {sys.executable} -m batchocr "$@"')
    assert "stale" in machine.run(["sh", "-c", command]).stdout


def test_cron_verifies_nothing_after_a_night_that_was_too_short(machine: Machine) -> None:
    machine.install("batchocr", f"echo $1 >> calls; exit {ExitCode.STOPPED:d}")
    [line] = [line for line in machine.prepared("cron/batchocr").splitlines() if not line.startswith("#")]
    assert machine.run(["sh", "-c", line.split(maxsplit=6)[6]]).returncode != 0
    assert (machine.root / "calls").read_text() == "run\n"


# Several GPUs


@pytest.mark.long
@pytest.mark.slow
def test_a_machine_of_gpus_reads_in_one_run_and_then_verifies(machine: Machine, model: None) -> None:
    (machine.root / "read.sh").write_text(machine.prepared("gpus/read.sh"))
    assert "nothing wrong" in machine.succeed(["bash", "-u", "read.sh"])
    assert machine.tables() == ["results.parquet"]


@pytest.mark.parametrize("code", [*(code for code in ExitCode if code), 137])
def test_a_machine_of_gpus_begins_again_what_another_start_can_help(machine: Machine, code: int) -> None:
    machine.install("batchocr", f'echo "$1" >> calls; [ -e once ] && exit 0; touch once; exit {code:d}')
    machine.install("sleep", ":")
    (machine.root / "read.sh").write_text(machine.prepared("gpus/read.sh"))
    is_helped = code in MAY_BE_TEMPORARY | {ExitCode.STOPPED, 137}
    assert machine.run(["bash", "-u", "read.sh"]).returncode == (0 if is_helped else code)
    calls = ["run", "run", "verify"] if is_helped else ["run", "verify"] if code == 3 else ["run"]
    assert (machine.root / "calls").read_text().split() == calls


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


@pytest.fixture
def slurm(machine: Machine) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a script of recipes/slurm as the first job of an array of one. `scontrol` writes down what it is told."""
    machine.install("srun", 'while [ "${1#--}" != "$1" ]; do shift; done; exec "$@"')
    machine.install("scontrol", 'echo "$@" >> scontrol')
    variables = {"SLURM_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "1", "SLURM_CPUS_PER_TASK": "8"}

    def run(script: str, **more: str) -> subprocess.CompletedProcess[str]:
        path = machine.root / Path(script).name
        path.write_text(machine.prepared(script).replace("shards=8", "shards=1"))
        return machine.run(["bash", "-u", str(path)], **variables | more)

    return run


@pytest.mark.long
@pytest.mark.slow
def test_slurm_reads_and_then_verifies(
    machine: Machine, model: None, slurm: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = slurm("slurm/read.sh")
    assert done.returncode == 0, done.stderr
    assert machine.tables() == ["part-1.parquet"]
    assert "nothing wrong" in slurm("slurm/verify.sh").stdout


@pytest.mark.parametrize("code", list(ExitCode))
@pytest.mark.parametrize("restarts", ["0", "5", "50"])
def test_slurm_queues_again_what_another_start_can_help(
    machine: Machine, slurm: Callable[..., subprocess.CompletedProcess[str]], code: ExitCode, restarts: str
) -> None:
    machine.install("batchocr", f"exit {code:d}")
    assert slurm("slurm/read.sh", SLURM_RESTART_COUNT=restarts).returncode == code
    again = (code in STOPPED and restarts != "50") or (code in MAY_BE_TEMPORARY and restarts == "0")
    told = machine.root / "scontrol"
    assert (told.read_text() if told.exists() else "") == ("requeue 17\n" if again else "")


def test_slurm_has_as_many_jobs_as_shards() -> None:
    text = (RECIPES / "slurm" / "read.sh").read_text()
    [last] = re.findall(r"#SBATCH --array=1-(\d+)\n", text)
    assert f"\nshards={last} " in text


# Kubernetes


def container_of(job: dict[str, Any]) -> dict[str, Any]:
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert isinstance(container, dict)
    return container


@pytest.mark.slow
def test_kubernetes_reads_and_then_verifies(machine: Machine, quick: None) -> None:
    job = yaml.safe_load(machine.prepared("kubernetes/read.yaml"))
    container = container_of(job)
    [script] = container["args"]
    completions = job["spec"]["completions"]
    assert f"))/{completions}" in script
    machine.succeed([*container["command"], script.replace(f"/{completions}", "/1")], JOB_COMPLETION_INDEX="0")
    assert machine.tables() == ["part-0.parquet"]
    verify = yaml.safe_load(machine.prepared("kubernetes/verify.yaml"))
    assert "nothing wrong" in machine.succeed(container_of(verify)["command"])


def test_kubernetes_starts_again_what_another_start_can_help() -> None:
    spec = yaml.safe_load((RECIPES / "kubernetes" / "read.yaml").read_text())["spec"]
    rules = spec["podFailurePolicy"]["rules"]
    codes = {rule["action"]: set(rule["onExitCodes"]["values"]) for rule in rules if "onExitCodes" in rule}
    assert codes == {"FailIndex": OF_NO_USE}
    assert spec["backoffLimitPerIndex"] > 0
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] >= 120


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


@pytest.mark.parametrize("code", list(ExitCode))
def test_a_cluster_under_slurm_is_queued_again_where_that_can_help(machine: Machine, code: ExitCode) -> None:
    machine.install("batchocr", f'[ "$1" = verify ] || exit {code:d}; echo verified')
    machine.install("srun", ":")
    machine.install("sleep", ":")
    machine.install("scontrol", 'if [ "$1" = show ]; then printf "node1\\nnode2\\n"; else echo "$@" >> scontrol; fi')
    path = machine.root / "read.sbatch"
    path.write_text(machine.prepared("ray/read.sbatch"))
    variables = {"SLURM_JOB_ID": "17", "SLURM_NNODES": "2", "SLURM_JOB_NODELIST": "node[1-2]"}
    done = machine.run(["bash", "-u", str(path)], **variables)
    is_read = code in (ExitCode.DONE, ExitCode.TOO_MANY_FAILURES)
    assert (done.returncode, "verified" in done.stdout) == (code, is_read)
    assert (machine.root / "scontrol").exists() == (code in STOPPED | MAY_BE_TEMPORARY)


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


@pytest.mark.slow
def test_airflow_reads_and_then_verifies(machine: Machine, quick: None, dag: ModuleType) -> None:
    assert dag.read.calls == [{"shard": [1]}]
    assert dag.read.options["retries"] > 0
    dag.read.function(1)
    assert machine.tables() == ["part-1.parquet"]
    assert (dag.verify.calls, dag.verify.options) == ([{}], {"trigger_rule": "all_done"})
    dag.verify.function()


@pytest.mark.parametrize("code", [code for code in ExitCode if code])
def test_airflow_tries_again_what_another_attempt_can_help(machine: Machine, dag: ModuleType, code: ExitCode) -> None:
    machine.install("batchocr", f"exit {code:d}")
    with pytest.raises(FailError if code in OF_NO_USE else RuntimeError, match=f"exit code {code:d}"):
        dag.call("run")


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
