"""Brains: deterministic, by what they see, without memory of their own."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from drivers.base import ActionKind
from tests.workers.play.games import graph_settings, make_order, observation, run_order, transcript
from workers.brains.base import Brain, Proposal
from workers.brains.graph import Fold, Map
from workers.brains.registry import UnknownBrainError, make_brain
from workers.brains.words import commands
from workers.contract import Brief, load_persona
from workers.look import RESTART_LABEL, Eyes, Scene, read_look
from workers.personas import from_data

KINDS: tuple[ActionKind, ...] = ("choose", "command")


def eyes(*, can_restart: bool = True) -> Eyes:
    return Eyes(from_data(load_persona("explorer")), brief=Brief(), kinds=KINDS, can_restart=can_restart)


def ask(brain: Brain, look: bytes, seed: int = 1) -> tuple[Proposal, ...]:
    return asyncio.run(brain.propose(look, random.Random(seed)))


def look_at(player: Eyes, text: str, *moves: str, free: bool = False) -> bytes:
    seen = observation(text, None if free else moves)
    scene, _ = player.scene(seen)
    return player.look(scene, step=0, at_ms=0, free_text=free)


@pytest.mark.parametrize("name", ["offline", "random"])
def test_an_equal_look_and_seed_give_equal_proposals(name: str) -> None:
    look = look_at(eyes(), "A hall.", "north", "south", "pull the lever", "wait")
    assert ask(make_brain(name), look, 4) == ask(make_brain(name), look, 4)
    assert 1 <= len(ask(make_brain(name), look)) <= 3


@pytest.mark.parametrize("name", ["offline", "random"])
def test_proposals_are_distinct_labels_that_are_on_offer(name: str) -> None:
    look = look_at(eyes(), "A hall.", "north", "north", "south")
    labels = [proposal.label for proposal in ask(make_brain(name), look)]
    assert len(set(labels)) == len(labels)
    assert set(labels) <= set(read_look(look).scenes[-1].labels)
    assert "north (2)" in read_look(look).scenes[-1].labels


def test_random_draws_every_offer_with_equal_chances_and_no_restart() -> None:
    look = look_at(eyes(), "A hall.", "a", "b", "c", "d")
    rng = random.Random(11)
    counts = dict.fromkeys("abcd", 0)
    for _ in range(2_000):
        counts[asyncio.run(make_brain("random").propose(look, rng))[0].label] += 1
    # 500 expected, standard deviation 19.4: within 4.5 of them.
    assert all(abs(count - 500) < 87 for count in counts.values())


def test_random_starts_again_when_nothing_else_is_offered() -> None:
    (proposal,) = ask(make_brain("random"), look_at(eyes(), "The end."))
    assert proposal.label == RESTART_LABEL


def test_offline_tries_what_it_has_not_tried() -> None:
    player = eyes()
    here, _ = player.scene(observation("A hall.", ("north", "south")))
    player.remember(here, "north", "nothing", here)
    assert ask(make_brain("offline"), look_at(player, "A hall.", "north", "south"))[0].label == "south"


def test_offline_walks_back_to_what_it_left_untried() -> None:
    player = eyes(can_restart=False)
    hall, _ = player.scene(observation("A hall.", ("east", "lever")))
    room, _ = player.scene(observation("A room.", ("west",)))
    player.remember(hall, "east", "changed", room)
    player.remember(room, "west", "changed", hall)
    player.remember(hall, "east", "changed", room)
    assert ask(make_brain("offline"), look_at(player, "A room.", "west"))[0].label == "west"


def test_offline_starts_again_after_the_end() -> None:
    player = eyes()
    scene, _ = player.scene(observation("The end.", (), done=True, outcome="lost"))
    look = player.look(scene, step=3, at_ms=0, free_text=False)
    assert [proposal.label for proposal in ask(make_brain("offline"), look)] == [RESTART_LABEL]


def test_offline_finishes_a_part_that_it_left_the_rest_for_before_it_starts_again() -> None:
    player = eyes()
    beach, _ = player.scene(observation("The beach.", ("look", "dive", "sit", "sing", "dance")))
    below, _ = player.scene(observation("Below.", ("go", "look")))
    cave, _ = player.scene(observation("A cave.", ("return", "look")))
    for _ in range(6):
        player.remember(beach, "look", "nothing", beach)
    for before, did, after in ((beach, "dive", below), (below, "go", cave), (cave, "return", below)):
        player.remember(before, did, "changed", after)
    # Looking never told anything, and the beach has more to offer; but only a new start leads there.
    assert ask(make_brain("offline"), look_at(player, "Below.", "go", "look"))[0].label == "look"
    player.remember(below, "look", "nothing", below)
    player.remember(below, "go", "changed", cave)
    player.remember(cave, "look", "nothing", cave)
    assert ask(make_brain("offline"), look_at(player, "A cave.", "return", "look"))[0].label == RESTART_LABEL


def test_offline_loads_a_saved_game_twice_and_then_goes_on() -> None:
    player = eyes(can_restart=False)
    camp, _ = player.scene(observation("A camp.", ("save", "load", "walk", "jump")))
    hall, _ = player.scene(observation("A hall.", ("load", "walk")))
    pit, _ = player.scene(observation("A pit.", ("load", "jump")))
    for _ in range(8):
        player.remember(camp, "jump", "nothing", camp)
    player.remember(camp, "save", "nothing", camp)
    said = []
    for _ in range(3):
        player.remember(camp, "walk", "changed", hall)
        player.remember(hall, "walk", "changed", pit)
        said.append(ask(make_brain("offline"), look_at(player, "A pit.", "load", "jump"))[0].label)
        player.remember(pit, "load", "changed", camp)
    assert said == ["load", "load", "jump"]


def test_equal_offers_in_several_places_are_told_apart_by_their_headings() -> None:
    player = eyes(can_restart=False)
    rooms = [player.scene(observation(f"The {name} room.", ("sit", "next")))[0] for name in ("red", "blue", "grey")]
    seats = [player.scene(observation(f"The {name} room. Seated.", ("rise",)))[0] for name in ("red", "blue", "grey")]
    for room, seat, onward in zip(rooms, seats, [*rooms[1:], rooms[0]], strict=True):
        for before, did, after in (
            (room, "sit", seat),
            (seat, "rise", room),
            (room, "sit", seat),
            (seat, "rise", room),
        ):
            player.remember(before, did, "changed", after)
        player.remember(room, "next", "changed", onward)
    look = read_look(player.look(rooms[0], step=15, at_ms=0, free_text=False))
    chart = Map(look, lambda scene: scene.labels)
    assert len(chart.known) == 6


def test_a_number_that_ticks_is_folded_and_one_that_tells_is_kept() -> None:
    player = eyes()
    scenes = [Scene(text=f"Turn {turn}. Floor {1 + turn // 6}.", labels=("up",)) for turn in range(12)]
    for before, after in zip(scenes, scenes[1:], strict=False):  # noqa: RUF007 - pairs by position
        player.remember(before, "up", "changed", after)
    fold = Fold(read_look(player.look(scenes[-1], step=0, at_ms=0, free_text=False)))
    assert fold.lines("Turn 3. Floor 1.") == fold.lines("Turn 4. Floor 1.")
    assert fold.lines("Turn 3. Floor 1.") != fold.lines("Turn 3. Floor 2.")


def test_commands_are_made_of_words_that_are_seen() -> None:
    made = commands("A brass lantern hangs here. Exits: north.", ("xyzzy",))
    assert made[0] == "north" and "xyzzy" in made and "take lantern" in made
    assert made.index("north") < made.index("south") and len(made) == len(set(made))


def test_offline_finds_its_way_in_a_parser_game(tmp_path: Path) -> None:
    rooms: dict[str, Any] = {
        "yard": {"text": "A yard. A gate leads north.", "free": {"north": "hall"}},
        "hall": {"text": "A hall. A brass lantern stands here.", "free": {"take lantern": "lit", "south": "yard"}},
        "lit": {"text": "You hold the lantern. It glows.", "goal": True, "done": True, "free": {}},
    }
    settings = graph_settings({"start": "yard", "rooms": rooms}, tmp_path)
    order = make_order(settings, persona_changes={"stops_at_goal": True}, max_actions=100)
    result, _ = run_order(order, tmp_path / "run")
    assert result.end_reason == "goal_reached"
    assert all(len(row["action"].get("text", "")) <= 1_000 for row in transcript(tmp_path / "run"))


def test_an_unknown_brain_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownBrainError, match="offline, random"):
        make_brain("oracle")
