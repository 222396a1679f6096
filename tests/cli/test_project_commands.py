"""init, plan, status, stop, report on a project that was never played."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coordinator.configuration import read_configuration
from coordinator.discovery import compose, find_games
from coordinator.documents import decode, encode
from tests.cli.command import coordinate, make_game


@pytest.fixture
def project(tmp_path: Path) -> Path:
    make_game(tmp_path / "maze")
    return tmp_path


def manifests(project: Path) -> list[Path]:
    return sorted((project / ".playlane" / "campaigns").glob("*/manifest.json"))


# -- init


def test_init_finds_the_bridge_and_writes_what_its_reader_accepts(project: Path) -> None:
    ran = coordinate("init", "--goal", 'leave "the" maze', "--success", "out", "--json", cwd=project)
    assert ran.code == 0, ran.err
    found = read_configuration(project / "playlane.toml")
    assert found.target is not None
    assert (found.target.name, found.target.driver_config) == ("maze", "maze/bridge.json")
    assert found.brief.goals == ['leave "the" maze']
    assert ran.document["runs"] == 2
    assert coordinate("plan", cwd=project).code == 0


def test_init_never_overwrites_without_an_answer(project: Path) -> None:
    (project / "playlane.toml").write_text("# mine\n")
    ran = coordinate("init", cwd=project)
    assert ran.code == 10
    assert "no terminal to ask" in ran.err
    assert (project / "playlane.toml").read_text() == "# mine\n"
    assert coordinate("init", "--yes", cwd=project).code == 0
    assert "driver_config" in (project / "playlane.toml").read_text()


def test_init_names_what_is_there_and_what_is_needed(tmp_path: Path) -> None:
    (tmp_path / "project.godot").write_text("")
    ran = coordinate("init", cwd=tmp_path)
    assert ran.code == 3
    assert "a Godot project" in ran.out + ran.err
    assert "bridge" in ran.err
    assert not (tmp_path / "playlane.toml").exists()


def test_init_with_several_bridges_and_nobody_to_ask_wants_a_flag(project: Path) -> None:
    make_game(project / "other")
    ran = coordinate("init", cwd=project)
    assert ran.code == 3
    assert "2 bridge files" in ran.err
    assert coordinate("init", "--driver-config", "other/bridge.json", cwd=project).code == 0


def test_games_are_found_by_kind_and_broken_files_are_passed_over(project: Path) -> None:
    (project / "web").mkdir()
    (project / "web" / "index.html").write_text("<p>")
    (project / "broken-bridge.json").write_text("{")
    (project / "node_modules").mkdir()
    make_game(project / "node_modules" / "x")
    kinds = [(game.kind, game.path.relative_to(project).as_posix()) for game in find_games(project)]
    assert kinds == [("bridge", "maze/bridge.json"), ("web", "web/index.html")]


@pytest.mark.parametrize("name", ['a "quoted" name', "back\\slash", "emoji 🎲 and Кириллица", "del\x7f"])
def test_first_configuration_survives_any_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / "playlane.toml"
    path.write_text(compose(driver_config="b.json", name=name, goals=[name], success=name, personas=["newcomer"]))
    found = read_configuration(path)
    assert found.target is not None
    assert found.target.name == name
    assert found.brief.goals == [name]


# -- plan


def test_plan_writes_a_private_manifest_and_nothing_outside_its_folder(project: Path) -> None:
    ran = coordinate("plan", "--driver-config", "maze/bridge.json", "--json", cwd=project)
    assert ran.code == 0, ran.err
    [path] = manifests(project)
    assert ran.document["manifest"] == str(path)
    assert [one["persona"] for one in ran.document["runs"]] == ["newcomer", "explorer"]
    assert sorted(one.name for one in project.iterdir()) == [".playlane", "maze"]
    for made in (project / ".playlane", path.parent, path):
        assert made.stat().st_mode & 0o077 == 0
    assert (project / ".playlane" / ".gitignore").read_text() == "*\n"


def test_plan_diff_shows_what_stops_qualifying_and_writes_nothing(project: Path) -> None:
    flags = ("--driver-config", "maze/bridge.json")
    coordinate("plan", *flags, cwd=project)
    [path] = manifests(project)
    document = decode(path.read_bytes())
    scenario = document["scenarios"][0]
    row = {
        "ordinal": 1, "outcome": "passed",
        "definitionDigest": scenario["qualifyingDefinitionDigest"], "graderDigest": scenario["qualifyingGraderDigest"],
    }  # fmt: skip
    scenario["attempts"].append(row)
    path.write_bytes(encode(document))
    (project / "maze" / "game.py").write_text("another build\n")
    before = path.read_bytes()
    ran = coordinate("plan", "--diff", *flags, cwd=project)
    assert ran.code == 0
    assert "maze.newcomer.standard.1  build  1 result no longer qualifying" in ran.out
    assert path.read_bytes() == before
    ran = coordinate("plan", "--json", *flags, cwd=project)
    assert ran.document["new"] is False
    after = decode(path.read_bytes())["scenarios"][0]
    assert after["attempts"] == [row]
    assert after["qualifyingDefinitionDigest"] != row["definitionDigest"]


def test_plan_with_other_runs_is_a_new_campaign_once_something_was_attempted(project: Path) -> None:
    flags = ("--driver-config", "maze/bridge.json")
    coordinate("plan", *flags, cwd=project)
    coordinate("plan", "--personas", "cautious", *flags, cwd=project)
    [path] = manifests(project)
    document = decode(path.read_bytes())
    document["scenarios"][0]["attempts"].append({"ordinal": 1, "outcome": "passed"})
    path.write_bytes(encode(document))
    coordinate("plan", "--personas", "newcomer", *flags, cwd=project)
    assert len(manifests(project)) == 2


def test_plan_refuses_a_campaign_that_is_owned(project: Path) -> None:
    flags = ("--driver-config", "maze/bridge.json")
    coordinate("plan", *flags, cwd=project)
    [path] = manifests(project)
    Path(f"{path}.coordinator-lock").write_text("{}")
    ran = coordinate("plan", "--max-actions", "9", *flags, cwd=project)
    assert ran.code == 3
    assert "owned" in ran.err


# -- status and stop without a coordinator


def test_status_of_a_plan_works_with_no_coordinator_and_writes_nothing(project: Path) -> None:
    coordinate("plan", "--driver-config", "maze/bridge.json", cwd=project)
    before = snapshot(project)
    ran = coordinate("status", "--json", cwd=project)
    assert ran.code == 0, ran.err
    assert (ran.document["owner"], ran.document["spend_usd"]) == ("none", 0)
    assert {lane["phase"] for lane in ran.document["lanes"]} == {"waiting"}
    assert coordinate("status", cwd=project).out.count("waiting") == 2
    assert snapshot(project) == before


def test_status_stop_and_report_of_nothing_say_what_to_do(project: Path) -> None:
    for command in ("status", "stop", "report", "verify", "recover", "retry"):
        ran = coordinate(command, cwd=project)
        assert ran.code == 3, command
        assert "coordinate run" in ran.err
    coordinate("plan", "--driver-config", "maze/bridge.json", cwd=project)
    ran = coordinate("stop", cwd=project)
    assert ran.code == 3
    assert "no coordinator runs" in ran.err
    assert "was not played yet" in coordinate("report", cwd=project).err


def test_status_shows_a_damaged_lock_instead_of_failing(project: Path) -> None:
    coordinate("plan", "--driver-config", "maze/bridge.json", cwd=project)
    [path] = manifests(project)
    Path(f"{path}.coordinator-lock").write_bytes(b"{")
    ran = coordinate("status", "--json", cwd=project)
    assert ran.code == 0, ran.err
    assert ran.document["problems"]


def test_project_is_found_upwards_by_its_configuration(project: Path) -> None:
    coordinate("init", "--yes", cwd=project)
    ran = coordinate("plan", "--json", cwd=project / "maze")
    assert ran.code == 0, ran.err
    assert Path(ran.document["manifest"]).is_relative_to(project / ".playlane")


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): ((found := os.lstat(path)).st_mtime_ns, found.st_ino) for path in sorted(folder.rglob("*"))}
