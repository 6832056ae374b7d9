"""Objects that are put on the condition that a version is still there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from batchocr.errors import ChangedError, DeniedError, NoBucketError, NotFoundError, UnavailableError, UnreadableError
from batchocr.storage import conditional
from batchocr.storage.conditional import copy, get, is_possible, put, remove
from batchocr.tables.remote_output import fetch_tables
from tests.support.object_store import SECRET, Environ, ObjectStore, answering, first

NAME = "s3://conditional/folder/table.json"


@pytest.fixture(autouse=True)
def bucket(store: ObjectStore) -> None:
    store.put("conditional", {})
    for key in store.keys("conditional"):
        store.delete("conditional", key)


def test_a_version_is_replaced_once(store: ObjectStore) -> None:
    tag = put(b"one", NAME, None)
    assert get(NAME) == (b"one", tag)
    newer = put(b"two", NAME, tag)
    for stale in (None, tag):
        with pytest.raises(ChangedError, match="was replaced meanwhile"):
            put(b"three", NAME, stale)
    assert get(NAME) == (b"two", newer)
    assert [method for method, *_ in store.requests] == ["PUT", "GET", "PUT", "PUT", "PUT", "GET"]


def test_of_ten_that_replace_the_same_version_at_once_one_does() -> None:
    tag = put(b"one", NAME, None)

    def replace(number: int) -> bool:
        try:
            return bool(put(b"two %d" % number, NAME, tag))
        except ChangedError:
            return False

    with ThreadPoolExecutor(10) as pool:
        assert sum(pool.map(replace, range(10))) == 1


def test_a_version_that_was_removed_is_not_replaced() -> None:
    tag = put(b"one", NAME, None)
    remove(NAME)
    with pytest.raises(ChangedError):
        put(b"two", NAME, tag)
    with pytest.raises(NotFoundError, match="there is nothing at"):
        get(NAME)


def test_a_copy_is_made_in_the_store_and_what_is_removed_leaves_nothing(store: ObjectStore) -> None:
    odd = "s3://conditional/folder/a b%20ü#?.json"
    content = bytes(range(256)) * 20_000 + b"\n"
    put(content, odd, None)
    store.forget()
    copy(odd, NAME)
    remove(odd)
    remove(odd)
    assert [method for method, *_ in store.requests] == ["PUT", "DELETE", "DELETE"]
    assert store.keys("conditional") == ["folder/table.json"]
    assert get(NAME)[0] == content


@pytest.mark.parametrize(
    ("status", "code", "error", "said"),
    [
        ("403 Forbidden", "SignatureDoesNotMatch", DeniedError, r"access is denied \(SignatureDoesNotMatch\): check"),
        ("400 Bad Request", "ExpiredToken", DeniedError, "access is denied"),
        ("404 Not Found", "NoSuchBucket", NoBucketError, "no bucket conditional"),
        ("301 Moved Permanently", "PermanentRedirect", UnreadableError, "another region"),
        ("418 Teapot", "Odd", UnreadableError, r"the store refuses it \(Odd\)$"),
    ],
)
def test_what_a_store_says_gets_a_reason_and_is_not_quoted(
    store: ObjectStore, status: str, code: str, error: type[Exception], said: str
) -> None:
    asks: list[Callable[[], object]] = [
        lambda: get(NAME),
        lambda: put(b"1", NAME, None),
        lambda: copy(NAME, NAME + "2"),
    ]
    with store.failing(answering(status, code)):
        for ask in asks:
            with pytest.raises(error, match=said) as raised:
                ask()
            assert "says the store" not in str(raised.value)
            assert SECRET not in str(raised.value)


def test_a_name_does_not_count_as_what_the_store_says() -> None:
    odd = "s3://conditional/credentials/redirect/token.json"
    with pytest.raises(NotFoundError):
        get(odd)


@pytest.mark.parametrize("status", ["503 Slow Down", "500 Internal Error", "429 Too Many"])
def test_a_busy_store_is_asked_again(store: ObjectStore, status: str) -> None:
    with store.failing(first(2, answering(status, "Busy"))):
        tag = put(b"one", NAME, None)
    assert get(NAME) == (b"one", tag)


@pytest.mark.slow
def test_a_store_that_does_not_answer_is_given_up(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with store.failing(answering("503 Slow Down", "SlowDown")), pytest.raises(UnavailableError, match="stayed so"):
        get(NAME)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    conditional._settings.cache_clear()
    conditional._store.cache_clear()
    with pytest.raises(UnavailableError, match="the store does not answer"):
        put(b"one", NAME, None)


@pytest.mark.parametrize("ask", [get, fetch_tables])
def test_a_signal_ends_what_waits_for_a_store_that_is_silent(store: ObjectStore, ask: Callable[[str], object]) -> None:
    this, is_over = threading.get_ident(), threading.Event()

    def silent(_: Environ, __: Any) -> None:
        signal.pthread_kill(this, signal.SIGUSR1)
        is_over.wait(30)

    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)  # SIGINT is ignored where tests run side by side
    began_s = time.monotonic()
    try:
        with store.failing(silent), pytest.raises(KeyboardInterrupt):
            ask(NAME)
    finally:
        is_over.set()
        signal.signal(signal.SIGUSR1, before)
    assert time.monotonic() - began_s < 15


def test_a_fork_of_a_process_that_has_used_a_store_is_refused_instead_of_hanging() -> None:
    put(b"one", NAME, None)
    if (pid := os.fork()) == 0:
        signal.alarm(30)
        with pytest.raises(UnreadableError, match="start it by `spawn`"):
            get(NAME)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def test_obstore_is_loaded_when_a_store_is_used() -> None:
    code = f"""
import sys
from batchocr.storage.conditional import put
import batchocr.cli.run, batchocr.tables.remote_output
before = "obstore" in sys.modules
put(b"one", {NAME!r}, None)
print(before, "obstore" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_the_proxies_that_pyarrow_goes_past_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    tag = put(b"one", NAME, None)
    assert get(NAME) == (b"one", tag)


# Credentials


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of AWS's files; no key is in the environment."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return tmp_path


KEYS = f"aws_access_key_id = AKIAPROFILE\naws_secret_access_key = {SECRET}\n"


@pytest.mark.parametrize(
    ("file", "section", "profile"),
    [("credentials", "night", "night"), ("config", "profile night", "night"), ("credentials", "default", None)],
)
def test_keys_come_from_the_profile(
    store: ObjectStore, aws: Path, monkeypatch: pytest.MonkeyPatch, file: str, section: str, profile: str | None
) -> None:
    (aws / file).write_text(f"[other]\nrole_arn = arn\n[{section}]\n{KEYS}")
    if profile:
        monkeypatch.setenv("AWS_PROFILE", profile)
    signed_by = []

    def watch(environ: Environ, _: Any) -> None:
        signed_by.append(environ["HTTP_AUTHORIZATION"])

    with store.failing(watch):
        put(b"one", NAME, None)
    assert ["Credential=AKIAPROFILE/" in signature for signature in signed_by] == [True]


@pytest.mark.parametrize("setting", ["sso_session = x", "role_arn = x\nsource_profile = y", "credential_process = x"])
def test_credentials_that_have_to_be_asked_for_are_left_to_pyarrow(
    aws: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    (aws / "config").write_text(f"[profile night]\n{setting}\n[default]\n{KEYS}")
    assert is_possible(NAME)
    conditional._settings.cache_clear()
    monkeypatch.setenv("AWS_PROFILE", "night")
    assert not is_possible(NAME)


def test_the_environment_goes_before_the_profile_and_a_damaged_file_is_no_profile(
    aws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (aws / "config").write_bytes(b"\xff no section\n")
    assert is_possible(NAME)
    conditional._settings.cache_clear()
    (aws / "config").write_text("[default]\nsso_session = x\n")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    assert is_possible(NAME)


@pytest.mark.parametrize("uri", ["gs://b/c/", "gcs://b/c/", "abfss://c@a.dfs.core.windows.net/d/"])
def test_other_stores_take_conditions_and_hdfs_does_not(uri: str) -> None:
    assert is_possible(uri)
    assert not is_possible("hdfs://host/c/")


@pytest.mark.parametrize("url", ["gs://bucket", "abfs://c@a.dfs.core.windows.net", "abfss://c@a.dfs.core.windows.net"])
def test_obstore_knows_the_schemes(url: str) -> None:
    code = f"from batchocr.storage.conditional import _store; _store(*{url!r}.split('://'))"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "GOOGLE_SKIP_SIGNATURE": "true"})
