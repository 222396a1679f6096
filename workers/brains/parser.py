"""How the explorer plays a game that is typed at: it keeps a map of places, and learns which words the game knows.

A parser game answers each line with a text of its own, which is not the situation: "taken" says nothing of where one
is. So the place is remembered from the last answer that told one, refusals are told apart from news by the way they
are worded and by how often they come, and a question is answered before anything else is tried.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict, deque

import msgspec

from workers.brains.words import BOUNDARY_TEXTS, DIRECTIONS, asks_for_name, nouns_of, words
from workers.look import MAX_LABEL_CHARACTERS, PLAYER_NAME, RESTART_LABEL, Look, Scene

BOUNDARY_CHANCE = 0.02
NEARNESS = 0.93
RESTART_WORTH = 0.02
TOLD_HOPE = 0.75
MAX_REMOTE_PLACES = 40

_MOVES = frozenset([*DIRECTIONS, "go", "enter", "climb", "leave", "n", "s", "e", "w", "u", "d"])
_REFUSAL = re.compile(
    r"\b(?:don't|do not|can't|cannot|can not|couldn't|have no|no such|there is no|no way|"
    r"nothing|won't|unable|isn't|aren't|not|already|sorry|huh|"
    r"oof|impossible|invalid|unknown|illegal|see no|what\?|pardon|beg your|which way)(?!\w)",
    re.IGNORECASE,
)
_CHOICES = re.compile(r"[\[(]([A-Za-z](?:\s*[-/,|]?\s*[A-Za-z]){1,7})[\])]")
_NUMBER = re.compile(r"(?<![\w.])\d{1,3}(?![\w.]*\w)")
_QUESTION = re.compile(
    r"\?\s*(?:[\[(][^\])\n]{1,20}[\])])?\s*[>:]?\s*$|\b(?:answer the question|yes or no)\b", re.IGNORECASE
)
_PROMPT = re.compile(r"\s*[>:$#]\s*$")
SINGLE = ("look", "inventory", "help", "wait")
VERBS = (
    "take", "enter", "open", "light", "unlock", "read", "examine", "push", "pull", "use", "drop", "eat", "drink",
    "climb", "attack", "talk to", "wear", "give",
)  # fmt: skip
_SIGNS = {
    "locked": {"unlock": 0.95, "open": 0.8}, "dark": {"light": 0.9, "turn on": 0.9}, "closed": {"open": 0.95},
    "door": {"open": 0.7},
}  # fmt: skip
"""What a word of the text says of verbs."""
_THERE = re.compile(r"\b(?:there (?:is|are)|here (?:is|are)|you (?:can )?see|lies?|stands?)\b(.{1,60})", re.IGNORECASE)
_WHERE = re.compile(
    r"\b(?:on|in|at|by|near|nearby|here|of|to|with|from|under|over|behind|leading|standing|lying|that|which)\b|,",
    re.IGNORECASE,
)
_WORTH = {"take": 0.85, "enter": 0.3, "open": 0.35, "light": 0.25, "unlock": 0.2, "read": 0.3}


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A line to type, what it is worth, and why."""

    line: str
    worth: float
    why: str


def paragraphs(text: str) -> list[str]:
    """The parts of an answer between empty lines, each on one line, without the prompt at its end."""
    parts = re.split(r"\n\s*\n", _PROMPT.sub("", text))
    return [" ".join(part.split()) for part in parts if part.strip()]


def is_refusal(paragraph: str) -> bool:
    """Whether a paragraph is worded as a refusal: not long, and in the negative from its beginning."""
    return len(paragraph) < 300 and bool(_REFUSAL.search(paragraph[:60]))


def asks(text: str) -> bool:
    """Whether the text ends in a question, which most games want answered before anything else."""
    last = paragraphs(text)[-1:]
    if not last or (is_refusal(last[0]) and not _CHOICES.search(last[0])):
        return False
    return bool(_QUESTION.search(text[-200:]))


def answers(text: str) -> tuple[str, ...]:
    """What a question offers: letters in brackets, with the numbers told; else yes and no; and the player's name."""
    if asks_for_name(text):
        return (PLAYER_NAME,)
    offered: list[str] = []
    found = _CHOICES.findall(text[-200:])
    numbers = list(dict.fromkeys(_NUMBER.findall(text)))[-12:]
    if found:
        letters = [one.lower() for one in re.findall(r"[A-Za-z]", found[-1])]
        if len(set(letters)) == len(letters):
            # No before yes: a question asked in passing is oftener about leaving or reading than about playing.
            offered = sorted(letters, key=lambda letter: letter == "y")
            if set(letters) != {"y", "n"}:
                offered = [f"{letter} {number}" for letter in letters for number in numbers] + letters
    return tuple(offered) or ("no", "yes", *numbers)


class Journey:
    """What the steps remembered tell: places, ways between them, what was tried where, and which words bring news."""

    def __init__(self, look: Look) -> None:
        self.ways: dict[str, dict[str, str]] = defaultdict(dict)
        self.tried: dict[str, Counter[str]] = defaultdict(Counter)
        self.told: dict[str, str] = {}
        self.answered: Counter[tuple[str, str]] = Counter()
        self.times: Counter[str] = Counter()
        self.verbs: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        self.lines: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        self.nouns: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        self.start = self.here = ""
        self.carried: dict[str, None] = {}
        self._refusals: dict[str, dict[str, str]] = defaultdict(dict)
        self._said: set[str] = set()
        self._names: dict[str, str] = {}
        self._places: set[str] = set()
        self._arrive(look.scenes[look.past[0].before] if look.past else look.scenes[-1], moved=True)
        self.start = self.here
        for past in look.past:
            self._read(look.scenes[past.before], past.did, past.effect, look.scenes[past.after])

    def _read(self, before: Scene, did: str, effect: str, after: Scene) -> None:
        if effect == "restarted":
            self._arrive(after, moved=True)
            self.start = self.here
            return
        if asks(before.text):
            self.answered[_question(before.text), did] += 1
            self._arrive(after, moved=not asks(after.text))
            self._hear(after)
            return
        place = self.here
        self.tried[place][did] += 1
        moved = did.split(" ", 1)[0] in _MOVES
        self._arrive(after, moved=moved and not asks(after.text), by=(place, did))
        news = self._hear(after)
        good = news or self.here != place
        for counts, key in ((self.verbs, _verb(did)), (self.lines, did), (self.nouns, _noun(did))):
            counts[key][0] += 1
            counts[key][1] += good
        if self.here != place:
            self.ways[place][did] = self.here
        else:
            self.ways[place].pop(did, None)
            self._learn_here(place, did, good, after.text)

    def _learn_here(self, place: str, did: str, good: bool, text: str) -> None:
        noun = _noun(did)
        if not good:
            self._refusals[place][did] = text
        elif noun:
            if _verb(did) == "take":
                self.carried[noun] = None
            # What was refused because of this very thing may be granted now that something was done with it: here,
            # or wherever the thing is carried.
            for other in list(self._refusals) if noun in self.carried else [place]:
                for line, refusal in list(self._refusals[other].items()):
                    if noun in words(refusal) and _noun(line) != noun:
                        del self._refusals[other][line]
                        del self.tried[other][line]
                        self.lines.pop(line, None)

    def _hear(self, scene: Scene) -> bool:
        """Take in an answer; tell whether any of it was no refusal and new, or as short as an acknowledgement."""
        said = paragraphs(scene.text)
        news = any((one not in self._said or len(one) < 12) and not is_refusal(one) for one in said)
        self._said.update(said)
        return news

    def _arrive(self, scene: Scene, *, moved: bool, by: tuple[str, str] | None = None) -> None:
        said = paragraphs(scene.text)
        telling = [one for one in said if not is_refusal(one) and not asks(one)]
        known = next((one for one in telling if one in self._names or one in self._places), None)
        if known is None and moved and telling:
            known = telling[0]
        if known is None:
            return
        place = self._names.get(known, known)
        if place not in self._places and by is not None and is_refusal(said[0]):
            # Refused and told where one is: another description of the place that one has not left.
            self._names[known] = place = by[0]
        old = self.ways[by[0]].get(by[1]) if by is not None else None
        if place not in self._places and old is not None and _alike(old, place):
            # Where this way led before was described at length then, and is named in short now.
            self._names[known] = place = old
        self._places.add(place)
        self.here = place
        if len(scene.text) > len(self.told.get(place, "")):
            self.told[place] = scene.text

    def paths(self) -> tuple[dict[str, int], dict[str, str]]:
        """How many lines lead to each known place, and the first of them."""
        distances: dict[str, int] = {self.here: 0}
        firsts: dict[str, str] = {}
        queue = deque([self.here])
        while queue:
            place = queue.popleft()
            for line, after in self.ways.get(place, {}).items():
                if after not in distances:
                    distances[after] = distances[place] + 1
                    firsts[after] = firsts.get(place, line)
                    queue.append(after)
        return distances, firsts

    def hope(self, line: str, *, told: bool) -> float:
        """How likely a line is to bring news, by what it, its verb and its noun brought; 1 where nothing is known.

        Of a line that the text itself points to (`told`), failures of its verb on other things say little.
        """
        verb, verb_news = self.verbs.get(_verb(line), (0, 0))
        times, news = self.lines.get(line, (0, 0))
        noun, noun_news = self.nouns.get(_noun(line), (0, 0)) if _noun(line) else (0, 0)
        by_verb = (1.5 + verb_news) / (1.5 + verb)
        return max(by_verb, TOLD_HOPE if told else 0.0) * (0.5 + news) / (0.5 + times) * (2 + noun_news) / (2 + noun)


def choose(look: Look, rng: random.Random) -> list[Choice]:
    """Lines worth typing now, with their worths; the label for starting again among them where it is offered."""
    scene = look.scenes[-1]
    journey = Journey(look)
    if asks(scene.text):
        question = _question(scene.text)
        offered = [*answers(scene.text), *(look.vocabulary if scene.text.count("\n") > 3 else ())]
        return [
            Choice(
                line=line,
                worth=(2.0 - 0.01 * rank + 0.3 * rng.random()) / (1 + 2 * journey.answered[question, line]),
                why="answers the question",
            )
            for rank, line in enumerate(offered)
        ]
    found: list[Choice] = []
    if rng.random() < BOUNDARY_CHANCE and len(look.past) > 5:
        typed = {past.did for past in look.past}
        left = [line for line in BOUNDARY_TEXTS if line[:MAX_LABEL_CHARACTERS] not in typed]
        found += [Choice(line=line, worth=3.0, why="a text at the bounds") for line in left[:1]]
    distances, firsts = journey.paths()
    for place, distance in list(distances.items())[:MAX_REMOTE_PLACES]:
        text = scene.text + "\n" + journey.told.get(place, "") if distance == 0 else journey.told.get(place, "")
        for line, (worth, told) in _lines(text, look.vocabulary, tuple(journey.carried)).items():
            tries = journey.tried[place][line]
            if tries and line in journey.ways.get(place, {}):
                worth *= 0.05 / tries
            elif tries:
                worth *= 0.02 / tries
            worth *= journey.hope(line, told=told) * NEARNESS**distance * (1 + 0.1 * rng.random())
            found.append(
                Choice(
                    line=firsts.get(place, line),
                    worth=worth,
                    why="not tried here" if distance == 0 and not tries else "on the way to what was not tried",
                )
            )
    if RESTART_LABEL in scene.labels:
        found.append(Choice(line=RESTART_LABEL, worth=RESTART_WORTH, why="little is left to try from here"))
    return found


def _lines(text: str, vocabulary: tuple[str, ...], carried: tuple[str, ...]) -> dict[str, tuple[float, bool]]:
    """Lines for a place told of in this text: what each is worth at first, and whether the text points to it."""
    said = set(words(text))
    found = {line: (1.0, True) if line in said else (0.8 - 0.01 * rank, False) for rank, line in enumerate(DIRECTIONS)}
    for word in vocabulary:
        found.setdefault(word, (0.9, False))
    telling = [one for one in paragraphs(text) if not is_refusal(one)]
    things = [noun for one in telling for sentence in one.split(".") for noun in _things(sentence)]
    times = Counter(nouns for one in telling for nouns in words(one))
    named = nouns_of(" ".join([*things, *telling]))
    for sentence in (sentence for one in telling for sentence in re.split(r"[.!]", one)):
        for sign in _SIGNS.keys() & set(words(sentence)):
            about = [*nouns_of(sentence), *(carried if sign == "dark" else ())]
            for noun in about:
                found.update({f"{verb} {noun}": (worth, True) for verb, worth in _SIGNS[sign].items() if noun != sign})
    for rank, noun in enumerate(named):
        standing = 1.0 if noun in things else 0.5
        standing *= (1.1 if times[noun] > 1 else 1.0) - 0.02 * rank
        for verb in VERBS:
            found.setdefault(f"{verb} {noun}", (_WORTH.get(verb, 0.15) * standing, noun in things and verb == "take"))
        found.setdefault(noun, (0.3 * standing, False))
    for line in SINGLE:
        found.setdefault(line, (0.15, False))
    return found


def _things(sentence: str) -> list[str]:
    """The noun that a sentence says is there: the last one before anything is said of where or how."""
    found = _THERE.search(sentence)
    return list(nouns_of(_WHERE.split(found[1])[0]))[-1:] if found is not None else []


def _verb(line: str) -> str:
    first, _, rest = line.partition(" ")
    # A noun alone is a guess of one kind, whichever noun it is.
    return first if rest or first in _MOVES or first in SINGLE else "(word)"


def _noun(line: str) -> str:
    return line.rpartition(" ")[2] if " " in line else ""


def _question(text: str) -> str:
    return paragraphs(text)[-1] if paragraphs(text) else ""


def _alike(long: str, short: str) -> bool:
    """Whether two descriptions may be of one place: the shorter one's longest words stand in the longer."""
    first, second = sorted((set(words(long)), set(words(short))), key=len)
    return bool(first) and len(first & second) >= 0.5 * len(first)
