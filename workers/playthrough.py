"""One playthrough: set up, play, replay what was found, play the control run, report, whatever happens."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from drivers import make_driver
from drivers.base import Driver, Launch, Observation, Recording
from drivers.errors import DriverStartError
from workers import report as writing
from workers.brains.base import Brain
from workers.brains.registry import UnknownBrainError, make_brain
from workers.contract import (
    REPORT_SCHEMA_VERSION,
    SPEND_NAME,
    ControlRun,
    EndReason,
    Finding,
    PlayOrder,
    PlayResult,
    Progress,
    RunReport,
)
from workers.controllers import MAX_FALL_BACK_SHARE, Controller, ControllerError, Standard, make_controller
from workers.findings import EvidenceBook, Findings, at_or_above
from workers.goals import GoalError, goal_test
from workers.models.brain import ModelBrain
from workers.models.caller import Bounds
from workers.models.exchanges import EXCHANGES_NAME
from workers.models.opening import open_model_player
from workers.models.purse import CallPurse
from workers.personas import Persona, PersonaError, from_data
from workers.purse import EmptyPurse, RunPurse, open_purse
from workers.replays import MAX_REPLAYED_FINDINGS, MAX_SECONDS, SHARE_OF_RUN, Stage, replay
from workers.session import Desk, Ended, Session, StopRequest
from workers.transcript import ProgressFile, Transcript, write_private

RESERVE_SECONDS = 5.0
"""Kept back of the wall clock for writing the report."""

_SUCCEEDED: tuple[EndReason, ...] = (
    "goal_reached", "gave_up", "stuck", "max_actions", "game_exited", "game_crashed", "page_unresponsive",
    "wall_clock", "needs_human",
)  # fmt: skip
_WHOLE: tuple[EndReason, ...] = _SUCCEEDED[:7]


def outcome_of(reason: EndReason, findings: list[Finding], fail_on: str) -> str:
    """The attempt's outcome for an end reason; a finding that stands at or above `fail_on` makes it `failed`."""
    if reason in ("interrupted", "canceled"):
        return reason
    if reason == "budget":
        return "budget_exceeded"
    if reason not in _SUCCEEDED:
        return "failed"
    return "failed" if any(at_or_above(finding.severity, fail_on) for finding in findings) else "passed"


async def play(
    order: PlayOrder,
    *,
    run_directory: Path,
    scenario_id: str,
    run_id: str,
    batch_id: str,
    execution_id: str,
    environment: Mapping[str, str],
    stop: StopRequest,
    now: Callable[[], str],
    model_key: str | None = None,
) -> PlayResult:
    """Play one order into `run_directory`, which exists and is private.

    Writes `progress.json` and `transcript.jsonl` while it plays, then `report.json`, `report.md` and `usage.json`. A
    fault of game or driver is an end reason; an order that cannot be played (unknown driver, brain, controller, a bad
    persona or goal) ends as `never_started`. `model_key` goes to the model's provider and nowhere else. Raises OSError
    when the folder cannot be written.
    """
    run = _Run(order, run_directory, scenario_id, run_id, batch_id, execution_id, environment, stop, now)
    run.model_key = model_key
    return await run.play()


class _Run:
    def __init__(
        self, order: PlayOrder, folder: Path, scenario_id: str, run_id: str, batch_id: str, execution_id: str,
        environment: Mapping[str, str], stop: StopRequest, now: Callable[[], str],
    ) -> None:  # fmt: skip
        self.order, self.folder, self.stop, self.now = order, folder, stop, now
        self.ids = {"scenario": scenario_id, "run": run_id, "batch": batch_id, "execution": execution_id}
        self.environment = dict(environment)
        self.started_at = now()
        self.began = time.monotonic()
        self.book = EvidenceBook()
        self.findings = Findings(self.book, order.known_findings)
        self.purse: RunPurse = open_purse(folder, order)
        self.model_key: str | None = None
        self.model_facts: Mapping[str, int] = {}
        self.driver_facts: Mapping[str, Any] = {}
        self.leftovers: list[str] = []
        self.recording = Recording(status="off")
        self.controller_facts: dict[str, Any] = {}
        self.replay_sessions = 0
        self.player_seed = str(order.seed) if order.seed is not None else secrets.token_hex(8)

    @property
    def deadline(self) -> float:
        wall = self.order.wall_seconds
        return self.began + wall - min(RESERVE_SECONDS, wall / 4)

    async def play(self) -> PlayResult:
        progress = ProgressFile(self.folder / "progress.json")
        progress.write(Progress(state="launching", actions_taken=0, step=0, of=self.order.max_actions, at=self.now()))
        control: ControlRun | None = None
        try:
            persona = from_data(self.order.persona)
            goal = goal_test(self.order.brief.goal_when)
            self._check_driver()
            brain, controller = self._player(persona, progress)
        except (PersonaError, ControllerError, UnknownBrainError, GoalError, DriverStartError) as error:
            ended = Ended(end_reason="never_started", detail=str(error))
            return self._report(None, ended, None)
        with Transcript(self.folder / "transcript.jsonl") as transcript:
            desk = Desk(findings=self.findings, book=self.book, now=self.now, transcript=transcript, progress=progress)
            try:
                ended = await self._session(persona, brain, controller, goal, desk)
            finally:
                if isinstance(brain, ModelBrain):
                    self.model_facts = brain.caller.facts
                    await brain.close()
            if transcript.lines_left_out:
                ended.counts["transcript_lines_left_out"] = transcript.lines_left_out
        self.controller_facts = {"name": controller.name, **controller.facts}
        if ended.steps:
            await self._replays(goal, progress, ended)
            control = await self._control(persona, goal, progress, ended)
        return self._report(persona, ended, control)

    def _player(self, persona: Persona, progress: ProgressFile) -> tuple[Brain, Controller]:
        order = self.order
        if not isinstance(self.purse, CallPurse):
            return make_brain(order.brain, self.purse), make_controller(order.controller, order.brain)
        make_controller(order.controller, order.brain, Standard)
        bounds = Bounds(stop=self.stop, deadline=self.deadline, alive=progress.again)
        player = open_model_player(
            order, persona, folder=self.folder, key=self.model_key, purse=self.purse, bounds=bounds
        )
        return player.brain, make_controller(order.controller, order.brain, player.select)

    def _check_driver(self) -> None:
        make_driver(self.order.driver)

    # -- the sessions ----------------------------------------------------------------------------------------------

    def _launch(self, persona_name: str, directory: Path) -> Launch:
        return Launch(
            settings=self.order.driver_settings,
            directory=directory,
            seed=self.order.seed,
            environment={
                **self.environment,
                "PLAYLANE_RUN_ID": self.ids["run"],
                "PLAYLANE_PERSONA": persona_name,
            },
            playtest={"run_id": self.ids["run"], "persona": persona_name},
            record_video=self.order.record_video,
        )

    async def _session(
        self, persona: Persona, brain: Any, controller: Controller, goal: Callable[[Observation], bool | None],
        desk: Desk,
    ) -> Ended:  # fmt: skip
        driver = make_driver(self.order.driver)
        folder = Path(tempfile.mkdtemp(prefix="session-", dir=self.folder))
        try:
            ended = await Session(
                driver=driver,
                launch=self._launch(persona.name, folder),
                order=self.order,
                persona=persona,
                brain=brain,
                controller=controller,
                goal=goal,
                seed_text=self._seed_text(),
                desk=desk,
                stop=EmptyPurse(self.stop, self.purse),
                deadline=self.deadline,
                max_actions=self.order.max_actions,
            ).run()
        finally:
            self.recording = await driver.stop("the run is over")
            self.leftovers += self.recording.leftovers
            self.driver_facts = dict(driver.facts)
            shutil.rmtree(folder, ignore_errors=True)
        return ended

    def _seed_text(self) -> str:
        return f"{self.player_seed}/{self.order.repetition}"

    async def _replays(self, goal: Callable[[Observation], bool | None], progress: ProgressFile, ended: Ended) -> None:
        began = time.monotonic()
        bound = min(began + min(MAX_SECONDS, self.order.wall_seconds * SHARE_OF_RUN), self.deadline)
        controlled = self.order.seed is not None and self.driver_facts.get("seed_confirmed", True) is not None
        root = Path(tempfile.mkdtemp(prefix="replays-", dir=self.folder))
        persona_name = str(self.order.persona.get("name", ""))

        def folder() -> Path:
            return Path(tempfile.mkdtemp(dir=root))

        def open_driver() -> Driver:
            return make_driver(self.order.driver)

        stage = Stage(
            open_driver=open_driver,
            launch=lambda directory: self._launch(persona_name, directory),
            folder=folder,
            goal=goal,
            stop=self.stop,
        )
        try:
            for index, finding in enumerate(self.findings.all()):
                self._reporting(progress, ended, f"replaying {finding.id}")
                if index >= MAX_REPLAYED_FINDINGS:
                    self.findings.replace(
                        msgspec.structs.replace(
                            finding, replay=f"not replayable: only the first {MAX_REPLAYED_FINDINGS} are replayed"
                        )
                    )
                    continue
                done = await replay(finding, stage, deadline=bound, seed_controlled=controlled)
                self.replay_sessions += done.sessions
                self.findings.replace(done.finding)
        finally:
            shutil.rmtree(root, ignore_errors=True)
        ended.timing["replay_seconds"] = time.monotonic() - began

    async def _control(
        self, persona: Persona, goal: Callable[[Observation], bool | None], progress: ProgressFile, ended: Ended
    ) -> ControlRun | None:
        if not self.order.control_run or self.stop.requested is not None or time.monotonic() >= self.deadline:
            return None
        self._reporting(progress, ended, "control run")
        book = EvidenceBook()
        findings = Findings(book, self.order.known_findings)
        driver = make_driver(self.order.driver)
        folder = Path(tempfile.mkdtemp(prefix="control-", dir=self.folder))
        try:
            result = await Session(
                driver=driver,
                launch=self._launch(persona.name, folder),
                order=self.order,
                persona=persona,
                brain=make_brain("random"),
                controller=Standard(),
                goal=goal,
                seed_text=self._seed_text(),
                desk=Desk(findings=findings, book=book, now=self.now),
                stop=self.stop,
                deadline=self.deadline,
                max_actions=ended.actions_taken,
                persistent=True,
            ).run()
        finally:
            recording = await driver.stop("the control run is over")
            self.leftovers += recording.leftovers
            shutil.rmtree(folder, ignore_errors=True)
        return ControlRun(
            brain="random",
            seed=self.order.seed,
            actions_taken=result.actions_taken,
            end_reason=result.end_reason,
            findings=findings.all(),
            coverage=result.coverage,
        )

    def _reporting(self, progress: ProgressFile, ended: Ended, note: str) -> None:
        progress.write(
            Progress(
                state="reporting",
                actions_taken=ended.actions_taken,
                step=ended.steps,
                of=self.order.max_actions,
                note=note,
                findings=len(self.findings),
                at=self.now(),
            )
        )

    # -- the report ------------------------------------------------------------------------------------------------

    def _report(self, persona: Persona | None, ended: Ended, control: ControlRun | None) -> PlayResult:
        order, findings = self.order, self.findings.all()
        outcome = outcome_of(ended.end_reason, self.findings.standing(), order.fail_on)
        selections = self.controller_facts.get("selections", 0)
        fell_back = selections and self.controller_facts["fall_backs"] > MAX_FALL_BACK_SHARE * selections
        partial = ended.end_reason not in _WHOLE or bool(fell_back)
        if self.findings.overflow:
            ended.counts["findings_left_out"] = self.findings.overflow
        named = persona or _nameless(order)
        report = RunReport(
            schema_version=REPORT_SCHEMA_VERSION,
            run_id=self.ids["run"],
            scenario_id=self.ids["scenario"],
            persona=named.name,
            controller=order.controller,
            brain=order.brain,
            model=order.model,
            driver=order.driver,
            seed=order.seed,
            repetition=order.repetition,
            end_reason=ended.end_reason,
            outcome=outcome,
            partial=partial,
            started_at=self.started_at,
            finished_at=self.now(),
            actions_taken=ended.actions_taken,
            steps=ended.steps,
            summary=writing.summary(named, order, ended, findings),
            what_worked=writing.what_worked(ended),
            in_the_way=writing.in_the_way(ended, findings),
            keep_playing=writing.keep_playing(ended, findings),
            findings=findings,
            coverage=ended.coverage,
            tested=self._tested(ended),
            timing={"frozen_seconds": 0.0, "game_seconds": 0.0, "brain_seconds": 0.0, **ended.timing,
                    "wall_seconds": time.monotonic() - self.began},
            usage={**self.purse.facts(), **writing.cost_of_findings(self.purse.usage().cost_usd, findings, control)},
            persona_limits={} if persona is None else _enforced(persona),
            controller_facts=self.controller_facts,
            counts={**ended.counts, "restarts": ended.restarts, "replay_sessions": self.replay_sessions,
                    "noise_lines": int(self.driver_facts.get("noise_lines", 0)),
                    **{f"model_{name}": count for name, count in self.model_facts.items()}},
            recording=msgspec.to_builtins(self.recording),
            control=control,
            timeline=ended.timeline,
        )  # fmt: skip
        artefacts = ["report.json", "report.md", "usage.json"]
        write_private(self.folder / "report.json", msgspec.json.format(msgspec.json.encode(report)) + b"\n")
        write_private(self.folder / "report.md", writing.markdown(report).encode())
        write_private(self.folder / "usage.json", msgspec.json.encode(report.usage) + b"\n")
        artefacts += [
            name for name in ("transcript.jsonl", SPEND_NAME, EXCHANGES_NAME) if (self.folder / name).exists()
        ]
        failed = outcome in ("failed", "interrupted", "canceled")
        return PlayResult(
            end_reason=ended.end_reason,
            outcome=outcome,
            partial=partial,
            actions_taken=ended.actions_taken,
            artefacts=artefacts,
            usage=self.purse.usage(),
            observed_failure=" ".join(report.summary.split())[:500] if failed else None,
            leftovers=self.leftovers,
        )

    def _tested(self, ended: Ended) -> dict[str, Any]:
        facts = {str(key): value for key, value in self.driver_facts.items()}
        return {
            "build": self.order.build,
            "driver": facts,
            "launch_line": facts.get("launch_line"),
            "seed_control": facts.get("seed_control", "seed not controlled"),
            "player_seed": self.player_seed,
            "frozen_time": "not frozen: the game is turn-based and does not move between two inputs",
            "policies": {"goal_when": self.order.brief.goal_when, "fail_on": self.order.fail_on,
                         "max_actions": self.order.max_actions, "wall_seconds": self.order.wall_seconds},
            "goal_reached": ended.goal_reached,
            "execution_id": self.ids["execution"],
            "batch_id": self.ids["batch"],
        }  # fmt: skip


def _enforced(persona: Persona) -> dict[str, Any]:
    built = msgspec.to_builtins(persona)
    return {key: built[key] for key in ("limits", "senses", "inputs", "stops_at_goal")}


def _nameless(order: PlayOrder) -> Persona:
    """Stands in a report for a persona that could not be read, under the name it claims."""
    from workers.personas import load

    name = str(order.persona.get("name", "unknown"))[:40]
    return msgspec.structs.replace(load("newcomer"), name=name, title=name)
