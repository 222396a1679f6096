"""`coordinate check`: what is here, what is missing, what mends it."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from coordinator.checks import Component, check_machine, check_project
from coordinator.cli.console import Console, plain, shown
from coordinator.cli.options import Session, common, example
from coordinator.outcome import ENVIRONMENT, FAILURE, SUCCESS


@click.command("check", epilog=example("coordinate check --driver-config my-game/bridge.json"))
@click.option(
    "--driver-config", metavar="FILE", help="Play the whole bridge protocol against this bridge, rule by rule."
)
@click.option(
    "--seed", type=click.IntRange(0, (1 << 64) - 1), default=1, show_default=True, help="Of the games played."
)
@common
def check_command(session: Session, driver_config: str | None, seed: int) -> int:
    """Say what this machine and project have and lack, each with the command that mends it.

    Exits with 3 when something is missing, with 1 when a bridge breaks a rule.
    """
    console = session.console
    if driver_config is not None:
        return _inspect(session, Path(driver_config).absolute(), seed)
    components = check_machine(session.project) + check_project(session.project)
    _show(console, components)
    code = ENVIRONMENT if any(one.status == "missing" for one in components) else SUCCESS
    console.document({"components": [msgspec.to_builtins(one) for one in components], "exit_code": code})
    return code


def _show(console: Console, components: list[Component]) -> None:
    marks = {"ok": console.good("ok"), "absent": console.uneasy("absent"), "missing": console.bad("missing")}
    for one in components:
        console.say(f"{_padded(marks[one.status], 8)}{_padded(one.name, 15)}{plain(one.found)}")
        if one.mend and one.status != "ok":
            console.say(f"{'':23}{console.dim('mend: ' + one.mend)}")


def _padded(cell: str, width: int) -> str:
    return cell + " " * max(1, width - len(click.unstyle(cell)))


def _inspect(session: Session, path: Path, seed: int) -> int:
    from coordinator.asking import inspect_bridge

    console = session.console
    answer = inspect_bridge(session.project, path, seed=seed)
    console.say(f"{console.bold(shown(path))}")
    if answer.fault is not None:
        console.say(f"  {console.bad('does not play')}  {plain(answer.fault)}")
    for rule in answer.rules:
        mark = console.good("pass") if rule.passed else console.bad("fail")
        console.say(f"  {mark}  {plain(rule.rule)}")
        if not rule.passed:
            console.say(f"        found: {plain(rule.found)}")
            console.say(f"        {console.dim(plain(rule.todo))}")
    broken = sum(not rule.passed for rule in answer.rules)
    if answer.rules:
        console.say(f"{len(answer.rules) - broken} of {len(answer.rules)} rules are kept")
    code = FAILURE if broken or answer.fault is not None else SUCCESS
    console.document(
        {
            "driver_config": str(path),
            "fault": answer.fault,
            "rules": [msgspec.to_builtins(rule) for rule in answer.rules],
            "exit_code": code,
        }
    )
    return code
