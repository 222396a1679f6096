"""What a purchase needs next, from its journal, its runs' files and the service's word. Pure: no file, clock or socket.

| journal | service | runs | next |
|---|---|---|---|
| finished | | | done |
| settled | | | record |
| registering | | | register |
| registered | job not open | | closed |
| registered | cancel requested | | cancel |
| registered | open | a final result that was not answered | deliver |
| registered | open | one to be played | play |
| registered | open | one of unknown end | person |
| registered | open | all answered | finish |
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Literal

from coordinator.journal import KEY_WINDOW_SECONDS, Journal
from coordinator.results import Standing
from coordinator.service.wire import FINAL_RUN_STATES, JobState

Step = Literal["done", "record", "register", "closed", "cancel", "deliver", "play", "person", "finish"]
EXIT_OF_JOB = {"succeeded": 0, "canceled": 10, "budget_exceeded": 2}
"""What a job that the service settled means to whoever resumes it; every other state is 1."""


def next_step(
    journal: Journal, job: JobState | None, standings: Sequence[Standing], *, is_played: bool = False
) -> Step:
    """`is_played`: playing was tried in this call already, so what is left waits for the next one."""
    if journal.state == "finished":
        return "done"
    if journal.state == "settled":
        return "record"
    if journal.state == "registering" or job is None:
        return "register"
    if is_settled(job.state):
        return "closed"
    if job.cancel_requested:
        return "cancel"
    if undelivered(journal, standings):
        return "deliver"
    if not is_played and playable(journal, standings):
        return "play"
    if open_runs(journal):
        return "person"
    return "finish"


def is_settled(state: str) -> bool:
    """Whether a job's state says that the service settled it. Services call an open one differently (`open`, `queued`,
    `playing`): a word that is not known is never taken for an end, which would leave results undelivered.
    """
    return state in FINAL_RUN_STATES


def is_answered(journal: Journal, run_id: str) -> bool:
    """Whether the service has said what became of a run."""
    return (journal.results.get(run_id) or {}).get("answered") is not None


def open_runs(journal: Journal) -> list[str]:
    """Scenarios of the purchase whose run is not settled."""
    return [scenario for scenario, run_id in journal.runs.items() if not is_answered(journal, run_id)]


def undelivered(journal: Journal, standings: Sequence[Standing]) -> list[Standing]:
    """Final results that the service has not answered."""
    return [
        one
        for one in standings
        if one.kind == "final"
        and one.scenario_id in journal.runs
        and not is_answered(journal, journal.runs[one.scenario_id])
    ]


def playable(journal: Journal, standings: Sequence[Standing]) -> list[Standing]:
    """What a new batch plays: open at the service, and not played or delivered as interrupted."""
    open_scenarios: Collection[str] = set(open_runs(journal))
    return [one for one in standings if one.kind in ("unplayed", "interrupted") and one.scenario_id in open_scenarios]


def unknown(journal: Journal, standings: Sequence[Standing]) -> list[Standing]:
    """Playthroughs whose end nobody saw: only a person decides on another attempt."""
    open_scenarios: Collection[str] = set(open_runs(journal))
    return [one for one in standings if one.kind in ("unknown", "running") and one.scenario_id in open_scenarios]


def may_send_again(journal: Journal, now: str) -> bool:
    """Whether the key's window is open: after it the key is looked up and never sent again."""
    age = datetime.fromisoformat(now) - datetime.fromisoformat(journal.created_at)
    return age.total_seconds() < KEY_WINDOW_SECONDS


def exit_of_job(state: str) -> int:
    return EXIT_OF_JOB.get(state, 1)
