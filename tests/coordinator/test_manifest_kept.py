"""The manifest: somebody else's document, of which only what a change is about is changed."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from coordinator import Coordinator, CoordinatorError
from coordinator.documents import decode, encode
from coordinator.errors import InvalidInputError, OutsideCoordinatorError, PoisonedError
from tests.coordinator.calls import QuickCampaign, completed, finish, launched, refused, run, untouched
from tests.coordinator.campaign import Campaign, attempt, manifest, scenario
from tests.coordinator.test_documents import OBJECTS, VALUES, typed


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return QuickCampaign(tmp_path)


def play(campaign: Campaign, name: str = "a") -> None:
    c = campaign.open()
    run(completed(c, name))
    run(c.close())


def test_written_manifest_is_the_documents_own_order_with_two_spaces_and_one_newline(campaign: Campaign) -> None:
    document = campaign.read()
    turned = dict(reversed(document.items()))
    turned["scenarios"] = [dict(reversed(one.items())) for one in document["scenarios"]]
    campaign.write(turned)
    play(campaign)
    text = campaign.path.read_text()
    found = json.loads(text)
    assert list(found) == list(turned)
    assert [list(one) for one in found["scenarios"]] == [list(one) for one in turned["scenarios"]]
    assert text == json.dumps(found, indent=2, ensure_ascii=False) + "\n"


def test_only_the_row_is_changed(campaign: Campaign) -> None:
    before = campaign.read()
    play(campaign, "b")
    after = campaign.read()
    (row,) = after["scenarios"][1].pop("attempts")
    assert row["outcome"] == "passed"
    before["scenarios"][1].pop("attempts")
    assert typed(after) == typed(before)


@given(OBJECTS, VALUES, VALUES)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_keys_and_values_of_other_tools_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, more: dict[str, Any], first: Any, second: Any
) -> None:
    campaign = QuickCampaign(tmp_path_factory.mktemp("kept"))
    document = campaign.read()
    document = {**more, **document, "theirs": first}
    document["scenarios"][0] |= {"theirs": second, "playtest": {"kind": "play", "their own": first}}
    document["scenarios"][1]["attempts"] = [attempt("b", 1, outcome="failed", theirs=second)]
    campaign.path.write_bytes(encode(document))
    play(campaign)
    found = decode(campaign.path.read_bytes())
    del found["scenarios"][0]["attempts"], document["scenarios"][0]["attempts"]
    assert typed(found) == typed(document)


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o640, 0o664, 0o400])
def test_mode_of_the_manifest_is_kept(campaign: Campaign, mode: int) -> None:
    campaign.path.chmod(mode)
    play(campaign)
    assert stat.S_IMODE(campaign.path.stat().st_mode) == mode


def test_manifest_of_another_tool_with_odd_values_is_accepted(campaign: Campaign) -> None:
    document = manifest(
        *(scenario(name) for name in "abc"),
        denominator=-1,
        corePrs="none",
        evalPr={"url": 1},
        areas=None,
        frozenAt="yesterday",
    )
    document["scenarios"][2] = {"id": "c", "attempts": [{}, {"outcome": 7, "ordinal": "x"}]}
    del document["campaignId"]
    campaign.write(document)
    play(campaign)
    found = campaign.read()
    assert (found["corePrs"], found["evalPr"], found["scenarios"][2]) == (
        "none",
        {"url": 1},
        document["scenarios"][2],
    )


def test_spelling_of_the_found_manifest_does_not_matter(campaign: Campaign) -> None:
    text = json.dumps(campaign.read(), indent="\t", ensure_ascii=True).replace("\n", "\r\n")
    campaign.path.write_bytes(text.encode())
    play(campaign)
    assert campaign.row("a")["outcome"] == "passed"


BAD_MANIFESTS: dict[str, Any] = {
    "no version": {"scenarios": []},
    "version 2": manifest(version=2),
    "version as text": manifest(version="1"),
    "version as float": manifest(version=1.0),
    "version true": manifest(version=True),
    "no scenarios": {"version": 1},
    "scenarios as object": manifest(**{"scenarios": {}}),
    "scenario as text": manifest(**{"scenarios": ["a"]}),
    "scenario without id": manifest(**{"scenarios": [{"attempts": []}]}),
    "id as number": manifest(**{"scenarios": [{"id": 1, "attempts": []}]}),
    "no attempts": manifest(**{"scenarios": [{"id": "a"}]}),
    "attempt as text": manifest(**{"scenarios": [{"id": "a", "attempts": ["x"]}]}),
    "empty": b"",
    "cut": json.dumps(manifest(scenario("a"))).encode()[:-1],
    "zeros": bytes(2048),
    "duplicate key": b'{"version": 1, "version": 1, "scenarios": []}',
    "NaN": b'{"version": 1, "scenarios": [], "x": NaN}',
    "brackets": b'{"version": 1, "scenarios": ' + b"[" * 100_000,
}


@pytest.mark.parametrize("name", BAD_MANIFESTS)
def test_bad_manifest_is_refused_by_open_with_nothing_written_and_no_lock(campaign: Campaign, name: str) -> None:
    content = BAD_MANIFESTS[name]
    campaign.path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    with untouched(campaign.path), refused(str(campaign.path) if isinstance(content, bytes) else "manifest"):
        campaign.open()
    assert sorted(os.listdir(campaign.folder)) == ["evidence", "manifest.json"]


@pytest.mark.parametrize("view", [{"executionId": 7}, {"executionId": None}, {"executionId": ["run-a"]}])
def test_scenario_with_odd_judged_fields_is_refused_by_reserve_only(campaign: Campaign, view: dict[str, Any]) -> None:
    document = campaign.read()
    document["scenarios"][0].update(view)
    campaign.write(document)
    c = campaign.open()
    with untouched(campaign.path), pytest.raises(CoordinatorError):
        run(c.reserve("a"))
    run(c.reserve("b"))
    run(c.close())


def test_manifest_that_grows_is_read_whole(campaign: Campaign) -> None:
    c = campaign.open()
    permit = run(launched(c, "a"))
    document = campaign.read()
    rows = [attempt("x", number + 1, outcome="failed", cleanup="passed") for number in range(300)]
    document["scenarios"] += [scenario(f"x{number}", attempts=rows) for number in range(10)]
    campaign.write(document)
    assert campaign.path.stat().st_size > 1 << 20
    run(finish(c, permit))
    run(completed(c, "b"))
    found = campaign.read()
    assert [len(one["attempts"]) for one in found["scenarios"]] == [1, 1, 0, *[300] * 10]
    run(c.close())


def test_manifest_that_would_be_too_large_to_read_again_is_not_written(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    c = campaign.open()
    permit = run(launched(c, "a"))
    monkeypatch.setattr("coordinator.commit.MAX_DOCUMENT_BYTES", campaign.path.stat().st_size + 100)
    with untouched(campaign.path, campaign.control / "state.json"), refused("more than"):
        run(finish(c, permit, observedFailure="x" * 200))
    run(finish(c, permit))
    run(c.close())


def outside(campaign: Campaign, stage: str, change: Any) -> Coordinator:
    done = False

    def fault(reached: str) -> None:
        nonlocal done
        if reached == stage and not done:
            done = True
            change()

    return campaign.open(fault=fault)


def edit(campaign: Campaign) -> None:
    document = campaign.read()
    document["campaignId"] = "edited in between"
    campaign.write(document)


def same_content_other_bytes(campaign: Campaign) -> None:
    campaign.path.write_bytes(campaign.path.read_bytes() + b"\n")


def remove(campaign: Campaign) -> None:
    campaign.path.rename(campaign.folder / "aside.json")


def link(campaign: Campaign) -> None:
    remove(campaign)
    campaign.path.symlink_to("aside.json")


@pytest.mark.parametrize("change", [edit, same_content_other_bytes, remove, link])
@pytest.mark.parametrize("operation", ["reserve", "complete"])
def test_manifest_changed_in_a_commit_is_left_for_a_person(campaign: Campaign, change: Any, operation: str) -> None:
    if operation == "complete":
        first = campaign.open()
        permit = run(launched(first, "a"))
        run(first.close())
        c = outside(campaign, "intent", lambda: change(campaign))
        call: Coroutine[Any, Any, Any] = finish(c, permit)
    else:
        c = outside(campaign, "intent", lambda: change(campaign))
        call = c.reserve("a")
    with refused("outside coordinator", OutsideCoordinatorError):
        run(call)
    assert (campaign.control / "pending.json").exists()
    assert campaign.lock.exists()
    with untouched(campaign.control / "pending.json", campaign.control / "state.json"), pytest.raises(PoisonedError):
        run(c.reserve("b"))
    if change is edit:
        assert campaign.read()["campaignId"] == "edited in between"  # left as it is


def test_manifest_that_is_gone_between_commits_is_refused_and_may_be_put_back(campaign: Campaign) -> None:
    c = campaign.open()
    campaign.path.rename(campaign.folder / "aside.json")
    with refused("is gone", InvalidInputError):
        run(c.reserve("a"))
    (campaign.folder / "aside.json").rename(campaign.path)
    run(c.reserve("a"))
    run(c.close())


def test_identical_manifest_written_again_by_another_tool_is_the_same(campaign: Campaign) -> None:
    """A tool that rewrites the same bytes in a commit has changed nothing."""
    c = outside(campaign, "intent", lambda: campaign.path.write_bytes(campaign.path.read_bytes()))
    run(c.reserve("a"))
    run(c.close())
