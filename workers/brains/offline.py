"""The explorer that needs no model: heads for what is least explored, by what it can see.

From the steps it remembers it makes a map (`graph.Map`), learns which words bring something new and which never do,
and walks (or starts again, where that is shorter) to the place where trying something is worth most. It has the
habits of a tester: it saves, goes on and loads; it makes sure before it calls itself stuck; it types odd texts into
fields now and then. It knows no game.
"""

from __future__ import annotations

import random
from collections import deque

import msgspec

from drivers.base import Action
from workers.brains.base import MAX_PROPOSALS, Proposal
from workers.brains.graph import Map, Node
from workers.brains.words import BOUNDARY_TEXTS, commands
from workers.look import Input, Look, Offer, Scene, read_look
from workers.oracles.progress import is_load, is_save

NEARNESS = 0.94
QUIET_STEPS_TO_SUSPECT = 3
BOUNDARY_CHANCE = 0.02
STEPS_BEFORE_LOADING = 2
SURE_OF_UNDOING = 0.7
RESTART_FACTOR = 0.45
RESTART_LABEL = "(start again)"


class _Option(msgspec.Struct, kw_only=True):
    """A thing to try: at `node`, `distance` inputs away, of which `first` is the next."""

    worth: float
    first: str
    why: str


class OfflineBrain:
    """Deterministic for a look and a seed."""

    name = "offline"

    async def propose(self, look: bytes, rng: random.Random) -> tuple[Proposal, ...]:
        seen = read_look(look)
        offers = {offer.label: offer for offer in seen.offers}
        chart = Map(seen, lambda scene: _labels(scene, seen))
        options = _options(seen, chart, offers, rng)
        chosen: list[_Option] = []
        for option in sorted(options, key=lambda item: -item.worth):
            if all(option.first != other.first for other in chosen):
                chosen.append(option)
            if len(chosen) == MAX_PROPOSALS:
                break
        return tuple(
            Proposal(input=_input(option.first, offers), label=option.first, why=option.why) for option in chosen
        )


def _labels(scene: Scene, look: Look) -> tuple[str, ...]:
    """What can be done in a scene; at a prompt, the commands that its text suggests."""
    labels = tuple(label for label in scene.labels if label != RESTART_LABEL)
    if look.free_text and not scene.done:
        labels += commands(scene.text, look.vocabulary)
    return labels


def _input(label: str, offers: dict[str, Offer]) -> Input:
    if label in offers:
        return offers[label].input
    return Input(action=Action(kind="command", text=label))


def _options(look: Look, chart: Map, offers: dict[str, Offer], rng: random.Random) -> list[_Option]:
    here = chart.here
    labels = chart.labels.get(here, ())
    can_restart = RESTART_LABEL in offers
    if not labels:
        return [_Option(worth=1.0, first=RESTART_LABEL, why="nothing else to do")] if can_restart else []
    options = _certainty(look, chart, labels, can_restart)
    options += _saves_and_loads(look, chart, labels)
    if look.free_text and rng.random() < BOUNDARY_CHANCE:
        options.append(_Option(worth=2.0, first=rng.choice(BOUNDARY_TEXTS), why="a text at the bounds"))
    distances, firsts = _walk(chart, can_restart)
    for node, distance in distances.items():
        if node in chart.done:
            continue
        near = NEARNESS**distance * (RESTART_FACTOR if firsts.get(node) == RESTART_LABEL else 1.0)
        for label in chart.labels.get(node, ()):
            tries = chart.tried(node, label)
            hope = _hope(chart, label)
            if tries == 0:
                worth, why = hope * near, "not tried here"
            else:
                changed = sum(n for after, n in chart.edges[(node, label)].items() if after != node)
                worth = 0.02 * near * (0.2 + changed / tries) / (1 + tries) ** 1.5
                why = "tried least"
            first = firsts.get(node) or label
            if first == RESTART_LABEL and not can_restart:
                continue
            options.append(_Option(worth=worth * (1 + 1e-3 * rng.random()), first=first, why=why))
    return options


def _hope(chart: Map, label: str) -> float:
    """The chance that a label brings something new, from what it and its first word brought so far."""
    verb = label.split(" ", 1)[0].lower()
    done = new = 0
    for other, (times, brought, _) in chart.brought.items():
        if other.split(" ", 1)[0].lower() == verb:
            done, new = done + times, new + brought
    by_verb = (1.5 + new) / (2.5 + done)
    times, brought, _ = chart.brought.get(label, (0, 0, 0))
    chance = (3 * by_verb + brought) / (3 + times)
    return chance * (1.4 if times == 0 else 1.0)


def _walk(chart: Map, can_restart: bool) -> tuple[dict[Node, int], dict[Node, str]]:
    """Inputs to each known situation by the shortest known way, and the first of them."""
    ways: dict[Node, list[tuple[str, Node]]] = {}
    for (node, label), after in chart.latest.items():
        if after != node and not is_load(label):
            ways.setdefault(node, []).append((label, after))
    for node, labels in chart.labels.items():
        # A label that elsewhere leads back ("stop", "close", "go back") is taken to do so here before it is tried.
        for label in labels:
            changed, back = chart.undoes.get(label, (0, 0))
            if node in chart.came_from and changed and back >= SURE_OF_UNDOING * changed and not chart.tried(node, label):
                ways.setdefault(node, []).append((label, chart.came_from[node]))
    distances: dict[Node, int] = {chart.here: 0}
    firsts: dict[Node, str] = {}
    queue: deque[Node] = deque([chart.here])
    while queue:
        node = queue.popleft()
        onward = list(ways.get(node, ()))
        if can_restart and node == chart.here and chart.start is not None:
            onward.append((RESTART_LABEL, chart.start))
        for label, after in onward:
            if after not in distances:
                distances[after] = distances[node] + 1
                firsts[after] = firsts.get(node, label)
                queue.append(after)
    return distances, firsts


def _certainty(look: Look, chart: Map, labels: tuple[str, ...], can_restart: bool) -> list[_Option]:
    """When nothing happens any more though it used to: try all that is listed, twice, then start again."""
    quiet: list[str] = []
    surprised = False
    for past in reversed(look.past):
        before, after = chart.of_scene[past.before], chart.of_scene[past.after]
        if after != chart.here or before != chart.here or past.effect in ("restarted", "ended"):
            break
        quiet.append(past.did)
        others = [n for node, n in chart.edges[(before, past.did)].items() if node != before]
        times, _, changed = chart.brought.get(past.did, (0, 0, 0))
        surprised = surprised or bool(others) or (times > 1 and changed > 0)
    if len(quiet) < QUIET_STEPS_TO_SUSPECT or not (surprised or len(quiet) >= 2 * len(labels)):
        return []
    missing = [label for label in labels if quiet.count(label) < 2]
    if missing and not look.free_text:
        least = min(quiet.count(label) for label in missing)
        return [
            _Option(worth=5.0 - quiet.count(label) - 0.01 * i, first=label, why="making sure that nothing works")
            for i, label in enumerate(missing)
            if quiet.count(label) == least
        ]
    return [_Option(worth=3.0, first=RESTART_LABEL, why="stuck")] if can_restart else []


def _saves_and_loads(look: Look, chart: Map, labels: tuple[str, ...]) -> list[_Option]:
    """Save where it is new, go on for a few steps, load: what a tester does wherever the game offers it."""
    since_save = since_load = None
    news_since_save = 0
    loads_tried = saves_tried = 0
    for time, past in enumerate(look.past):
        if past.effect == "restarted":
            since_save = since_load = None
            continue
        if is_save(past.did):
            since_save, since_load, news_since_save = time, None, 0
            saves_tried += 1
        elif is_load(past.did):
            since_load, loads_tried = time, loads_tried + 1
        elif past.effect == "changed" and chart.of_scene[past.before] != chart.of_scene[past.after]:
            news_since_save += 1
    options = []
    for label in labels:
        if is_load(label) and since_save is not None and since_load is None and news_since_save >= STEPS_BEFORE_LOADING:
            options.append(_Option(worth=2.5 / (1 + 0.5 * loads_tried), first=label, why="load after going on"))
        if is_save(label) and saves_tried < 4 and not chart.tried(chart.here, label):
            options.append(_Option(worth=1.2, first=label, why="save before going on"))
    return options
