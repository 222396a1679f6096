"""Remakes the pictures in this folder from a real demo: python docs/pictures.py (needs Chromium, found by its name)."""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

DOCS = Path(__file__).resolve().parent
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def main() -> int:
    browser = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if browser is None:
        sys.stderr.write(f"pictures: none of {', '.join(PROGRAMS)} is on PATH; install one\n")
        return 3
    with tempfile.TemporaryDirectory() as project:
        command = [str(DOCS.parent / "bin" / "coordinate"), "demo", "--json", "--project", project]
        found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=300).stdout)
        shots = {
            "report.png": (found["report"], "light", 760),
            "report-dark.png": (found["report"], "dark", 760),
            "simulation.png": (found["simulation"]["report"], "light", 980),
        }
        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
            for name, (page_path, scheme, height) in shots.items():
                page = chromium.new_page(viewport={"width": 1080, "height": height}, color_scheme=scheme)
                page.goto(Path(page_path).as_uri())
                page.screenshot(path=DOCS / name)
            chromium.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
