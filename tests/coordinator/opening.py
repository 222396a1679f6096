"""Ways to see `open` refuse, and to die in the middle of a commit."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from coordinator import CoordinatorError
from coordinator.errors import DamagedError
from tests.coordinator.calls import abandon, launched, nothing_written, refused, run, tree
from tests.coordinator.campaign import Campaign, failing_at


def refuse_open(campaign: Campaign, phrase: str, kind: type[BaseException] = CoordinatorError, **options: Any) -> None:
    """Refused, nothing written, no lock left."""
    with nothing_written(campaign), refused(phrase, kind):
        campaign.open(**options)
    assert not os.path.lexists(campaign.lock)


def keep_lock(campaign: Campaign, phrase: str, kind: type[BaseException] = DamagedError, **options: Any) -> None:
    """Refused with the new lock kept, and nothing else changed."""
    before = tree(campaign.folder)
    with refused(phrase, kind):
        campaign.open(**options)
    after = tree(campaign.folder)
    assert after.pop(campaign.lock.name)
    assert after == before
    campaign.lock.unlink()


def crash(campaign: Campaign, stage: str, name: str = "a") -> str:
    """Die in the commit of a reservation right after `stage`; a person took the lock away. Gives the id."""
    c = campaign.open(fault=failing_at(stage, ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        run(c.reserve(name))
    pending = json.loads((campaign.control / "pending.json").read_text())
    abandon(campaign)
    found: str = pending["reservationId"]
    return found


def uncertain_batch(campaign: Campaign) -> str:
    c = campaign.open()
    permit = run(launched(c, "a"))
    run(c.reserve("b"))
    run(c.close())
    return permit.reservation_id
