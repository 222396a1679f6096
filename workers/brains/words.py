"""Words for games that take free text: what to type, made from the text that is seen."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from workers.look import PLAYER_NAME

MAX_NOUNS = 14
MAX_COMMANDS = 160

DIRECTIONS = ("north", "south", "east", "west", "up", "down", "in", "out", "northeast", "northwest", "southeast",
              "southwest", "enter", "back")  # fmt: skip
ALONE = ("look", "inventory", "wait", "help", "yes", "no", "1", "2", "3")
VERBS = ("take", "open", "examine", "use", "push", "unlock", "read", "give", "talk to", "eat", "drink", "light",
         "turn on", "pull", "attack", "climb", "wear", "drop", "put")  # fmt: skip
BOUNDARY_TEXTS = (
    " ", "a" * 1_000, "né 漢字 🙂", "'; drop table players; --", "<b>bold</b>", "%s%n{0}", "-1", "99999999999999999999",
)  # fmt: skip
"""What a careful tester types into a field once: nothing, too much, other scripts, other languages' syntax, bounds."""

_WORD = re.compile(r"[A-Za-z][A-Za-z'-]{2,}")
_NAME_PROMPT = re.compile(
    r"\b(?:your|player|character|hero)(?:'s)? name\b|\bwhat (?:are you|is your name)", re.IGNORECASE
)
_STOP = frozenset(
    [
        "the",
        "and",
        "you",
        "your",
        "are",
        "was",
        "were",
        "here",
        "there",
        "this",
        "that",
        "with",
        "from",
        "into",
        "for",
        "not",
        "but",
        "can",
        "see",
        "have",
        "has",
        "had",
        "its",
        "it's",
        "they",
        "them",
        "what",
        "which",
        "where",
        "when",
        "who",
        "how",
        "then",
        "than",
        "all",
        "any",
        "some",
        "one",
        "two",
        "too",
        "very",
        "just",
        "like",
        "will",
        "would",
        "could",
        "should",
        "may",
        "might",
        "must",
        "only",
        "over",
        "under",
        "near",
        "through",
        "about",
        "been",
        "being",
        "also",
        "out",
        "off",
        "onto",
        "upon",
        "nothing",
        "there's",
        "you're",
        "don't",
        "can't",
        "isn't",
    ]
)


def asks_for_name(text: str) -> bool:
    """Whether the text asks for a public name of the player."""
    return bool(_NAME_PROMPT.search(text[-300:]))


@lru_cache(maxsize=8_192)
def words(text: str) -> tuple[str, ...]:
    """The words of a text in lower case."""
    return tuple(word.lower() for word in _WORD.findall(text))


@lru_cache(maxsize=4_096)
def commands(text: str, vocabulary: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Commands worth typing at this text, the likeliest first, at most `MAX_COMMANDS`, without repeats."""
    said = words(text)
    seen = set(said)
    found: list[str] = [PLAYER_NAME] if asks_for_name(text) else []
    found += [direction for direction in DIRECTIONS if direction in seen]
    nouns = [word for word in dict.fromkeys(said) if word not in _STOP and word not in DIRECTIONS][:MAX_NOUNS]
    found += vocabulary
    found += [f"{verb} {noun}" for verb in VERBS[:4] for noun in nouns]
    found += _unsaid(ALONE, seen)
    found += [direction for direction in DIRECTIONS if direction not in seen]
    found += [f"{verb} {noun}" for verb in VERBS[4:] for noun in nouns]
    return tuple(dict.fromkeys(found))[:MAX_COMMANDS]


@lru_cache(maxsize=4_096)
def nouns_of(text: str) -> tuple[str, ...]:
    """Words of a text that may name a thing, in their order, at most `MAX_NOUNS`."""
    return tuple(word for word in dict.fromkeys(words(text)) if word not in _STOP and word not in DIRECTIONS)[
        :MAX_NOUNS
    ]


def _unsaid(words: Iterable[str], seen: set[str]) -> list[str]:
    """Words that the text itself names come first."""
    return sorted(words, key=lambda word: word not in seen)
