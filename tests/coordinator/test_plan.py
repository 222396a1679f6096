"""From settings to a manifest, and what makes earlier results stop qualifying."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coordinator.builds import bridge_build
from coordinator.configuration import Configuration, ConfigurationError, parse_configuration
from coordinator.documents import decode, encode
from coordinator.errors import RefusedError
from coordinator.jobs import bridge_job, job_for
from coordinator.manifest import Ledger
from coordinator.plan import definition_digest, diff_manifests, first_attempts, grader_digest, make_manifest, replan
from coordinator.records import Entry, Permit, State, read_selections
from coordinator.rules import admit
from coordinator.settings import Overrides, Settings, settle
from workers.contract import Job

NOW = "2026-01-02T03:04:05.678Z"


@pytest.fixture
def game(tmp_path: Path) -> Path:
    """A folder with a bridge and one source file."""
    folder = tmp_path / "maze"
    folder.mkdir()
    (folder / "bridge.json").write_text(json.dumps({"command": ["python3", "game.py"]}))
    (folder / "game.py").write_text("print('hello')\n")
    return folder


def settings(game: Path, **flags: Any) -> Settings:
    return settle(game.parent, None, Overrides(driver_config=str(game / "bridge.json"), **flags))


def manifest(game: Path, **flags: Any) -> dict[str, Any]:
    return make_manifest(settings(game, **flags), campaign_id="c", now=NOW)


def configured(game: Path, text: str) -> dict[str, Any]:
    configuration: Configuration = parse_configuration(text, "playlane.toml")
    return make_manifest(settle(game.parent, configuration, Overrides()), campaign_id="c", now=NOW)


def refusal(game: Path, **flags: Any) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        settings(game, **flags)
    return caught.value.faults


def admit_first(document: dict[str, Any]) -> Entry:
    selections = first_attempts(document, now=NOW)
    state = State(version=1, batch_id="b", manifest_path="m", owner=None, selections_sha256="s")
    return admit(
        state, Ledger(document), read_selections(selections), selections[0]["scenarioId"],
        reservation_id="r1", max_lanes=2, free_bytes=1 << 40, now=NOW,
    )  # fmt: skip


# -- the matrix


def test_one_scenario_for_each_target_persona_controller_and_repetition(game: Path) -> None:
    document = manifest(game, personas="newcomer,cautious", compare_with="rune", repetitions=3)
    assert len(document["scenarios"]) == document["denominator"] == 12
    assert len({scenario["id"] for scenario in document["scenarios"]}) == 12
    assert document["scenarios"][0]["id"] == "maze.newcomer.standard.1"
    two = configured(
        game,
        """
        [[targets]]
        name = "a"
        driver_config = "maze/bridge.json"
        [[targets]]
        name = "b"
        kind = "bridge"
        path = "maze/bridge.json"
        """,
    )
    assert [one["feature"] for one in two["scenarios"]] == ["a", "a", "b", "b"]


def test_manifest_is_the_same_when_read_back_and_every_scenario_is_admitted(game: Path) -> None:
    document = manifest(game, personas="all")
    assert decode(encode(document)) == document
    assert admit_first(document).permit.execution_id == "maze.button-masher.standard.1"


def test_runs_of_one_repetition_share_their_seed_and_the_next_repetition_has_the_next(game: Path) -> None:
    document = manifest(game, compare_with="rune", repetitions=2, seed=41)
    seeds = {scenario["id"]: scenario["playtest"]["seed"] for scenario in document["scenarios"]}
    assert {seed for name, seed in seeds.items() if name.endswith(".1")} == {41}
    assert {seed for name, seed in seeds.items() if name.endswith(".2")} == {42}
    assert {one["playtest"]["seed"] for one in manifest(game)["scenarios"]} == {1}
    assert {one["playtest"]["seed"] for one in manifest(game, no_seed=True)["scenarios"]} == {None}


@pytest.mark.parametrize("seed", [0, 9007199254740993, 18446744073709551615])
def test_every_seed_of_64_bits_comes_back_in_the_same_digits(game: Path, seed: int) -> None:
    document = decode(encode(manifest(game, seed=seed)))
    assert document["scenarios"][0]["playtest"]["seed"] == seed


def test_defaults_of_text_games_and_long_runs(game: Path) -> None:
    limits = manifest(game)["scenarios"][0]["playtest"]["limits"]
    assert (limits["maxActions"], limits["wallSeconds"]) == (200, 600.0)
    limits = manifest(game, long=True)["scenarios"][0]["playtest"]["limits"]
    assert (limits["maxActions"], limits["wallSeconds"]) == (600, 1800.0)
    limits = manifest(game, long=True, max_actions=7, time_limit_seconds=10.0)["scenarios"][0]["playtest"]["limits"]
    assert (limits["maxActions"], limits["wallSeconds"]) == (21, 30.0)
    personas = [one["playtest"]["persona"] for one in manifest(game)["scenarios"]]
    assert personas == ["newcomer", "explorer"]


# -- digests

Change = Callable[[Path], dict[str, Any]]


def _edit_game(game: Path) -> dict[str, Any]:
    (game / "game.py").write_text("print('another')\n")
    return manifest(game)


def _edit_bridge(game: Path) -> dict[str, Any]:
    (game / "bridge.json").write_text(json.dumps({"command": ["python3", "game.py"], "env": {"LEVEL": "2"}}))
    return manifest(game)


def _edit_persona(game: Path) -> dict[str, Any]:
    own = game / "own.toml"
    text = (Path(__file__).parents[2] / "workers" / "personas" / "newcomer.toml").read_text()
    own.write_text(text.replace("patience_steps = 40", "patience_steps = 39"))
    found = manifest(game, personas=f"{own},explorer")
    own.unlink()
    return found


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (_edit_game, "build"),
        (_edit_bridge, "driverSettings"),
        (_edit_persona, "personaDefinition"),
        (lambda game: manifest(game, seed=2), "seed"),
        (lambda game: manifest(game, max_actions=199), "limits"),
        (lambda game: manifest(game, brain="random"), "brain"),
        (lambda game: manifest(game, realtime=True), "realtime"),
        (lambda game: manifest(game, fail_on="major"), "grader"),
        (
            lambda game: configured(game, "[target]\ndriver_config='maze/bridge.json'\n[brief]\ngoals=['win']\n"),
            "brief",
        ),
    ],
)
def test_change_of_what_is_measured_ends_what_earlier_results_qualify(game: Path, change: Change, part: str) -> None:
    before = manifest(game)
    for scenario in before["scenarios"]:
        row = first_attempts(before, now=NOW)[0]["attempt"]
        digests = {
            "definitionDigest": scenario["qualifyingDefinitionDigest"],
            "graderDigest": scenario["qualifyingGraderDigest"],
        }
        scenario["attempts"].append({**row, **digests, "outcome": "passed"})
    found = diff_manifests(before, change(game))
    named = next(one for one in found.changed if one.id == "maze.newcomer.standard.1")
    assert part in named.parts
    assert named.unqualified == 1


def test_change_of_what_is_not_measured_keeps_every_digest(game: Path) -> None:
    before = manifest(game)
    assert diff_manifests(before, manifest(game, no_control=True, lanes=1)).empty
    moved = game.parent / "elsewhere"
    moved.mkdir()
    game.rename(moved / "maze")
    assert diff_manifests(before, manifest(moved / "maze")).empty


def test_definition_digest_covers_the_content_not_the_order_of_keys(game: Path) -> None:
    playtest = manifest(game)["scenarios"][0]["playtest"]
    assert definition_digest(dict(reversed(playtest.items()))) == definition_digest(playtest)
    assert definition_digest({**playtest, "controller": "rune"}) != definition_digest(playtest)
    assert grader_digest("major") != grader_digest("never")


# -- the build


def test_build_covers_every_file_of_the_folder_but_ours_and_hidden_ones(game: Path) -> None:
    first = bridge_build(game / "bridge.json")
    assert first.files == 2
    for name in ("playlane.toml", ".hidden", "__pycache__/game.pyc", "node_modules/x.js"):
        (game / name).parent.mkdir(exist_ok=True)
        (game / name).write_text("x")
        assert bridge_build(game / "bridge.json") == first
    (game / "data").mkdir()
    (game / "data" / "rooms.json").write_text("[]")
    assert bridge_build(game / "bridge.json").digest != first.digest


def test_rename_of_a_file_and_target_of_a_link_belong_to_the_build(game: Path) -> None:
    (game / "link").symlink_to("game.py")
    first = bridge_build(game / "bridge.json")
    (game / "link").unlink()
    (game / "link").symlink_to("bridge.json")
    second = bridge_build(game / "bridge.json")
    (game / "game.py").rename(game / "other.py")
    assert len({first.digest, second.digest, bridge_build(game / "bridge.json").digest}) == 3


def test_link_to_a_folder_is_not_followed(game: Path) -> None:
    (game / "up").symlink_to("..", target_is_directory=True)
    assert bridge_build(game / "bridge.json").files == 3


def test_file_that_the_command_names_elsewhere_belongs_to_the_build(game: Path) -> None:
    outside = game.parent / "engine.py"
    outside.write_text("1")
    (game / "bridge.json").write_text(json.dumps({"command": ["python3", "../engine.py"]}))
    first = bridge_build(game / "bridge.json")
    outside.write_text("2")
    assert bridge_build(game / "bridge.json").digest != first.digest


def test_named_build_files_leave_out_what_the_game_writes(game: Path) -> None:
    first = bridge_build(game / "bridge.json", ["*.py"])
    (game / "save.dat").write_text("progress")
    assert bridge_build(game / "bridge.json", ["*.py"]) == first
    with pytest.raises(ConfigurationError, match=r"'\*\.rb' matches no file"):
        bridge_build(game / "bridge.json", ["*.rb"])
    for outside in ("../*", "/etc/*", ""):
        with pytest.raises(ConfigurationError, match="no pattern below"):
            bridge_build(game / "bridge.json", [outside])


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ({"comand": ["x"]}, "comand: is not known; did you mean command?"),
        ({}, "command: is missing"),
        ({"python": "m:f"}, "python: is for simulation batches"),
        ({"gymnasium": "Blackjack-v1"}, "gymnasium: is for simulation batches"),
        ({"command": ["x"], "seed_bits": 16}, "seed_bits: "),
        ({"command": ["x"], "sessions": 0}, "sessions: "),
        ({"command": ["x"], "cwd": "nowhere"}, "is not a folder"),
    ],
)
def test_bridge_file_that_cannot_be_played_is_refused_by_key(game: Path, content: Any, fault: str) -> None:
    (game / "bridge.json").write_text(json.dumps(content))
    with pytest.raises(ConfigurationError) as caught:
        manifest(game)
    assert fault in str(caught.value)


# -- what is refused before anything is registered


@pytest.mark.parametrize(
    ("flags", "faults"),
    [
        ({"personas": "newcomer,newcomr"}, ["did you mean 'newcomer'?"]),
        ({"personas": "newcomer,newcomer"}, ["newcomer is named twice"]),
        ({"personas": ","}, ["names nobody"]),
        ({"controller": "rune", "compare_with": "rune"}, ["--controller: stands beside --compare-with", "allowed:"]),
        ({"controller": "rule"}, ["'rule' is not a controller; allowed: standard, jev, rune"]),
        ({"compare_with": "rune,rune"}, ["rune is named twice"]),
        ({"compare_with": "standard"}, ["standard is named twice (it is always played in a comparison)"]),
        ({"compare_with": "jev,rune,rune,rune"}, ["names 5 controllers, at most 3", "allowed:"]),
        ({"controller": "jev"}, ["jev: needs a brain with a model, and offline has none"]),
        ({"compare_with": "jev", "brain": "random"}, ["jev: needs a brain with a model, and random has none"]),
        ({"brain": "anthropic"}, ["'anthropic' cannot play in this version; offline and random can"]),
        ({"model": "m"}, ["--model", "the brain offline uses no model"]),
        ({"driver": "terminal"}, ["--driver: terminal", "cli_stdio"]),
        ({"fail_on": "new:major"}, ["needs --baseline FILE"]),
        ({"fail_on": "often"}, ["'often' is not known"]),
        ({"no_seed": True, "seed": 3}, ["--no-seed: stands beside --seed"]),
        ({"repetitions": 100, "personas": "all", "compare_with": "rune", "build_dir": "x"}, ["several targets"]),
    ],
)
def test_flag_that_cannot_be_played_is_refused_by_name(game: Path, flags: dict[str, Any], faults: list[str]) -> None:
    message = "\n".join(refusal(game, **flags))
    assert [fault for fault in faults if fault not in message] == []


def test_all_faults_of_a_command_are_listed_at_once(game: Path) -> None:
    assert len(refusal(game, personas="nobody,noone", controller="x", fail_on="y", brain="z")) == 5


def test_seed_that_the_game_cannot_take_is_refused(game: Path) -> None:
    (game / "bridge.json").write_text(json.dumps({"command": ["x"], "seed_bits": 32}))
    assert "takes seeds from 0 to 4294967295" in refusal(game, seed=1 << 32)[0]
    assert manifest(game, seed=(1 << 32) - 1)["scenarios"][0]["playtest"]["seed"] == (1 << 32) - 1


def test_incomplete_brief_is_refused_and_no_brief_is_a_plain_order_to_play(game: Path) -> None:
    with pytest.raises(ConfigurationError, match="brief of maze: is incomplete: goals is empty"):
        configured(game, "[target]\ndriver_config='maze/bridge.json'\n[brief]\nsuccess='x'\n")
    assert manifest(game)["scenarios"][0]["playtest"]["brief"]["goals"]


def test_key_without_meaning_for_a_bridge_is_refused_not_ignored(game: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"target maze\.device: has no meaning for the driver cli_stdio"):
        configured(game, "[target]\ndriver_config='maze/bridge.json'\ndevice='phone'\n")


def test_no_target_says_how_to_name_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"--driver-config FILE.*coordinate init"):
        settle(tmp_path, None, Overrides())


# -- planning again


def ended(document: dict[str, Any]) -> dict[str, Any]:
    played = copy.deepcopy(document)
    for scenario, selection in zip(played["scenarios"], first_attempts(played, now=NOW), strict=True):
        scenario["attempts"].append({**selection["attempt"], "outcome": "passed", "finishedAt": NOW})
    return played


def test_planning_again_keeps_attempts_and_foreign_keys(game: Path) -> None:
    old = ended(manifest(game))
    old["note"] = "by hand"
    old["scenarios"][0]["reviewer"] = "us"
    new = replan(old, manifest(game, max_actions=9))
    assert [len(scenario["attempts"]) for scenario in new["scenarios"]] == [1, 1]
    assert new["note"] == "by hand"
    assert new["scenarios"][0]["reviewer"] == "us"
    row = new["scenarios"][0]["attempts"][0]
    assert row["definitionDigest"] != new["scenarios"][0]["qualifyingDefinitionDigest"]
    assert first_attempts(new, now=NOW)[0]["attempt"]["ordinal"] == 2
    assert admit_first(new).permit.ordinal == 2


def test_planning_again_never_loses_a_ledger(game: Path) -> None:
    old = ended(manifest(game, personas="newcomer,explorer"))
    with pytest.raises(RefusedError, match=r"maze\.explorer\.standard\.1 was attempted and is not in the new plan"):
        replan(old, manifest(game, personas="newcomer"))
    old["scenarios"][0]["attempts"][0]["outcome"] = "running"
    with pytest.raises(RefusedError, match="still running"):
        replan(old, manifest(game))


# -- jobs


def test_job_asks_for_exactly_what_was_planned_with_a_key_of_its_own(game: Path, tmp_path: Path) -> None:
    document = manifest(game, fail_on="minor", compare_with="rune")
    permit = admit_first(document).permit
    scenario = document["scenarios"][0]
    jobs = [job_for(permit, scenario, project=game.parent, control_directory=tmp_path / "c") for _ in range(2)]
    job = jobs[0]
    assert job.play is not None
    assert (job.reservation_id, job.execution_id, job.ordinal) == ("r1", permit.execution_id, 1)
    assert job.definition_digest == scenario["qualifyingDefinitionDigest"]
    assert job.run_directory == str(tmp_path / "c" / "runs" / "r1")
    assert job.play.driver_settings == {"command": ["python3", "game.py"], "cwd": str(game)}
    assert (job.play.persona["name"], job.play.controller, job.play.fail_on) == ("newcomer", "standard", "minor")
    assert job.limits.wall_seconds > job.play.wall_seconds
    assert len(bytes.fromhex(job.key)) == 32
    assert jobs[0].key != jobs[1].key
    assert msgspec.json.decode(encode(job), type=Job) == job


def test_job_of_a_foreign_scenario_is_refused(game: Path, tmp_path: Path) -> None:
    permit = Permit(reservation_id="r", batch_id="b", scenario_id="x", execution_id="x", ordinal=1, args=[])
    with pytest.raises(RefusedError, match="no playtest of kind play"):
        job_for(permit, {"id": "x"}, project=game, control_directory=tmp_path)


def test_job_of_a_probe_registers_nothing_and_has_its_own_limits(game: Path, tmp_path: Path) -> None:
    path = game / "bridge.json"
    job = bridge_job("probe", path, {"command": ["x"]}, seed=3, control_directory=tmp_path / "p", wall=20.0)
    assert job.play is None
    assert job.probe is not None
    assert (job.kind, job.probe.seed, job.limits.wall_seconds) == ("probe", 3, 20.0)
