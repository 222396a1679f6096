"""The ledger document: typed views of what is judged, everything else kept as it was found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from coordinator.documents import canonical
from coordinator.errors import InvalidInputError, RefusedError
from coordinator.records import MANIFEST_VERSION

# A scenario whose readiness or authoring status is one of these words is not to be run yet.
UNFINISHED = frozenset({"blocked", "draft", "planned", "pending", "not_implemented", "unimplemented"})


class ScenarioView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of a scenario that admission judges."""

    id: str
    execution_id: str | None = None
    readiness: Any = None
    authoring_status: Any = None
    blocker: Any = None
    qualifying_definition_digest: Any = None
    qualifying_grader_digest: Any = None
    product_policy: Any = None
    attempts: list[dict[str, Any]] = msgspec.field(default_factory=list)

    @property
    def blocked(self) -> str | None:
        """Why it must not run, or None."""
        if self.blocker is not None:
            return f"it has the blocker {self.blocker!r}"
        if self.readiness == "blocked":
            return "its readiness is 'blocked'"
        return None

    @property
    def implemented(self) -> bool:
        words = (self.readiness, self.authoring_status)
        return "implemented" in words and not any(word in UNFINISHED for word in words if isinstance(word, str))


class Ledger:
    """A manifest as read. Nothing in it is changed in place: changes make a new document that shares the rest."""

    def __init__(self, document: dict[str, Any]) -> None:
        """A document of ours: read before, and changed by the methods below."""
        self.document = document

    @classmethod
    def read(cls, document: dict[str, Any]) -> Ledger:
        """Anybody's document. Raises `InvalidInputError` if it has not a manifest's form."""
        ledger = cls(document)
        ledger._check()
        return ledger

    def _check(self) -> None:
        version = self.document.get("version")
        if type(version) is not int or version != MANIFEST_VERSION:
            raise InvalidInputError(
                f"manifest: version {version!r} is not known; this program reads {MANIFEST_VERSION}"
            )
        scenarios = self.document.get("scenarios")
        if not isinstance(scenarios, list):
            raise InvalidInputError("manifest: scenarios is not a list")
        for position, scenario in enumerate(scenarios):
            if not isinstance(scenario, dict) or not isinstance(scenario.get("id"), str):
                raise InvalidInputError(f"manifest: scenario {position} is not an object with an id")
            attempts = scenario.get("attempts")
            if not isinstance(attempts, list) or not all(isinstance(row, dict) for row in attempts):
                raise InvalidInputError(f"manifest: attempts of scenario {scenario['id']!r} is not a list of objects")

    @property
    def scenarios(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.document["scenarios"]
        return found

    def position(self, scenario_id: str) -> int:
        """Where the scenario stands. Raises `RefusedError` if it is not there exactly once."""
        found = [position for position, scenario in enumerate(self.scenarios) if scenario["id"] == scenario_id]
        if not found:
            raise RefusedError(f"scenario {scenario_id!r} is not in the manifest")
        if len(found) > 1:
            raise RefusedError(f"scenario {scenario_id!r} is listed {len(found)} times in the manifest")
        return found[0]

    def view(self, scenario_id: str) -> ScenarioView:
        scenario = self.scenarios[self.position(scenario_id)]
        try:
            return msgspec.convert(scenario, ScenarioView)
        except msgspec.ValidationError as error:
            raise RefusedError(f"scenario {scenario_id!r} of the manifest: {error}") from error

    def row(self, scenario_id: str, ordinal: int) -> dict[str, Any] | None:
        """The attempt numbered `ordinal`, or None if the scenario or the row is missing."""
        for scenario in self.scenarios:
            if scenario["id"] == scenario_id and len(scenario["attempts"]) >= ordinal >= 1:
                found: dict[str, Any] = scenario["attempts"][ordinal - 1]
                return found
        return None

    def running(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Scenario id and row of every attempt that has not ended."""
        for scenario in self.scenarios:
            for row in scenario["attempts"]:
                if row.get("outcome") == "running":
                    yield scenario["id"], row

    def with_row_added(self, scenario_id: str, row: dict[str, Any]) -> dict[str, Any]:
        """The document with one attempt more."""
        scenario = self.scenarios[self.position(scenario_id)]
        return self._with_scenario(scenario_id, {**scenario, "attempts": [*scenario["attempts"], row]})

    def with_row_replaced(
        self, scenario_id: str, ordinal: int, row: dict[str, Any], *, clear_qualifying: bool
    ) -> dict[str, Any]:
        """The document with another row `ordinal`; `clear_qualifying` makes the two qualifying digests null."""
        scenario = self.scenarios[self.position(scenario_id)]
        attempts = list(scenario["attempts"])
        attempts[ordinal - 1] = row
        changed = {**scenario, "attempts": attempts}
        if clear_qualifying:
            changed["qualifyingDefinitionDigest"] = None
            changed["qualifyingGraderDigest"] = None
        return self._with_scenario(scenario_id, changed)

    def _with_scenario(self, scenario_id: str, scenario: dict[str, Any]) -> dict[str, Any]:
        scenarios = list(self.scenarios)
        scenarios[self.position(scenario_id)] = scenario
        return {**self.document, "scenarios": scenarios}


def same(first: Any, second: Any) -> bool:
    """Equal content, types included (1 is neither True nor 1.0)."""
    return first is second or canonical(first) == canonical(second)
