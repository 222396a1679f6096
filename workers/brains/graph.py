"""A map made from what a look remembers: situations, and where each thing that was done led.

Situations are told apart as coarsely as still predicts what an action brings: by the offers alone, by offers and
heading, or by offers and text. Numbers that tick, or take many values, are folded out first.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable
from functools import lru_cache

from workers.look import Look, Scene
from workers.oracles.progress import is_load, is_save

MIN_SAMPLES = 4
TICKING_SHARE = 0.6
MANY_VALUES = 8
GOOD_PREDICTION = 0.92

_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")

Node = Hashable


@lru_cache(maxsize=16_384)
def _lines(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Each line as a template without numbers, and its numbers."""
    return tuple(
        (" ".join(_NUMBER.sub("#", line).split()), tuple(_NUMBER.findall(line)))
        for line in text.splitlines()
        if line.strip()
    )


@lru_cache(maxsize=16_384)
def _without_menu(labels: tuple[str, ...]) -> frozenset[str]:
    """Saving and loading belong to the program around the game: that they are on offer names no situation."""
    return frozenset(label for label in labels if not is_save(label) and not is_load(label))


class Fold:
    """Which numbers of the text say nothing about the situation, learnt from the steps remembered."""

    def __init__(self, look: Look) -> None:
        values: dict[tuple[str, int], set[str]] = defaultdict(set)
        pairs: Counter[tuple[str, int]] = Counter()
        changed: Counter[tuple[str, int]] = Counter()
        for past in look.past:
            if past.effect == "restarted":
                continue
            before = dict(_lines(look.scenes[past.before].text))
            for template, numbers in _lines(look.scenes[past.after].text):
                old = before.get(template)
                for index, number in enumerate(numbers):
                    slot = (template, index)
                    values[slot].add(number)
                    if old is not None and index < len(old):
                        pairs[slot] += 1
                        changed[slot] += number != old[index]
        self.ticking = frozenset(
            slot
            for slot, count in pairs.items()
            if (count >= MIN_SAMPLES and changed[slot] >= TICKING_SHARE * count) or len(values[slot]) > MANY_VALUES
        )
        self._texts: dict[str, tuple[str, ...]] = {}

    def lines(self, text: str) -> tuple[str, ...]:
        """The lines of a text with the meaningless numbers folded."""
        known = self._texts.get(text)
        if known is None:
            made = []
            for template, numbers in _lines(text):
                kept = [n for i, n in enumerate(numbers) if (template, i) not in self.ticking]
                made.append(f"{template}|{','.join(kept)}" if kept else template)
            known = self._texts[text] = tuple(made)
        return known


class Map:
    """Situations (`Node`) and what was seen to follow from each action in them."""

    def __init__(self, look: Look, labels_of: Callable[[Scene], tuple[str, ...]]) -> None:
        self.fold = Fold(look)
        self._labels_of = labels_of
        ways: list[Callable[[Scene], Node]] = [self._by_labels, self._by_heading, self._by_text]
        self._nodes: list[Node] = []
        best = self._choose(look, ways)
        self.of_scene: list[Node] = [best(scene) for scene in look.scenes]
        self.here: Node = self.of_scene[-1]
        self.labels: dict[Node, tuple[str, ...]] = {}
        self.done: set[Node] = set()
        self.visits: Counter[Node] = Counter()
        self.first_seen: dict[Node, int] = {}
        self.edges: dict[tuple[Node, str], Counter[Node]] = defaultdict(Counter)
        self.latest: dict[tuple[Node, str], Node] = {}
        self.refused: Counter[tuple[Node, str]] = Counter()
        self.brought: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        """label -> times done, times something never seen came of it, times the situation changed"""
        self.undoes: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        """label -> times it changed the situation, times that led back to where the player had come from"""
        self.came_from: dict[Node, Node] = {}
        self.start: Node | None = None
        self._read(look)

    def tried(self, node: Node, label: str) -> int:
        """How often this was done here, refusals included."""
        return self.edges[(node, label)].total() + self.refused[(node, label)]

    def _by_labels(self, scene: Scene) -> Node:
        return (self._signs(scene), scene.done)

    def _signs(self, scene: Scene) -> frozenset[str]:
        return _without_menu(self._labels_of(scene))

    def _by_heading(self, scene: Scene) -> Node:
        lines = self.fold.lines(scene.text)
        return (self._signs(scene), scene.done, lines[0] if lines else "")

    def _by_text(self, scene: Scene) -> Node:
        return (self._signs(scene), scene.done, self.fold.lines(scene.text))

    def _choose(self, look: Look, ways: list[Callable[[Scene], Node]]) -> Callable[[Scene], Node]:
        results = [self._by_text(scene) for scene in look.scenes]
        ratings = []
        for way in ways:
            nodes = [way(scene) for scene in look.scenes]
            seen: dict[tuple[Node, str], Counter[Node]] = defaultdict(Counter)
            for past in look.past:
                seen[(nodes[past.before], past.did)][results[past.after]] += 1
            repeated = [counter for counter in seen.values() if counter.total() > 1]
            total = sum(counter.total() for counter in repeated)
            right = sum(counter.most_common(1)[0][1] for counter in repeated)
            ratings.append(right / total if total >= MIN_SAMPLES else None)
        texts, lists = len(set(results)), len({self._by_labels(scene) for scene in look.scenes})
        # Equal offers ("stop") may return in many places and still predict most steps; then nothing is tried there any
        # more, as if one place had shown what all do. Headings tell such places apart, where they are few.
        headings = len({self._by_heading(scene) for scene in look.scenes})
        several_places = headings > lists and 2 * headings <= len(look.past)
        for index, way in enumerate(ways):
            rating = ratings[index]
            if rating is None:
                # Nothing was repeated yet: the offers alone name a situation only where they differ as texts do.
                if index > 0 or (lists >= 0.3 * texts and not several_places):
                    return way
            elif rating >= GOOD_PREDICTION and not (index == 0 and several_places):
                return way
        return ways[max(range(len(ways)), key=lambda i: (ratings[i] or 0.0, i))]

    def _read(self, look: Look) -> None:
        for index, scene in enumerate(look.scenes):
            node = self.of_scene[index]
            known_labels = self.labels.get(node, ())
            self.labels[node] = tuple(dict.fromkeys((*known_labels, *self._labels_of(scene))))
            if scene.done:
                self.done.add(node)
        known: set[Node] = set()
        for time, past in enumerate(look.past):
            before, after = self.of_scene[past.before], self.of_scene[past.after]
            if not known:
                self.start = before
            known.add(before)
            self.first_seen.setdefault(before, time)
            self.visits[after] += 1
            if past.effect == "restarted":
                self.start = after
            elif past.effect == "refused":
                self.refused[(before, past.did)] += 1
            else:
                self.edges[(before, past.did)][after] += 1
                self.latest[(before, past.did)] = after
                counts = self.brought[past.did]
                counts[0] += 1
                counts[1] += after not in known
                counts[2] += after != before
                if after != before:
                    back = self.undoes[past.did]
                    back[0] += 1
                    back[1] += self.came_from.get(before) == after
                    self.came_from.setdefault(after, before)
            self.first_seen.setdefault(after, time + 1)
            known.add(after)
        self.known = known | {self.here}
        if self.start is None:
            self.start = self.here
