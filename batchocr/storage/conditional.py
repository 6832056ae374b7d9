"""Small objects, read with a tag of their version, and put on the condition that this is still the one that is there.

pyarrow's file systems cannot do that, obstore can. But it hangs in a child that is forked after its use, and the caller
may fork: so it runs in a process of its own (`conditional_process`), which is started when it is first needed, and by a
fork anew. COPY and DELETE go there, too: pyarrow's DELETE puts an empty object in place of the folder.
"""

from __future__ import annotations

import configparser
import json
import os
import subprocess
import sys
from contextlib import suppress
from functools import cache
from multiprocessing.connection import Pipe
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import finalize

from batchocr.errors import ChangedError, UnavailableError
from batchocr.machine import job_signals_blocked
from batchocr.storage.objects import reasons, s3_location
from batchocr.storage.uris import parse_uri

_PROGRAM = str(Path(__file__).with_name("conditional_process.py"))
_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
_ASKED_FOR = ("role_arn", "sso_session", "sso_start_url", "credential_process")
"""What says in a profile how to get credentials: pyarrow does, obstore does not."""


def is_possible(text: str) -> bool:
    """Whether objects of this store can be put on a condition: not in HDFS, nor with credentials that only pyarrow
    finds, as those of single sign-on."""
    uri = parse_uri(text)
    return uri.scheme != "hdfs" and _settings(uri.scheme, uri.authority) is not None


def get(text: str) -> tuple[bytes, str]:
    """The object, whole, and the tag of its version. Raises NotFoundError, UnreadableError."""
    return _ask("get", text)


def put(content: bytes, text: str, tag: str | None) -> str:
    """Put the content in place of the version with this tag, or where there is none; returns the new tag.

    Raises ChangedError if another version is there, which may be that of this call, if the answer was lost;
    NotFoundError (of the bucket), UnreadableError.
    """
    return _ask("put", text, content, mode=json.loads(tag) if tag else "create")[1]


def copy(text: str, to: str) -> None:
    """Have the store copy an object to another name in the same bucket. Raises NotFoundError, UnreadableError."""
    _ask("copy", text, parse_uri(to).key)


def remove(text: str) -> None:
    """Remove the object, if there is one. Raises NotFoundError (of the bucket), UnreadableError."""
    _ask("delete", text)


def _ask(function: str, text: str, *arguments: object, **options: object) -> tuple[bytes, str]:
    """The content and the tag that a function of obstore returns for an object, if it returns any."""
    uri = parse_uri(text)
    store = f"{uri.scheme.replace('gcs', 'gs')}://{uri.authority}", json.dumps(_settings(uri.scheme, uri.authority))
    try:
        process = _process(uri.scheme, os.getpid())
        answer: tuple[bytes, str] | OSError = process.ask((store, function, (uri.key, *arguments), options))
    except (EOFError, OSError):
        raise UnavailableError(
            f"{uri}: the process that asks the store ended before it answered: see whether memory is short"
        ) from None
    if isinstance(answer, FileExistsError):
        raise ChangedError(f"{uri} was replaced meanwhile")
    with reasons(uri):
        if isinstance(answer, OSError):
            raise answer
    return answer


class _Process:
    """The process in which obstore runs, which any thread may ask. Its standard input carries nothing: it ends with
    that, which is when nothing refers to this object any more, or this process ends, however that does."""

    def __init__(self, scheme: str) -> None:
        """scheme: of the stores that it is to be asked for."""
        # pyarrow's client for S3 goes past the proxies that the environment names, its others through them.
        environment = {
            name: value for name, value in os.environ.items() if scheme != "s3" or not name.lower().endswith("_proxy")
        }
        self._connection, its = Pipe()
        self._asking = Lock()
        command = [sys.executable, "-P", _PROGRAM, str(its.fileno())]
        with its, job_signals_blocked():
            process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[its.fileno()], env=environment)
        finalize(self, process.communicate)

    def ask(self, request: object) -> Any:
        """The answer. Raises EOFError, OSError if the process has ended."""
        with self._asking:
            try:
                self._connection.send(request)
                return self._connection.recv()
            except BaseException:  # nobody takes the answer that may still come: later requests go to another process
                self._connection.close()
                _process.cache_clear()
                raise


@cache
def _process(scheme: str, pid: int) -> _Process:
    return _Process(scheme)


@cache
def _settings(scheme: str, authority: str) -> dict[str, str] | None:
    """What obstore is told of a store, beside the environment; None if only pyarrow finds the credentials."""
    if scheme != "s3":
        return {}
    endpoint, region = s3_location(authority)
    profile = {} if "AWS_ACCESS_KEY_ID" in os.environ else _profile()
    if _KEYS[0] not in profile and not profile.keys().isdisjoint(_ASKED_FOR):
        return None
    settings = {"endpoint": endpoint, "region": region, **{key: profile.get(key) for key in _KEYS}}
    return {"disable_bulk_delete": "true"} | {name: value for name, value in settings.items() if value}


def _profile() -> dict[str, str]:
    """What AWS's files say of the profile in use, as far as they can be read."""
    name, parser = os.environ.get("AWS_PROFILE") or "default", configparser.RawConfigParser(strict=False)
    for variable, file in (("AWS_CONFIG_FILE", "config"), ("AWS_SHARED_CREDENTIALS_FILE", "credentials")):
        with suppress(configparser.Error, ValueError):
            parser.read(os.environ.get(variable) or os.path.expanduser(f"~/.aws/{file}"), encoding="utf-8")
    sections = [section for section in (f"profile {name}", name) if parser.has_section(section)]
    return {key: value for section in sections for key, value in parser.items(section)}
