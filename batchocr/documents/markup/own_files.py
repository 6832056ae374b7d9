"""Our own parts of a page of HTML: its template, and the style and script that its policy allows by their hashes."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

from jinja2 import Environment, Template


def own_text(package: str, name: str) -> str:
    """The text of a file in this package."""
    return files(package).joinpath(name).read_text("utf-8")


@cache
def own_template(package: str, name: str) -> Template:
    """A template in this package, which escapes what is put into it."""
    return Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(own_text(package, name))


def policy_hash(text: str) -> str:
    """How a Content-Security-Policy names this style or script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
