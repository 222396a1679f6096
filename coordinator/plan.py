"""From settings to a manifest: one scenario per target x persona x controller x repetition, and what follows from it.

The *definition* digest of a scenario covers who plays what and how: persona, controller, brain, model, seed, driver
settings, brief, limits and the build's content. The *grader* digest covers what judges: oracles, findings, severity
rules (their source), report schema and the fail_on level. A result qualifies only what has the same two digests.
"""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import msgspec

import workers.contract
from coordinator.configuration import DEFAULT_SEED, Target, target_driver, target_kind, target_name
from coordinator.documents import content_sha256, decode, encode, sha256
from coordinator.errors import RefusedError
from coordinator.games import Game, read_game
from coordinator.manifest import same
from coordinator.records import MANIFEST_VERSION
from coordinator.settings import Settings, brief_of
from workers.contract import REPORT_SCHEMA_VERSION

PRODUCT_LANE = "local-build"
_DIGESTED = (
    "personaDefinition", "controller", "brain", "model", "seed", "driver", "driverSettings", "brief", "limits",
    "vocabulary", "realtime",
)  # fmt: skip
_GRADING_SOURCES = ("oracles/**/*.py", "findings.py")


def make_manifest(settings: Settings, *, campaign_id: str, now: str) -> dict[str, Any]:
    """The manifest of a campaign that was not played yet.

    Raises `ConfigurationError` when a build cannot be read, and `RefusedError` when two runs would have one name.
    """
    scenarios: list[dict[str, Any]] = []
    builds: list[str] = []
    for target in settings.targets:
        game = read_game(settings.project, target)
        builds.append(game.build.digest)
        for repetition in range(1, settings.repetitions + 1):
            for persona in settings.personas:
                scenarios += [
                    _scenario(settings, target, game, persona, controller, repetition)
                    for controller in settings.controllers
                ]
    ids = [scenario["id"] for scenario in scenarios]
    if len(set(ids)) != len(ids):
        raise RefusedError(
            "plan: two runs would have the same name; give targets and personas names that differ in more than"
            " punctuation"
        )
    capabilities = {name for scenario in scenarios for name in scenario["capabilities"]}
    document = {
        "version": MANIFEST_VERSION,
        "campaignId": campaign_id,
        "frozenAt": now,
        "baselineRevision": builds[0] if len(builds) == 1 else content_sha256(builds),
        "inventoryDigest": content_sha256([[one["id"], one["scenarioSha256"]] for one in scenarios]),
        "defaultsSha256": content_sha256(msgspec.to_builtins(settings.limits)),
        "denominator": len(scenarios),
        "areas": len(settings.targets),
        "capabilities": len(capabilities),
        "requiredPasses": 1,
        "corePrs": [],
        "evalPr": None,
        "scenarios": scenarios,
    }
    # As it will be read back: a plan and its file must not differ by a tuple or a number's type.
    return decode(encode(document))


def _scenario(
    settings: Settings,
    target: Target,
    game: Game,
    persona: dict[str, Any],
    controller: str,
    repetition: int,
) -> dict[str, Any]:
    name, driver = target_name(target), target_driver(target)
    brief = brief_of(settings, target)
    build = game.build
    playtest: dict[str, Any] = {
        "kind": "play",
        "target": name,
        "targetKind": target_kind(target),
        "persona": persona["name"],
        "controller": controller,
        "brain": settings.brain,
        "model": settings.model,
        "driver": driver,
        "seed": seed_of(settings, target, repetition, game.seed_bits),
        "repetition": repetition,
        "limits": {
            "maxActions": settings.max_actions_for(driver),
            "wallSeconds": settings.wall_seconds,
            "silenceSeconds": settings.limits.silence_seconds,
            "outputBytes": settings.limits.output_bytes,
        },
        "failOn": settings.fail_on,
        "controlRun": settings.control_run,
        "realtime": settings.realtime,
        "recordVideo": settings.record_video,
        "build": msgspec.to_builtins(build),
        "brief": msgspec.to_builtins(brief.to_brief()),
        "vocabulary": list(target.vocabulary),
        "driverConfig": _shown_path(game.place, settings.project),
        "buildFiles": list(target.build_files),
        "driverSettings": game.settings,
        "personaDefinition": persona,
        "secrets": target.auth.variables() if target.auth is not None else [],
    }
    if settings.known_findings:
        playtest["knownFindings"] = dict(settings.known_findings)
    identity = ".".join((slug(name), slug(persona["name"]), controller, str(repetition)))
    return {
        "id": identity,
        "feature": name,
        "sourceFile": playtest["driverConfig"],
        "sourceSha256": game.source_sha256,
        "scenarioSha256": content_sha256(playtest),
        "capabilities": [driver, controller],
        "context": brief.start or f"{persona['name']} plays {name} for the first time.",
        "query": "; ".join(brief.goals),
        "expected_outcome": brief.success or "The run ends by itself, with a report.",
        "owner": "playlane",
        "readiness": "ready",
        "authoringStatus": "implemented",
        "qualifyingDefinitionDigest": definition_digest(playtest),
        "qualifyingGraderDigest": grader_digest(settings.fail_on),
        "executionId": identity,
        "blocker": None,
        "productPolicy": {"lane": PRODUCT_LANE, "sourceBaselineRevision": build.digest},
        "attempts": [],
        "playtest": playtest,
    }


def seed_of(settings: Settings, target: Target, repetition: int, seed_bits: int) -> int | None:
    """A run's seed: the one asked for, plus one per repetition, so that personas and controllers share their starts."""
    if settings.no_seed:
        return None
    first = settings.seed if settings.seed is not None else target.seed
    return ((DEFAULT_SEED if first is None else first) + repetition - 1) % (1 << seed_bits)


def definition_digest(playtest: dict[str, Any]) -> str:
    """Hex SHA-256 over what is played and how; where the files lie, and whether a control run follows, stay out."""
    played = {key: playtest.get(key) for key in _DIGESTED}
    if "knownFindings" in playtest:
        played["knownFindings"] = playtest["knownFindings"]
    return content_sha256({**played, "build": playtest["build"]["digest"]})


def grader_digest(fail_on: str) -> str:
    """Hex SHA-256 over what judges a run: the source of oracles and findings, the report schema, the fail_on level."""
    root = Path(workers.contract.__file__).parent
    files = sorted({file for pattern in _GRADING_SOURCES for file in root.glob(pattern)})
    sources = [[file.relative_to(root).as_posix(), sha256(file.read_bytes())] for file in files]
    return content_sha256({"sources": sources, "schema": REPORT_SCHEMA_VERSION, "failOn": fail_on})


def slug(text: str) -> str:
    """Letters, digits and dashes only: names go into file names, ids and arguments of processes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:48] or "unnamed"


def _shown_path(path: Path, project: Path) -> str:
    try:
        return path.resolve().relative_to(project.resolve()).as_posix()
    except ValueError:
        return str(path.resolve())


# -- what a new plan means for an old one ----------------------------------------------------------------------------


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario whose digests a new plan changes. `parts` names what; `unqualified` counts its ended attempts."""

    id: str
    parts: list[str]
    unqualified: int


class PlanDiff(msgspec.Struct, frozen=True, kw_only=True):
    """What a new plan would change."""

    added: list[str]
    removed: list[str]
    changed: list[Change]
    unchanged: int

    @property
    def empty(self) -> bool:
        return not (self.added or self.removed or self.changed)


def diff_manifests(old: dict[str, Any], new: dict[str, Any]) -> PlanDiff:
    """Compare by scenario id; results of a changed scenario no longer qualify."""
    before = {scenario["id"]: scenario for scenario in old["scenarios"]}
    after = {scenario["id"]: scenario for scenario in new["scenarios"]}
    changed = [
        Change(id=name, parts=parts, unqualified=_qualifying_attempts(before[name]))
        for name in after
        if name in before and (parts := _changed_parts(before[name], after[name]))
    ]
    return PlanDiff(
        added=[name for name in after if name not in before],
        removed=[name for name in before if name not in after],
        changed=changed,
        unchanged=sum(name in before for name in after) - len(changed),
    )


def _changed_parts(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    first, second = old.get("playtest") or {}, new["playtest"]
    parts = [key for key in _DIGESTED if not same(first.get(key), second.get(key))]
    if (first.get("build") or {}).get("digest") != second["build"]["digest"]:
        parts.append("build")
    if old.get("qualifyingGraderDigest") != new["qualifyingGraderDigest"]:
        parts.append("grader")
    if not parts and old.get("qualifyingDefinitionDigest") != new["qualifyingDefinitionDigest"]:
        parts.append("qualifying digests")
    return parts


def _qualifying_attempts(scenario: dict[str, Any]) -> int:
    digests = (scenario.get("qualifyingDefinitionDigest"), scenario.get("qualifyingGraderDigest"))
    return sum(
        row.get("outcome") != "running" and (row.get("definitionDigest"), row.get("graderDigest")) == digests
        for row in scenario["attempts"]
    )


def replan(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The new plan with the attempts of the old one.

    Keys of scenarios and of the document that this program does not write are kept. Raises `RefusedError` when an
    attempt is still running, or when a scenario that was attempted is not in the new plan (its ledger would be lost).
    """
    after = {scenario["id"]: scenario for scenario in new["scenarios"]}
    before = {scenario["id"]: scenario for scenario in old["scenarios"]}
    for name, scenario in before.items():
        if any(row.get("outcome") == "running" for row in scenario["attempts"]):
            raise RefusedError(f"plan: an attempt of {name} is still running; wait for it, or end it with recover")
        if name not in after and scenario["attempts"]:
            raise RefusedError(f"plan: {name} was attempted and is not in the new plan; plan a new campaign")
    scenarios = [
        {**before[name], **copy.deepcopy(scenario), "attempts": before[name]["attempts"]}
        if name in before
        else scenario
        for name, scenario in after.items()
    ]
    kept: dict[str, Any] = {key: old[key] for key in ("campaignId", "corePrs", "evalPr") if key in old}
    return {**old, **new, **kept, "scenarios": scenarios}


# -- what a batch intends to run --------------------------------------------------------------------------------------


def first_attempts(manifest: dict[str, Any], *, now: str) -> list[dict[str, Any]]:
    """The selections of a batch that plays every scenario once more: next ordinals, fresh rows."""
    return [
        {"scenarioId": scenario["id"], "attempt": fresh_attempt(scenario, manifest["inventoryDigest"], now)}
        for scenario in manifest["scenarios"]
    ]


def fresh_attempt(scenario: dict[str, Any], suite_digest: str, now: str) -> dict[str, Any]:
    """The row of a scenario's next attempt, as it stands before anything was started."""
    playtest, policy = scenario["playtest"], scenario["productPolicy"]
    digest = playtest["build"]["digest"]
    return {
        "ordinal": len(scenario["attempts"]) + 1,
        "outcome": "running",
        "executionId": scenario["executionId"],
        "startedAt": now,
        "finishedAt": None,
        "sourceRevision": digest,
        "workingTreeDigest": digest,
        "definitionDigest": scenario["qualifyingDefinitionDigest"],
        "suiteDefinitionDigest": suite_digest,
        "graderDigest": scenario["qualifyingGraderDigest"],
        "model": playtest["model"] or playtest["brain"],
        "profile": f"{playtest['persona']}/{playtest['controller']}",
        "environment": playtest["driver"],
        "automaticRetries": 0,
        "correction": None,
        "classification": None,
        "observedFailure": None,
        "evidencePaths": [],
        "usage": {"costUsd": 0, "tokens": 0, "coverage": "pending"},
        "cleanup": "pending",
        "corePrDependencies": [],
        "databaseLane": {"lane": "none"},
        "productIdentity": {
            "kind": policy["lane"],
            "productionSourceRevision": policy["sourceBaselineRevision"],
            "snapshotSourceRevision": None,
            "nativeBinarySha256": None,
            "workspaceBuildDigest": digest,
            "receiptPaths": [],
            "coreCandidate": None,
        },
    }
