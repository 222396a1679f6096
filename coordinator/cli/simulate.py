"""`coordinate simulate`: balance by the thousand, every game replayable."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click
import msgspec

from coordinator.cli.console import Console, plain, shown
from coordinator.cli.options import Session, common, example
from coordinator.coordinator import utc_now
from coordinator.errors import InvalidInputError, RefusedError
from coordinator.outcome import CANCELED, ENVIRONMENT
from coordinator.records import State

DEFAULT_WALL_SECONDS = 900.0


@click.command("simulate", epilog=example("coordinate simulate --config simulation.json --workers 2"))
@click.option("--config", metavar="FILE", help="The batch: strategies, runs, seed (simulation.json).")
@click.option("--driver-config", metavar="FILE", help="The game's bridge file; goes before the configuration's.")
@click.option("--resume", metavar="STATE", help="Take up a batch that was killed, by its state.json.")
@click.option("--workers", type=click.IntRange(1, 64), help="Processes that play (the configuration's).")
@click.option("--plan", is_flag=True, help="Say how exact the result will be, and play nothing.")
@click.option("--csv", is_flag=True, help="Write results.csv as well.")
@click.option("--wall-seconds", type=click.FloatRange(1, 604_800), help="The batch's limit (900).")
@click.option("--owner-is-dead", metavar="TOKEN", help="With --resume: the owner of the left-over lock is dead.")
@common
def simulate_command(
    session: Session,
    config: str | None,
    driver_config: str | None,
    resume: str | None,
    workers: int | None,
    plan: bool,
    csv: bool,
    wall_seconds: float | None,
    owner_is_dead: str | None,
) -> int:
    """Play many seeded games by fixed strategies against the game's own rules, and report what differs.

    A mechanics test, not a test of the player's interface. Games and traces stay on this machine; nothing is charged.
    """
    from coordinator import simulation as batches

    if resume is not None:
        if config is not None or driver_config is not None:
            raise InvalidInputError(
                "--resume goes on with what its journal says; it takes no --config, --driver-config"
            )
        return _resume(session, Path(resume), owner_is_dead)
    if config is None:
        raise InvalidInputError("--config FILE is needed: the batch to play (docs/simulation.md), or --resume STATE")
    order, checked = batches.read_order(
        session.project.root,
        Path(config),
        driver_config=driver_config,
        wall_seconds=wall_seconds or DEFAULT_WALL_SECONDS,
        workers=workers,
        csv=csv,
    )
    if plan:
        return _show_precision(session.console, checked)
    simulation = batches.new_simulation(session.project, order, now=utc_now())
    session.console.say(
        f"simulation  {checked.runs} games, {len(checked.cells)} strategies and variants, free;"
        " games and traces stay on this machine"
    )
    session.console.detail(f"  journal {shown(simulation.journal_path)}")
    code, document = play_and_show_batch(session.console, simulation)
    session.console.document(document)
    return code


def _show_precision(console: Console, checked: Any) -> int:
    from workers.simulation.plan import plan_half_widths

    found = msgspec.to_builtins(plan_half_widths(checked))
    console.table([[name.replace("_", " "), _told(value)] for name, value in found.items()])
    console.document({**found, "exit_code": 0})
    return 0


def _told(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{points} points: {games} games" for points, games in value.items())
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def play_and_show_batch(console: Console, simulation: Any) -> tuple[int, dict[str, Any]]:
    """Play the next batch of a simulation, show it; return exit code and the document of `simulate --json`."""
    from coordinator import simulation as batches
    from coordinator.campaign import play_batch

    simulation, order = batches.next_batch(simulation, now=utc_now())
    view = _View(console, order.control_directory)
    state = asyncio.run(play_batch(order, view.watch))
    console.clear_live()
    run = batches.run_directory(simulation, state)
    return _conclude(console, simulation, run, state)


class _View:
    """One line, live on a terminal; elsewhere a line every hundred games or ten percent."""

    def __init__(self, console: Console, control: Path) -> None:
        self._console, self._control, self._told = console, control, 0

    def watch(self, state: State) -> None:
        from coordinator.status import read_progress

        for run_id, entry in state.entries.items():
            progress = read_progress(str(self._control), run_id)
            if progress is None or entry.phase not in ("launching", "launched"):
                continue
            line = f"  {progress.step} of {progress.of} games  {plain(progress.note)}"
            every = max(100, progress.of // 10)
            if self._console.is_live:
                self._console.live([line])
            elif progress.step // every > self._told:
                self._told = progress.step // every
                self._console.say(line)


def _conclude(console: Console, simulation: Any, run: Path, state: State) -> tuple[int, dict[str, Any]]:
    from coordinator import simulation as batches
    from coordinator.files import read_document

    try:
        files, _ = read_document(str(run / "batch.json"), 1 << 20)
    except FileNotFoundError:
        raise _not_played(simulation, run, state) from None
    code = CANCELED if state.stop is not None and state.stop.reason == "canceled" else int(files["exitCode"])
    batches.change(simulation, run_directory=str(run), exit_code=code)
    summary, _ = read_document(str(run / files["summary"]), 1 << 20)
    _show_summary(console, summary)
    if files["ended"] is not None:
        why = f": {files['error']}" if files["error"] else ""
        console.say(
            console.uneasy(f"  ended by {plain(str(files['ended']))}{plain(why)}; what was played is summed up")
        )
    console.say("\nnothing was charged")
    console.say(f"report  {console.bold(shown(run / files['report']))}")
    return code, {
        "job_id": None,
        "summary": summary,
        "traces": [str(run / name) for name in files["traces"]],
        "results": str(run / files["results"]),
        "journal": str(simulation.journal_path),
        "report": str(run / files["report"]),
        "exit_code": code,
    }


def _not_played(simulation: Any, run: Path, state: State) -> RefusedError:
    """Why there is no batch, as what is to be raised; one that can never be played is over."""
    from coordinator import simulation as batches

    entry = state.entries[run.name]
    completion = entry.receipt.completion if isinstance(entry.receipt.completion, dict) else {}
    why = plain(str(completion.get("observedFailure") or "the worker left no batch"))
    if completion.get("classification") == "never_started":
        batches.change(simulation, exit_code=ENVIRONMENT)
        return RefusedError(f"simulate: the game does not play: {why}; nothing was registered or charged")
    return RefusedError(
        f"simulate: the batch did not end: {why}; take it up with coordinate simulate --resume"
        f" {shown(simulation.journal_path)}"
    )


def _show_summary(console: Console, summary: dict[str, Any]) -> None:
    console.say(
        f"\n{console.bold(str(summary['completed_runs']))} of {summary['requested_runs']} games completed,"
        f" {summary['failed_runs']} failed, {summary['truncated_runs']} truncated"
    )
    rows = []
    for row in summary["strategies"]:
        name = row["strategy"] + (f" / {row['variant']}" if row["variant"] else "")
        shares = [row["win"]] if row.get("win") else row["outcomes"][:3]
        told = "   ".join(_share(console, share) for share in shares)
        rows.append([plain(name), f"{row['games']} games", told])
    console.table(rows)
    for told in _flags(summary["flags"]):
        console.say(f"  {console.uneasy(plain(told))}")


def _share(console: Console, share: dict[str, Any]) -> str:
    interval = f"({share['low']:.1%} to {share['high']:.1%})"
    return f"{plain(str(share.get('outcome', 'wins')))} {share['share']:.1%} {console.dim(interval)}"


def _flags(flags: dict[str, Any]) -> list[str]:
    told = [
        f"dominant: {one['strategy']}{' / ' + one['variant'] if one['variant'] else ''} is better than every other"
        for one in flags["dominant_strategies"]
    ]
    stuck = {name.replace("_", " "): count for name, count in flags["stalemates"].items() if count}
    told.extend(f"stalemates: {count} games ended by {name}" for name, count in stuck.items())
    if flags["seed_has_no_effect"]:
        told.append("the seed has no effect: the same actions give the same game under another seed")
    if flags["too_few_games"]:
        told.append("too few games to tell some strategies apart; --plan says how many it takes")
    return told


def _resume(session: Session, path: Path, owner_is_dead: str | None) -> int:
    from coordinator import simulation as batches
    from coordinator.taking_up import settle_simulation

    simulation = batches.read_simulation(path)
    journal, console = simulation.journal, session.console
    if journal.exit_code is not None:
        console.say(f"this batch is over; its files are in {shown(Path(journal.run_directory or path.parent))}")
        console.document({"job_id": None, "finished": True, "state": "finished", "exit_code": journal.exit_code})
        return journal.exit_code

    def ask(question: str) -> None:
        console.ask(question, yes=False)  # --yes alone never declares an owner dead

    state = asyncio.run(settle_simulation(simulation, owner_is_dead=owner_is_dead, ask=ask))
    if state is not None:
        console.say("the worker had finished: its delivery was adopted")
        code, document = _conclude(console, simulation, batches.run_directory(simulation, state), state)
    else:
        console.say("taking the batch up again; games that were finished are kept")
        code, document = play_and_show_batch(console, simulation)
    console.document(document)
    return code
