#!/usr/bin/env python3
"""Makes the `.venv` beside this checkout, for bin/coordinate and bin/test; needs the standard library only.

usage: environment.py [EXTRA ...]

Safe to run several times at once: one makes, the others wait for it. An environment is only believed when its marker,
a copy of the pyproject.toml it was made from, is there; the marker is written last, so that one which was killed half
way is recognised and made again.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"
PYTHON = ENVIRONMENT / "bin" / "python"
INSTALL_SECONDS = 1200


def marker(extra: str) -> Path:
    return ENVIRONMENT / f"playlane-made-{extra}"


def is_made(extras: list[str]) -> bool:
    wanted = (ROOT / "pyproject.toml").read_bytes()
    for extra in ["run", *extras]:
        try:
            if marker(extra).read_bytes() != wanted:
                return False
        except OSError:
            return False
    return works()


def works() -> bool:
    """Whether the environment's Python starts and is new enough; one whose base was upgraded away does not."""
    probe = [str(PYTHON), "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
    try:
        return subprocess.run(probe, capture_output=True, timeout=60, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def say(text: str) -> None:
    sys.stderr.write(f"environment: {text}\n")
    sys.stderr.flush()


def make(extras: list[str]) -> None:
    """Create or refresh the environment; raises CalledProcessError or OSError with nothing marked as made."""
    uv = shutil.which("uv")
    if not works():
        if ENVIRONMENT.exists():
            say(f"{ENVIRONMENT} does not work, making it again")
            shutil.rmtree(ENVIRONMENT)
        say(f"making {ENVIRONMENT} with {'uv' if uv else 'venv'} (once)")
        if uv:
            subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(ENVIRONMENT)], check=True)
        else:
            venv.create(ENVIRONMENT, with_pip=True, symlinks=True)
    wanted = (ROOT / "pyproject.toml").read_bytes()
    extras = [*extras, *(e for e in ("dev", "ci") if e not in extras and marker(e).exists())]
    requirement = f"{ROOT}[{','.join(extras)}]" if extras else str(ROOT)
    say("installing what pyproject.toml names" + (f", with {', '.join(extras)}" if extras else ""))
    has_pip = subprocess.run([str(PYTHON), "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0
    if uv and not has_pip:
        install = [uv, "pip", "install", "--quiet", "--python", str(PYTHON), "-e", requirement]
    else:
        install = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-e", requirement]
    subprocess.run(install, check=True, timeout=INSTALL_SECONDS, stdout=sys.stderr)
    for extra in ["run", *extras]:
        temporary = marker(extra).with_suffix(f".{os.getpid()}")
        temporary.write_bytes(wanted)
        temporary.replace(marker(extra))
    say("ready")


def main() -> int:
    extras = sys.argv[1:]
    with (ROOT / ".venv-lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process is making it, waiting")
            fcntl.flock(lock, fcntl.LOCK_EX)
        if is_made(extras):
            return 0
        try:
            make(extras)
        except (OSError, subprocess.SubprocessError) as error:
            say(f"not made: {error}")
            say("nothing else was changed; mend what is named above and run the same command again")
            return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
