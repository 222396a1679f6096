"""How a run reaches its model, what a token costs, and how large a call can get. Pure data, also used for quotes."""

from __future__ import annotations

from typing import Literal

import msgspec

Provider = Literal["anthropic", "openai"]
MODEL_BRAINS: tuple[Provider, ...] = ("anthropic", "openai")
DEFAULT_MAX_OUTPUT_TOKENS = 2_048
DEFAULT_CALL_SECONDS = 90.0
MILLION = 1_000_000

FIXED_BYTES = 9_000
"""System text, tools and headings of one call, rounded up; `tests/workers/models` holds it against the real ones."""
HISTORY_BYTES = 6_000
"""The longest condensed history, notes included."""
MAX_OPTION_CHARACTERS = 4_000
PICTURE_TOKENS = 5_000
"""More than either provider counts for one screenshot of the sizes that drivers take."""
HIDDEN_TOKENS = 1_000
"""What a provider adds by itself where tools are used."""
SELECTOR_BYTES = 8_000
BYTES_PER_TOKEN = 3.6
"""Measured over English game text; only for what is likely. A byte a token is the bound."""
TYPICAL_OUTPUT_TOKENS = 220


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens by kind, each counted once: `input` holds neither what was read from a cache nor what was written to it.

    Providers differ: one tells cache reads beside the input count, the other inside of it; the wire modules know.
    """

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0

    @property
    def total(self) -> int:
        return self.input + self.cache_read + self.cache_write + self.output

    def plus(self, other: Tokens) -> Tokens:
        return Tokens(
            input=self.input + other.input,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            output=self.output + other.output,
        )


class ModelPrice(msgspec.Struct, frozen=True, kw_only=True):
    """Millionths of a dollar for a million tokens of each kind: 3 dollars are 3,000,000."""

    input: int
    output: int
    cache_read: int
    cache_write: int

    def cost(self, tokens: Tokens) -> int:
        """Millionths of a dollar, rounded up."""
        exact = (
            tokens.input * self.input
            + tokens.cache_read * self.cache_read
            + tokens.cache_write * self.cache_write
            + tokens.output * self.output
        )
        return -(-exact // MILLION)

    def bound(self, tokens: Tokens) -> int:
        """The most that so many tokens can cost, whichever kind of input the provider counts them as."""
        dearest = max(self.input, self.cache_read, self.cache_write)
        inputs = tokens.input + tokens.cache_read + tokens.cache_write
        return -(-(inputs * dearest + tokens.output * self.output) // MILLION)


class ModelAccess(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a player needs to reach a model. The key itself is never here, only the name that it is handed over under.

    `price` None: not known, then `token_budget` bounds the run. `base_url` has no trailing slash and no path of a call.
    """

    provider: Provider
    model: str
    base_url: str
    key_name: str | None = None
    price: ModelPrice | None = None
    token_budget: int | None = None
    max_output_tokens: int = DEFAULT_MAX_OUTPUT_TOKENS
    call_seconds: float = DEFAULT_CALL_SECONDS
    pictures: bool = True
    stream: bool = True
    official: bool = True
    """Whether it is the provider's own address; compatible servers know fewer fields."""


class FirstSight(msgspec.Struct, frozen=True, kw_only=True):
    """Measured sizes of a target's first observation, in UTF-8 bytes."""

    text_bytes: int
    option_bytes: int
    picture: bool = False


class CallTokens(msgspec.Struct, frozen=True, kw_only=True):
    """What one step asks for: the first, a usual one, and the largest that can be."""

    first: Tokens
    likely: Tokens
    worst: Tokens


def tokens_of_a_step(sight: FirstSight, *, reading_characters: int, controller: str, access: ModelAccess) -> CallTokens:
    """Tokens of one step from a measured first observation. `worst` includes the repair turn, and the selector's."""
    seen = sight.text_bytes + min(sight.option_bytes, MAX_OPTION_CHARACTERS * 2)
    picture = PICTURE_TOKENS if sight.picture and access.pictures else 0
    first = round((FIXED_BYTES + seen) / BYTES_PER_TOKEN) + picture
    likely = first + round(HISTORY_BYTES / 2 / BYTES_PER_TOKEN)
    most_seen = max(2 * seen, min(reading_characters, 2 * sight.text_bytes + 2_000) + MAX_OPTION_CHARACTERS)
    worst = 2 * (FIXED_BYTES + HISTORY_BYTES + most_seen + HIDDEN_TOKENS + picture)
    outputs = (TYPICAL_OUTPUT_TOKENS, 2 * access.max_output_tokens)
    if controller == "jev":
        likely += round((SELECTOR_BYTES / 2 + seen) / BYTES_PER_TOKEN)
        first += round((SELECTOR_BYTES / 3 + seen) / BYTES_PER_TOKEN)
        worst += SELECTOR_BYTES + most_seen + HIDDEN_TOKENS
        outputs = (outputs[0] * 3 // 2, outputs[1] + access.max_output_tokens)
    return CallTokens(
        first=Tokens(input=first, output=outputs[0]),
        likely=Tokens(input=likely, output=outputs[0]),
        worst=Tokens(input=worst, output=outputs[1]),
    )
