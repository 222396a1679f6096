"""Persona files: the eight shipped ones, and a user's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from workers.contract import load_persona, persona_names
from workers.personas import PersonaError, from_data, load, to_data


def test_eight_personas_are_shipped_and_load() -> None:
    assert persona_names() == (
        "button_masher", "cautious", "completionist", "explorer", "impatient", "low_vision", "newcomer", "speedrunner",
    )  # fmt: skip
    for name in persona_names():
        assert load_persona(name)["name"] == name


def test_personas_differ_in_what_is_enforced() -> None:
    limits = {str(load_persona(name)["limits"]) + str(load_persona(name)["senses"]) for name in persona_names()}
    assert len(limits) == 8


def test_what_is_written_into_an_order_reads_back_equal() -> None:
    for name in persona_names():
        assert from_data(to_data(load(name))) == load(name)


def test_unknown_keys_are_all_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    text = (Path("workers/personas/newcomer.toml")).read_text(encoding="utf-8")
    path.write_text(text.replace("patience_steps", "patiense_steps").replace("title =", "titel ="), encoding="utf-8")
    with pytest.raises(PersonaError) as caught:
        load(str(path))
    assert "'titel' (did you mean 'title'?)" in str(caught.value)
    assert "'limits.patiense_steps' (did you mean 'patience_steps'?)" in str(caught.value)


def test_a_users_own_file_is_read_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "ünser spieler.toml"
    text = (Path("workers/personas/newcomer.toml")).read_text(encoding="utf-8")
    path.write_text(text.replace('name = "newcomer"', 'name = "our_tester"'), encoding="utf-8")
    assert load(str(path)).name == "our_tester"


@pytest.mark.parametrize("line", ["patience_steps = 0", "memory_steps = -1", "reading_characters = 9000"])
def test_limits_out_of_range_are_refused(line: str) -> None:
    key, value = line.split(" = ")
    data = load_persona("newcomer")
    data["limits"][key] = int(value)
    with pytest.raises(PersonaError, match=key):
        from_data(data)


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(PersonaError, match="did you mean 'explorer'"):
        load("explorr")
