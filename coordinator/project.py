"""Where a project keeps things: `playlane.toml`, and `.playlane/` with one folder per campaign.

A campaign's folder holds `manifest.json`, what the coordinator lays beside it, and a control directory per batch,
`batch-1`, `batch-2`. Names begin with the UTC time, so that their order is their age.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import msgspec

from coordinator.configuration import CONFIGURATION_NAME, Configuration, read_configuration
from coordinator.documents import encode
from coordinator.errors import InvalidInputError, RefusedError, StorageError
from coordinator.files import Files, read_document

STORE_NAME = ".playlane"
MANIFEST_NAME = "manifest.json"
_BATCH = re.compile(r"batch-(\d{1,6})")


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """One planned campaign on disk."""

    name: str
    folder: Path
    manifest_path: Path

    def read_manifest(self) -> dict[str, Any]:
        """The manifest's document. Raises `CoordinatorError` when it is missing or damaged."""
        try:
            return read_document(str(self.manifest_path))[0]
        except FileNotFoundError as error:
            raise InvalidInputError(f"{self.manifest_path}: there is no manifest") from error

    def batches(self) -> list[Path]:
        """Control directories in the campaign's folder, oldest first."""
        found = [one for one in self.folder.iterdir() if _BATCH.fullmatch(one.name)] if self.folder.is_dir() else []
        return sorted(found, key=lambda one: int(one.name.removeprefix("batch-")))

    def next_batch(self) -> Path:
        """A control directory that no batch had before."""
        last = self.batches()
        number = int(last[-1].name.removeprefix("batch-")) + 1 if last else 1
        return self.folder / f"batch-{number}"

    @property
    def is_owned(self) -> bool:
        """Whether a coordinator holds the manifest, or one that died did."""
        return os.path.lexists(f"{os.path.realpath(self.manifest_path)}.coordinator-lock")


class Project:
    """A folder with a game, or with the `playlane.toml` that names one."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.configuration_path = self.root / CONFIGURATION_NAME
        self.store = self.root / STORE_NAME
        self.campaigns_folder = self.store / "campaigns"

    def read_configuration(self) -> Configuration | None:
        """The project's `playlane.toml`, None where there is none. Raises `ConfigurationError`."""
        if not os.path.lexists(self.configuration_path):
            return None
        return read_configuration(self.configuration_path)

    def campaigns(self) -> list[Campaign]:
        """All campaigns with a manifest, oldest first."""
        if not self.campaigns_folder.is_dir():
            return []
        folders = sorted(one for one in self.campaigns_folder.iterdir() if (one / MANIFEST_NAME).is_file())
        return [Campaign(name=one.name, folder=one, manifest_path=one / MANIFEST_NAME) for one in folders]

    def newest_campaign(self) -> Campaign | None:
        found = self.campaigns()
        return found[-1] if found else None

    def campaign_of(self, manifest: str | None) -> Campaign:
        """The campaign of a manifest's path, or the newest. Raises `RefusedError` naming what to do."""
        if manifest is not None:
            path = Path(manifest).absolute()
            if not path.is_file():
                raise RefusedError(f"{path}: there is no manifest")
            return Campaign(name=path.parent.name, folder=path.parent, manifest_path=path)
        found = self.newest_campaign()
        if found is None:
            raise RefusedError(
                f"{self.root} has no campaign yet; play one with: coordinate run; another project is named by --project"
            )
        return found

    def make_store(self) -> None:
        """Make `.playlane/` private, and unknown to version control. Raises `StorageError`."""
        files = Files()
        for folder in (self.store, self.campaigns_folder):
            _make_folder(folder)
        ignore = self.store / ".gitignore"
        if not ignore.exists():
            files.replace(str(ignore), b"*\n")

    def add_campaign(self, document: dict[str, Any]) -> Campaign:
        """Write a new campaign's manifest, in a folder of its own named after its `campaignId`. Raises on any other."""
        self.make_store()
        folder = self.campaigns_folder / document["campaignId"]
        _make_folder(folder, new=True)
        campaign = Campaign(name=folder.name, folder=folder, manifest_path=folder / MANIFEST_NAME)
        Files().replace(str(campaign.manifest_path), encode(document))
        return campaign


def find_project(start: Path) -> Project:
    """The nearest folder upwards that has a `playlane.toml`, else `start` itself."""
    here = start.absolute()
    for folder in (here, *here.parents):
        if (folder / CONFIGURATION_NAME).is_file():
            return Project(folder)
    return Project(here)


def campaign_id(now: str, label: str) -> str:
    """A new campaign's name: the time first, so that names sort by age. `now` is ISO 8601 with milliseconds and `Z`."""
    return f"{now[:10].replace('-', '')}-{now[11:23].replace(':', '').replace('.', '')}-{label}"


def _make_folder(folder: Path, *, new: bool = False) -> None:
    try:
        folder.mkdir(mode=0o700, parents=False, exist_ok=not new)
    except FileExistsError as error:
        raise RefusedError(f"{folder} exists already; run the same command again") from error
    except OSError as error:
        raise StorageError("cannot make the directory", str(folder), error) from error
