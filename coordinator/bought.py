"""A campaign that was bought, on its real files: read, played batch by batch within the purchase, concluded."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec

from coordinator.builds import bridge_build
from coordinator.campaign import BatchOrder, CampaignEnd, Watch, conclude, play_batch
from coordinator.commit import MAX_STATE_BYTES, read_sealed
from coordinator.coordinator import utc_now
from coordinator.errors import CoordinatorError, RefusedError
from coordinator.files import read_document
from coordinator.journal import Batch, Journal
from coordinator.mirror import BEAT_SECONDS, Mirror
from coordinator.paths import ControlPaths
from coordinator.plan import fresh_attempt
from coordinator.purchase import Purchase
from coordinator.records import State
from coordinator.results import Standing, read_standings

_OVER_WITH_THE_BATCH = ("coordinator_failure", "canceled", "operator_request")


class Options(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The journal's `options`: everything that changes what is played, recorded or uploaded.

    `run_microdollars` is each run's fixed part of the hold, None where nothing is counted. `project` is the folder that
    the plan's relative paths start from.
    """

    project: str
    brain: str
    max_actions: int
    wall_seconds: float
    lanes: int
    fail_on: str
    baseline: list[str] | None = None
    cap_microdollars: int | None = None
    run_microdollars: int | None = None
    control: str | None = None
    upload_video: bool = False
    upload_transcript: bool = False
    upload: str = "none"


def options_of(journal: Journal) -> Options:
    """Raises `RefusedError` for a journal of another version's options."""
    try:
        return msgspec.convert(journal.options, Options)
    except msgspec.ValidationError as error:
        raise RefusedError(
            f"the journal of {journal.key} holds options that this version does not know: {error}"
        ) from error


class BoughtCampaign:
    """`watch(state)` is called while a batch plays. `chosen` are scenarios whose unknown end a person has decided
    about: they are played again. `beat_seconds` paces the heartbeats.
    """

    def __init__(
        self,
        purchase: Purchase,
        *,
        watch: Callable[[Path], Watch],
        chosen: Collection[str] = (),
        only: Collection[str] | None = None,
        control: str | None = None,
        lanes: int | None = None,
        beat_seconds: float = BEAT_SECONDS,
    ) -> None:
        self.purchase, self._watch, self._chosen, self._only = purchase, watch, frozenset(chosen), only
        self.options = options_of(purchase.file.journal)
        self.manifest_path = Path(purchase.file.journal.manifest_path)
        self._control, self._lanes, self._beat_seconds = control, lanes, beat_seconds
        self._was_played = False
        self.mirror: Mirror | None = None

    @property
    def document(self) -> dict[str, Any]:
        """The manifest as it is now. Raises `CoordinatorError`."""
        try:
            return read_document(str(self.manifest_path))[0]
        except FileNotFoundError as error:
            raise RefusedError(f"{self.manifest_path} is gone; put the campaign's folder back") from error

    @property
    def scenarios(self) -> Sequence[dict[str, Any]]:
        return [one for one in self.document["scenarios"] if (one.get("playtest") or {}).get("kind") == "play"]

    @property
    def last_control(self) -> Path:
        """The newest batch's control directory; before the first, where it will be."""
        batches = self.purchase.file.journal.batches
        return Path(batches[-1].control_directory) if batches else self._next_control()

    def standings(self) -> list[Standing]:
        found = read_standings(self.last_control, self.manifest_path)
        decided = [
            msgspec.structs.replace(one, kind="interrupted")
            if one.kind == "unknown" and one.scenario_id in self._chosen and not self._was_played
            else one
            for one in found
        ]
        if self._only is None:
            return decided
        # A person chose what is played: the rest is neither played nor lost, and waits.
        return [
            one
            if one.kind not in ("unplayed", "interrupted") or one.scenario_id in self._only
            else msgspec.structs.replace(one, kind="unknown")
            for one in decided
        ]

    async def play(self, scenario_ids: Sequence[str]) -> None:
        """A new batch of these. Raises what `play_batch` raises."""
        control, document = self._next_control(), self.document
        batch_id = f"{self.manifest_path.parent.name}-{secrets.token_hex(4)}"
        journal = self.purchase.file.journal
        # Known to the journal before it exists: no batch of this purchase can be found that it does not name.
        batch = Batch(batch_id=batch_id, control_directory=str(control))
        self.purchase.file.change(batches=[*journal.batches, batch])
        order = self._order(batch_id, control, self._selections(document, scenario_ids), self._parts(scenario_ids))
        self.mirror = Mirror(self.purchase, str(control), beat_seconds=self._beat_seconds)
        self._was_played = True
        await play_batch(order, self._watch(control), self.mirror)

    def _selections(self, document: dict[str, Any], scenario_ids: Sequence[str]) -> list[dict[str, Any]]:
        wanted = set(scenario_ids)
        return [
            {"scenarioId": one["id"], "attempt": fresh_attempt(one, document["inventoryDigest"], utc_now())}
            for one in document["scenarios"]
            if one["id"] in wanted
        ]

    def _parts(self, scenario_ids: Sequence[str]) -> dict[str, int]:
        """What is left of each run's part after its earlier attempts."""
        part = self.options.run_microdollars
        if part is None:
            return {}
        spent = {one.scenario_id: one.spent for one in self.standings()}
        return {name: max(0, part - spent.get(name, 0)) for name in scenario_ids}

    def _order(
        self, batch_id: str, control: Path, selections: Sequence[Any], parts: dict[str, int] | None = None
    ) -> BatchOrder:
        return BatchOrder(
            manifest_path=self.manifest_path,
            control_directory=control,
            batch_id=batch_id,
            selections=selections,
            project=Path(self.options.project),
            lanes=self._lanes or self.options.lanes,
            fail_on=self.options.fail_on,
            baseline=self.options.baseline,
            parts=parts or {},
        )

    def _next_control(self) -> Path:
        batches = self.purchase.file.journal.batches
        named = self._control or (self.options.control if not batches else None)
        if named is not None:
            return Path(named)
        taken = {one.control_directory for one in batches}
        number = 1
        while str(path := self.manifest_path.parent / f"batch-{number}") in taken or path.exists():
            number += 1
        return path

    # -- the end

    def end(self) -> tuple[BatchOrder, CampaignEnd] | None:
        """The newest batch's order and end, with the reports built anew; None where no batch ever began."""
        batches = self.purchase.file.journal.batches
        for batch in reversed(batches):
            control = Path(batch.control_directory)
            found = read_sealed(ControlPaths(control).state, State, MAX_STATE_BYTES)
            if found is not None:
                state = found[0]
                if self._is_over(state):
                    state = msgspec.structs.replace(state, stop=None)
                order = self._order(batch.batch_id, control, [])
                return order, conclude(order, state)
        return None

    def _is_over(self, state: State) -> bool:
        """A stop of a batch that died or was interrupted says nothing any more once every run has its end."""
        if state.stop is None or state.stop.reason not in _OVER_WITH_THE_BATCH or self._was_played:
            return False
        return all(one.kind == "final" for one in self.standings())

    def conclude(self) -> tuple[int | None, dict[str, Any] | None]:
        found = self.end()
        if found is None:
            return None, None
        return found[1].exit_code, sent_aggregate(found[1])

    # -- what playing on needs

    def changed_bridges(self, scenario_ids: Collection[str]) -> list[str]:
        """What keeps these from being played on: a sentence for each game that is gone or not the planned one."""
        faults: dict[str, str] = {}
        for one in self.scenarios:
            playtest = one["playtest"]
            if one["id"] not in scenario_ids or playtest["driver"] != "cli_stdio" or playtest["driverConfig"] in faults:
                continue
            path = Path(self.options.project) / playtest["driverConfig"]
            try:
                now = bridge_build(path, playtest["buildFiles"])
            except CoordinatorError as error:
                faults[playtest["driverConfig"]] = f"{path} cannot be played any more: {error}"
                continue
            if now.digest != playtest["build"]["digest"]:
                faults[playtest["driverConfig"]] = (
                    f"{path} is not the build that was bought: SHA-256 {now.digest[:12]}, planned"
                    f" {playtest['build']['digest'][:12]}; put the build back, or buy a new campaign"
                )
        return list(faults.values())


def sent_aggregate(end: CampaignEnd) -> dict[str, Any]:
    """The campaign's aggregate as the service gets it: no paths of this machine, nothing of how games are started."""
    document = msgspec.to_builtins(end.aggregate)
    for key in ("tested", "failures"):
        document.pop(key, None)
    for row in document["runs"]:
        for key in ("report_path", "transcript_path", "video_path"):
            row.pop(key, None)
    for finding in document["findings"]:
        finding.pop("actions", None)
    sent: dict[str, Any] = document
    return sent
