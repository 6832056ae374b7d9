"""Options and recipes: what is accepted, what is refused, and which takes precedence."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchocr.config import Config, Option, load_recipe, make_config
from batchocr.errors import UsageError
from batchocr.options import Options
from tests.support.derived import derived_files


def recipe(folder: Path, text: str) -> str:
    path = folder / "recipe.toml"
    path.write_text(text)
    return str(path)


def test_flags_win_over_the_recipe_and_the_recipe_over_defaults(tmp_path: Path) -> None:
    path = recipe(tmp_path, "dpi = 150\nvit-batch-size = 4\n")
    config = make_config({"dpi": 300}, path)
    assert (config.dpi, config.vit_batch_size, config.max_new_tokens) == (300, 4, Config().max_new_tokens)


def test_keys_of_a_recipe_are_flags_with_dashes_or_underscores(tmp_path: Path) -> None:
    path = recipe(tmp_path, 'penalties = false\nretry_failed = false\nstop-after = "1h30m"\nshard = "2/8"\n')
    assert load_recipe(path) == {"penalties": False, "retry_failed": False, "stop_after": 5400.0, "shard": (2, 8)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("out = 't.parquet'", "on the command line"),
        ("vit-batchsize = 4", "did you mean 'vit_batch_size'"),
        ("colour = 'red'", "there are: backend, cache, device"),
        ("no-penalties = true", "there is no option 'no_penalties'; write penalties = false"),
        ("dpi = '200'", "--dpi '200': should be a valid integer"),
        ("dpi = true", "--dpi True"),
        ("pages = '3-1'", "runs backwards"),
        ("worker-memory = '4 gigabytes'", "not a size; write it as 4G or 512M"),
        ("worker-memory = '255M'", "--worker-memory '255M': should be at least 256M"),
        ("shard = [1, 2]", "--shard [1, 2]: should be a valid tuple"),
        ("dpi 200", "line 1"),
        ("x = " + "[" * 3000 + "1", "recursion depth"),
        ("dpi = " + "9" * 5000, "5000 digits"),
    ],
)
def test_a_recipe_that_cannot_work_is_refused_with_its_file_and_key(tmp_path: Path, text: str, said: str) -> None:
    path = recipe(tmp_path, text)
    with pytest.raises(UsageError) as refusal:
        make_config({}, path)
    assert path in str(refusal.value)
    assert said in str(refusal.value)


def test_a_recipe_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_bytes(b"model = '\xff'")
    with pytest.raises(UsageError, match="can't decode"):
        load_recipe(str(path))


@pytest.mark.parametrize("name", ["model", "cache", "password"])
def test_what_is_given_wins_over_the_environment_and_that_over_the_recipe(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = recipe(tmp_path, f"{name} = 'of the recipe'")
    assert getattr(make_config({}, path), name) == "of the recipe"
    monkeypatch.setenv(f"BATCHOCR_{name.upper()}", "of the environment")
    assert getattr(make_config({}, path), name) == "of the environment"
    assert getattr(make_config({name: "given"}, path), name) == "given"
    monkeypatch.setenv(f"BATCHOCR_{name.upper()}", "")
    assert getattr(make_config({}, path), name) == "of the recipe"


def test_a_password_of_none_is_none_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHOCR_PASSWORD", "of the environment")
    assert make_config({"password": None}).password is None


def test_so_few_dots_per_inch_that_letters_may_be_lost_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    for dpi in (5, 71, 72, 200):
        make_config({"dpi": dpi})
    assert [message.partition(":")[0] for message in caplog.messages] == ["--dpi 5", "--dpi 71"]


def test_paths_are_taken_for_text(tmp_path: Path) -> None:
    assert make_config({"model": tmp_path}).model == str(tmp_path)


def test_a_home_folder_is_found_where_no_shell_has_put_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    config = make_config({"cache": "~/answers", "work_dir": "~/made", "report": "~/report.json"})
    assert config.cache == "/home/ann/answers"
    assert (config.work_dir, config.report) == ("/home/ann/made", "/home/ann/report.json")


@pytest.mark.parametrize("path", derived_files(), ids=lambda path: path.name)
def test_what_is_made_from_dataclasses_is_current(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == derived_files()[path], "run `make options`"


def test_every_option_is_declared_once_with_its_help() -> None:
    for name, hint in get_type_hints(Config, include_extras=True).items():
        [option] = [part for part in get_args(hint) if isinstance(part, Option)]
        assert option.help.endswith("."), name


TEXTS = {"device": "cuda:0,cuda:1", "stop_after": "3h55m", "shard": "2/8", "worker_memory": "4G", "pages": "1-3,r1"}
TEXTS |= {"zip_encoding": "CP932"}
NUMBERS = {"worker_memory": 2**30}


def values_of(name: str, hint: object) -> list[object]:
    """A value in each form that the option is declared to take."""
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    if get_origin(hint) is os.PathLike:
        return [Path("some/path")]
    if get_origin(hint) is tuple:
        return [(2, 8)]
    if forms := get_args(hint):
        return [value for form in forms for value in values_of(name, form)]
    examples = {str: TEXTS.get(name, "text"), int: NUMBERS.get(name, 3), float: 0.5, bool: False, type(None): None}
    assert isinstance(hint, type)
    return [examples[hint], *([1] if hint is float else [])]


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, hint in get_type_hints(Options).items() for value in values_of(name, hint)],
)
def test_an_option_is_taken_in_every_form_that_it_is_declared_with(name: str, value: object) -> None:
    if name != "recipe":
        make_config({name: value})


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"vit_batch_size": 0}, "--vit-batch-size 0: should be greater than 0"),
        ({"limit": 2**70}, "should be less than"),
        ({"page_timeout": float("inf")}, "--page-timeout inf: should be a finite number"),
        ({"stop_after": "soon"}, "--stop-after 'soon': not a duration; write it as 3h55m or 90s"),
        ({"memory_fraction": 0.0}, "--memory-fraction 0.0: should be greater than 0"),
        ({"max_page_error_rate": 1.1}, "--max-page-error-rate 1.1: should be less than or equal to 1"),
        ({"dtype": "fp16"}, "--dtype 'fp16': one of auto, float32, bfloat16"),
        ({"model": Path("a"), "report": 3}, "--report 3: should be a valid string"),
        ({"zip_encoding": "klingon"}, "--zip-encoding 'klingon': should be an encoding that Python knows"),
        ({"zip_encoding": "utf-16"}, "--zip-encoding 'utf-16': should be an encoding that Python knows"),
        ({"zip_encoding": "idna"}, "--zip-encoding 'idna': should be an encoding that Python knows"),
        ({"zip_encoding": "unicode_escape"}, "--zip-encoding 'unicode_escape': should be an encoding that"),
        ({"work_dir": "gs://bucket"}, "--work-dir 'gs://bucket': should be a path on this machine, not an address"),
    ],
)
def test_a_refusal_names_the_flag_the_value_and_what_is_allowed(option: dict[str, Any], said: str) -> None:
    for make in (make_config, lambda options: Config(**options)):
        with pytest.raises(UsageError) as refusal:
            make(option)
        assert said in str(refusal.value)
        assert "Value error" not in str(refusal.value)


def test_an_encoding_that_has_several_names_is_known_by_one() -> None:
    assert {make_config({"zip_encoding": name}).zip_encoding for name in ("CP866", "866", "ibm866")} == {"cp866"}


def test_a_refusal_never_shows_a_password() -> None:
    with pytest.raises(UsageError, match="--password: should be a valid string") as refusal:
        make_config({"password": 123456})
    chain = [refusal.value, refusal.value.__cause__]
    assert not any("123456" in f"{error}{error!r}" for error in chain)
    assert "123456" not in repr(make_config({"password": "123456"}))


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))
def test_durations_are_hours_minutes_and_seconds(hours: int, minutes: int, seconds: int) -> None:
    total = hours * 3600 + minutes * 60 + seconds
    text = f"{hours}h{minutes}m{seconds}s"
    if total:
        assert make_config({"stop_after": text}).stop_after == total
    else:
        with pytest.raises(UsageError, match=r"--stop-after .*: should be greater than 0"):
            make_config({"stop_after": text})


@pytest.mark.parametrize("text", ["", "90", "1.5h", "5m3h", "-5s", "٣s", "3 h"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--stop-after"):
        make_config({"stop_after": text})


@pytest.mark.parametrize(("size", "num_bytes"), [("4G", 4 * 2**30), ("512M", 512 * 2**20), (2**30, 2**30)])
def test_sizes_are_in_powers_of_1024(size: str | int, num_bytes: int) -> None:
    assert make_config({"worker_memory": size}).worker_memory == num_bytes


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "1/2/3", "a/b"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--shard"):
        make_config({"shard": text})
