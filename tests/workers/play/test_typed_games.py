"""How `offline` plays what is typed at: parser games by places, numbered menus as lists, screens by keys."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from pathlib import Path

from drivers.base import Action, ActionKind, Control, Observation
from tests.workers.play.games import make_order, run_order, transcript
from workers.brains.base import Proposal
from workers.brains.keyboard import choose_key, is_keyboard
from workers.brains.menus import menu_of
from workers.brains.parser import Journey, answers, asks, is_refusal, paragraphs
from workers.brains.registry import make_brain
from workers.contract import Brief, load_persona
from workers.look import Eyes, Look, read_look
from workers.personas import from_data

KINDS: tuple[ActionKind, ...] = ("command", "press")
HOUSE = """
rooms = {
    "hall": ("HALL. A door leads north. There is a brass key here.", {"north": "cellar"}),
    "cellar": ("CELLAR. The iron chest is locked. A passage leads east.", {"south": "hall", "east": "attic"}),
    "attic": ("ATTIC. Dust everywhere.", {"west": "cellar"}),
}
here, held, solved = "hall", False, False
print(rooms[here][0])
while not solved:
    line = input("> ")
    if line in rooms[here][1]:
        here = rooms[here][1][line]
        print(rooms[here][0])
    elif line == "take key" and here == "hall" and not held:
        held = True
        print("Taken.")
    elif line == "unlock chest" and here == "cellar":
        solved = held
        print("The chest is full of gold. You win." if held else "You have no key for it.")
    elif line in ("north", "south", "east", "west"):
        print("There is no way to go there.")
    else:
        print("I don't know that word.")
"""


def eyes() -> Eyes:
    return Eyes(from_data(load_persona("explorer")), brief=Brief(), kinds=KINDS, can_restart=True)


def seen_as_look(*steps: tuple[str, str], start: str) -> Look:
    """A look after lines were typed and answered: `(line, answer)` each."""
    player = eyes()
    scene, _ = player.scene(Observation(text=start))
    for line, answer in steps:
        after, _ = player.scene(Observation(text=answer))
        player.remember(scene, line, "changed", after)
        scene = after
    return read_look(player.look(scene, step=len(steps), at_ms=0, free_text=True))


def test_a_parser_game_is_won_by_taking_what_is_there_and_unlocking_what_is_locked(tmp_path: Path) -> None:
    (tmp_path / "house.py").write_text(HOUSE)
    settings = {"command": [sys.executable, str(tmp_path / "house.py")], "prompt": "^> $"}
    result, report = run_order(make_order(settings, driver="terminal", max_actions=60), tmp_path / "run")
    text = " ".join(str(row["text"]) for row in transcript(tmp_path / "run"))
    assert "You win." in text and report.findings == []
    assert result.end_reason == "max_actions", "the game was started again after its end"
    assert report.counts["restarts"] > 0


def test_a_place_is_remembered_through_refusals_and_under_its_short_name() -> None:
    look = seen_as_look(
        ("north", "You are in a long cellar that smells of old iron.\n\n>"),
        ("up", "There is no way to go there.\n\nYou're in cellar.\n\n>"),
        ("xyzzy", "I don't know that word.\n>"),
        ("south", "A hall.\n>"),
        ("north", "You're in cellar.\n>"),
        start="A hall.\n>",
    )
    journey = Journey(look)
    assert journey.here == "You are in a long cellar that smells of old iron."
    assert journey.ways["A hall."] == {"north": journey.here} and journey.ways[journey.here] == {"south": "A hall."}
    assert journey.tried[journey.here] == Counter({"up": 1, "xyzzy": 1, "south": 1})


def test_what_a_thing_refused_is_tried_again_after_something_was_done_with_it() -> None:
    steps = [("down", "You can't pass the closed grate!\n>")]
    assert Journey(seen_as_look(*steps, start="A pit.\n>")).tried["A pit."]["down"] == 1
    steps.append(("open grate", "The grate swings aside.\n>"))
    assert Journey(seen_as_look(*steps, start="A pit.\n>")).tried["A pit."]["down"] == 0


def test_questions_are_told_from_refusals_and_answered_with_what_they_offer() -> None:
    assert asks("Do you want instructions?\n\n>") and asks("Move or shoot? (m-s)") and asks("Really quit? [yn]")
    assert not asks("WHAT?\n>") and not asks("You are in a hall.\n>")
    assert answers("Instructions? (y-n)") == ("n", "y")
    assert answers("There are tunnels to rooms 4 and 12.\nMove or shoot? (m-s)")[:4] == ("m 4", "m 12", "s 4", "s 12")
    assert answers("Are you sure?")[:2] == ("no", "yes")
    assert is_refusal("I don't know that word.") and not is_refusal("You are in a hall.")
    assert paragraphs("One\nline.\n\nTwo.\n>") == ["One line.", "Two."]


def test_a_numbered_menu_is_a_list_of_moves_whatever_its_order() -> None:
    assert menu_of("A hall.\n\n  1. take the stairs\n  2. look around\n>") == {
        "take the stairs": "1",
        "look around": "2",
    }
    assert menu_of("In 1984 there were\n12. many\n") == {}
    player = eyes()
    scene, _ = player.scene(Observation(text="A hall.\n 1. go up\n 2. look\n>"))
    proposals: tuple[Proposal, ...] = ()
    for brain in ("offline", "random"):
        look = player.look(scene, step=0, at_ms=0, free_text=True)
        proposals = asyncio.run(make_brain(brain).propose(look, random.Random(1)))
        assert {(one.label, one.typed) for one in proposals} <= {("1", True), ("2", True)}


def keyboard(text: str) -> tuple[Eyes, Look]:
    controls = tuple(
        Control(ref=f"k{index}", role="key", name=key)
        for index, key in enumerate(("Up", "Space", "Enter", "a", "h", "n", "q", "y", "z"))
    )
    player = eyes()
    seen = Observation(text=text, controls=controls)
    assert not player.takes_text(seen)
    scene, offers = player.scene(seen)
    assert [offer.input.action for offer in offers[1:3]] == [
        Action(kind="press", key="Up"),
        Action(kind="press", key="Space"),
    ]
    return player, read_look(player.look(scene, step=0, at_ms=0, free_text=False))


def first_key(text: str, seed: int = 1) -> str:
    look = keyboard(text)[1]
    assert is_keyboard(look.scenes[-1].labels)
    return max(choose_key(look, random.Random(seed)), key=lambda one: one.worth).label


def test_keys_that_the_screen_asks_for_come_first_and_leaving_comes_last() -> None:
    assert first_key("A scroll unrolls.\n--More--") == "press Space"
    assert first_key("Really quit? [yn]") == "press n"
    assert {first_key("h: left\nq: quit", seed) for seed in range(5)} == {"press h"}
    keys = choose_key(keyboard("q: quit")[1], random.Random(1))
    playable = [one for one in keys if one.label.startswith("press ")]
    assert min(playable, key=lambda one: one.worth).label == "press q"


def test_low_devices_have_no_keys() -> None:
    persona = load_persona("explorer")
    persona["inputs"]["devices"] = ["text"]
    player = Eyes(from_data(persona), brief=Brief(), kinds=KINDS, can_restart=False)
    controls = (Control(ref="k0", role="key", name="h"),)
    assert player.scene(Observation(text="h: left", controls=controls))[1] == ()
