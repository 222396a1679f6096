"""Installs what the measured claims need and pip does not bring; names what could not be had.

The tests that need a missing part skip by name, so a part that cannot be had here is said and does not end the run.
"""

import os
import shutil
import subprocess
import sys

# program looked for -> (Debian packages that carry it, what is tested with it)
PROGRAMS = {
    "node": ("nodejs", "the example game in JavaScript"),
    "chromium": ("chromium", "reports opened in a browser"),
    "hangman": ("bsdgames", "unmodified games on a terminal: hangman, wump, robots"),
    "nethack": ("nethack-console", "an unmodified game on a terminal: nethack"),
}
INSTALL_SECONDS = 900


def say(text: str) -> None:
    sys.stderr.write(f"components: {text}\n")
    sys.stderr.flush()


def is_here(program: str) -> bool:
    # Debian keeps games where the PATH of root does not look.
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/games") is not None


def main() -> int:
    missing = {program: PROGRAMS[program] for program in PROGRAMS if not is_here(program)}
    if not missing:
        return 0
    packages = sorted({package for package, _ in missing.values()})
    apt = shutil.which("apt-get")
    if apt and os.geteuid() == 0:
        say(f"installing {', '.join(packages)}")
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in ([apt, "update", "-qq"], [apt, "install", "-y", "-qq", "--no-install-recommends", *packages]):
            try:
                subprocess.run(
                    command, env=environment, stdout=sys.stderr, timeout=INSTALL_SECONDS, check=False,
                    stdin=subprocess.DEVNULL,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                say(f"{' '.join(command)}: no end within {INSTALL_SECONDS} s")
    for program, (package, use) in missing.items():
        if not is_here(program):
            say(f"missing: {program} ({use}); its tests are skipped by name. Mend: apt-get install {package}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
