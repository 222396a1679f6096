"""Manifests to measure on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coordinator.documents import encode


def attempt(name: str, ordinal: int, **changes: Any) -> dict[str, Any]:
    return {
        "ordinal": ordinal,
        "outcome": "running",
        "executionId": f"run-{name}",
        "startedAt": None,
        "finishedAt": None,
        "sourceRevision": "r1",
        "workingTreeDigest": "5" * 64,
        "definitionDigest": f"definition-{name}",
        "suiteDefinitionDigest": "6" * 64,
        "graderDigest": "grader-1",
        "model": None,
        "profile": "default",
        "environment": {"os": "linux"},
        "automaticRetries": 0,
        "correction": None,
        "classification": None,
        "observedFailure": None,
        "evidencePaths": [],
        "usage": {"costUsd": 0.25, "tokens": 1000, "coverage": "complete"},
        "cleanup": "pending",
        "corePrDependencies": [],
        "databaseLane": {"lane": "none"},
        "productIdentity": {
            "kind": "local-build",
            "productionSourceRevision": "r1",
            "snapshotSourceRevision": None,
            "nativeBinarySha256": None,
            "workspaceBuildDigest": "7" * 64,
            "receiptPaths": [],
            "coreCandidate": None,
        },
        **changes,
    }


def scenario(name: str, earlier_attempts: int) -> dict[str, Any]:
    ended = {"outcome": "failed", "cleanup": "passed", "finishedAt": "2026-01-01T00:00:00.000Z"}
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
        "attempts": [attempt(name, ordinal, **ended) for ordinal in range(1, earlier_attempts + 1)],
    }


def write_manifest(path: Path, names: list[str], earlier_attempts: int = 0) -> None:
    document = {
        "version": 1,
        "campaignId": "benchmark",
        "frozenAt": "2026-01-01T00:00:00.000Z",
        "baselineRevision": "r1",
        "inventoryDigest": "3" * 64,
        "defaultsSha256": "4" * 64,
        "denominator": len(names),
        "areas": 1,
        "capabilities": 1,
        "requiredPasses": 1,
        "corePrs": [],
        "evalPr": None,
        "scenarios": [scenario(name, earlier_attempts) for name in names],
    }
    path.write_bytes(encode(document))


def selections(names: list[str], earlier_attempts: int = 0) -> list[dict[str, Any]]:
    return [{"scenarioId": name, "attempt": attempt(name, earlier_attempts + 1)} for name in names]
