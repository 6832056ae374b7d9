"""Small objects, read with a tag of their version, and put on the condition that the object there still has that tag.

pyarrow's file systems cannot do that, obstore can, which is loaded when it is first needed. COPY and DELETE are its
work, too: pyarrow's DELETE puts an empty object in place of the folder. In a child that is forked after its use it
hangs, so it is not used there.
"""

from __future__ import annotations

import configparser
import json
import os
import re
from contextlib import suppress
from datetime import timedelta
from functools import cache
from typing import Any

from batchocr.errors import ChangedError, UnreadableError
from batchocr.storage.objects import asked, reasons, s3_location
from batchocr.storage.uris import parse_uri

_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
_ASKED_FOR = ("role_arn", "sso_session", "sso_start_url", "credential_process")
"""What says in a profile how to get credentials: pyarrow does, obstore does not."""

_RETRIES: Any = {"max_retries": 6, "retry_timeout": timedelta(seconds=30)}
_TIMEOUTS = {"connect_timeout": "5s", "read_timeout": "60s", "timeout": "30m"}
"""The timeouts of requests: a store may be silent for long while it copies."""
_NO_PROXY = {"proxy_url": "http://none", "proxy_excludes": "*,0.0.0.0/0,::/0"}
"""The proxy options of pyarrow's client for S3, which then goes past the proxies that the environment names; its other
clients go through them."""

_CODES = re.compile(r"status code: \d{3}|<Code>\w{1,60}</Code>|HTTP error: |Received redirect|empty path segment")
"""What may be repeated of an error. What a store says in full may quote a signature."""
_NO_CREDENTIALS = re.compile(r"Error performing (\w+ http://(169\.254\.|metadata)|token request)")
"""What is in an error if there were no credentials, so that the cloud's own service was asked for some."""


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
    """Remove the object, if there is one. Raises NotFoundError if there is no such bucket, UnreadableError."""
    _ask("delete", text)


def _ask(function: str, text: str, *arguments: object, **options: object) -> tuple[bytes, str]:
    """The content and the tag that a function of obstore returns for an object, if it returns any."""
    import obstore
    from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

    uri = parse_uri(text)
    if _first_user() != os.getpid():
        raise UnreadableError(
            f"{uri}: a process that was forked from one that has used a store cannot: start it by `spawn`, or as a "
            "command"
        )

    def ask() -> tuple[Any, bytes]:
        found = getattr(obstore, function)(_store(uri.scheme, uri.authority), uri.key, *arguments, **options)
        return (found.meta, bytes(found.bytes())) if function == "get" else (found or {}, b"")

    try:
        version, content = asked(ask).result()
        # Some stores compare the one, some the other.
        return content, json.dumps({name: version[name] for name in ("e_tag", "version") if version.get(name)})
    except (AlreadyExistsError, PreconditionError):
        raise ChangedError(f"{uri} was replaced meanwhile") from None
    except (BaseError, OSError, ValueError, TypeError, NotImplementedError) as error:
        said = str(error)
    with reasons(uri):  # as pyarrow's client says them
        codes = " ".join(_CODES.findall(said)).replace("status code:", "HTTP status")
        raise OSError("CREDENTIALS" if _NO_CREDENTIALS.search(said) else codes)


@cache
def _first_user() -> int:
    """The process that has used obstore first, also in its forks."""
    return os.getpid()


@cache
def _store(scheme: str, authority: str) -> Any:
    from obstore.store import from_url

    config: Any = _settings(scheme, authority) or {}
    client_options: Any = {**_TIMEOUTS, "allow_http": config.get("endpoint", "").startswith("http:")}
    if scheme == "s3":
        client_options |= _NO_PROXY
    url = f"{scheme.replace('gcs', 'gs')}://{authority}"
    return from_url(url, config=config, client_options=client_options, retry_config=_RETRIES)


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
