"""What becomes of each recipe on a bad day: a damaged file, an empty folder, a store that is away, a stop.

What batchocr exits with then is found out with the real one. For the recipes a stand-in exits with that code, and
writes down what it was asked to do; the schedulers follow the recipes' own rules.
"""

from __future__ import annotations

import re
import shlex
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable
from types import ModuleType

import pytest
import yaml

from batchocr.errors import ExitCode
from tests.support.jobs import wait_for_rows
from tests.support.recipes import RECIPES, FailError, Machine, unit

DAMAGED, EMPTY, AWAY, STOPPED = ExitCode.TOO_MANY_FAILURES, ExitCode.NO_INPUT, ExitCode.STOPPED, ExitCode.STOPPED
_MOST_ATTEMPTS = 200


# Each takes a machine whose batchocr exits with a code, and lets its scheduler do what the recipe says.


def systemd(machine: Machine) -> None:
    service = unit(machine, "batchocr.service")
    rules = service["Service"]
    assert rules["Restart"] == "on-abnormal"  # no exit code is
    for _ in range(int(service["Unit"]["StartLimitBurst"])):
        code = machine.run(shlex.split(rules["ExecStart"])).returncode
        if str(code) not in rules["RestartForceExitStatus"].split():
            break
    if str(code) in ["0", *rules["SuccessExitStatus"].split()]:
        machine.run(shlex.split(unit(machine, service["Unit"]["OnSuccess"])["Service"]["ExecStart"]))


def cron(machine: Machine) -> None:
    [line] = [line for line in machine.prepared("cron/batchocr").splitlines() if not line.startswith("#")]
    machine.run(["sh", "-c", line.split(maxsplit=6)[6]])


def gpus(machine: Machine) -> None:
    (machine.root / "read.sh").write_text(machine.prepared("gpus/read.sh"))
    machine.run(["bash", "-u", "read.sh"])


def slurm(machine: Machine) -> None:
    _queue(machine, "slurm/read.sh")
    assert '--dependency="afterany:$job" verify.sh' in machine.prepared("slurm/read.sh")
    (machine.root / "verify.sh").write_text(machine.prepared("slurm/verify.sh"))
    machine.run(["bash", "-u", "verify.sh"])


def ray(machine: Machine) -> None:
    _queue(machine, "ray/read.sbatch")


def _queue(machine: Machine, script: str) -> None:
    """Run a job of Slurm again as often as it asks for."""
    machine.install("srun", 'while [ "${1#--}" != "$1" ]; do shift; done; case $1 in *batchocr) exec "$@" ;; esac')
    machine.install("scontrol", 'if [ "$1" = requeue ]; then touch requeued; else echo node1; fi')
    (machine.root / "job").write_text(machine.prepared(script))
    known = {"SLURM_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "1", "SLURM_CPUS_PER_TASK": "8"}
    known |= {"SLURM_NNODES": "1", "SLURM_JOB_NODELIST": "node1"}
    for restarts in range(_MOST_ATTEMPTS):
        machine.run(["bash", "-u", "job"], **known, SLURM_RESTART_COUNT=str(restarts))
        if not (machine.root / "requeued").exists():
            return
        (machine.root / "requeued").unlink()
    raise AssertionError("it is queued again for ever")


def kubernetes(machine: Machine) -> None:
    text = machine.prepared("kubernetes/read.yaml")
    job = yaml.safe_load(text)["spec"]
    [container] = job["template"]["spec"]["containers"]
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
    never = "exec tail -f /dev/null"
    machine.install("kubectl", f'case "$*" in *={ended}*) ;; wait*) {never} ;; *verify.yaml) {verified} ;; esac')
    commands = re.findall(r"^#   (.+)$", text, re.MULTILINE)
    assert len(commands) == 4
    machine.run(["bash", "-c", "\n".join(commands) + "; kill $(jobs -p) 2>/dev/null"])


def airflow(machine: Machine, dag: ModuleType) -> None:
    for _ in range(1 + dag.read.options["retries"]):
        try:
            dag.read.function(1)
        except FailError:
            break
        except RuntimeError:
            continue
        break
    assert dag.verify.options["trigger_rule"] == "all_done"
    with pytest.raises((RuntimeError, FailError)):
        dag.verify.function()


SCHEDULERS: dict[Callable[..., None], int] = {systemd: 30, cron: 1, gpus: 6, slurm: 51, ray: 51, kubernetes: 11}
"""How often each begins again what may succeed later, and does not."""
ALWAYS_VERIFIES = {slurm, kubernetes, airflow}


def done_with(machine: Machine, code: ExitCode, run: Callable[[], None]) -> tuple[int, int]:
    """How often the recipe's batchocr read, and how often it compared, if reading ends with this code."""
    names = '[ "$1" = verify ] && code=3'
    machine.install("batchocr", f'echo "$1" >> {machine.root}/calls; code={code:d}; {names}; exit "$code"')
    machine.install("sleep", ":")
    run()
    calls = (machine.root / "calls").read_text().split()
    assert set(calls) <= {"run", "ray", "verify"} and calls.index("verify") > 0 if "verify" in calls else True
    return sum(call != "verify" for call in calls), calls.count("verify")


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_damaged_file_is_read_around_once_and_then_named(machine: Machine, scheduler: Callable[..., None]) -> None:
    times = 2 if scheduler is cron else 1  # the second time for its mail
    assert done_with(machine, DAMAGED, lambda: scheduler(machine)) == (1, times)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_an_empty_folder_is_looked_at_once(machine: Machine, scheduler: Callable[..., None]) -> None:
    assert done_with(machine, EMPTY, lambda: scheduler(machine)) == (1, int(scheduler in ALWAYS_VERIFIES))


@pytest.mark.parametrize(("scheduler", "attempts"), SCHEDULERS.items())
def test_a_store_that_stays_away_is_asked_a_few_times(
    machine: Machine, scheduler: Callable[..., None], attempts: int
) -> None:
    assert done_with(machine, AWAY, lambda: scheduler(machine)) == (attempts, int(scheduler in ALWAYS_VERIFIES))


@pytest.mark.parametrize(("code", "attempts"), [(DAMAGED, 1), (EMPTY, 1), (AWAY, 21)])
def test_airflow_on_bad_days(machine: Machine, dag: ModuleType, code: ExitCode, attempts: int) -> None:
    assert done_with(machine, code, lambda: airflow(machine, dag)) == (attempts, 1)


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


@pytest.mark.long
@pytest.mark.slow
def test_what_batchocr_exits_with(machine: Machine, model: None) -> None:
    root = machine.root
    job = [sys.executable, "-m", "batchocr", "run", "--model", f"{root}/models/mineru", "--workers", "1", "--dpi", "72"]
    (root / "data" / "in" / "broken.pdf").write_bytes(b"%PDF-1.7 and nothing more")
    (root / "empty").mkdir()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
        away = machine.run([*job, "s3://mine/in", "--out", "c.parquet"], AWS_ENDPOINT_URL=endpoint)
    damaged = machine.run([*job, "data/in", "--out", "a.parquet", "--max-degraded-rate", "1"])
    empty = machine.run([*job, "empty", "--out", "b.parquet"])
    assert (damaged.returncode, empty.returncode, away.returncode) == (DAMAGED, EMPTY, AWAY), away.stderr
    many = [f"{root}/data/in/letter.pdf", *(str(root / "data" / "in" / f"{number}.pdf") for number in range(40))]
    for number, path in enumerate(many[1:]):
        (root / "data" / "in" / path).write_bytes((root / "data/in/letter.pdf").read_bytes() + b"\n" * (number + 1))
    out = root / "d.parquet"
    with subprocess.Popen([*job, *many, "--out", str(out)], stderr=subprocess.PIPE, text=True) as process:
        wait_for_rows(process, out, 1)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == STOPPED
