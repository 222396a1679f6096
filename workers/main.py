"""The entry of both processes of a run: `bin/worker --job ...` supervises, `--player` plays below it.

Exit codes: 0 delivered; 64 the arguments are wrong; 65 the job or the secrets are refused; 73 the run was begun
before; 74 nothing could be delivered. With 64, 65 and 73 nothing was run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from workers import VERSION

EXIT_USAGE, EXIT_REFUSED, EXIT_BEGUN, EXIT_UNDELIVERED = 64, 65, 73, 74
MAX_SECRETS_BYTES = 1 << 20
SECRETS_SECONDS = 10.0
USAGE = (
    "usage: worker --job FILE --job-sha256 HEX --id EXECUTION --max-parallel 1 --max-automatic-retries 0 | --version"
)
_OPTIONS = ("--job", "--job-sha256", "--id", "--max-parallel", "--max-automatic-retries")


class UsageError(Exception):
    """The command line is not one that the coordinator writes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; give the exit code. Errors are one line on standard error."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    # Nothing heavy is imported above: `--version` answers in the time of a bare interpreter.
    if given == ["--version"]:
        sys.stdout.write(f"playlane worker {VERSION}\n")
        return 0
    if given in (["--help"], ["-h"]):
        sys.stdout.write(USAGE + "\n")
        return 0
    if given == ["--player"]:
        from workers.player import run_player

        return run_player()
    return _supervise(given)


def player_command() -> list[str]:
    """The command of the real player: this interpreter, this package, nothing from the working directory."""
    return [sys.executable, "-P", "-m", "workers.main", "--player"]


def parse(arguments: Sequence[str]) -> dict[str, str]:
    """Options by name. Raises `UsageError` for anything missing, unknown, repeated, or another number than allowed."""
    found: dict[str, str] = {}
    rest = iter(arguments)
    for name in rest:
        if name not in _OPTIONS:
            raise UsageError(f"unknown option {name!r}")
        if name in found:
            raise UsageError(f"{name} is given twice")
        value = next(rest, None)
        if value is None:
            raise UsageError(f"{name} has no value")
        found[name] = value
    if missing := [name for name in _OPTIONS if name not in found]:
        raise UsageError(f"missing: {', '.join(missing)}")
    for name, allowed in (("--max-parallel", "1"), ("--max-automatic-retries", "0")):
        if found[name] != allowed:
            raise UsageError(f"{name} must be {allowed}, found {found[name]!r}")
    return found


def _supervise(arguments: Sequence[str]) -> int:
    try:
        options = parse(arguments)
    except UsageError as error:
        return _refuse(f"{error}; {USAGE}", EXIT_USAGE)
    if os.getsid(0) != os.getpid():
        # Ctrl-C and a closing terminal reach everyone in a session: a worker has one of its own.
        try:
            os.setsid()
        except PermissionError:
            return _again_in_own_session(arguments)
    from workers.jobs import JobRefusedError, read_job

    try:
        job = read_job(Path(options["--job"]), options["--job-sha256"])
        if options["--id"] != job.execution_id:
            raise JobRefusedError(
                Path(options["--job"]), f"it is of execution {job.execution_id!r}, not {options['--id']!r}"
            )
        secrets = _read_secrets(job.secrets)
    except (JobRefusedError, UsageError) as error:
        return _refuse(str(error), EXIT_REFUSED)
    from workers.contract import DeliveryRefusedError
    from workers.supervisor import AlreadyBegunError, supervise

    try:
        supervise(job, options["--job-sha256"], player=player_command(), secrets=secrets)
    except AlreadyBegunError as error:
        return _refuse(str(error), EXIT_BEGUN)
    except (OSError, DeliveryRefusedError) as error:
        return _refuse(f"nothing could be delivered: {error}", EXIT_UNDELIVERED)
    return 0


def _read_secrets(names: Sequence[str]) -> Mapping[str, str]:
    """Values of the secrets to look for, as one JSON object on standard input: never in argv, environment or a file."""
    if not names:
        return {}
    import select
    import time

    import msgspec

    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError(f"the values of {', '.join(names)} are read from standard input as a JSON object")
    deadline = time.monotonic() + SECRETS_SECONDS
    raw = b""
    while select.select([0], [], [], max(0.0, deadline - time.monotonic()))[0]:
        data = os.read(0, 64 << 10)
        if not data:
            break
        raw += data
        if len(raw) > MAX_SECRETS_BYTES:
            raise UsageError(f"more than {MAX_SECRETS_BYTES} bytes of secrets came")
    else:
        raise UsageError(f"the secrets did not come whole within {SECRETS_SECONDS:g} s")
    try:
        values = msgspec.json.decode(raw, type=dict[str, str])
    except (msgspec.DecodeError, ValueError) as error:
        raise UsageError("the secrets on standard input are not a JSON object of texts") from error
    return {name: values[name] for name in names if values.get(name)}


def _again_in_own_session(arguments: Sequence[str]) -> int:
    """Started by hand as the leader of a process group, which cannot get a session: a child can, and is waited for."""
    import signal
    import subprocess

    child = subprocess.Popen([sys.executable, "-P", "-m", "workers.main", *arguments], start_new_session=True)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: child.send_signal(signal.SIGTERM))
    return child.wait()


def _refuse(line: str, code: int) -> int:
    # Standard error may be a pipe whose reader is gone; the exit code tells all the same.
    try:
        sys.stderr.write(f"worker: {line}\n")
        sys.stderr.flush()
    except OSError:
        pass
    return code


if __name__ == "__main__":
    sys.exit(main())
