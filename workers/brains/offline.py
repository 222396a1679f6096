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

from workers.brains.base import MAX_PROPOSALS, Proposal
from workers.brains.graph import Map, Node
from workers.brains.keyboard import choose_key, is_keyboard
from workers.brains.menus import menu_of, with_menus
from workers.brains.parser import choose
from workers.look import RESTART_LABEL, Look, Scene, read_look
from workers.oracles.progress import is_load, is_save

NEARNESS = 0.94
QUIET_INPUTS_TO_BE_SURE = 4
MIN_USES_TO_BE_SURPRISED = 4
USUALLY = 0.7
MAX_SAVES = 4
MAX_LOADS_OF_A_SAVE = 2
STEPS_BEFORE_LOADING = 2
SURE_OF_UNDOING = 0.7
RESTART_FACTOR = 0.45
UNFINISHED_FACTOR = 0.02


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
        offered = seen.scenes[-1].labels
        menu = menu_of(seen.scenes[-1].text) if seen.free_text else {}
        if seen.free_text and not menu:
            return _best([_Option(worth=one.worth, first=one.line, why=one.why) for one in choose(seen, rng)], offered)
        if is_keyboard(offered):
            keys = choose_key(seen, rng)
            return _best([_Option(worth=one.worth, first=one.label, why=one.why) for one in keys], offered)
        if menu:
            seen = with_menus(seen)
        chart = Map(seen, _labels)
        best = _best(_options(seen, chart, seen.scenes[-1].labels, rng), seen.scenes[-1].labels)
        return tuple(
            msgspec.structs.replace(one, label=menu[one.label], typed=True) if one.label in menu else one
            for one in best
        )


def _best(options: list[_Option], offered: tuple[str, ...]) -> tuple[Proposal, ...]:
    """The options worth most, each input once; what is not on offer is typed."""
    chosen: list[_Option] = []
    for option in sorted(options, key=lambda item: -item.worth):
        if all(option.first != other.first for other in chosen):
            chosen.append(option)
        if len(chosen) == MAX_PROPOSALS:
            break
    return tuple(Proposal(label=option.first, typed=option.first not in offered, why=option.why) for option in chosen)


def _labels(scene: Scene) -> tuple[str, ...]:
    """What can be done in a scene."""
    return tuple(label for label in scene.labels if label != RESTART_LABEL)


def _options(look: Look, chart: Map, offered: tuple[str, ...], rng: random.Random) -> list[_Option]:
    here = chart.here
    labels = _labels(look.scenes[-1])
    can_restart = RESTART_LABEL in offered
    if not labels:
        return [_Option(worth=1.0, first=RESTART_LABEL, why="nothing else to do")] if can_restart else []
    options = _certainty(look, chart, labels, can_restart)
    options += _saves_and_loads(look, chart, labels)
    hopes = _Hopes(chart)
    distances, firsts = _walk(chart, can_restart)
    restart_factor = _restart_factor(look, chart, distances, firsts)
    for node, distance in distances.items():
        if node in chart.done:
            continue
        near = NEARNESS**distance * (restart_factor if firsts.get(node) == RESTART_LABEL else 1.0)
        todo = labels if node == here else chart.labels.get(node, ())
        for label in todo:
            if is_save(label) or is_load(label):
                continue
            tries = chart.tried(node, label)
            if tries == 0:
                worth, why = hopes.of(label) * near, "not tried here"
            else:
                changed = sum(n for after, n in chart.edges[(node, label)].items() if after != node)
                worth = 0.02 * near * (0.2 + changed / tries) / (1 + tries) ** 1.5
                why = "tried least"
            first = firsts.get(node) or label
            if first == RESTART_LABEL and not can_restart:
                continue
            options.append(_Option(worth=worth * (1 + 1e-3 * rng.random()), first=first, why=why))
    return options


def _verb(label: str) -> str:
    return label.split(" ", 1)[0].lower()


class _Hopes:
    """The chance that a label brings something new, from what it and its first word brought so far."""

    def __init__(self, chart: Map) -> None:
        self._chart = chart
        self._verbs: dict[str, tuple[int, int]] = {}
        for label, (times, brought, _) in chart.brought.items():
            done, new = self._verbs.get(_verb(label), (0, 0))
            self._verbs[_verb(label)] = (done + times, new + brought)

    def of(self, label: str) -> float:
        done, new = self._verbs.get(_verb(label), (0, 0))
        by_verb = (1.5 + new) / (2.5 + done)
        times, brought, _ = self._chart.brought.get(label, (0, 0, 0))
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
            if (
                node in chart.came_from
                and changed
                and back >= SURE_OF_UNDOING * changed
                and not chart.tried(node, label)
            ):
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


def _restart_factor(look: Look, chart: Map, distances: dict[Node, int], firsts: dict[Node, str]) -> float:
    """What a new start is worth beside going on here.

    Little, while something is untried in a part of the game that is left for good by starting again: the whole way
    back would have to be gone once more for it, and a part that is finished tells that nothing leads on from it.
    """
    inside = [node for node in distances if firsts.get(node) != RESTART_LABEL and node not in chart.done]
    if look.free_text or chart.start in inside:
        return RESTART_FACTOR
    left = sum(
        not chart.tried(node, label) and not is_save(label) for node in inside for label in chart.labels.get(node, ())
    )
    return UNFINISHED_FACTOR if left else RESTART_FACTOR


def _certainty(look: Look, chart: Map, labels: tuple[str, ...], can_restart: bool) -> list[_Option]:
    """When nothing happens any more though it used to: make sure that nothing listed works, then start again."""
    quiet: list[str] = []
    surprised = told = False
    for past in reversed(look.past):
        before, after = chart.of_scene[past.before], chart.of_scene[past.after]
        if after != chart.here or before != chart.here or past.effect in ("restarted", "ended"):
            break
        quiet.append(past.did)
        told = told or past.effect == "changed"
        worked_here = any(node != before for node in chart.edges[(before, past.did)])
        times, _, changed = chart.brought.get(past.did, (0, 0, 0))
        surprised = surprised or worked_here or (times >= MIN_USES_TO_BE_SURPRISED and changed >= USUALLY * times)
    if not quiet or not (surprised or len(quiet) > 2 * len(labels)):
        return []
    rounds = max(2 if told else 1, -(-QUIET_INPUTS_TO_BE_SURE // len(labels)))
    counts = {label: quiet.count(label) for label in labels}
    least = min(counts.values())
    if least < rounds:
        return [
            _Option(worth=5.0 - least - 0.01 * i, first=label, why="making sure that nothing works")
            for i, label in enumerate(labels)
            if counts[label] == least
        ]
    return [_Option(worth=3.0, first=RESTART_LABEL, why="stuck")] if can_restart else []


def _saves_and_loads(look: Look, chart: Map, labels: tuple[str, ...]) -> list[_Option]:
    """Save where it is new, go on for a few steps, load: what a tester does wherever the game offers it."""
    saved_at: Node | None = None
    changes = saves = loads = 0  # loads of the save that stands, changes since it was made or loaded
    for past in look.past:
        if past.effect == "restarted":
            saved_at, loads = None, 0
        elif is_save(past.did):
            saved_at, changes, saves, loads = chart.of_scene[past.before], 0, saves + 1, 0
        elif is_load(past.did):
            loads += changes >= STEPS_BEFORE_LOADING
            changes = 0
        else:
            changes += chart.of_scene[past.before] != chart.of_scene[past.after]
    options = []
    for label in labels:
        # Each load throws away the way gone since the save: a few of one save tell what there is to tell.
        due = changes >= STEPS_BEFORE_LOADING and loads < MAX_LOADS_OF_A_SAVE
        if is_load(label) and saved_at not in (None, chart.here) and due:
            options.append(_Option(worth=2.5 / (1 + 3 * loads), first=label, why="load after going on"))
        if is_save(label) and saves < MAX_SAVES and not chart.tried(chart.here, label):
            options.append(_Option(worth=1.2, first=label, why="save before going on"))
    return options
