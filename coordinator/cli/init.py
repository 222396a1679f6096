"""`coordinate init`: the first playlane.toml."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from coordinator.cli.console import Console, shown
from coordinator.cli.options import Session, common, example
from coordinator.configuration import ConfigurationError, parse_configuration
from coordinator.discovery import Finding, compose, find_games
from coordinator.files import Files
from coordinator.settings import Overrides, settle


@click.command("init", epilog=example("coordinate init --driver-config game/bridge.json --goal 'leave the cave alive'"))
@click.option("--driver-config", metavar="FILE", help="The game's bridge file (default: the one that is found).")
@click.option("--name", metavar="NAME", help="What reports call the game (default: its folder's name).")
@click.option("--goal", "goals", metavar="TEXT", multiple=True, help="What players should try to do; may be repeated.")
@click.option("--success", metavar="TEXT", default="", help="How one sees that it was reached.")
@click.option("--personas", metavar="A,B", default="newcomer,explorer", show_default=True, help="Who plays.")
@common
def init_command(
    session: Session, driver_config: str | None, name: str | None, goals: tuple[str, ...], success: str, personas: str
) -> None:
    """Write playlane.toml: finds the kind of project, and asks for what flags did not say."""
    console, project = session.console, session.project
    root = project.root
    path = project.configuration_path
    if os.path.lexists(path):
        console.ask(f"{shown(path)} is there already. Overwrite it?", yes=session.yes)
    bridge = Path(driver_config).absolute() if driver_config is not None else _choose(console, root, session.yes)
    asked = list(goals)
    if not asked and not session.yes and _can_ask():
        answer = click.prompt("What should players try to do? (empty: play and see)", default="", err=True)
        asked = [answer] if answer.strip() else []
    text = compose(
        driver_config=Path(os.path.relpath(bridge, root)).as_posix(),
        name=name or bridge.parent.name or "game",
        goals=asked,
        success=success,
        personas=[one.strip() for one in personas.split(",") if one.strip()],
    )
    settings = settle(root, parse_configuration(text, str(path)), Overrides())
    Files().replace(str(path), text.encode())
    path.chmod(0o644)
    runs = len(settings.personas) * len(settings.controllers)
    console.say(f"wrote {shown(path)}: {runs} runs")
    console.say(console.dim("see what they are with: coordinate plan   play them with: coordinate run"))
    console.document({"path": str(path), "driver_config": str(bridge), "runs": runs, "exit_code": 0})


def _choose(console: Console, root: Path, yes: bool) -> Path:
    games = find_games(root)
    playable = [game for game in games if game.kind == "bridge"]
    for game in games:
        if game.kind != "bridge":
            console.say(f"found {game.what} ({shown(game.path)}): this version plays it only through a bridge")
    if len(playable) == 1:
        console.say(f"found a bridge: {shown(playable[0].path)}")
        return playable[0].path
    if not playable:
        raise ConfigurationError(str(root), [_nothing_found(games)])
    for number, game in enumerate(playable, start=1):
        console.say(f"  {number}  {shown(game.path)}")
    if yes or not _can_ask():
        raise ConfigurationError(
            str(root), [f"{len(playable)} bridge files are here; say which with --driver-config FILE"]
        )
    number = click.prompt("Which one?", type=click.IntRange(1, len(playable)), default=1, err=True)
    return playable[number - 1].path


def _nothing_found(games: list[Finding]) -> str:
    what = f"{games[0].what} needs" if games else "no game was found; a game needs"
    return (
        f"{what} a bridge to be played by this version: a small program that speaks JSON lines, and a bridge.json that"
        " names its command. docs/bridge-protocol.md shows both; examples/ has one to copy. Then: coordinate init"
        " --driver-config FILE"
    )


def _can_ask() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()
