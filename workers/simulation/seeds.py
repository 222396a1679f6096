"""Seeds: where every game's and every policy's randomness comes from.

A game's seed depends on the batch seed and on k alone, so the k-th games of all strategies are paired; a policy's on
the strategy too. Neither depends on who plays the game, on how many do, or on what was played before.

The bytes hashed are UTF-8 texts joined by NUL: `playlane/game/1`, the batch seed in decimal digits, k in decimal
digits; and `playlane/policy/1`, batch seed, k, the strategy's name.
"""

from __future__ import annotations

import hashlib

MAX_SEED = 2**64 - 1


def game_seed(batch_seed: int, k: int, seed_bits: int) -> int:
    """The first `seed_bits` (32, 53 or 64) of SHA-256 over `playlane/game/1`, batch seed, k."""
    digest = hashlib.sha256(f"playlane/game/1\0{batch_seed}\0{k}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - seed_bits)


def other_seed(batch_seed: int, k: int, seed_bits: int) -> int:
    """A seed that the batch does not use for game k: what a game is tried with to see whether seeds matter."""
    digest = hashlib.sha256(f"playlane/other/1\0{batch_seed}\0{k}".encode()).digest()
    seed = int.from_bytes(digest[:8], "big") >> (64 - seed_bits)
    return seed ^ 1 if seed == game_seed(batch_seed, k, seed_bits) else seed


def policy_seed(batch_seed: int, k: int, strategy: str) -> int:
    """All 256 bits of SHA-256 over `playlane/policy/1`, batch seed, k, strategy: the seed of a `random.Random`."""
    return int.from_bytes(hashlib.sha256(f"playlane/policy/1\0{batch_seed}\0{k}\0{strategy}".encode()).digest(), "big")
