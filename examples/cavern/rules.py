"""The rules of The Lamp Below: pure, seeded, one session an object. `bridge.py` speaks the protocol around it.

A cave is four regions of four places. In each place one of four passages leads on, and the text hints at it; the wrong
ones lead back to the region's first place. What differs from seed to seed is which passage is right and in what order
things are listed, never how far anything is. `bugs` switches on planted mistakes; each sits behind a gate of known
depth (planted.json), and `shift` moves two of them to other gates without a word to the player.
"""

import json
from pathlib import Path

WORLD = json.loads((Path(__file__).parent / "world.json").read_text(encoding="utf-8"))
BUGS = ("crash", "softlock", "unreachable_goal", "invariant", "illegal_list", "lost_progress")
MASK = 0xFFFFFFFF


class IllegalMoveError(Exception):
    """The move is not among the listed ones; the turn is not spent."""


class Random:
    """mulberry32 over both halves of a 64-bit seed; the same numbers in every language with 32-bit integers."""

    def __init__(self, seed: int) -> None:
        self.state = seed & MASK
        self.state = (self.draw() ^ (seed >> 32)) & MASK

    def draw(self) -> int:
        self.state = (self.state + 0x6D2B79F5) & MASK
        mixed = self.state
        mixed = ((mixed ^ (mixed >> 15)) * (mixed | 1)) & MASK
        mixed ^= (mixed + (((mixed ^ (mixed >> 7)) * (mixed | 61)) & MASK)) & MASK
        return (mixed ^ (mixed >> 14)) & MASK

    def below(self, count: int) -> int:
        return (self.draw() * count) >> 32

    def shuffled(self, items: list) -> list:
        mixed = list(items)
        for last in range(len(mixed) - 1, 0, -1):
            other = self.below(last + 1)
            mixed[last], mixed[other] = mixed[other], mixed[last]
        return mixed


def choose_gates(shift: int) -> dict:
    """Which place and feature each planted bug sits behind; any shift but 0 moves those that have several."""
    if shift == 0:
        return {bug: places[0] for bug, places in WORLD["gates"].items()}
    random = Random(shift)
    gates = {}
    for bug, places in WORLD["gates"].items():
        gates[bug] = places[1 + random.below(len(places) - 1)] if len(places) > 1 else places[0]
    return gates


class Game:
    """One game. `turn()` tells it, `step(move)` plays it."""

    def __init__(self, seed: int, bugs: tuple = (), shift: int = 0) -> None:
        random = Random(seed)
        self.bugs = frozenset(bugs)
        self.gates = choose_gates(shift)
        self.layout = []
        for region in WORLD["regions"]:
            places = []
            for spot in region["spots"]:
                passages = [] if spot.get("door") else random.shuffled([p["id"] for p in region["passages"]])
                right = passages[random.below(4)] if passages else "open"
                names = passages or ["open", "back", "search"]
                order = random.shuffled([*names, *(f["id"] for f in spot["features"]), "look"])
                places.append({"right": right, "order": order, "passages": passages})
            self.layout.append(places)
        self.region = self.spot = self.best = self.turns = 0
        self.aside = self.stuck = self.struck_dumb = False
        self.used = self.saved = self.outcome = None
        self.gold = 0

    # -- playing ----------------------------------------------------------------------------------------------------

    def step(self, move: str) -> None:
        if move not in [listed["id"] for listed in self.moves()]:
            raise IllegalMoveError(move)
        self.turns += 1
        if self.stuck or move == "look" or move == "search":
            return
        if self.region == len(WORLD["regions"]):
            self._step_at_the_end(move)
        elif self.aside:
            self._step_aside(move)
        elif move == "save":
            self.saved = {"region": self.region, "spot": self.spot, "best": self.best}
        elif move == "load":
            self._load()
        elif move in [feature["id"] for feature in self._place()["features"]]:
            self._use(move)
        else:
            self._walk(move)
        self.best = max(self.best, self._depth())

    def _step_at_the_end(self, move: str) -> None:
        chosen = next(m for m in WORLD["ending"]["moves"][self.spot] if m["id"] == move)
        if "ends" in chosen:
            self.outcome = chosen["ends"]
        else:
            self.spot = chosen["to"]

    def _step_aside(self, move: str) -> None:
        if move == "back":
            self.aside, self.used = False, None
        else:
            self.used = None if self.used == move else move

    def _walk(self, move: str) -> None:
        here = self.layout[self.region][self.spot]
        if move == here["right"]:
            if self._planted("unreachable_goal", move):
                return
            self.spot += 1
            if self.spot == len(WORLD["regions"][self.region]["spots"]):
                self.region, self.spot, self.saved = self.region + 1, 0, None
        elif self.spot > 0:
            self.spot = 0
        elif move == next(p for p in here["passages"] if p != here["right"]):
            self.aside = True
        else:
            return
        self.used, self.gold = None, 0

    def _use(self, feature: str) -> None:
        if self._planted("crash", feature):
            raise RuntimeError(f"the {feature} is fastened to nothing")
        self.used = None if self.used == feature else feature
        used = next((f for f in self._place()["features"] if f["id"] == self.used), {})
        self.gold = used.get("gold", 0)
        if self.used and self._planted("invariant", feature):
            self.gold = -self.gold
        self.stuck = self._planted("softlock", feature)
        self.struck_dumb = self._planted("illegal_list", feature)

    def _load(self) -> None:
        moved_on = (self.region, self.spot) != (self.saved["region"], self.saved["spot"])
        self.region, self.spot, self.best = self.saved["region"], self.saved["spot"], self.saved["best"]
        self.used, self.gold = None, 0
        if moved_on and "lost_progress" in self.bugs:
            self.best = -1
            self.region = self.spot = 0

    def _planted(self, bug: str, feature: str) -> bool:
        return bug in self.bugs and [self._place()["name"], feature] == self.gates[bug]

    # -- telling ----------------------------------------------------------------------------------------------------

    def _place(self) -> dict:
        if self.region == len(WORLD["regions"]):
            return WORLD["ending"]["rooms"][self.spot]
        region = WORLD["regions"][self.region]
        return region["side"] if self.aside else region["spots"][self.spot]

    def _depth(self) -> int:
        """How many right moves lead here, at the least."""
        return self.region * 4 + self.spot

    def moves(self) -> list:
        if self.outcome is not None or self.struck_dumb:
            return []
        if self.region == len(WORLD["regions"]):
            return [{"id": m["id"], "label": m["label"]} for m in WORLD["ending"]["moves"][self.spot]]
        region, place = WORLD["regions"][self.region], self._place()
        labels = {
            **{p["id"]: f"take {p['label']}" for p in region["passages"]},
            **{f["id"]: f["label"] for f in place["features"]},
            "look": "look around",
            "open": "turn the key in the door",
            "back": "go back",
            "search": "search the walls",
        }
        order = [place["features"][0]["id"], "look", "back"]
        if self.used is not None:
            labels[self.used] = "stop that"
            order = [self.used, "look"]
        elif not self.aside:
            order = list(self.layout[self.region][self.spot]["order"])
            if region.get("camp") and self.spot == 0:
                order.append("save")
            if self.saved is not None:
                order.append("load")
        labels["save"], labels["load"] = "write in the notebook (save)", "go by the notebook (load)"
        return [{"id": move, "label": labels[move]} for move in order]

    def text(self) -> str:
        if self.outcome is not None:
            return WORLD["ending"]["texts"][self.outcome]
        place = self._place()
        lines = [f"{place['name']}. {place['text']}"]
        if self.region < len(WORLD["regions"]):
            lines += [f["after"] for f in place["features"] if f["id"] == self.used]
            if not self.aside:
                lines += self._hints()
        return "\n".join(lines)

    def _hints(self) -> list:
        region, here = WORLD["regions"][self.region], self.layout[self.region][self.spot]
        if not here["passages"]:
            return []
        names = {p["id"]: p["label"] for p in region["passages"]}
        wrong = [names[p] for p in here["passages"] if p != here["right"]]
        hint = region["hint"].replace("{right}", names[here["right"]])
        hint = hint.replace("{wrong}", f"{wrong[0]}, {wrong[1]} and {wrong[2]}")
        return [hint, region["slip"]]

    def violations(self) -> list:
        found = []
        if self.gold < 0:
            found.append(f"gold is negative: {self.gold}")
        if not 0 <= self.region <= len(WORLD["regions"]):
            found.append(f"no such region: {self.region}")
        return found

    def turn(self) -> dict:
        level = min(self.region, 4) + 1
        items = ["matches"]
        if (self.region, self.spot) in ((2, 0), (2, 1)):
            items.append("iron key")
        if self.region == 4 and self.spot > 0:
            items.append("lamp")
        told = {
            "state": {
                "level": level,
                "place": self._place()["name"],
                "aside": self.aside,
                "used": self.used,
                "oil": 5 - level,
                "gold": self.gold,
                "items": items,
                "saved": self.saved is not None,
            },
            "text": self.text(),
            "player": "you",
            "actions": self.moves(),
            "progress": max(self.best, 0),
            "goal": self.outcome == WORLD["goal_ending"],
            "violations": self.violations(),
            "done": self.outcome is not None,
        }
        if self.outcome is not None:
            told["outcome"] = self.outcome
            told["metrics"] = {"turns": self.turns, "progress": self.best}
        return told
