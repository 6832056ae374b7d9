"""A real browser for tests: Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_QUIET = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)


@dataclass(slots=True)
class Watched:
    """A page, and what happened in it. requests: addresses asked for, but for those in the page itself. problems: what
    the console had to say, and errors that no script caught. dialogs: what the page wanted to ask or say."""

    page: Page
    requests: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless Chromium; the test is skipped where there is none."""
    with sync_playwright() as playwright:
        path = next(filter(None, map(shutil.which, _NAMES)), playwright.chromium.executable_path)
        if not Path(path).exists():
            pytest.skip("no Chromium: install the package chromium, or run `playwright install chromium`")
        browser = playwright.chromium.launch(executable_path=path, args=list(_QUIET))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Browser, file: Path, *, before: str = "", **options: Any) -> Iterator[Watched]:
    """A file in a fresh page with nothing stored. before: a script that runs ahead of those of the page. options: of
    the page, as `viewport`."""
    context = browser.new_context(**({"viewport": {"width": 1440, "height": 900}} | options))
    if before:
        context.add_init_script(before)
    try:
        page = context.new_page()
        watched = Watched(page)
        page.on("request", lambda request: watched.requests.append(request.url))
        page.on("console", lambda message: watched.problems.append(message.text))
        page.on("pageerror", lambda error: watched.problems.append(str(error)))
        page.on("dialog", lambda dialog: (watched.dialogs.append(dialog.message), dialog.dismiss()))
        page.goto(file.as_uri())
        yield watched
    finally:
        context.close()
