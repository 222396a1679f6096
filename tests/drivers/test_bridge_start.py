"""How `cli_stdio` starts a game: seeds to the last digit, refusals by name, a private process."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from drivers.base import Launch, Observation
from drivers.bridge import BridgeDriver
from tests.drivers.children import BRIDGES, ENVIRONMENT, launch
from tests.drivers.playing import play, start_error, step

# -- seeds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 9007199254740993, 18446744073709551615])
def test_a_seed_reaches_the_game_and_comes_back_in_the_same_digits(tmp_path: Path, seed: int) -> None:
    async def body(driver: BridgeDriver, first: Observation) -> object:
        return first.state["seed"]

    told, driver, _ = play(launch(tmp_path, seed=seed), body)
    assert told == str(seed)
    assert driver.facts["seed_confirmed"] is True


@pytest.mark.parametrize("seed", [-1, 18446744073709551616])
def test_a_seed_outside_64_bits_is_refused_before_anything_starts(tmp_path: Path, seed: int) -> None:
    assert str(seed) in str(start_error(launch(tmp_path, seed=seed)))


def test_a_seed_larger_than_the_game_takes_is_refused_with_the_range(tmp_path: Path) -> None:
    assert "4294967295" in str(start_error(launch(tmp_path, seed=2**32, seed_bits=32)))
    assert "32 bits only" in str(start_error(launch(tmp_path, "small_seeds", seed=2**32)))


def test_a_game_that_loses_digits_of_its_seed_is_not_played(tmp_path: Path) -> None:
    error = start_error(launch(tmp_path, "binary64_echo", seed=9007199254740993))
    assert "9007199254740993" in str(error)
    assert "9007199254740992" in str(error)


def test_a_game_that_does_not_echo_its_seed_is_played_as_not_confirmed(tmp_path: Path) -> None:
    _, driver, _ = play(launch(tmp_path, "no_echo"), step)
    assert driver.facts["seed_confirmed"] is None
    assert driver.facts["seed_control"] == "seed not confirmed"


def test_without_a_seed_none_is_sent_and_it_is_said(tmp_path: Path) -> None:
    async def body(driver: BridgeDriver, first: Observation) -> object:
        return first.state["seed"]

    told, driver, _ = play(launch(tmp_path, "no_echo", seed=None), body)
    assert told == "0"  # the game's own default
    assert driver.facts["seed_control"] == "seed not controlled"


def test_the_seed_stands_in_the_command_where_it_asks_for_it(tmp_path: Path) -> None:
    script = tmp_path / "echo.py"
    script.write_text("import sys; sys.exit('seed=' + sys.argv[1])")
    order = Launch(
        settings={"command": f"{sys.executable} -S {script} {{seed}}"},
        directory=tmp_path,
        seed=18446744073709551615,
        environment=ENVIRONMENT,
    )
    assert "seed=18446744073709551615" in start_error(order).tail
    assert "wants a seed" in str(start_error(msgspec.structs.replace(order, seed=None)))


# -- starting ---------------------------------------------------------------------------------------------------------


def test_a_game_that_dies_at_the_start_is_told_with_its_last_words(tmp_path: Path) -> None:
    error = start_error(launch(tmp_path, "dies_at_start"))
    assert "exit code 1" in str(error)
    assert str(error).count("cannot find level.dat") == 1


def test_another_protocol_is_refused(tmp_path: Path) -> None:
    assert "speaks protocol 2" in str(start_error(launch(tmp_path, "protocol_2")))


def test_a_program_or_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    order = launch(tmp_path)
    missing = msgspec.structs.replace(order, settings={"command": ["no-such-program-here"]})
    assert "no-such-program-here" in str(start_error(missing))
    assert "folder does not exist" in str(start_error(launch(tmp_path, cwd=str(tmp_path / "gone"))))


def test_a_game_for_simulations_is_refused_by_name(tmp_path: Path) -> None:
    for settings in ({"python": "games:make"}, {"gymnasium": "Blackjack-v1"}):
        order = msgspec.structs.replace(launch(tmp_path), settings=settings)
        assert "for simulations" in str(start_error(order))


def test_the_game_gets_only_the_given_environment_and_writes_private_files(tmp_path: Path) -> None:
    async def body(driver: BridgeDriver, first: Observation) -> Observation:
        return first

    order = Launch(
        settings={"command": [sys.executable, "-S", str(BRIDGES / "showing.py")], "env": {"GIVEN": "by the file"}},
        directory=tmp_path,
        seed=1,
        environment={**ENVIRONMENT, "PLAYLANE_RUN_ID": "r1"},
        playtest={"persona": "newcomer", "run_id": "r1"},
    )
    first, _, _ = play(order, body)
    ours = {name for name in first.state["environment"] if name not in ("LC_CTYPE", "__CF_USER_TEXT_ENCODING")}
    assert ours == {"PATH", "PLAYLANE_RUN_ID", "GIVEN", "PLAYLANE_GAME"}
    assert first.state["playtest"] == {"persona": "newcomer", "run_id": "r1"}
    assert first.state["core_limit"] == 0
    assert (tmp_path / "written").stat().st_mode & 0o777 == 0o600
