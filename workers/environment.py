"""What a player and its games see of the environment: an allow-list, a home and a temporary folder of their own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from workers.contract import ENVIRONMENT_ALLOWED

HOME_NAME = "home"
TEMPORARY_NAME = "tmp"


def allowed_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Those variables of `environment` that may go on: `ENVIRONMENT_ALLOWED` and every `LC_*`."""
    return {name: value for name, value in environment.items() if name in ENVIRONMENT_ALLOWED or name.startswith("LC_")}


def player_environment(environment: Mapping[str, str], run_directory: Path) -> dict[str, str]:
    """The whole environment of a player: what is allowed, and HOME and TMPDIR under the run's folder."""
    return allowed_environment(environment) | {
        "HOME": str(run_directory / HOME_NAME),
        "TMPDIR": str(run_directory / TEMPORARY_NAME),
    }


def game_environment(
    environment: Mapping[str, str], *, token: str, run_id: str, job_id: str, persona: str
) -> dict[str, str]:
    """The whole environment of a game: a player's, and the marks by which analytics tell a synthetic session.

    `token` is a random mark of this run, not a credential. Each mark stands under both prefixes.
    """
    marks = {"TOKEN": token, "RUN_ID": run_id, "JOB_ID": job_id, "PERSONA": persona}
    result = allowed_environment(environment)
    result |= {name: environment[name] for name in ("HOME", "TMPDIR") if name in environment}
    result |= {f"PLAYLANE_{name}": value for name, value in marks.items()}
    result |= {f"RAVENSIGHT_PLAYTEST_{name}": value for name, value in marks.items()}
    return result
