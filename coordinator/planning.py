"""Which campaign a plan belongs to: the newest one is planned again, or a new one begins."""

from __future__ import annotations

from typing import Any

import msgspec

from coordinator.documents import encode
from coordinator.errors import RefusedError
from coordinator.files import Files
from coordinator.plan import PlanDiff, diff_manifests, make_manifest, replan, slug
from coordinator.project import Campaign, Project, campaign_id
from coordinator.settings import Settings


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """A plan. `campaign` is None while it is only looked at; `diff` is against the newest campaign, if there is one."""

    document: dict[str, Any]
    campaign: Campaign | None
    diff: PlanDiff | None
    is_new: bool


def look_at_plan(project: Project, settings: Settings, now: str) -> Planned:
    """What `plan` would write, with the difference to the newest campaign. Writes nothing."""
    document = _fresh(project, settings, now)
    newest = project.newest_campaign()
    if newest is None:
        return Planned(document=document, campaign=None, diff=None, is_new=True)
    old = newest.read_manifest()
    return Planned(
        document=document, campaign=None, diff=diff_manifests(old, document), is_new=not _same_runs(old, document)
    )


def write_plan(project: Project, settings: Settings, now: str) -> Planned:
    """Write the plan: into the newest campaign where it has the same runs (attempts are kept), else a new campaign.

    Raises `RefusedError` while a coordinator owns that campaign, or an attempt in it has not ended.
    """
    document = _fresh(project, settings, now)
    newest = project.newest_campaign()
    if newest is None:
        return Planned(document=document, campaign=project.add_campaign(document), diff=None, is_new=True)
    old = newest.read_manifest()
    diff = diff_manifests(old, document)
    if not _same_runs(old, document):
        return Planned(document=document, campaign=project.add_campaign(document), diff=diff, is_new=True)
    if newest.is_owned:
        raise RefusedError(
            f"plan: {newest.manifest_path} is owned by a coordinator that runs or that died; see: coordinate status"
        )
    merged = replan(old, document)
    if not diff.empty:
        Files().replace(str(newest.manifest_path), encode(merged), keep_mode=True)
    return Planned(document=merged, campaign=newest, diff=diff, is_new=False)


def campaign_to_play(project: Project, settings: Settings, now: str) -> Planned:
    """The campaign that `run` plays: the newest where it is exactly this plan and nobody played it yet, else a new one.

    Each run is a campaign of its own, so that two of them can be compared.
    """
    document = _fresh(project, settings, now)
    newest = project.newest_campaign()
    if newest is not None and not newest.is_owned:
        old = newest.read_manifest()
        diff = diff_manifests(old, document)
        if diff.empty and not any(scenario["attempts"] for scenario in old["scenarios"]):
            return Planned(document=old, campaign=newest, diff=diff, is_new=False)
    return Planned(document=document, campaign=project.add_campaign(document), diff=None, is_new=True)


def _fresh(project: Project, settings: Settings, now: str) -> dict[str, Any]:
    document = make_manifest(settings, campaign_id="", now=now)
    features = list(dict.fromkeys(scenario["feature"] for scenario in document["scenarios"]))
    label = slug(features[0]) if len(features) == 1 else f"{slug(features[0])}-and-{len(features) - 1}"
    return {**document, "campaignId": campaign_id(now, label)}


def _same_runs(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether the new plan can take the old one's place without losing a ledger."""
    before = {scenario["id"] for scenario in old["scenarios"]}
    after = {scenario["id"] for scenario in new["scenarios"]}
    attempted = {scenario["id"] for scenario in old["scenarios"] if scenario["attempts"]}
    return before == after or not attempted
