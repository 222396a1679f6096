"""What a brain costs its user, before it plays. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.configuration import FREE_BRAINS
from workers.contract import SCRIPTED_PREFIX

if TYPE_CHECKING:
    from coordinator.service.matrix import RunPrice

MAX_PRICE_OF_AN_ACTION = 10_000_000
"""Ten dollars: more for one input is a mistake."""
PLAYED_SHARE = 2
"""Runs end before their last action about as often as not: half of the worst price is likely."""


def action_price(brain: str) -> int | None:
    """Millionths of a dollar for each input at most; None for a brain that is not known here.

    `scripted:PRICE` plays as `random` does and books PRICE for each input: a rehearsal of a paid campaign.
    """
    if brain in FREE_BRAINS:
        return 0
    text = brain.removeprefix(SCRIPTED_PREFIX)
    if not brain.startswith(SCRIPTED_PREFIX) or not (text.isascii() and text.isdigit() and len(text) <= 8):
        return None
    price = int(text)
    return price if 1 <= price <= MAX_PRICE_OF_AN_ACTION else None


def run_price(brain: str, max_actions: int) -> RunPrice:
    """Of one playthrough. `worst` is every action played."""
    from coordinator.service.matrix import RunPrice

    each = action_price(brain) or 0
    return RunPrice(low=each, likely=each * max(1, max_actions // PLAYED_SHARE), worst=each * max_actions)
