"""A simulation batch as a campaign of one scenario: plan, play in one lane, take up again after a crash."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

import msgspec

from coordinator.builds import bridge_folder
from coordinator.campaign import BatchOrder
from coordinator.commit import read_sealed
from coordinator.configuration import ConfigurationError
from coordinator.documents import DocumentError, content_sha256, decode, encode, seal
from coordinator.errors import InvalidInputError, RefusedError
from coordinator.files import Files, read_users_file
from coordinator.plan import PRODUCT_LANE, first_attempts
from coordinator.project import Campaign, Project, campaign_id
from coordinator.records import MANIFEST_VERSION, State
from workers.simulation import configuration as batch_configuration
from workers.simulation import errors as batch_errors

MAX_STATE_BYTES = 2 << 20
MAX_BRIDGE_BYTES = 64_000
MAX_SERVICE_WALL_SECONDS = 900.0
SCENARIO_ID = "simulation"


class Order(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a batch is asked to play. Paths are absolute; `bridge` is the decoded bridge file with an absolute `cwd`."""

    configuration: dict[str, Any]
    configuration_path: str
    bridge: dict[str, Any]
    bridge_path: str
    wall_seconds: float
    workers: int | None
    csv: bool


class Journal(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`.playlane/simulations/KEY/state.json`: all that a resume needs. `batches` are control directories, in order.

    `exit_code` is None until the batch is over; then `run_directory` holds its files.
    """

    version: int
    key: str
    order: Order
    batches: list[str]
    run_directory: str | None = None
    exit_code: int | None = None


class Simulation(msgspec.Struct, frozen=True, kw_only=True):
    """A batch on disk."""

    campaign: Campaign
    journal_path: Path
    journal: Journal


def read_order(
    project: Path, config: Path, *, driver_config: str | None, wall_seconds: float, workers: int | None, csv: bool
) -> tuple[Order, batch_configuration.Configuration]:
    """Check configuration and bridge file. The flag's bridge file goes before the configuration's.

    Raises `ConfigurationError` naming the key.
    """
    written = read_configuration_file(config)
    checked = batch_configuration.load(written, origin=str(config))
    if driver_config is not None:
        bridge_path = project / driver_config
    elif checked.driver_config is not None:
        bridge_path = config.parent / checked.driver_config
    else:
        raise ConfigurationError(str(config), ["driver_config: is missing; name the bridge file, or --driver-config"])
    bridge = read_bridge_file(bridge_path)
    order = Order(
        configuration=written,
        configuration_path=str(config.absolute()),
        bridge={**bridge, "cwd": str(bridge_folder(bridge_path, bridge))},
        bridge_path=str(bridge_path.absolute()),
        wall_seconds=wall_seconds,
        workers=workers,
        csv=csv,
    )
    return order, checked


def read_configuration_file(path: Path) -> dict[str, Any]:
    """A checked `simulation.json` as it was written. Raises `ConfigurationError` naming the key."""
    try:
        data = read_users_file(path)
        batch_configuration.load(data, origin=str(path))
        return decode(data)
    except OSError as error:
        raise ConfigurationError(str(path), [f"cannot be read: {error.strerror}"]) from error
    except (batch_errors.ConfigurationError, DocumentError) as error:
        raise ConfigurationError(str(path), [str(error)]) from error


def read_bridge_file(path: Path) -> dict[str, Any]:
    """A decoded bridge file of any form. Raises `ConfigurationError`; what it says is checked by the worker."""
    try:
        return decode(read_users_file(path, MAX_BRIDGE_BYTES), limit_bytes=MAX_BRIDGE_BYTES)
    except OSError as error:
        raise ConfigurationError(str(path), [f"the bridge file cannot be read: {error.strerror}"]) from error
    except DocumentError as error:
        raise ConfigurationError(str(path), [f"the bridge file {error}"]) from error


def new_simulation(project: Project, order: Order, *, now: str) -> Simulation:
    """Write manifest and journal of a new batch in a folder of its own."""
    project.make_store()
    files = Files()
    parent = project.store / "simulations"
    files.make_directory(str(parent))
    key = campaign_id(now, "simulation") + "-" + secrets.token_hex(4)
    folder = parent / key
    files.make_directory(str(folder))
    campaign = Campaign(name=key, folder=folder, manifest_path=folder / "manifest.json")
    files.replace(str(campaign.manifest_path), encode(make_manifest(order, key, now)))
    journal = Journal(version=1, key=key, order=order, batches=[])
    simulation = Simulation(campaign=campaign, journal_path=folder / "state.json", journal=journal)
    return change(simulation)


def change(simulation: Simulation, **changes: Any) -> Simulation:
    """Make a change of the journal durable."""
    journal = msgspec.structs.replace(simulation.journal, **changes)
    Files().replace(str(simulation.journal_path), seal(journal))
    return msgspec.structs.replace(simulation, journal=journal)


def read_simulation(path: Path) -> Simulation:
    """The batch of a `state.json`. Raises `CoordinatorError` if it is missing, damaged or of another kind."""
    found = read_sealed(str(path.absolute()), Journal, MAX_STATE_BYTES)
    if found is None:
        raise InvalidInputError(f"{path}: there is no journal of a simulation; simulate prints its path")
    folder = path.absolute().parent
    campaign = Campaign(name=folder.name, folder=folder, manifest_path=folder / "manifest.json")
    return Simulation(campaign=campaign, journal_path=path.absolute(), journal=found[0])


def make_manifest(order: Order, key: str, now: str) -> dict[str, Any]:
    """The manifest of one scenario. Its definition covers configuration and bridge file, not workers or paths."""
    plain = {name: value for name, value in order.configuration.items() if name not in ("workers", "driver_config")}
    bridge = {name: value for name, value in order.bridge.items() if name not in ("cwd", "sessions")}
    definition = content_sha256({"configuration": plain, "bridge": bridge})
    scenario: dict[str, Any] = {
        "id": SCENARIO_ID,
        "feature": "balance",
        "sourceFile": order.configuration_path,
        "sourceSha256": content_sha256(order.configuration),
        "scenarioSha256": definition,
        "capabilities": ["simulate"],
        "context": "Fixed strategies play seeded games against the game's own rules.",
        "query": "",
        "expected_outcome": "Every game completes.",
        "owner": "playlane",
        "readiness": "ready",
        "authoringStatus": "implemented",
        "qualifyingDefinitionDigest": definition,
        "qualifyingGraderDigest": content_sha256("simulation/1"),
        "executionId": SCENARIO_ID,
        "blocker": None,
        "productPolicy": {"lane": PRODUCT_LANE, "sourceBaselineRevision": definition},
        "attempts": [],
        "playtest": {
            "kind": "simulate",
            "persona": "simulation",
            "controller": "none",
            "brain": "policies",
            "model": None,
            "driver": "simulation",
            "repetition": 1,
            "failOn": "never",
            "secrets": [],
            "build": {"digest": definition},
        },
    }
    return {
        "version": MANIFEST_VERSION,
        "campaignId": key,
        "frozenAt": now,
        "baselineRevision": definition,
        "inventoryDigest": definition,
        "defaultsSha256": definition,
        "denominator": 1,
        "areas": 1,
        "capabilities": 1,
        "requiredPasses": 1,
        "corePrs": [],
        "evalPr": None,
        "scenarios": [scenario],
    }


def next_batch(simulation: Simulation, *, now: str) -> tuple[Simulation, BatchOrder]:
    """The next batch of this purchase, in the journal before anything is launched."""
    control = simulation.campaign.next_batch()
    simulation = change(simulation, batches=[*simulation.journal.batches, str(control)])
    document = simulation.campaign.read_manifest()
    order = BatchOrder(
        manifest_path=simulation.campaign.manifest_path,
        control_directory=control,
        batch_id=f"{simulation.journal.key}-{len(simulation.journal.batches)}",
        selections=first_attempts(document, now=now),
        project=simulation.campaign.folder,
        lanes=1,
        fail_on="never",
        simulate=worker_order(simulation),
    )
    return simulation, order


def worker_order(simulation: Simulation) -> dict[str, Any]:
    """What the worker is asked; finished games of earlier batches are taken over."""
    order = simulation.journal.order
    earlier = [
        os.path.join(control, "runs", name)
        for control in simulation.journal.batches[:-1]
        if os.path.isdir(os.path.join(control, "runs"))
        for name in sorted(os.listdir(os.path.join(control, "runs")))
    ]
    return {
        "configuration": order.configuration,
        "bridge": order.bridge,
        "configurationDirectory": os.path.dirname(order.configuration_path),
        "wallSeconds": order.wall_seconds,
        "workers": order.workers,
        "csv": order.csv,
        "earlier": earlier,
    }


def run_directory(simulation: Simulation, state: State) -> Path:
    """The folder of the one run of the newest batch. Raises `RefusedError` if nothing was launched."""
    launched = [one for one, entry in state.entries.items() if entry.phase != "reserved"]
    if not launched:
        reason = f": {state.stop.detail}" if state.stop is not None else ""
        raise RefusedError(f"simulate: the batch was not launched{reason}")
    return Path(simulation.journal.batches[-1]) / "runs" / launched[-1]
