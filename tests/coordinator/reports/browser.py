"""A real Chromium for the report tests, in which every request is aborted and recorded."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, sync_playwright

AXE_VERSION = "4.14.1"


@contextmanager
def a_browser() -> Iterator[Browser]:
    """Chromium by environment or path; skips, naming what is missing and how to get it."""
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("Chromium is missing: apt-get install chromium, or name one in the environment variable CHROMIUM")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class OpenReport:
    """A report opened from disk. `requests`: everything it asked for but itself; `complaints`: errors, CSP included."""

    def __init__(self, browser: Browser, path: Path, *, ready: bool = True, **context: Any) -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._context = browser.new_context(**context)
        self.page: Page = self._context.new_page()
        self.page.set_default_timeout(20_000)
        self._own = path.as_uri()
        self.page.route("**/*", self._route)
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        self.page.goto(self._own)
        if ready:
            self.page.wait_for_selector("html[data-ready]", state="attached")

    def _route(self, route: Route) -> None:
        if route.request.url.split("#", 1)[0] == self._own:
            route.continue_()
            return
        # A picture in the page itself is no request to anywhere.
        if not route.request.url.startswith("data:"):
            self.requests.append(route.request.url)
        route.abort()

    def close(self) -> None:
        self._context.close()


def axe_source() -> str:
    """The source of axe-core from npm, fetched once into the user's cache; skips, saying what is missing."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "playlane-tests"
    archive = cache / f"axe-core-{AXE_VERSION}.tgz"
    if not archive.exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("axe-core is missing and npm is not there to fetch it: apt-get install npm")
        cache.mkdir(parents=True, exist_ok=True)
        fetched = subprocess.run(
            [npm, "pack", "--silent", f"axe-core@{AXE_VERSION}"],
            cwd=cache,
            capture_output=True,
            timeout=120,
            check=False,
        )
        if fetched.returncode != 0 or not archive.exists():
            pytest.skip(f"axe-core {AXE_VERSION} could not be fetched from npm: {fetched.stderr.decode()[-300:]}")
    with tarfile.open(archive) as opened:
        member = opened.extractfile("package/axe.min.js")
        assert member is not None
        return member.read().decode()
