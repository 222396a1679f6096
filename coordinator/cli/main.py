"""The command line's entry: finds the command, runs it, and turns every end into an exit code and one message."""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from coordinator.client import AuthenticationError
from coordinator.errors import (
    CanceledError,
    CoordinatorError,
    DamagedError,
    LockLostError,
    OutsideCoordinatorError,
    PoisonedError,
    StorageError,
    UnrecognizedManifestError,
)
from coordinator.failures import NothingBoughtError, PurchaseOpenError
from coordinator.outcome import AUTHENTICATION, CANCELED, ENVIRONMENT, FAILURE, SUCCESS

COMMANDS = {
    "demo": "Play the bundled game, offline and free, and show the report.",
    "init": "Write playlane.toml, by asking or from flags.",
    "check": "What is here, what is missing, and what mends it.",
    "plan": "Turn the configuration into a reviewed list of runs.",
    "run": "Play, and report.",
    "simulate": "Play seeded games by the thousand, to measure balance.",
    "replay": "Play a recorded game, or a finding, again.",
    "findings": "What was found, and what people said about it.",
    "status": "What the newest campaign is doing, from its files.",
    "stop": "Ask a running campaign to stop.",
    "resume": "Go on with a purchase that did not come to its end.",
    "budget": "Show or set what the project may spend.",
    "upload": "Send the files of a purchase that wait to be uploaded.",
    "recover": "Look at, and take over, what a dead coordinator left.",
    "retry": "Write the next attempt of what was not completed, for review.",
    "verify": "Prove from files that nothing was launched or charged twice.",
    "report": "Build the reports again from the files.",
    "serve": "Offer the priced service to a team.",
}
# The disk is not as it should be: somebody has to look, a changed flag does not help.
_BROKEN = (
    PoisonedError, DamagedError, UnrecognizedManifestError, OutsideCoordinatorError, LockLostError, StorageError,
)  # fmt: skip
NOTHING_DONE = "Nothing was registered or charged."


class _Commands(click.Group):
    """Loads a command's module when it is asked for: a start imports what it needs and nothing else."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"coordinator.cli.{name}")
        command: click.Command = getattr(module, f"{name}_command")
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _version(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        from importlib.metadata import version

        click.echo(f"playlane {version('playlane')}")
        context.exit()


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="\b\nExample:\n  coordinate demo\n  coordinate run --driver-config my-game/bridge.json --personas all",
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Say the version.")
def coordinate() -> None:
    """AI playtests of game builds: personas play your game, and what they find is replayed before it is reported."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit with its code."""
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str]) -> int:
    """Run a command; return its exit code. People see one message; a traceback goes to a file of the project."""
    as_json = "--json" in arguments
    try:
        code = coordinate.main(arguments, prog_name="coordinate", standalone_mode=False)
        return code if isinstance(code, int) else SUCCESS
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.UsageError as error:
        hint = f"coordinate {error.ctx.info_name} --help" if error.ctx and error.ctx.parent else "coordinate --help"
        return _refuse(as_json, ENVIRONMENT, "usage", f"{error.format_message()} See: {hint}", {"usage": hint})
    except click.ClickException as error:
        return _refuse(as_json, ENVIRONMENT, "usage", error.format_message(), {})
    except (click.Abort, KeyboardInterrupt):
        return _refuse(as_json, CANCELED, "canceled", "canceled", {})
    except CanceledError as error:
        return _refuse(as_json, CANCELED, "canceled", f"{error}\n{NOTHING_DONE}", {})
    except PurchaseOpenError as error:
        return _refuse(as_json, error.exit_code, "purchase_open", str(error), _detail_of(error))
    except NothingBoughtError as error:
        return _refuse(as_json, error.exit_code, _code_of(error), f"{error}\n{NOTHING_DONE}", _detail_of(error))
    except AuthenticationError as error:
        return _refuse(as_json, AUTHENTICATION, _code_of(error), f"{error}\n{NOTHING_DONE}", _detail_of(error))
    except _BROKEN as error:
        return _refuse(as_json, FAILURE, _code_of(error), str(error), _detail_of(error))
    except CoordinatorError as error:
        return _refuse(as_json, ENVIRONMENT, _code_of(error), f"{error}\n{NOTHING_DONE}", _detail_of(error))
    except BrokenPipeError:
        # The reader of a help text went away.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return SUCCESS
    except Exception as error:  # noqa: BLE001  the last resort: people get a sentence and a file, not a traceback
        log = _keep_traceback()
        what = f"{type(error).__name__}: {error}".replace("\n", " ")
        where = f"; the traceback is in {log}" if log is not None else ""
        return _refuse(as_json, FAILURE, "internal", f"a fault of this program: {what}{where}", {"log": log})


def _refuse(as_json: bool, exit_code: int, code: str, message: str, detail: dict[str, Any]) -> int:
    if as_json:
        document = {"error": {"code": code, "message": message, "detail": detail}, "exit_code": exit_code}
        sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        sys.stdout.flush()
    else:
        sys.stderr.write(f"coordinate: {message}\n")
    return exit_code


def _code_of(error: CoordinatorError) -> str:
    """`RefusedError` -> `refused`: the class is the kind."""
    name = type(error).__name__.removesuffix("Error")
    return "".join(f"_{one.lower()}" if one.isupper() else one for one in name).strip("_")


def _detail_of(error: CoordinatorError) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(error).items()
        if isinstance(value, str | int | float | bool | list) or value is None
    }


def _keep_traceback() -> str | None:
    """Keep the traceback of the error being handled, in the project's `.playlane/`; its path, or None if it cannot."""
    from coordinator.project import find_project

    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    folder = find_project(Path.cwd()).store / "faults"
    path = folder / f"{stamp}-{os.getpid()}.log"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(traceback.format_exc())
    except OSError:
        return None
    return str(path)


if __name__ == "__main__":
    main()
