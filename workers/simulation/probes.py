"""What is tried before and after a batch: whether the game plays at all, and whether its seed has any effect."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import msgspec

from workers.simulation.chunk import Setup, player_for
from workers.simulation.errors import GameStartError
from workers.simulation.play import Play, encode_state
from workers.simulation.pool import current_channel
from workers.simulation.seeds import other_seed
from workers.simulation.session import Session, SessionFaultError, open_session
from workers.simulation.summary import SeedEffect
from workers.simulation.watch import Watch

SEED_CHECK_GAMES = 8


class ProbeReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a probe saw. `seed_control`: `confirmed`, `not confirmed` (no echo), or `in process`.

    `leftovers` are processes that the bridge left and that were ended.
    """

    seed_control: str
    leftovers: tuple[str, ...]


def probe(setup: Setup) -> ProbeReport:
    """Start, reset, one step, close. `GameStartError` says what went wrong, with the end of the error output."""
    player = player_for(setup)
    session = open_session(setup, player.game)
    play = Play(player.table, 0)
    try:
        turn = session.reset(play.seed, play.params, play.strategy)
        if not turn.done and turn.actions is not None and turn.actions:
            session.step(turn.actions[0].id)
        close = getattr(session, "close_game", None)
        if close is not None:
            close()
    except SessionFaultError as fault:
        raise GameStartError(f"the game does not play: {fault.reason}", tail=fault.tail) from fault
    finally:
        leftovers = session.stop()
    control = "in process" if player.game is not None else "confirmed" if session.seed_confirmed else "not confirmed"
    return ProbeReport(seed_control=control, leftovers=leftovers)


def check_seed_effect(setup: Setup, indexes: Sequence[int]) -> SeedEffect:
    """Play these games, then their recorded actions under another seed; count in how many anything differs.

    A game that fails under the other seed differs. Games that do not begin at all are not counted.
    """
    player = player_for(setup)
    plays: list[Play] = []
    player.play(indexes, Watch(setup.deadline, current_channel()), plays.append)
    plays.sort(key=lambda play: play.index)  # the first difference ends the check: it must be the same one always
    session = open_session(setup, player.game)
    checked = differing = 0
    try:
        for play in plays:
            if len(play.turns) < 1:
                continue
            checked += 1
            k, _ = setup.configuration.locate(play.index)
            seed = other_seed(setup.configuration.seed, k, setup.bridge.seed_bits)
            if not _looks_the_same(session, play, seed):
                differing += 1
                break  # one is enough to show an effect; and a session that failed is of no further use
    finally:
        session.stop()
    return SeedEffect(checked=checked, differing=differing)


def _looks_the_same(session: Session, play: Play, seed: int) -> bool:
    with contextlib.suppress(SessionFaultError):
        for place, turn in enumerate(play.turns):
            if place == 0:
                answer = session.reset(seed, play.params, play.strategy)
            else:
                answer = session.step(msgspec.json.decode(turn.action))
            if encode_state(answer.state) != turn.state:
                return False
            extra = msgspec.json.decode(turn.extra) if turn.extra else {}
            if answer.done != extra.get("done", False) or answer.outcome != extra.get("outcome"):
                return False
        return True
    return False


def sample_indexes(runs: int, cells: int) -> tuple[int, ...]:
    """The games that the seed check plays: the first of each of a few k, all strategies in turn."""
    return tuple(sorted({min(runs - 1, step * cells + step % cells) for step in range(SEED_CHECK_GAMES)}))
