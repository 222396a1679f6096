"""Campaigns for the report tests: real Structs encoded as their owners encode them, in a real folder."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import msgspec

from workers.contract import ControlRun, Evidence, Finding, RunReport

NOW = "2026-03-04T05:06:07.000Z"
PERSONAS = ("newcomer", "explorer", "speedrunner", "completionist", "impatient", "cautious")
CONTROLLERS = ("standard", "jev", "rune")
HOSTILE = '</script><script>document.title="owned"</script><img src=x onerror="document.title=1">\x1b[31m]]>\u202e|`*[x](http://example.test/)'


def a_finding(
    signature: str = "v1:00000000000000aa",
    *,
    ident: str = "f1",
    title: str = "The game ends with an error when the lamp is taken twice",
    severity: Any = "critical",
    category: str = "crash",
    step: int | None = 3,
    replay: str | None = "3/3",
    evidence: list[Evidence] | None = None,
    dropped: str | None = None,
    suppressed_by: str | None = None,
    actions: list[str] | None = None,
    description: str = "The process ended with exit code 1 right after the input: a KeyError in its error output.",
) -> Finding:
    moves = ["north", "take lamp", "take lamp"] if actions is None else actions
    return Finding(
        id=ident,
        title=title,
        category=category,
        severity=severity,
        description=description,
        repro_steps=[f"Choose '{move}'" for move in moves],
        evidence=[Evidence(kind="transcript", ref=f"s{step}", step=step)] if evidence is None else evidence,
        origin="oracle",
        signature=signature,
        replay=replay,
        dropped=dropped,
        suppressed_by=suppressed_by,
        step=step,
        oracle="crash",
        actions=[{"kind": "choose", "move": move} for move in moves],
    )


def a_report(
    run_id: str,
    *,
    persona: str = "newcomer",
    controller: str = "standard",
    repetition: int = 1,
    seed: int | None = 42,
    end_reason: Any = "max_actions",
    partial: bool = False,
    findings: list[Finding] | None = None,
    steps: int = 12,
    summary: str = "Walked through the cave and met what is listed here.",
    control: bool = False,
) -> RunReport:
    found = findings or []
    words = ("north", "south", "take lamp", "open door", "look", "wait", "jump")
    effects = ("new room", "nothing changed", "score 5", "new text", "a door opens")
    chooser = random.Random(f"{run_id}/{seed}")
    arm = ControlRun(
        brain="random",
        seed=seed,
        actions_taken=steps,
        end_reason="max_actions",
        findings=found[:1],
        coverage={"states": max(1, steps // 3)},
    )
    return RunReport(
        schema_version="1.0",
        run_id=run_id,
        scenario_id=f"cave/{persona}/{controller}/{repetition}",
        persona=persona,
        controller=controller,
        brain="offline",
        model=None,
        driver="cli_stdio",
        seed=seed,
        repetition=repetition,
        end_reason=end_reason,
        outcome="passed",
        partial=partial,
        started_at="2026-03-04T05:00:00.000Z",
        finished_at="2026-03-04T05:01:00.000Z",
        actions_taken=steps,
        steps=steps,
        summary=summary,
        what_worked=["Rooms describe themselves well", "Moves are listed"],
        in_the_way=["It is not said that the lamp burns out"],
        keep_playing="Yes, once the lamp no longer ends the game.",
        findings=found,
        coverage={"states": steps // 2 + 1, "actions": steps, "actions_distinct": 7, "text_lines": steps * 2},
        tested={
            "build": "sha256:4f1c",
            "launch_line": "python cave.py",
            "seed_control": True,
            "seed_confirmed": True,
            "frozen_time": False,
            "game": {"name": "cave", "version": "1.2"},
            "blocked_hosts": [],
        },
        timing={"wall_seconds": steps * 0.05, "game_seconds": float(steps), "brain_seconds": 0.2, "frozen_seconds": 0},
        usage={"cost_usd": 0, "tokens": 0},
        persona_limits={"patience_steps": 40},
        controller_facts={"fallbacks": 0},
        counts={"illegal_moves": 0, "noise_lines": 2},
        recording={"status": "off"},
        control=arm if control else None,
        timeline=[
            {
                "step": step,
                "action": f"choose {chooser.choice(words)}",
                "effect": chooser.choice(effects),
                "findings": [finding.id for finding in found if finding.step == step],
            }
            for step in range(1, steps + 1)
        ],
    )


class CampaignOnDisk:
    """A manifest, a control directory and the folders of its runs, as a finished batch leaves them."""

    def __init__(self, folder: Path, *, campaign: str = "cave nightly") -> None:
        self.folder = folder
        self.control = folder / "control"
        self.manifest = folder / "manifest.json"
        self.campaign = campaign
        self.scenarios: list[dict[str, Any]] = []
        self.entries: dict[str, Any] = {}
        self.stop: dict[str, Any] | None = None
        self.control.mkdir(parents=True, mode=0o700)
        (self.control / "runs").mkdir(mode=0o700)

    def ask(self, persona: str, controller: str, repetition: int = 1, seed: int | None = 42) -> dict[str, Any]:
        """A planned playthrough without an attempt."""
        ident = f"cave/{persona}/{controller}/{repetition}"
        scenario: dict[str, Any] = {
            "id": ident,
            "feature": "cave",
            "readiness": "implemented",
            "authoringStatus": "implemented",
            "qualifyingDefinitionDigest": "d" * 64,
            "qualifyingGraderDigest": "e" * 64,
            "executionId": f"x-{len(self.scenarios)}",
            "blocker": None,
            "playtest": {
                "kind": "play", "persona": persona, "controller": controller, "brain": "offline",
                "driver": "cli_stdio", "seed": seed, "repetition": repetition, "target": {"name": "cave"},
                "limits": {"max_actions": 200, "wall_seconds": 600}, "fail_on": "major",
            },
            "attempts": [],
        }  # fmt: skip
        self.scenarios.append(scenario)
        return scenario

    def play(
        self,
        scenario: dict[str, Any],
        report: RunReport | bytes | None,
        *,
        outcome: str = "passed",
        failure: Any = None,
    ) -> str:
        """An attempt of it: a row in the ledger, an entry in the state, a folder with a report. Returns its run id."""
        ordinal = len(scenario["attempts"]) + 1
        run_id = f"r{len(self.entries):05d}"
        scenario["attempts"].append(
            {
                "ordinal": ordinal, "outcome": outcome, "executionId": scenario["executionId"],
                "definitionDigest": "d" * 64, "graderDigest": "e" * 64, "observedFailure": failure,
                "usage": {"costUsd": 0, "tokens": 0, "coverage": "complete"}, "cleanup": "passed",
            }
        )  # fmt: skip
        permit = {
            "reservationId": run_id, "batchId": "b1", "scenarioId": scenario["id"],
            "executionId": scenario["executionId"], "ordinal": ordinal, "args": [],
        }  # fmt: skip
        phase = "launching" if outcome == "running" else "completed"
        self.entries[run_id] = {"phase": phase, "permit": permit, "reservedAttempt": {}, "receipt": {}}
        directory = self.control / "runs" / run_id
        directory.mkdir(mode=0o700)
        if isinstance(report, bytes):
            (directory / "report.json").write_bytes(report)
        elif report is not None:
            told = msgspec.structs.replace(report, run_id=run_id)
            (directory / "report.json").write_bytes(msgspec.json.format(msgspec.json.encode(told), indent=2))
            (directory / "report.md").write_text(f"# {report.persona}\n")
            lines = [json.dumps({"step": row["step"]}) for row in report.timeline]
            (directory / "transcript.jsonl").write_text("\n".join(lines) + "\n")
        return run_id

    def save(self) -> None:
        document = {
            "version": 1, "campaignId": self.campaign, "frozenAt": NOW, "baselineRevision": "build-7c1",
            "inventoryDigest": "i", "defaultsSha256": "f", "denominator": len(self.scenarios), "areas": 1,
            "capabilities": 0, "requiredPasses": 1, "corePrs": [], "evalPr": None, "scenarios": self.scenarios,
        }  # fmt: skip
        self.manifest.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
        state = {
            "version": 1, "batchId": "b1", "manifestPath": str(self.manifest), "owner": None, "selectionsSha256": "s",
            "entries": self.entries, "stop": self.stop, "laterStops": [], "failures": [],
        }  # fmt: skip
        (self.control / "state.json").write_bytes(msgspec.json.encode(state))


def never_started(persona: str, controller: str) -> RunReport:
    report = a_report("r", persona=persona, controller=controller, end_reason="never_started", partial=True, steps=0)
    return msgspec.structs.replace(report, outcome="failed", summary="The bridge did not greet within 10 s.")


def six_by_three(folder: Path) -> CampaignOnDisk:
    """Six personas, three controllers, eighteen runs asked, of which five cannot start."""
    made = CampaignOnDisk(folder)
    for persona in PERSONAS:
        for controller in CONTROLLERS:
            scenario = made.ask(persona, controller)
            if controller == "jev" and persona != "cautious":
                failure = "the bridge did not greet within 10 s"
                made.play(scenario, never_started(persona, controller), outcome="failed", failure=failure)
                continue
            made.play(scenario, a_report("r", persona=persona, controller=controller, control=controller == "standard",
                                         findings=realistic_findings(persona, controller)))  # fmt: skip
    made.save()
    return made


def realistic_findings(persona: str, controller: str) -> list[Finding]:
    found: list[Finding] = []
    if persona in ("explorer", "completionist", "newcomer"):
        found.append(a_finding(step=3))
    if persona in ("explorer", "impatient"):
        found.append(
            a_finding(
                "v1:00000000000000bb", ident="f2", title="No listed move does anything behind the iron door",
                severity="major", category="soft-lock", step=6, replay="2/3, seed not controlled",
                actions=["north", "east", "open iron door", "enter", "look", "wait"],
                description="Every listed move was tried in this state: text and state stay the same.",
            )
        )  # fmt: skip
    if controller == "rune" and persona == "explorer":
        found.append(
            a_finding(
                "v1:00000000000000cc", ident="f3", title="Gold becomes negative after selling the rope twice",
                severity="major", category="violation", step=9, replay="3/3", actions=["sell rope", "sell rope"],
                description="The state hook lists the violation 'gold < 0'.",
            )
        )  # fmt: skip
    if persona in ("cautious", "speedrunner"):
        found.append(
            a_finding(
                "v1:00000000000000dd", ident="f4", title="Progress is lower after loading than it was when saved",
                severity="minor", category="progress", step=11, replay="not replayable: the save is outside the build",
                actions=["save", "north", "load"],
                description="Progress was 0.40 before the save and 0.10 after the load.",
            )
        )  # fmt: skip
    if persona == "newcomer":
        found.append(
            a_finding("v1:00000000000000ee", ident="f5", title="The parser does not know 'use'", severity="note",
                      category="words", dropped="it has no valid evidence", evidence=[], replay=None)
        )  # fmt: skip
        found.append(
            a_finding("v1:00000000000000ff", ident="f6", title="The lamp burns out after ten turns", severity="minor",
                      category="balance", suppressed_by="lamp burns out on purpose", replay=None)
        )  # fmt: skip
    return found
