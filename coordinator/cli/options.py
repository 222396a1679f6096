"""Options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from coordinator.cli.console import Console
from coordinator.project import Project, find_project
from coordinator.settings import Overrides


class Session:
    """What every command knows: the project, how to speak, whether questions are answered."""

    def __init__(self, *, project: Project, console: Console, yes: bool) -> None:
        self.project, self.console, self.yes = project, console, yes


def common(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--project`, `--json`, `--yes` and `-v`, and hands the function a `Session` in their place."""

    @functools.wraps(function)
    def call(*, project: str | None, as_json: bool, yes: bool, verbose: bool, **rest: Any) -> Any:
        found = Project(Path(project)) if project is not None else find_project(Path.cwd())
        session = Session(project=found, console=Console(as_json=as_json, verbose=verbose), yes=yes)
        return function(session, **rest)

    options = [
        click.option(
            "--project",
            metavar="DIR",
            type=click.Path(exists=True, file_okay=False),
            help="The project's folder (default: the nearest one upwards with a playlane.toml, else this one).",
        ),
        click.option(
            "--json", "as_json", is_flag=True, help="One JSON document on standard output, the rest on error."
        ),
        click.option("--yes", is_flag=True, help="Answer questions with yes."),
        click.option("-v", "--verbose", is_flag=True, help="Say more."),
    ]
    for option in reversed(options):
        call = option(call)
    return call


def play_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that say what is played, and hands the function `flags`, an `Overrides`, in their place."""

    @functools.wraps(function)
    def call(*arguments: Any, **given: Any) -> Any:
        named = {name: given.pop(name) for name in Overrides.__struct_fields__ if name in given}
        return function(*arguments, flags=Overrides(**named), **given)

    options = [
        click.option(
            "--driver-config", metavar="FILE", help="The bridge file of a game that speaks the bridge protocol."
        ),
        click.option("--driver", metavar="NAME", help="How the game is reached (cli_stdio, terminal)."),
        click.option("--build-url", metavar="URL", hidden=True),
        click.option("--build-dir", metavar="DIR", hidden=True),
        click.option("--godot-project", metavar="DIR", hidden=True),
        click.option("--personas", metavar="A,B|all", help="Who plays: names, files, or all (newcomer,explorer)."),
        click.option("--controller", metavar="NAME", help="One controller: standard or rune."),
        click.option("--compare-with", metavar="A,B", help="Play standard and these, each as its own run."),
        click.option("--brain", metavar="NAME", help="offline or random; both are free."),
        click.option("--model", metavar="NAME", hidden=True),
        click.option("--repetitions", type=click.IntRange(1, 100), help="Runs of each persona and controller."),
        click.option("--seed", type=click.IntRange(0, (1 << 64) - 1), help="The first repetition's seed (1)."),
        click.option("--no-seed", is_flag=True, help="Leave the game's randomness alone."),
        click.option("--concurrency", "lanes", type=click.IntRange(1, 2), help="Runs at the same time (2)."),
        click.option("--max-actions", type=click.IntRange(1, 100_000), help="Inputs of one run (200)."),
        click.option(
            "--time-limit",
            "time_limit_seconds",
            metavar="SECONDS",
            type=click.FloatRange(1, 86_400),
            help="Wall clock of one run (600).",
        ),
        click.option("--long", is_flag=True, help="Three times the actions and the time."),
        click.option(
            "--fail-on",
            metavar="LEVEL",
            help="Exit 1 at a finding this severe: critical, major, minor, new:LEVEL, never (never).",
        ),
        click.option("--baseline", metavar="FILE", help="For new:LEVEL: the aggregate.json to compare with."),
        click.option("--realtime", is_flag=True, help="Never freeze the game while the player thinks."),
        click.option("--no-control", is_flag=True, help="Leave out the random control run beside each run."),
        click.option("--record-video", is_flag=True, help="Record where the driver can; reports say when it cannot."),
    ]
    for option in reversed(options):
        call = option(call)
    return call


def example(text: str) -> str:
    """The end of a command's help; click keeps the lines of a block that begins with \\b."""
    return f"\b\nExample:\n  {text}"
