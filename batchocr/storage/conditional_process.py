"""The process in which obstore runs for `storage/conditional`. It is started by the path of this file, imports nothing
else of batchocr, and ends at once when its standard input does.

Its argument is the descriptor of a connection. A request names a store, a function of obstore, and its arguments. The
answer is an object's content and the tag of its version, as far as there are any, or an OSError.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import cache
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import from_url

_RETRIES: Any = {"max_retries": 6, "retry_timeout": timedelta(seconds=30)}
_TIMEOUTS = {"connect_timeout": "5s", "read_timeout": "60s", "timeout": "30m"}
"""A store may be silent for long while it copies."""

_CODES = re.compile(r"status code: \d{3}|<Code>\w{1,60}</Code>|HTTP error: |Received redirect|empty path segment")
"""What may be repeated of an error. What a store says in full may quote a signature."""
_NO_CREDENTIALS = re.compile(r"Error performing (\w+ http://(169\.254\.|metadata)|token request)")
"""What is in an error if there were no credentials, so that the cloud's own service was asked for some."""


def main() -> None:
    Thread(target=_serve, args=(Connection(int(sys.argv[1])),), daemon=True).start()
    sys.stdin.buffer.read()
    os._exit(0)  # also in the middle of a request


def _serve(connection: Connection) -> None:
    """Answer what is asked, until the connection ends."""
    with suppress(EOFError, OSError):
        while True:
            connection.send(_answer(*connection.recv()))


def _answer(
    store: tuple[str, str], function: str, arguments: Sequence[Any], options: dict[str, Any]
) -> tuple[bytes, str] | OSError:
    try:
        found = getattr(obstore, function)(_store(*store), *arguments, **options)
        version, content = (found.meta, bytes(found.bytes())) if function == "get" else (found or {}, b"")
    except (AlreadyExistsError, PreconditionError):
        return FileExistsError()
    except (BaseError, OSError, ValueError, TypeError, NotImplementedError) as error:
        said = str(error)
        codes = " ".join(_CODES.findall(said)).replace("status code:", "HTTP status")  # as pyarrow's client says it
        return OSError("CREDENTIALS" if _NO_CREDENTIALS.search(said) else codes)
    # Some stores compare the one, some the other.
    return content, json.dumps({name: version[name] for name in ("e_tag", "version") if version.get(name)})


@cache
def _store(url: str, settings: str) -> Any:
    config = json.loads(settings)
    client_options: Any = {**_TIMEOUTS, "allow_http": config.get("endpoint", "").startswith("http:")}
    return from_url(url, config=config, client_options=client_options, retry_config=_RETRIES)


if __name__ == "__main__":
    main()
