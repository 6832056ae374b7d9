"""What becomes of each recipe on a bad day: a damaged file, an empty folder, a store that is away, a stop.

A stand-in for batchocr exits with the code of such a day, and writes down what it was asked to do; the schedulers
follow the recipes' own rules. No day that is not good ends as if it were.
"""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from collections.abc import Callable
from fnmatch import fnmatch
from types import ModuleType
from typing import Any, cast

import pytest
import typer.main
import yaml

from batchocr.cli.main import app
from batchocr.cli.options import ALL
from batchocr.config import make_config
from batchocr.errors import ExitCode
from tests.support.recipes import RECIPES, Machine, ends_well, unit

DAMAGED = ExitCode.TOO_MANY_FAILURES
_MOST_ATTEMPTS = 200


# Each takes a machine whose batchocr exits with a code, and lets its scheduler do what the recipe says. It returns
# whether all is well, by what a user is shown of it.


def systemd(machine: Machine) -> bool:
    service = unit(machine, "batchocr.service")
    rules = service["Service"]
    assert rules["Restart"] == "on-abnormal"  # no exit code is
    assert rules["OOMPolicy"] == "continue" and int(rules["TimeoutStopSec"]) >= 120
    for _ in range(int(service["Unit"]["StartLimitBurst"])):
        code = machine.run(shlex.split(rules["ExecStart"])).returncode
        if str(code) not in rules["RestartForceExitStatus"].split():
            break
    verify = unit(machine, service["Unit"]["OnFailure" if code else "OnSuccess"])["Service"]
    return machine.run(shlex.split(verify["ExecStart"])).returncode == code == 0


def cron(machine: Machine) -> bool:
    done = machine.run(["sh", "-c", crontab(machine)["1-6"]])
    return not done.stdout + done.stderr  # or else it is mailed


def crontab(machine: Machine) -> dict[str, str]:
    """The commands, by their days of the week."""
    lines = [line for line in machine.prepared("cron/batchocr").splitlines() if not line.startswith("#")]
    return {fields[4]: fields[6] for fields in (line.split(maxsplit=6) for line in lines)}


def gpus(machine: Machine) -> bool:
    (machine.root / "read.sh").write_text(machine.prepared("gpus/read.sh"))
    return machine.run(["bash", "-u", "read.sh"]).returncode == 0


def slurm(machine: Machine) -> bool:
    code = _queue(machine, "slurm/read.sh")
    assert '--dependency="afterany:$job" verify.sh' in machine.prepared("slurm/read.sh")
    (machine.root / "verify.sh").write_text(machine.prepared("slurm/verify.sh"))
    return machine.run(["bash", "-u", "verify.sh"]).returncode == code == 0


def ray(machine: Machine) -> bool:
    return _queue(machine, "ray/read.sbatch") == 0


def _queue(machine: Machine, script: str) -> int:
    """Run a job of Slurm again as often as it asks for. Returns its last exit code."""
    machine.install("srun", 'while [ "${1#--}" != "$1" ]; do shift; done; case $1 in *batchocr) exec "$@" ;; esac')
    machine.install("scontrol", 'if [ "$1" = requeue ]; then touch requeued; else echo node1; fi')
    (machine.root / "job").write_text(machine.prepared(script))
    known = {"SLURM_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "1", "SLURM_CPUS_PER_TASK": "8"}
    known |= {"SLURM_NNODES": "1", "SLURM_JOB_NODELIST": "node1"}
    for restarts in range(_MOST_ATTEMPTS):
        code = machine.run(["bash", "-u", "job"], **known, SLURM_RESTART_COUNT=str(restarts)).returncode
        if not (machine.root / "requeued").exists():
            return code
        (machine.root / "requeued").unlink()
    raise AssertionError("it is queued again for ever")


def rayjob(machine: Machine) -> bool:
    """KubeRay puts the entrypoint into a script of its own, and Ray runs what that says behind the `--`."""
    job = yaml.safe_load(machine.prepared("ray/rayjob.yaml"))["spec"]
    driver = "import shlex, subprocess, sys; sys.exit(subprocess.run(shlex.join(sys.argv[1:]), shell=True).returncode)"
    machine.install("ray", f'while [ "$1" != -- ]; do shift; done; shift; exec {sys.executable} -c "{driver}" "$@"')
    for _ in range(1 + job["backoffLimit"]):
        done = machine.run(["bash", "-ce", f"ray job submit --no-wait -- {job['entrypoint'].strip()} ; true behind it"])
        if done.returncode == 0:
            return True
    return False


def kubernetes(machine: Machine) -> bool:
    text = machine.prepared("kubernetes/read.yaml")
    job = yaml.safe_load(text)["spec"]
    [container] = job["template"]["spec"]["containers"]
    assert job["template"]["spec"]["terminationGracePeriodSeconds"] >= 120
    rules = [rule for rule in job["podFailurePolicy"]["rules"] if "onExitCodes" in rule]
    assert {rule["action"] for rule in rules} == {"FailIndex"}, "nothing is tried for ever"
    ended = "failed"
    for _ in range(1 + job["backoffLimitPerIndex"]):
        done = machine.run([*container["command"], *container["args"]], JOB_COMPLETION_INDEX="0")
        if done.returncode == 0:
            ended = "complete"
        if done.returncode == 0 or any(done.returncode in rule["onExitCodes"]["values"] for rule in rules):
            break
    [verify] = yaml.safe_load(machine.prepared("kubernetes/verify.yaml"))["spec"]["template"]["spec"]["containers"]
    verified = shlex.join(verify["command"])
    later = "exec /bin/sleep 2"  # bash may miss the end of the other, if that comes before its `wait -n`
    verified += "; echo $? > verified"
    machine.install("kubectl", f'case "$*" in *={ended}*) ;; wait*) {later} ;; apply*verify.yaml) {verified} ;; esac')
    commands = re.findall(r"^#   (.+)$", text, re.MULTILINE)
    assert len(commands) == 6 and commands.pop() == "kubectl get jobs"
    assert commands[0].startswith("kubectl delete ") and "read.yaml" in commands[0] and "verify.yaml" in commands[0]
    machine.run(["bash", "-c", "\n".join(commands) + "; kill $(jobs -p) 2>/dev/null"])
    return ended == "complete" and (machine.root / "verified").read_text() == "0\n"


def airflow(machine: Machine, dag: ModuleType) -> bool:
    return ends_well(dag.read, dag.verify, dag.fail)


SCHEDULERS: dict[Callable[..., bool], tuple[int, int]] = {
    systemd: (30, 30),
    cron: (1, 1),
    gpus: (6, 6),
    slurm: (51, 6),
    ray: (51, 6),
    rayjob: (3, 3),
    kubernetes: (11, 11),
    airflow: (21, 21),
}
"""How often each begins at most what was stopped, and what may be temporary."""
STOPPED = {ExitCode.STOPPED, ExitCode.INTERRUPTED}
MAY_BE_TEMPORARY = {ExitCode.BUG, ExitCode.MODEL, ExitCode.OUTPUT}
ALWAYS_VERIFIES = {systemd, slurm, kubernetes, airflow}


def done_with(
    machine: Machine, dag: ModuleType, scheduler: Callable[..., bool], code: ExitCode, verified: ExitCode
) -> tuple[int, int, bool]:
    """How often the recipe's batchocr read, and how often it compared, if these end with those codes, and whether all
    is well then. Each time it is asked for what it can do: to read the documents with the model, and to compare the
    table that it has read into."""
    says = 'case "$code $*" in "0 "* | *" verify "*" --quiet") ;; *) echo "it is not well" >&2 ;; esac'
    ends = f'code={code:d}; [ "$1" = verify ] && code={verified:d}; {says}; exit "$code"'
    machine.install("batchocr", f'echo "$@" >> {machine.root}/calls; {ends}')
    machine.install("sleep", ":")
    is_well = scheduler(machine, dag) if scheduler is airflow else scheduler(machine)
    calls = [line.split() for line in (machine.root / "calls").read_text().splitlines()]
    commands = cast(Any, typer.main.get_command(app)).commands
    asked = [(name, commands[name].make_context(name, arguments).params) for name, *arguments in calls]
    for _, params in asked:
        make_config({name: params[name] for name in ALL & params.keys() if params[name] is not None})
    reading = [params for name, params in asked if name != "verify"]
    verifying = [params for name, params in asked if name == "verify"]
    assert calls[0][0] in ("run", "ray")
    for params in reading:
        assert [*params["inputs"], params["model"]] == [f"{machine.root}/data/in", f"{machine.root}/models/mineru"]
    for params in verifying:
        table, [documents] = params["out"], params["inputs"]
        assert fnmatch(reading[0]["out"], table) and documents == f"{machine.root}/data/in"
    return len(reading), len(verifying), is_well


@pytest.mark.slow
@pytest.mark.parametrize("code", [code for code in ExitCode if code], ids=lambda code: code.name)
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_what_another_start_can_help_is_begun_again_a_few_times_and_nothing_else(
    machine: Machine, dag: ModuleType, scheduler: Callable[..., bool], code: ExitCode
) -> None:
    """A damaged file is read around once and then named, an empty folder is looked at once, and a store that stays away
    is asked a few times. Nothing of it is well, even if `verify` finds nothing wrong with what was read."""
    stopped, temporary = SCHEDULERS[scheduler]
    attempts = stopped if code in STOPPED else temporary if code in MAY_BE_TEMPORARY else 1
    verified = int(scheduler in ALWAYS_VERIFIES or code == DAMAGED)
    if scheduler in (gpus, rayjob) and code == ExitCode.INTERRUPTED:
        attempts = 1  # by hand
    assert done_with(machine, dag, scheduler, code, ExitCode.DONE) == (attempts, verified, False)


@pytest.mark.slow
@pytest.mark.parametrize("found", [ExitCode.DONE, DAMAGED], ids=lambda code: code.name)
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_what_was_read_is_compared_and_ends_well_only_if_nothing_is_wrong_with_it(
    machine: Machine, dag: ModuleType, scheduler: Callable[..., bool], found: ExitCode
) -> None:
    verified = 2 if scheduler is cron and found else 1  # the second time for its mail
    assert done_with(machine, dag, scheduler, ExitCode.DONE, found) == (1, verified, not found)


def test_each_night_files_are_compared_by_time_and_each_week_all_are_hashed(machine: Machine) -> None:
    lines = crontab(machine)
    assert list(lines) == ["1-6", "0"], "each night has one"
    assert lines["1-6"].count(" --by-time") == 2
    assert lines["0"] == lines["1-6"].replace(" --by-time", "")
    nightly, weekly = (unit(machine, f"batchocr-{name}.service") for name in ("verify", "verify-all"))
    assert nightly["Service"]["ExecStart"] == weekly["Service"]["ExecStart"] + " --by-time"
    assert unit(machine, "batchocr-verify-all.timer")["Timer"]["OnCalendar"].startswith("Sun ")
    journal = weekly["Unit"]["ConditionPathExists"].removeprefix("!")
    assert journal == f"{weekly['Service']['ExecStart'].split()[2]}.journal", "of a run that is unfinished"


# Images


@pytest.mark.parametrize("name", ["Dockerfile.cpu", "Dockerfile.gpu"])
def test_what_an_image_copies_and_installs_exists(name: str) -> None:
    root = RECIPES.parent
    text = (RECIPES / "docker" / name).read_text()
    instructions = [line for line in text.replace("\\\n", "").splitlines() if not line.startswith("#")]
    assert len(instructions) <= 10
    copied = [path for line in instructions if line.startswith("COPY") for path in line.split()[1:-1]]
    assert copied and all((root / path).exists() for path in copied)
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert {project["readme"], *project["license-files"], "batchocr"} <= set(copied), "the build needs them"
    extras = {extra for found in re.findall(r"/src\[([a-z,]+)\]", text) for extra in found.split(",")}
    assert extras <= set(project["optional-dependencies"])
    assert "ENV PATH=/opt/batchocr/bin:$PATH" in text and "-m venv /opt/batchocr" in text


def test_the_images_are_those_that_the_jobs_take() -> None:
    built = re.findall(r"-t (\S+) \.", "".join(path.read_text() for path in (RECIPES / "docker").iterdir()))
    for name in ("kubernetes/read.yaml", "kubernetes/verify.yaml", "ray/rayjob.yaml"):
        assert set(re.findall(r"image: (\S+)", (RECIPES / name).read_text())) <= set(built)
