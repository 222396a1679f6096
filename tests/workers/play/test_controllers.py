"""Controllers: what each chooses, and that they differ."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from drivers.base import Action
from tests.workers.play.games import cavern_settings, make_order, propose, run_order, transcript
from workers.brains.base import Candidate
from workers.controllers import Controller, ControllerError, Rune, make_controller
from workers.look import Input, Scene

HERE = Scene(text="A hall.", labels=("a", "b", "c"))


def choice(controller: Controller, proposals: Sequence[Candidate], seed: int = 1) -> Candidate:
    return asyncio.run(controller.choose(HERE, proposals, random.Random(seed)))


def test_standard_does_the_first_proposal() -> None:
    assert choice(make_controller("standard", "offline"), propose("b", "a")).label == "b"


def test_rune_takes_the_least_tried_then_the_largest_effect() -> None:
    rune = Rune()
    rune.learn(HERE, "a", "changed", Scene(text="Somewhere new."))
    assert choice(rune, propose("a", "b")).label == "b"
    rune.learn(HERE, "b", "nothing", HERE)
    assert choice(rune, propose("b", "a")).label == "a"


def test_runes_ties_are_broken_by_the_seed_alone() -> None:
    picks = {seed: choice(Rune(), propose("a", "b", "c"), seed).label for seed in range(30)}
    assert set(picks.values()) == {"a", "b", "c"}
    assert picks[3] == choice(Rune(), propose("a", "b", "c"), 3).label


def test_a_wait_goes_straight_through() -> None:
    rune = Rune()
    rune.learn(HERE, "wait", "nothing", HERE)
    wait = Candidate(input=Input(action=Action(kind="wait", milliseconds=500)), label="wait")
    assert choice(rune, [wait, *propose("a")]) is wait
    assert rune.facts["selections"] == 0


def test_an_answer_outside_the_proposals_falls_back_to_the_first_and_is_counted(tmp_path: Path) -> None:
    class Astray(Rune):
        def select(self, scene: Scene, labels: object, rng: random.Random) -> int:
            return 7

    rune = Astray()
    assert choice(rune, propose("b", "a")).label == "b"
    assert rune.facts["fall_backs"] == 1


def test_a_run_with_too_many_fall_backs_is_partial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rune, "select", lambda self, scene, labels, rng: -1)
    result, report = run_order(make_order(cavern_settings(), controller="rune", max_actions=20), tmp_path / "run")
    assert result.partial and report.controller_facts["fall_backs"] == report.controller_facts["selections"] > 0


@pytest.mark.parametrize("brain", ["offline", "random"])
def test_jev_is_refused_by_name_with_brains_that_have_no_model(brain: str) -> None:
    with pytest.raises(ControllerError, match=f"'jev' with brain '{brain}'"):
        make_controller("jev", brain)


def test_an_unknown_controller_is_refused_saying_what_is_allowed() -> None:
    with pytest.raises(ControllerError, match="standard, jev, rune"):
        make_controller("runes", "offline")


@pytest.mark.parametrize("seed", [1, 2])
def test_standard_and_rune_differ_in_at_least_a_fifth_of_their_actions(seed: int, tmp_path: Path) -> None:
    labels = []
    for controller in ("standard", "rune"):
        order = make_order(cavern_settings(), controller=controller, seed=seed, max_actions=150)
        run_order(order, tmp_path / controller)
        labels.append([row["label"] for row in transcript(tmp_path / controller)])
    assert len(labels[0]) == len(labels[1]) == 150
    assert sum(one != other for one, other in zip(*labels, strict=True)) >= 30
