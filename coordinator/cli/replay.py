"""`coordinate replay`: a recorded game again, compared step by step; or a finding again, and its stamp."""

from __future__ import annotations

import asyncio
import secrets
import shutil
from pathlib import Path
from typing import Any

import click
import msgspec

from coordinator.cli.console import Console, plain
from coordinator.cli.options import Session, common, example
from coordinator.errors import InvalidInputError, RefusedError
from coordinator.files import read_document

WALL_SECONDS = 600.0


@click.command("replay", epilog=example("coordinate replay runs/1/traces/000001.jsonl --driver-config bridge.json"))
@click.argument("trace", metavar="TRACE|RUN/FINDING")
@click.option("--driver-config", metavar="FILE", help="With a trace: the game's bridge file.")
@click.option("--config", metavar="FILE", help="The batch's configuration: compared with the recorded one.")
@click.option("--manifest", metavar="FILE", help="With a finding: its campaign's manifest (default: all).")
@common
def replay_command(
    session: Session, trace: str, driver_config: str | None, config: str | None, manifest: str | None
) -> int:
    """Play a simulation's trace again and compare every state, outcome and metric with what was recorded.

    Exit 0 if it matched, else 1, with the first divergence and what to check. RUN/FINDING plays the actions of a
    finding again, three times from the start, and prints the stamp: exit 0 if it came back, else 1.
    """
    if driver_config is None:
        if Path(trace).is_file():
            raise InvalidInputError(f"{trace}: is a trace; name its game with --driver-config FILE")
        return _replay_finding(session, trace, manifest)
    if manifest is not None:
        raise InvalidInputError("--manifest: goes with RUN/FINDING; a trace names all it needs")
    from coordinator.builds import bridge_folder
    from coordinator.simulation import read_bridge_file, read_configuration_file

    path = Path(trace).absolute()
    if not path.is_file():
        raise InvalidInputError(f"{trace}: there is no such trace; simulate --json lists them")
    bridge_path = session.project.root / driver_config
    bridge = read_bridge_file(bridge_path)
    order: dict[str, Any] = {
        "trace": str(path),
        "bridge": {**bridge, "cwd": str(bridge_folder(bridge_path, bridge))},
    }
    if config is not None:
        order["configuration"] = read_configuration_file(Path(config))
        order["configurationDirectory"] = str(Path(config).absolute().parent)
    found = _replay(session, order)
    code = 0 if found["matched"] else 1
    _show(session.console, found)
    session.console.document({**found, "exit_code": code})
    return code


def _replay_finding(session: Session, name: str, manifest: str | None) -> int:
    from coordinator.replaying import replay_finding

    run_id, slash, finding_id = name.partition("/")
    if not (run_id and slash and finding_id):
        raise InvalidInputError(
            f"{name}: is neither a trace nor RUN/FINDING; coordinate findings -v lists findings, simulate --json traces"
        )
    found = replay_finding(session.project, run_id, finding_id, manifest)
    console = session.console
    word = console.good("reproduced") if found["reproduced"] else console.bad("not reproduced")
    console.say(f"{word}  {plain(str(found['replay']))}  {plain(str(found['title']))}")
    console.detail(f"  {found['actions']} actions, {found['sessions']} sessions; before: {plain(str(found['before']))}")
    code = 0 if found["reproduced"] else 1
    console.document({**found, "exit_code": code})
    return code


def _replay(session: Session, order: dict[str, Any]) -> dict[str, Any]:
    from coordinator.asking import run_asking_job
    from coordinator.jobs import replay_job

    session.project.make_store()
    folder = session.project.store / "asked" / secrets.token_hex(8)
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    job = replay_job(order, control_directory=folder, wall=WALL_SECONDS)
    try:
        delivery = asyncio.run(run_asking_job(folder, job, "replay"))
        try:
            found, _ = read_document(f"{job.run_directory}/replay.json", 4 << 20)
        except FileNotFoundError:
            why = delivery.completion.observed_failure or f"its worker ended with {delivery.end_reason}"
            raise RefusedError(f"replay: the trace was not played: {plain(str(why))}") from None
        return found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _show(console: Console, found: dict[str, Any]) -> None:
    divergence = found["first_divergence"]
    if found["matched"]:
        whole = "to its end" if found["fully_replayed"] else "as far as the trace goes"
        console.say(f"{console.good('matched')}  {found['steps_compared']} steps, {whole}")
    elif divergence is not None:
        console.say(f"{console.bad('diverged')}  at step {divergence['step']}, {plain(str(divergence['field']))}")
        for name in ("expected", "actual"):
            console.say(f"  {name:<8}  {plain(msgspec.json.encode(divergence[name]).decode())[:400]}")
    for note in found["notes"]:
        console.say(f"  {console.uneasy('note')}  {plain(note)}")
    for check in found["checks"]:
        console.say(f"  {console.dim(plain(check))}")
