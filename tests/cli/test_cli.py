"""The command, through its entry point: exit codes, signals, and its messages. The run behind it is a stand-in."""

from __future__ import annotations

import io
import json
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import psutil
import pytest
import typer
import typer.core
import typer.main
from typer.testing import CliRunner

from batchocr.cli.console import print_out
from batchocr.cli.help import MAX_SHORT
from batchocr.cli.main import app
from batchocr.cli.options import ALL, Flags, takes_options
from batchocr.cli.signals import LONGEST_ENDING_S
from batchocr.config import Config, make_config
from batchocr.errors import ExitCode
from tests.support.sqlite_attacks import ENDLESS
from tests.support.stand_in import RUN, STAND_IN, command, ended, signalled, start

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "docs"), "--out"),
        (("run", "--out", "table.parquet"), "INPUT"),
        ((*RUN, "--dtype", "float16"), "float32"),
        ((*RUN, "--dpi", "0"), "batchocr: error: --dpi 0: should be greater than 0"),
        ((*RUN, "--log-format", "xml"), "'xml' is not one of 'text', 'json'"),
        ((*RUN, "--recipe", "gpu9"), "batchocr: error: the recipe gpu9 cannot be read"),
        ((*RUN, "--quiet", "--verbose"), "batchocr: error: --quiet and --verbose contradict each other"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_what_is_wrong(arguments: tuple[str, ...], said: str) -> None:
    exit_code, _, stderr = command(*arguments)
    assert exit_code == 2
    assert said in stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize("width", ["80", "120"])
def test_the_help_names_every_option_unbroken(width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", width)
    shown = command("run", "--help")[1]
    named = set(re.findall("--[a-z-]+", shown))
    for field in fields(Config):
        assert f"--{field.name.replace('_', '-')}" in named
        is_switch = isinstance(field.default, bool) or field.name == "retry_failed"
        assert (f"--no-{field.name.replace('_', '-')}" in named) == is_switch
    assert max(len(line) for line in shown.splitlines()) <= int(width)


def test_the_full_help_has_examples_first_choices_as_choices_and_exit_codes_last() -> None:
    lines = command("run", "--help")[1].splitlines()
    headings = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert (headings[0], headings[-1], len(lines) <= 180) == ("Examples:", "Exit codes:", True)
    shown = "\n".join(lines)
    for names in ("--figures skip|read", "--text-layer off|check|trust", "--log-format text|json", "-o, --out PATH"):
        assert f"\n  {names} " in shown
    assert {int(code) for code in re.findall(r"\n  (\d+) ", shown.partition("Exit codes:")[2])} == set(ExitCode)


COMMANDS = [one.callback.__name__ for one in app.registered_commands if one.callback]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_short_help_of_a_command_fits_on_a_screen_with_a_line_for_each_option(name: str) -> None:
    shown, in_full = (CliRunner().invoke(app, [name, flag], prog_name="batchocr") for flag in ("-h", "--help"))
    assert shown.exit_code == in_full.exit_code == 0
    assert f"Usage: batchocr {name} " in shown.output and f"\nExamples:\n  batchocr {name}" in shown.output
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    needed = [max(each.opts, key=len) for each in group.commands[name].params if each.required]
    assert all(f"{option} " in shown.output for option in needed if option.startswith("--"))
    if shown.output != in_full.output:
        assert len(shown.output.splitlines()) <= 40
        options = shown.output.partition("\nOptions:\n")[2].partition("\n\n")[0].splitlines()
        assert len(options) <= MAX_SHORT
        assert all(line.startswith("  -") for line in options)
        assert f"options: batchocr {name} --help" in shown.output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_can_be_quiet(name: str) -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    assert any("-q" in parameter.opts for parameter in group.commands[name].params)


@pytest.mark.parametrize(
    "example",
    re.findall(r"\n    (batchocr .*|find .*)", "".join(str(one.callback.__doc__) for one in app.registered_commands)),
)
def test_every_example_of_the_help_is_a_command_line_that_is_understood(example: str) -> None:
    name, *arguments = shlex.split(example.partition("batchocr ")[2])
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    group.commands[name].make_context(name, arguments)


def test_a_flag_that_contradicts_the_recipe_is_refused(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text("overwrite = true")
    exit_code, _, stderr = command(*RUN, "--recipe", str(tmp_path / "recipe.toml"), "--resume")
    assert (exit_code, "--overwrite and --resume contradict each other" in stderr) == (2, True)


@pytest.mark.parametrize("name", [field.name for field in fields(Config) if isinstance(field.default, bool)])
def test_a_flag_switches_on_what_the_recipe_switched_off_and_the_other_way_round(name: str, tmp_path: Path) -> None:
    recipe, key, seen = tmp_path / "recipe.toml", name.replace("_", "-"), []
    app = typer.Typer()

    @app.command()
    @takes_options(*ALL)
    def show(flags: Flags) -> None:
        seen.append(getattr(make_config(flags, str(recipe)), name))

    for said, flag in (("false", f"--{key}"), ("true", f"--no-{key}")):
        recipe.write_text(f"{key} = {said}")
        assert CliRunner().invoke(app, [flag]).exit_code == 0
    assert seen == [True, False]


def test_the_version_is_printed() -> None:
    exit_code, shown, _ = command("--version")
    assert (exit_code, shown.split()[0]) == (0, "batchocr")


@pytest.mark.parametrize(
    ("body", "arguments", "code", "said"),
    [
        ("return report()", (), 0, "the table is table.parquet, the report table.parquet.report.json"),
        ("return report(failed=1)", (), 3, "1 of 10 rows failed, more than --max-page-error-rate 0 allows"),
        (
            "return report(failed=1, allowed=config.max_page_error_rate)",
            ("--max-page-error-rate", "0.1"),
            0,
            "9 ok + 0 degraded + 1 failed",
        ),
        ("return report(found=11)", (), 1, "not all of 11 items are accounted for"),
        ("raise errors.NoInputError('no file')", (), 4, "batchocr: error: no file\n"),
        ("raise errors.OutputMismatchError('not ours')", (), 6, "batchocr: error: not ours\n"),
    ],
)
def test_how_the_run_went_decides_the_exit_code(body: str, arguments: tuple[str, ...], code: int, said: str) -> None:
    exit_code, _, stderr = command(*RUN, *arguments, body=body)
    assert exit_code == code
    assert said in stderr
    assert "Traceback" not in stderr


def test_a_bug_shows_where_it_is() -> None:
    exit_code, stderr = ended(start("raise KeyError('x')", *RUN))
    assert exit_code == 1
    assert "batchocr: error: a bug in batchocr: KeyError: 'x'\nTraceback" in stderr


def test_verbose_shows_where_an_error_came_from() -> None:
    exit_code, _, stderr = command(*RUN, "--verbose", body="raise errors.ModelError('no weights')")
    assert exit_code == 5
    assert "batchocr: error: no weights\nTraceback" in stderr


def test_only_the_flags_that_were_given_reach_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BATCHOCR_PASSWORD", "secret")
    recipe = tmp_path / "job.toml"
    recipe.write_text("vit-batch-size = 8\nllm-batch-size = 16\n")
    flags = ("--recipe", str(recipe), "--no-penalties", "--vit-batch-size", "4", "--stop-after", "1m", "--shard", "2/8")
    flags = (*flags, "--no-retry-failed")
    shown = command(*RUN, "@list.txt", "-", *flags, body="print(repr(config), inputs, out); return report()")[1]
    config = Config(
        password="secret",
        penalties=False,
        vit_batch_size=4,
        llm_batch_size=16,
        stop_after=60.0,
        shard=(2, 8),
        retry_failed=False,
    )
    assert shown == f"{config!r} ['docs', '@list.txt', '-'] table.parquet\n"


@pytest.mark.parametrize(
    ("number", "code", "flags"),
    [(signal.SIGINT, 130, ()), *((signal.SIGTERM, 75, flags) for flags in ((), ("--overwrite",), ("--no-resume",)))],
)
def test_a_signal_ends_the_run_in_good_order_and_says_how_to_go_on(
    number: signal.Signals, code: int, flags: tuple[str, ...]
) -> None:
    exit_code, stderr = signalled(number, "return wait_for_stop(stop)", *RUN, *flags)
    assert exit_code == code
    assert "stopping once the pages in flight are finished" in stderr
    assert f"run the same command again{''.join(f', without {flag},' for flag in flags)} to continue" in stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)], ids=lambda value: str(value))
def test_a_signal_before_the_first_page_ends_the_run_at_once(number: signal.Signals, code: int) -> None:
    body = "try: print('listing', flush=True); sys.stdin.read()\n    finally: print('put in order', flush=True)"
    process = start(body, *RUN, "--log-format", "json")
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(number)
    assert process.stdout.readline() == "put in order\n"
    exit_code, stderr = ended(process)
    assert exit_code == code
    said = json.loads(stderr)
    assert (said["event"], said["exit_code"]) == ("run_stopped", code)
    assert "before the first page: run the same command again to start it" in said["message"]


def test_a_second_sigterm_does_not_wait_for_a_download() -> None:
    body = "try: print('downloading', flush=True); sys.stdin.read()\n    finally:\n        while True: signal.pause()"
    process = start(body, *RUN)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    assert "terminated before the first page" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=LONGEST_ENDING_S - 2)
    assert process.returncode == 75


def test_a_download_that_does_not_end_is_left_after_a_while() -> None:
    body = "sys.modules['batchocr.cli.signals'].LONGEST_ENDING_S = 0.2; print('downloading', flush=True)"
    body += "\n    try: sys.stdin.read()\n    finally:\n        while True: signal.pause()"
    assert signalled(signal.SIGTERM, body, *RUN)[0] == 75


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda value: str(value))
def test_a_signal_after_the_last_page_lets_the_output_be_finished(number: signal.Signals) -> None:
    body = "stop.phase = 'finishing'; print('writing', flush=True); sys.stdin.read(); return report()"
    exit_code, stderr = signalled(number, body, *RUN)
    assert exit_code == 0
    assert "stopping once the output is finished" in stderr
    assert "the table is table.parquet" in stderr


HANG_IN_C = "import sqlite3; print('hanging', flush=True); sqlite3.connect('').execute(ENDLESS).fetchall()"
HANG_IN_C = HANG_IN_C.replace("ENDLESS", repr(f"select count(*) from ({ENDLESS})"))


def test_a_second_interrupt_ends_a_run_at_once_even_where_it_hangs_and_no_handler_runs() -> None:
    body = f"sys.modules['batchocr.cli.signals'].SAME_KEYSTROKE_S = 0.1; stop.phase = 'reading'; {HANG_IN_C}"
    process = start(body, *RUN, "--log-format", "json")
    assert process.stdout is not None
    process.stdout.readline()
    busy = psutil.Process(process.pid)
    begun_s = busy.cpu_times().user
    while busy.cpu_times().user < begun_s + 0.3:  # until it is in the query
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.5)
    process.send_signal(signal.SIGINT)
    exit_code, stderr = ended(process)
    assert exit_code == 130
    last = json.loads(stderr.splitlines()[-1])
    assert (last["event"], last["exit_code"]) == ("run_stopped", 130)
    assert last["message"] == "stopped at once; finished pages are kept: run the same command again to continue"


@pytest.mark.parametrize("phase", ["reading", pytest.param("starting", marks=pytest.mark.long)])
def test_two_interrupts_in_one_moment_are_the_same_keystroke(phase: str) -> None:
    body = f"stop.phase = '{phase}'\n    try:\n        print('at work', flush=True)"
    body += "\n        while stop.reason is None: time.sleep(0.01)"
    body += "\n    finally: print('stopping', flush=True); sys.stdin.read(); print('put in order', flush=True)"
    process = start(body + "\n    return report('interrupted')", *RUN)
    assert process.stdout is not None
    for expected in ("at work\n", "stopping\n"):
        assert process.stdout.readline() == expected
        process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[0] == "put in order\n"
    assert process.returncode == 130


def test_quiet_leaves_only_warnings_and_errors() -> None:
    body = "progress and progress.show(RunProgress(1, 1, True, 0, 1)); return report()"
    assert command(*RUN, "-q", body=body) == (0, "", "")


def test_a_run_with_nothing_to_do_says_so_in_one_line() -> None:
    said = (
        "batchocr: nothing new to read and nothing to do, all 10 rows are done: the table is table.parquet, the report "
    )
    body = "return report(done_before=10)"
    assert command(*RUN, body=body) == (0, "", f"{said}table.parquet.report.json\n")
    assert command(*RUN, "--quiet", body=body) == (0, "", "")
    line = json.loads(ended(start(body, *RUN, "--log-format", "json"))[1])
    assert (line["event"], line["report"]["items"]["already_done"]) == ("run_finished", 10)
    assert "nothing to do" in line["message"]
    assert "items " in command(*RUN, body="return report(done_before=9)")[2]


def test_the_report_in_the_log_is_short_however_many_inputs_there_were() -> None:
    long = "from dataclasses import replace; return replace(report(), inputs=tuple(['a' * 4000, 'b'] * 50))"
    few = long.replace("'a' * 4000", "'a'").replace("* 50", "* 5")
    for body, kept, cut in ((long, [], {"inputs": 100}), (few, ["a", "b"] * 5, {})):
        [line] = ended(start(body, *RUN, "--log-format", "json"))[1].splitlines()
        assert len(line) < 16_000
        assert (json.loads(line)["report"]["inputs"], json.loads(line)["cut"]) == (kept, cut)


def test_no_setting_in_the_report_can_move_the_cursor() -> None:
    body = "from dataclasses import replace; return replace(report(), settings={'model': 'red\\x1b[31m'})"
    assert r"model red\x1b[31m" in command(*RUN, "--verbose", body=body)[2]


def test_too_little_memory_is_no_bug() -> None:
    exit_code, _, stderr = command(*RUN, body="raise MemoryError")
    assert (exit_code, "not enough memory for this process" in stderr, "bug" in stderr) == (1, True, False)


@pytest.mark.parametrize("reason", ["finished", "stopped"])
def test_pages_read_only_in_part_are_told_even_if_quiet(reason: str) -> None:
    exit_code, _, stderr = command(
        "run", "docs", "-o", "table.parquet", "-q", body=f"return report({reason!r}, failed=2, allowed=1.0, degraded=3)"
    )
    assert exit_code == {"finished": 0, "stopped": 75}[reason]
    assert stderr == (
        "batchocr: warning: 3 of 8 pages came out incomplete (status degraded); the column error_message says why\n"
    )


def test_a_run_says_which_pages_a_person_should_look_at() -> None:
    body = "from dataclasses import replace; return replace(report(), doubtful={}, traits={})"
    said = command(*RUN, body=body.format(3, {"doubtful": 3, "turned": 1, "rescued": 2}))[2]
    whole = "3 pages may have been read wrongly or in part (doubtful)"
    assert f"batchocr: {whole}: `batchocr view` shows the worst first\n" in said
    turned = "1 page on a side or upside down, and read as if upright: --orientation turn reads such pages"
    assert f"batchocr: {turned}, into another --out or with --overwrite\n" in said
    assert "traits       3 doubtful, 1 turned, 2 rescued\n" in said
    assert "doubtful" not in command(*RUN, body=body.format(0, {}))[2]


def test_the_json_log_is_one_object_a_line_and_ends_with_the_report() -> None:
    body = "progress.show(RunProgress(9, 10, True, 2, 9)); progress.close(); return report(failed=2)"
    exit_code, stderr = ended(start(body, *RUN, "--log-format", "json"))
    lines = [json.loads(line) for line in stderr.splitlines()]
    assert exit_code == 3
    assert [line["event"] for line in lines] == ["progress", "progress", "message", "run_finished"]
    assert (lines[0]["done"], lines[0]["planned"], lines[0]["failed"]) == (9, 10, 2)
    assert lines[2]["level"] == "warning"
    assert (lines[3]["exit_code"], lines[3]["report"]["items"]["failed"]) == (3, 2)


def test_the_json_log_names_a_stop() -> None:
    _, said = ended(start("return report('stopped')", *RUN, "--log-format", "json"))
    stopped = json.loads(said.splitlines()[0])
    assert (stopped["event"], stopped["exit_code"]) == ("run_stopped", 75)


def test_warnings_and_logs_of_libraries_are_kept_from_the_user() -> None:
    body = "import warnings, logging; warnings.warn('w'); logging.getLogger('other').warning('l'); return report()"
    assert ended(start(body, *RUN, "--quiet")) == (0, "")


@pytest.mark.parametrize("closed", ["2>&-", "2>&1 >/dev/null | true"])
def test_a_reader_of_stderr_that_has_gone_changes_nothing(closed: str) -> None:
    program = STAND_IN.replace("BODY", "progress.show(RunProgress(1, 1, True, 0, 1)); return report(failed=1)")
    script = f'"$0" -c "$1" run docs --out table.parquet {closed}; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", script, sys.executable, program], timeout=60, check=False)
    assert done.returncode == 3


def test_letters_that_a_locale_lacks_are_printed_as_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding="latin-1"))
    print_out("é → ü")
    sys.stdout.flush()
    assert printed.getvalue() == b"\xe9 \\u2192 \xfc\n"
