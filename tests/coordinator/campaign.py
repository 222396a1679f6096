"""A small campaign on disk for the coordinator's tests: a manifest in the published form, and its selections."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coordinator import Coordinator, CoordinatorOptions
from coordinator.files import Operations


def scenario(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "id": name,
        "feature": "play",
        "sourceFile": "playlane.toml",
        "sourceSha256": "1" * 64,
        "scenarioSha256": "2" * 64,
        "capabilities": ["play"],
        "context": "",
        "query": "",
        "expected_outcome": "passed",
        "owner": "qa",
        "readiness": "ready",
        "authoringStatus": "implemented",
        "qualifyingDefinitionDigest": f"definition-{name}",
        "qualifyingGraderDigest": "grader-1",
        "executionId": f"run-{name}",
        "blocker": None,
        "productPolicy": {"lane": "local-build", "sourceBaselineRevision": "r1"},
        "attempts": [],
        **changes,
    }


def manifest(*scenarios: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "campaignId": "campaign-1",
        "frozenAt": "2026-01-01T00:00:00.000Z",
        "baselineRevision": "r1",
        "inventoryDigest": "3" * 64,
        "defaultsSha256": "4" * 64,
        "denominator": len(scenarios),
        "areas": 1,
        "capabilities": 1,
        "requiredPasses": 1,
        "corePrs": [],
        "evalPr": None,
        "scenarios": list(scenarios),
        **changes,
    }


def attempt(name: str, ordinal: int = 1, **changes: Any) -> dict[str, Any]:
    return {
        "ordinal": ordinal,
        "outcome": "running",
        "executionId": f"run-{name}",
        "startedAt": None,
        "finishedAt": None,
        "sourceRevision": "r1",
        "workingTreeDigest": "w1",
        "definitionDigest": f"definition-{name}",
        "suiteDefinitionDigest": "suite-1",
        "graderDigest": "grader-1",
        "model": None,
        "profile": "default",
        "environment": {"os": "linux"},
        "automaticRetries": 0,
        "correction": None,
        "classification": None,
        "observedFailure": None,
        "evidencePaths": [],
        "usage": {"costUsd": 0, "tokens": 0, "coverage": "complete"},
        "cleanup": "pending",
        "corePrDependencies": [],
        "databaseLane": {"lane": "none"},
        "productIdentity": {
            "kind": "local-build",
            "productionSourceRevision": "r1",
            "snapshotSourceRevision": None,
            "nativeBinarySha256": None,
            "workspaceBuildDigest": "b1",
            "receiptPaths": [],
            "coreCandidate": None,
        },
        **changes,
    }


def completion(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "outcome": "passed",
        "finishedAt": "2026-01-01T00:10:00.000Z",
        "definitionDigest": f"definition-{name}",
        "graderDigest": "grader-1",
        "evidencePaths": [],
        "cleanup": "passed",
        "usage": {"costUsd": 0, "tokens": 0, "coverage": "complete"},
        "classification": None,
        "observedFailure": None,
        "corePrDependencies": [],
        **changes,
    }


class Campaign:
    """A manifest file with scenarios `a`, `b`, ..., an evidence folder, and a clock that ticks a second a call."""

    def __init__(self, folder: Path, names: str = "abc", *, fresh: bool = True) -> None:
        self.folder = folder
        self.path = folder / "manifest.json"
        self.control = folder / "control"
        self.evidence = folder / "evidence"
        self.evidence.mkdir(exist_ok=True)
        self.names = names
        if fresh:
            self.write(manifest(*(scenario(name) for name in names)))
        self.selections: list[Any] = [{"scenarioId": name, "attempt": attempt(name)} for name in names]
        self._ticks = itertools.count()

    @property
    def lock(self) -> Path:
        return Path(f"{self.path}.coordinator-lock")

    @property
    def claims(self) -> Path:
        return Path(f"{self.path}.coordinator-claims")

    def now(self) -> str:
        return f"2026-01-01T00:00:{next(self._ticks) % 60:02d}.000Z"

    def write(self, document: dict[str, Any]) -> None:
        self.path.write_text(json.dumps(document))

    def read(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.path.read_text())
        return found

    def row(self, name: str, ordinal: int = 1) -> dict[str, Any]:
        found = next(one for one in self.read()["scenarios"] if one["id"] == name)
        row: dict[str, Any] = found["attempts"][ordinal - 1]
        return row

    def options(self, **changes: Any) -> CoordinatorOptions:
        values: dict[str, Any] = {
            "manifest_path": self.path,
            "control_directory": self.control,
            "batch_id": "batch-1",
            "selections": self.selections,
            "evidence_root": self.evidence,
            "now": self.now,
            **changes,
        }
        return CoordinatorOptions(**values)

    def open(self, operations: Operations | None = None, **changes: Any) -> Coordinator:
        return Coordinator.open(self.options(**changes), operations=operations)


def failing_at(stage: str, error: BaseException) -> Callable[[str], None]:
    """A `fault` that raises at one stage."""

    def fault(reached: str) -> None:
        if reached == stage:
            raise error

    return fault
