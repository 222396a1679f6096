"""The step loop: one brain plays one session of a game through one driver, until it ends or is stopped.

observe -> persona filter -> brain -> controller -> act -> effect -> oracles -> transcript line.
"""

from __future__ import annotations

import random
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from drivers.base import Action, ActionKind, Driver, Launch, Observation
from drivers.errors import DriverError
from workers.brains.base import MAX_PROPOSALS, Brain, BrainEndedError, Candidate, Proposal, Reports
from workers.contract import EndReason, Finding, PlayOrder, Progress
from workers.controllers import Controller
from workers.credentials import asks_for_credentials
from workers.diary import effect_in_words, transcript_row
from workers.ending import ending_of, reloading
from workers.findings import Event, EvidenceBook, Findings
from workers.look import MAX_LABEL_CHARACTERS, Effect, Eyes, Input, Offer, Scene, permitted, readable
from workers.oracles.bench import Bench
from workers.personas import Persona
from workers.purse import StopRequest as StopRequest
from workers.situation import folded
from workers.transcript import ProgressFile, Transcript

MAX_COMMAND_CHARACTERS = 1_000
STUCK_WINDOW_STEPS = 24
STUCK_DISTINCT = 2
MAX_REFUSED_IN_A_ROW = 30
MAX_TIMELINE_ROWS = 20_000


class Desk(msgspec.Struct, kw_only=True):
    """Where a session's traces go. A control run has neither transcript nor progress file."""

    findings: Findings
    book: EvidenceBook
    now: Callable[[], str]
    transcript: Transcript | None = None
    progress: ProgressFile | None = None


class Ended(msgspec.Struct, kw_only=True):
    """How a session went."""

    end_reason: EndReason
    detail: str = ""
    actions_taken: int = 0
    steps: int = 0
    goal_reached: bool = False
    restarts: int = 0
    best_progress: float | None = None
    outcomes: list[str] = msgspec.field(default_factory=list)
    coverage: dict[str, int] = msgspec.field(default_factory=dict)
    counts: Counter[str] = msgspec.field(default_factory=Counter)
    timing: dict[str, float] = msgspec.field(default_factory=dict)
    timeline: list[dict[str, Any]] = msgspec.field(default_factory=list)
    inputs: list[Input] = msgspec.field(default_factory=list)


class Session:
    """One session from start to end. `persistent` (control runs) knows neither patience nor a satisfying end."""

    def __init__(
        self,
        *,
        driver: Driver,
        launch: Launch,
        order: PlayOrder,
        persona: Persona,
        brain: Brain,
        controller: Controller,
        goal: Callable[[Observation], bool | None],
        seed_text: str,
        desk: Desk,
        stop: StopRequest,
        deadline: float,
        max_actions: int,
        persistent: bool = False,
    ) -> None:
        self._driver, self._launch, self._order, self._persona = driver, launch, order, persona
        self._brain, self._controller, self._desk, self._stop = brain, controller, desk, stop
        self._deadline, self._max_actions, self._persistent = deadline, max_actions, persistent
        self._bench = Bench(goal)
        self._brain_rng = random.Random(f"playlane/brain/1/{seed_text}")
        self._selector_rng = random.Random(f"playlane/selector/1/{seed_text}")
        self.ended = Ended(end_reason="harness_fault")
        self._known: set[str] = set()
        self._places: set[str] = set()
        self._lines: set[str] = set()
        self._tried: set[tuple[str, str]] = set()
        self._labels: set[str] = set()
        self._recent: deque[tuple[str, str]] = deque(maxlen=STUCK_WINDOW_STEPS)
        self._patience_spent = 0
        self._refused_in_a_row = 0
        self._since_restart = 0
        self._words: list[str] = []
        self._game_seconds = self._brain_seconds = 0.0

    async def run(self) -> Ended:
        """Play until the end; the driver's faults become an end reason, never an exception."""
        began = time.monotonic()
        try:
            observation = await self._timed(self._driver.start(self._launch))
        except DriverError as error:
            self._finish("never_started", str(error))
            self.ended.timing = {"wall_seconds": time.monotonic() - began, "game_seconds": 0.0, "brain_seconds": 0.0}
            return self.ended
        eyes = Eyes(
            self._persona,
            brief=self._order.brief,
            kinds=_kinds(self._driver),
            can_restart=hasattr(self._driver, "reload"),
            vocabulary=self._order.vocabulary,
            of=self._max_actions,
        )
        self._judge(self._bench.at_start(observation), observation)
        self._notice(observation)
        self._bookkeep("playing")
        try:
            await self._loop(eyes, observation)
        finally:
            self.ended.timing = {
                "wall_seconds": time.monotonic() - began,
                "game_seconds": self._game_seconds,
                "brain_seconds": self._brain_seconds,
            }
            self.ended.coverage = {
                "situations": len(self._known),
                "states": len(self._places),
                "actions_tried": len(self._tried),
                "distinct_actions": len(self._labels),
                "text_lines": len(self._lines),
            }
        return self.ended

    async def _loop(self, eyes: Eyes, observation: Observation) -> None:
        scene, offers = eyes.scene(observation)
        inputs_on_this_look = 0
        while True:
            reason = self._reason_to_end(observation, scene)
            if reason is not None:
                self._finish(*reason)
                return
            look = eyes.look(
                scene,
                step=self.ended.steps,
                at_ms=round(self._game_seconds * 1000),
                free_text=eyes.takes_text(observation),
            )
            began = time.monotonic()
            try:
                proposed = await self._brain.propose(look, self._brain_rng)
                proposals = self._possible(proposed, offers, eyes.takes_text(observation))
                if not proposals:
                    stuck = not offers and observation.your_turn
                    self._finish("stuck" if stuck else "gave_up", "nothing was left to do")
                    return
                chosen = await self._controller.choose(scene, proposals, self._selector_rng)
            except BrainEndedError as error:
                self._finish(error.reason, error.detail)
                return
            finally:
                self._brain_seconds += time.monotonic() - began
                self._hear_player(observation)
            # The reaction delay is game time: a turn-based game does not move in it, so nothing waits for it.
            self._game_seconds += self._persona.limits.reaction_delay_ms / 1000
            after = await self._step(chosen, proposals, observation)
            if after is None:
                return
            inputs_on_this_look += 1
            effect, new_scene, new_offers = self._seen(eyes, chosen, scene, after)
            self._controller.learn(scene, chosen.label, effect, new_scene)
            looks_again = inputs_on_this_look >= self._persona.limits.actions_per_observation
            if looks_again or after.done or chosen.input.restart:
                eyes.remember(scene, chosen.label, effect, new_scene, step=self.ended.steps)
                scene, offers, inputs_on_this_look = new_scene, new_offers, 0
            observation = after

    def _seen(
        self, eyes: Eyes, chosen: Candidate, scene: Scene, after: Observation
    ) -> tuple[Effect, Scene, tuple[Offer, ...]]:
        new_scene, new_offers = eyes.scene(after)
        effect: Effect = "nothing" if new_scene == scene else "changed"
        if chosen.input.restart:
            effect = "restarted"
        elif self._refused_in_a_row:
            effect = "refused"
        elif after.done:
            effect = "ended"
        return effect, new_scene, new_offers

    def _reason_to_end(self, observation: Observation, scene: Scene) -> tuple[EndReason, str] | None:
        asked = self._stop.requested
        if asked is not None and asked != "budget":
            return asked, "asked to stop"
        if self.ended.goal_reached and self._persona.stops_at_goal and not self._persistent:
            return "goal_reached", "the goal was reached"
        if time.monotonic() >= self._deadline:
            return "wall_clock", "the time of the run was over"
        if self.ended.actions_taken >= self._max_actions:
            return "max_actions", "all actions were used"
        if observation.done and not hasattr(self._driver, "reload"):
            return ("goal_reached" if self.ended.goal_reached else "game_exited"), "the game came to its end"
        if asks_for_credentials(observation):
            return "needs_human", "the game asks for credentials, which are never guessed"
        if asked == "budget":
            return asked, "the next call could pass the run's budget"
        if self._persistent:
            return None
        if self._patience_spent >= self._persona.limits.patience_steps:
            return "gave_up", f"{self._patience_spent} steps without progress"
        if len(self._recent) == STUCK_WINDOW_STEPS and len(set(self._recent)) <= STUCK_DISTINCT:
            return "stuck", "the same situation and action again and again"
        if self._refused_in_a_row >= MAX_REFUSED_IN_A_ROW:
            return "stuck", f"{self._refused_in_a_row} inputs in a row were refused"
        return None

    def _possible(self, proposals: Sequence[Proposal], offers: Sequence[Offer], takes_text: bool) -> list[Candidate]:
        """The proposals that are offered, or free text where that is taken; others are counted and never sent."""
        offered = {offer.label: offer.input for offer in offers}
        kept = []
        for proposal in proposals[:MAX_PROPOSALS]:
            given = offered.get(proposal.label)
            if proposal.typed and takes_text and "\n" not in proposal.label:
                given = Input(action=Action(kind="command", text=proposal.label[:MAX_COMMAND_CHARACTERS]))
            if given is None or not (given.action is None or permitted(given.action, self._persona)):
                self.ended.counts["proposals_not_offered"] += 1
                continue
            kept.append(Candidate(label=proposal.label[:MAX_LABEL_CHARACTERS], input=given, why=proposal.why))
        return kept

    async def _step(self, chosen: Candidate, proposals: Sequence[Candidate], before: Observation) -> Observation | None:
        given, ended = chosen.input, self.ended
        ended.steps += 1
        ended.actions_taken += 1
        ended.inputs.append(given)
        self._desk.book.issue("transcript", ended.steps)
        self._words.append(chosen.label)
        situation = self._bench.situations.key(before)
        self._tried.add((situation, chosen.label))
        self._labels.add(chosen.label)
        if given.restart:
            ended.restarts += 1
        after: Observation | None = None
        status, detail, error = "done", "", None
        try:
            if given.action is None:
                after = await self._timed(reloading(self._driver).reload())
            else:
                result = await self._timed(self._driver.act(given.action))
                after, status, detail = result.observation, result.status, result.detail
        except DriverError as fault:
            error = fault
        if status != "done":
            ended.counts[f"inputs_{status}"] += 1
        self._refused_in_a_row = 0 if status == "done" else self._refused_in_a_row + 1
        events = self._bench.at_step(
            step=ended.steps, given=given, label=chosen.label, before=before, after=after, status=status,
            detail=detail, error=error,
        )  # fmt: skip
        if given.restart:
            self._since_restart = len(ended.inputs) - 1
        found = self._judge(events, after)
        effect = effect_in_words(before, after, status, given)
        self._recent.append((situation, chosen.label))
        if after is not None:
            self._notice(after)
        shown = before if after is None else after
        self._write(chosen, proposals, shown, (status, detail), error, effect, found)
        self._bookkeep("playing")
        if error is not None:
            self._finish(*ending_of(error))
            return None
        return after

    def _judge(self, events: Sequence[Event], observation: Observation | None) -> list[Finding]:
        step, found = self.ended.steps, []
        for event in events:
            evidence = [self._desk.book.issue("transcript", step)]
            if event.console:
                evidence.append(self._desk.book.issue("console", step))
            if observation is not None and observation.state is not None:
                evidence.append(self._desk.book.issue("state", step))
            finding, _ = self._desk.findings.add(
                event,
                step=step,
                evidence=evidence,
                actions=[given.as_data() for given in self.ended.inputs],
                steps_in_words=self._words[self._since_restart :],
            )
            if finding is not None:
                found.append(finding)
        return found

    def _hear_player(self, observation: Observation) -> None:
        """Record what the brain itself reports; its evidence must have been issued."""
        if not isinstance(self._brain, Reports):
            return
        for claim in self._brain.take_claims():
            self._desk.findings.claim(
                title=claim.title, category=claim.category, severity=claim.severity, description=claim.description,
                cited=claim.evidence, place=observation.scene or observation.url or "", step=self.ended.steps,
                actions=[given.as_data() for given in self.ended.inputs],
                steps_in_words=self._words[self._since_restart :],
            )  # fmt: skip

    def _notice(self, observation: Observation) -> None:
        """Coverage, progress, goal; spends or renews patience."""
        key = self._bench.situations.key(observation)
        better = observation.progress is not None and (
            self.ended.best_progress is None or observation.progress > self.ended.best_progress
        )
        if better:
            self.ended.best_progress = observation.progress
        reached = self._bench.goal(observation) is True
        progressed = better or key not in self._known or (reached and not self.ended.goal_reached)
        self.ended.goal_reached = self.ended.goal_reached or reached
        self._patience_spent = 0 if progressed else self._patience_spent + 1
        self._known.add(key)
        self._places.add(self._bench.situations.place(observation))
        self._lines |= {folded(line) for line in observation.text.splitlines() if line.strip()}
        if observation.done and observation.outcome and observation.outcome not in self.ended.outcomes:
            self.ended.outcomes.append(observation.outcome[:200])

    def _write(
        self, chosen: Candidate, proposals: Sequence[Candidate], shown: Observation, answer: tuple[str, str],
        error: DriverError | None, effect: list[str], found: list[Finding],
    ) -> None:  # fmt: skip
        ended = self.ended
        if len(ended.timeline) < MAX_TIMELINE_ROWS:
            ids = [finding.id for finding in found]
            ended.timeline.append(
                {"step": ended.steps, "action": chosen.label, "effect": ", ".join(effect), "findings": ids}
            )
        if self._desk.transcript is not None:
            self._desk.transcript.write(
                transcript_row(
                    step=ended.steps, at=self._desk.now(), game_seconds=self._game_seconds,
                    brain_seconds=self._brain_seconds, chosen=chosen, proposals=proposals, shown=shown,
                    goal=self._bench.goal(shown), status=answer[0], detail=answer[1], error=error, effect=effect,
                    findings=found,
                )
            )  # fmt: skip

    def _bookkeep(self, state: str) -> None:
        if self._desk.progress is not None:
            self._desk.progress.write(
                Progress(
                    state="playing" if state == "playing" else "reporting",
                    actions_taken=self.ended.actions_taken,
                    step=self.ended.steps,
                    of=self._max_actions,
                    note=readable(self._words[-1], self._persona)[:80] if self._words else "",
                    findings=len(self._desk.findings),
                    at=self._desk.now(),
                )
            )

    def _finish(self, reason: EndReason, detail: str) -> None:
        self.ended.end_reason, self.ended.detail = reason, detail

    async def _timed(self, call: Any) -> Any:
        began = time.monotonic()
        try:
            return await call
        finally:
            self._game_seconds += time.monotonic() - began


def _kinds(driver: Driver) -> Sequence[ActionKind]:
    """A bridge offers `choose` or `command` by its present turn; both are inputs of the session."""
    kinds = tuple(driver.action_kinds)
    return (*kinds, "choose", "command") if {"choose", "command"} & set(kinds) else kinds
