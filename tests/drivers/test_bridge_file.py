"""A bridge file is read strictly: every wrong key is refused by its name, every path is absolute afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from drivers.bridge_file import MAX_BRIDGE_FILE_BYTES, load_bridge, read_settings
from drivers.errors import DriverStartError


def write(directory: Path, content: object) -> Path:
    path = directory / "bridge.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_the_least_file_gets_the_defaults_and_its_own_folder(tmp_path: Path) -> None:
    assert load_bridge(write(tmp_path, {"command": ["./game"]})) == {
        "driver": "cli_stdio",
        "command": ["./game"],
        "cwd": str(tmp_path.resolve()),
        "env": {},
        "startup_timeout_ms": 10_000,
        "step_timeout_ms": 5_000,
        "sessions": 1,
        "seed_bits": 64,
    }


def test_a_folder_is_relative_to_the_file(tmp_path: Path) -> None:
    assert load_bridge(write(tmp_path, {"command": "x", "cwd": "sub/../game"}))["cwd"] == str(tmp_path / "game")


def test_what_was_loaded_is_read_again_as_settings(tmp_path: Path) -> None:
    settings = load_bridge(write(tmp_path, {"command": "python3 'my game.py' {seed}", "env": {"A": "1"}}))
    assert read_settings(settings).arguments(2**64 - 1) == ["python3", "my game.py", "18446744073709551615"]


def test_games_of_simulations_are_read(tmp_path: Path) -> None:
    assert load_bridge(write(tmp_path, {"python": "game:make"}))["python"] == "game:make"
    assert load_bridge(write(tmp_path, {"gymnasium": "Blackjack-v1"}))["gymnasium"] == "Blackjack-v1"


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "bridge.json"
    path.write_bytes(b'\xef\xbb\xbf{"command": ["x"]}')
    assert load_bridge(path)["command"] == ["x"]


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ({"comand": ["x"]}, "comand"),
        ({"command": ["x"], "steptimeout": 1}, "steptimeout"),
        ({"command": ["x"], "step_timeout_ms": 0}, "step_timeout_ms = 0"),
        ({"command": ["x"], "step_timeout_ms": "5s"}, "step_timeout_ms"),
        ({"command": ["x"], "startup_timeout_ms": -1, "sessions": 0}, "sessions = 0"),
        ({"command": ["x"], "seed_bits": 16}, "seed_bits"),
        ({"command": ["x"], "env": {"A=B": "1"}}, "A=B"),
        ({"command": ["x"], "env": {"A": 1}}, "env"),
        ({"command": ["x"], "driver": "telepathy"}, "driver"),
        ({"command": ["x"], "python": "a:b"}, "command and python"),
        ({"command": "echo 'open"}, "quotation"),
        ({"command": []}, "exactly one"),
        ({}, "exactly one"),
        ("[1]", "no JSON object"),
        ("{", "no JSON"),
        ("[" * 100_000, "too large"),
        ('{"command": ["x"], "command": ["y"]}', "stands twice"),
        ('{"command": "' + "x" * MAX_BRIDGE_FILE_BYTES + '"}', "too large"),
    ],
)
def test_what_is_wrong_is_refused_by_name_with_the_file(tmp_path: Path, content: object, word: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(DriverStartError) as refused:
        load_bridge(path)
    assert word in str(refused.value)
    assert str(path) in str(refused.value)


def test_several_faults_are_told_at_once() -> None:
    with pytest.raises(DriverStartError) as refused:
        read_settings({"command": ["x"], "step_timeout_ms": 0, "sessions": 5_000})
    assert "step_timeout_ms" in str(refused.value)
    assert "sessions" in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DriverStartError, match=r"nothing\.json"):
        load_bridge(tmp_path / "nothing.json")
