"""Each rule of the conformance suite passes on a good bridge and fails, alone, on one that breaks it."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from drivers.conformance import RULES, RuleResult, inspect_bridge, probe
from drivers.errors import DriverStartError, GameEndedError
from tests.drivers.children import ENVIRONMENT, cavern_settings, counting_settings, is_alive

RULE_NAMES = [name for name, _ in RULES]


LARGEST_SEED = 2**64 - 1


def inspect(directory: Path, *tricks: str, only: tuple[str, ...] | None = None, **more: Any) -> list[RuleResult]:
    settings = counting_settings(*tricks, **more)
    return asyncio.run(inspect_bridge(settings, directory, LARGEST_SEED, ENVIRONMENT, only=only))


def failed(results: list[RuleResult]) -> dict[str, str]:
    return {result.rule: result.found for result in results if not result.passed}


def test_a_good_bridge_passes_every_rule_and_each_says_what_was_found(tmp_path: Path) -> None:
    results = inspect(tmp_path)
    assert [result.rule for result in results] == RULE_NAMES
    assert failed(results) == {}
    assert all(result.found for result in results)


@pytest.mark.parametrize("bridge_file", ["bridge.json", "bridge-js.json"])
def test_the_example_passes_every_rule(tmp_path: Path, bridge_file: str) -> None:
    if bridge_file == "bridge-js.json" and shutil.which("node") is None:
        pytest.skip("Node is not installed")
    assert failed(asyncio.run(inspect_bridge(cavern_settings(bridge_file), tmp_path, 2**64 - 1, ENVIRONMENT))) == {}


@pytest.mark.parametrize(
    ("trick", "rule", "word"),
    [
        ("unrepeatable", "plays the same game twice for one seed", "turn 1 differs"),
        ("no_echo", "says the seed back in the same digits", "not confirmed"),
        ("binary64_echo", "says the seed back in the same digits", "18446744073709551616"),
        ("accepts_anything", "refuses a move that it did not list", "accepted"),
        ("wrong_move_costs", "spends no turn on a refused move", "differently"),
        ("any_session", "refuses an unknown session", "-32010"),
        ("keeps_counting", "starts an open session again on reset", "does not start"),
        ("never_closes", "closes a session", "still plays"),
        ("banner", "writes only JSON-RPC, in lines within bounds", "Welcome to Counting!"),
        ("same_ids", "gives every move an id of its own", "the same id twice"),
        ("protocol_2", "speaks protocol 1", "protocol 2"),
    ],
)
def test_a_bridge_that_breaks_one_rule_fails_that_rule(tmp_path: Path, trick: str, rule: str, word: str) -> None:
    # A rule that has nothing to do with the fault is tried with it: it must still pass.
    bystander = "exits at the end of input"
    found = failed(inspect(tmp_path, trick, only=(rule, bystander)))
    assert list(found) == [rule]
    assert word in found[rule]


def test_one_fault_does_not_hide_what_the_other_rules_find(tmp_path: Path) -> None:
    found = failed(inspect(tmp_path, "nan"))
    assert "NaN" in found["gives only finite numbers"]
    kept = {
        "answers the handshake with its name",
        "says the seed back in the same digits",
        "refuses a move that it did not list",
        "closes a session",
    }
    assert kept.isdisjoint(found)


def test_a_bridge_that_stays_after_the_end_of_input_fails_that_rule_alone(tmp_path: Path) -> None:
    only = ("closes a session", "exits at the end of input", "leaves no process behind when it is killed")
    assert list(failed(inspect(tmp_path, "stubborn", only=only, step_timeout_ms=2_000))) == [only[1]]


def test_a_helper_that_survives_the_kill_fails_that_rule_alone_and_is_gone(tmp_path: Path) -> None:
    only = ("closes a session", "leaves no process behind when it is killed")
    assert list(failed(inspect(tmp_path, "helper_at_start", only=only, cwd=str(tmp_path)))) == [only[1]]
    assert not is_alive(int((tmp_path / "helper.pid").read_text()))


def test_a_bridge_that_dies_at_once_fails_every_rule_with_its_last_words(tmp_path: Path) -> None:
    found = failed(inspect(tmp_path, "dies_at_start"))
    assert list(found) == RULE_NAMES
    assert all("cannot find level.dat" in word for word in found.values())


def test_a_command_that_does_not_exist_fails_every_rule_and_raises_nothing(tmp_path: Path) -> None:
    results = asyncio.run(inspect_bridge({"command": ["no-such-program-here"]}, tmp_path, 1, ENVIRONMENT))
    assert list(failed(results)) == RULE_NAMES


def test_settings_that_are_no_bridge_are_refused(tmp_path: Path) -> None:
    for settings in ({"comand": "x"}, {"gymnasium": "Blackjack-v1"}):
        with pytest.raises(DriverStartError):
            asyncio.run(inspect_bridge(settings, tmp_path, 1, ENVIRONMENT))


def test_a_probe_plays_one_step_and_tells_what_it_saw(tmp_path: Path) -> None:
    result = asyncio.run(probe(counting_settings(), tmp_path, 7, ENVIRONMENT))
    assert (result.text, result.moves, result.stepped, result.leftovers) == ("You are at 0 of 5.", 2, True, ())
    assert result.facts["stopped"] == "end of input"
    result = asyncio.run(probe(counting_settings("free_text"), tmp_path, 7, ENVIRONMENT))
    assert (result.moves, result.stepped) == (None, True)


def test_a_probe_of_a_dying_bridge_raises_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(GameEndedError, match="the floor gave way"):
        asyncio.run(probe(counting_settings("dies"), tmp_path, 7, ENVIRONMENT))
