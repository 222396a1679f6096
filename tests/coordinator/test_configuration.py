"""What users write: read strictly, every fault named, examples and schemas true."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from coordinator.builds import BridgeFile, read_bridge
from coordinator.configuration import (
    Configuration,
    ConfigurationError,
    parse_configuration,
    read_configuration,
    target_driver,
    target_kind,
    target_name,
)
from coordinator.schemas import FOLDER, make_schemas
from drivers.bridge_file import BridgeConfiguration
from workers.contract import load_persona

DOCS = Path(__file__).resolve().parents[2] / "docs" / "examples"


def faults_of(text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        parse_configuration(text, "playlane.toml")
    return caught.value.faults


def test_unknown_key_is_named_with_its_path_and_the_nearest_known_one() -> None:
    assert faults_of("[run]\npersona = ['newcomer']\n") == ["run.persona: is not known; did you mean personas?"]
    [fault] = faults_of("[target]\ndriver_config = 'b.json'\nzzz = 1\n")
    assert fault.startswith("target.zzz: is not known; known here: ")
    assert "driver_config" in fault


def test_several_faults_are_listed_at_once_in_the_order_of_the_file_sections() -> None:
    faults = faults_of(
        """
        colour = 1
        [target]
        driver_config = "bridge.json"
        seed = -1
        [target.brief]
        gaols = []
        [brief]
        goal_when = "the level is high"
        [run]
        repetitions = 0
        lanes = 3
        [run.limits]
        max_actions = "many"
        """
    )
    named = [fault.split(":")[0] for fault in faults]
    assert named == [
        "colour", "target.seed", "target.brief.gaols", "run.repetitions", "run.lanes", "run.limits.max_actions",
        "brief.goal_when",
    ]  # fmt: skip
    message = str(ConfigurationError("playlane.toml", faults))
    assert message.startswith("playlane.toml: 7 faults\n")
    assert all(fault in message for fault in faults)


def test_wrong_type_says_what_was_found() -> None:
    [fault] = faults_of("[run]\nfail_on = 'sometimes'\n")
    assert fault.startswith("run.fail_on: ")
    assert "'sometimes'" in fault
    [fault] = faults_of("[run]\nlimits = 3\n")
    assert fault == "run.limits: is a number, not a table"


def test_text_that_is_no_toml_is_refused_with_the_place() -> None:
    [fault] = faults_of("[run\n")
    assert fault.startswith("is not TOML: ")
    assert "line 1" in fault


def test_missing_unreadable_and_oversized_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "playlane.toml"
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_configuration(path)
    path.write_bytes(b"# \xff\n")
    with pytest.raises(ConfigurationError, match="not UTF-8 at byte 2"):
        read_configuration(path)
    path.write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(ConfigurationError, match="1048577 bytes"):
        read_configuration(path)


@pytest.mark.parametrize("good", ["state.level >= 3", "state.rooms[0].open == true", 'scene == "end"', "goal"])
def test_goal_test_of_one_comparison_is_accepted(good: str) -> None:
    assert parse_configuration(f"[brief]\ngoals = ['x']\ngoal_when = {json.dumps(good)}\n", "f").brief.goal_when == good


@pytest.mark.parametrize("bad", ["level >= 3", "state.level >= three", "state.a > 1 and state.b > 2", "__import__", ""])
def test_goal_test_that_is_no_comparison_is_refused(bad: str) -> None:
    [fault] = faults_of(f"[brief]\ngoal_when = {json.dumps(bad)}\n")
    assert fault.startswith("brief.goal_when: ")


def test_one_target_or_several_with_names_of_their_own_but_not_both() -> None:
    two = parse_configuration("[[targets]]\ndriver_config='a/b.json'\n[[targets]]\ndriver_config='c/b.json'\n", "f")
    assert [target_name(target) for target in two.all_targets()] == ["a", "c"]
    assert faults_of("[[targets]]\ndriver_config='a/b.json'\n[[targets]]\ndriver_config='a/c.json'\n") == [
        "targets[1].name: 'a' is used twice; give each target a name of its own"
    ]
    [fault] = faults_of("[target]\ndriver_config='a/b.json'\n[[targets]]\ndriver_config='c/b.json'\n")
    assert fault.startswith("targets: stands beside [target]")


def test_driver_and_kind_follow_from_each_other_and_must_fit() -> None:
    def read(text: str) -> Any:
        return parse_configuration(f"[target]\n{text}\n", "f").target

    assert target_driver(read("driver_config = 'b.json'")) == "cli_stdio"
    assert target_kind(read("driver_config = 'b.json'")) == "bridge"
    assert target_driver(read("url = 'http://127.0.0.1/'")) == "playwright_web"
    assert target_driver(read("kind = 'godot'\npath = 'game'")) == "godot_driver"
    [fault] = faults_of("[target]\nkind = 'godot'\ndriver = 'cli_stdio'\ndriver_config = 'b.json'\n")
    assert fault == "target.kind: godot is not played by the driver cli_stdio; leave one of both out"


def test_secrets_are_named_by_variable_and_collected() -> None:
    target = parse_configuration(
        "[target]\nurl='http://x/'\n[target.auth]\nheaders = {A = 'V1'}\nbasic = {user = 'V2', password = 'V3'}\n", "f"
    ).target
    assert target is not None
    assert target.auth is not None
    assert target.auth.variables() == ["V1", "V2", "V3"]


def test_annotated_example_is_accepted_by_reader_and_schema() -> None:
    text = (DOCS / "playlane.toml").read_text()
    found = parse_configuration(text, "playlane.toml")
    assert found.run.fail_on == "major"
    schema = json.loads((FOLDER / "playlane.schema.json").read_bytes())
    jsonschema.validate(tomllib.loads(text), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"run": {"persona": []}}, schema)


def test_annotated_example_names_every_key() -> None:
    text = (DOCS / "playlane.toml").read_text()

    def keys(kind: type[msgspec.Struct]) -> set[str]:
        return {field.encode_name for field in msgspec.structs.fields(kind)}

    defs = json.loads((FOLDER / "playlane.schema.json").read_bytes())["$defs"]
    every = {name for table in defs.values() for name in table["properties"]}
    assert keys(Configuration) <= every
    assert {name for name in every if name not in text} == set()


def test_annotated_persona_is_accepted_by_reader_and_schema() -> None:
    path = DOCS / "persona.toml"
    assert load_persona(str(path))["name"] == "collector"
    schema = json.loads((FOLDER / "persona.schema.json").read_bytes())
    jsonschema.validate(tomllib.loads(path.read_text()), schema)
    for shipped in sorted((DOCS.parents[1] / "workers" / "personas").glob("*.toml")):
        jsonschema.validate(tomllib.loads(shipped.read_text()), schema)


def test_shipped_schemas_are_current() -> None:
    made = make_schemas()
    assert {path.name for path in FOLDER.glob("*.json")} == set(made)
    for name, content in made.items():
        assert (FOLDER / name).read_bytes() == content, f"write them again: python -m coordinator.schemas ({name})"
        jsonschema.Draft202012Validator.check_schema(json.loads(content))


def test_bridge_file_has_the_same_keys_here_and_in_the_driver() -> None:
    ours = {field.encode_name for field in msgspec.structs.fields(BridgeFile)}
    assert ours == {field.encode_name for field in msgspec.structs.fields(BridgeConfiguration)}


@pytest.mark.parametrize("what", ["device", "fifo", "folder", "large"])
def test_file_that_never_ends_or_never_answers_is_refused_at_once(tmp_path: Path, what: str) -> None:
    path = Path("/dev/zero") if what == "device" else tmp_path / "given"
    if what == "fifo":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "large":
        with path.open("wb") as file:
            file.truncate(1 << 40)
    with pytest.raises(ConfigurationError, match=r"cannot be read|not a file|bytes"):
        read_configuration(path)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_bridge(path)
