"""The ratios that simulation batches promise, each against its peer in the same run.

`python -m benchmarks.simulation.speed` prints a row a claim and exits 1 when one does not hold after `TRIES` tries.
Both sides of a ratio are measured in turn, several times, and the medians are compared: absolute times depend on the
machine and on what else it does.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.simulation.games import Counter, bare_blackjack, bare_counter, bare_wall
from workers.simulation.batch import run_batch
from workers.simulation.bridge_play import BridgeTable
from workers.simulation.chunk import encode_result
from workers.simulation.configuration import load
from workers.simulation.games import GymnasiumGame, InProcessGame, PythonGame, play_in_process
from workers.simulation.order import SimulateOrder, local_environment, read_bridge
from workers.simulation.play import Play, Table
from workers.simulation.pool import ProcessPool
from workers.simulation.watch import Watch

HERE = Path(__file__).parent
TRIES = 3
ROUNDS = 5
GAME_STEPS = 50
REFERENCE_HASH_SECONDS = 0.8e-6
"""One SHA-256 of 64 bytes on the machine that the limits in microseconds were set on."""


class Claim(NamedTuple):
    """A measured ratio and its bound; `at_least` tells the side on which it must lie."""

    name: str
    bound: float
    at_least: bool
    measure: Callable[[], float]

    def holds(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound


class NoStop:
    requested = False


def configuration(runs: int, **changes: Any) -> dict[str, Any]:
    strategies = [{"name": "random", "policy": "random"}]
    base = {"version": 1, "seed": 1, "runs": runs, "max_steps": 100_000, "workers": 1, "strategies": strategies}
    return {**base, **changes}


# -- over a pipe -------------------------------------------------------------------------------------------------------


def json_bridge(sessions: int) -> dict[str, Any]:
    return {"command": [sys.executable, "bridge.py", str(GAME_STEPS), "8"], "cwd": str(HERE), "sessions": sessions}


def bridge_rate(sessions: int, games: int) -> float:
    """Round trips a second of the whole way: framing, checks, policy, digest, result line, kept trace."""
    table = Table(load(configuration(games + 8)), 64)
    bridge = BridgeTable(table, read_bridge(json_bridge(sessions)), local_environment(os.environ))
    watch = Watch(None, None)
    lines: list[bytes] = []

    def end(play: Play) -> None:
        assert play.result is not None and play.result.status == "completed"
        lines.append(encode_result(play.result))

    try:
        bridge.play(range(games, games + 8), watch, end)
        began = time.monotonic()
        bridge.play(range(games), watch, end)
        return games * (GAME_STEPS + 1) / (time.monotonic() - began)
    finally:
        bridge.stop()


def ping_pong_rate(games: int) -> float:
    """Round trips a second of a bare loop: the same bytes to the same bridge, each answer read and thrown away."""
    reset = (
        b'{"jsonrpc":"2.0","id":%d,"method":"reset",'
        b'"params":{"session":"s1","seed":"17375987970451583536","strategy":"random"}}\n'
    )
    step = b'{"jsonrpc":"2.0","id":%d,"method":"step","params":{"session":"s1","action":"a"}}\n'
    command = json_bridge(1)["command"]
    with subprocess.Popen(
        command, cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        into, out = child.stdin.fileno(), child.stdout.fileno()
        os.write(into, reset % 1)
        os.read(out, 1 << 16)
        began = time.monotonic()
        for number in range(games):
            os.write(into, reset % number)
            os.read(out, 1 << 16)
            for _ in range(GAME_STEPS):
                os.write(into, step % number)
                os.read(out, 1 << 16)
        rate = games * (GAME_STEPS + 1) / (time.monotonic() - began)
        child.stdin.close()
    return rate


def one_session() -> float:
    return paired(lambda: bridge_rate(1, 60), lambda: ping_pong_rate(60))


def eight_sessions() -> float:
    return paired(lambda: bridge_rate(8, 160), lambda: bridge_rate(1, 60))


# -- in process --------------------------------------------------------------------------------------------------------


def hash_seconds() -> float:
    data = b"x" * 64
    began = time.process_time()
    for _ in range(1_000):
        hashlib.sha256(data).digest()
    return (time.process_time() - began) / 1_000


def ours(game: InProcessGame, games: int, **changes: Any) -> tuple[float, int]:
    """Seconds of processor time, and steps, for the same games played by us, everything on."""
    table = Table(load(configuration(games, **changes)), 64)
    watch = Watch(None, None)
    steps = 0
    began = time.process_time()
    for index in range(games):
        play = Play(table, index)
        play_in_process(game, play, watch)
        assert play.result is not None
        encode_result(play.result)
        steps += play.steps
    return time.process_time() - began, steps


def python_game() -> PythonGame:
    sys.path.insert(0, str(HERE.parents[1]))
    return PythonGame(f"{Counter.__module__}:{Counter.__qualname__}")


def step_cost() -> float:
    """Microseconds a step above the bare loop, as on the reference machine."""
    game, games, steps = python_game(), 40, 500
    costs = []
    for _ in range(ROUNDS):
        hashed = hash_seconds()
        bare = bare_counter(games, steps)
        mine, played = ours(game, games, params={"steps": steps})
        assert played == games * steps
        costs.append((mine - bare) / played / hashed)
    return statistics.median(costs) * REFERENCE_HASH_SECONDS * 1e6


def game_cost() -> float:
    """Microseconds a game above the bare loop and above its steps, as on the reference machine."""
    game, games = python_game(), 2_000
    costs = []
    for _ in range(ROUNDS):
        hashed = hash_seconds()
        bare = bare_counter(games, 1)
        mine, _ = ours(game, games, params={"steps": 1})
        costs.append((mine - bare) / games / hashed)
    return statistics.median(costs) * REFERENCE_HASH_SECONDS * 1e6 - step_cost()


def blackjack() -> float:
    """Our rate on Blackjack-v1 over that of the bare loop, in steps a second."""
    game = GymnasiumGame("Blackjack-v1")

    def mine() -> float:
        seconds, steps = ours(game, 2_000)
        return steps / seconds

    def bare() -> float:
        seconds, steps = bare_blackjack(2_000)
        return steps / seconds

    return paired(mine, bare)


# -- in a pool ---------------------------------------------------------------------------------------------------------


def batch_rate(game: dict[str, Any], config: dict[str, Any]) -> float:
    """Steps a second of a whole batch while it plays, results and traces written."""
    with tempfile.TemporaryDirectory() as folder:
        order = SimulateOrder(
            configuration=config,
            bridge={**game, "cwd": str(HERE.parents[1])},
            configuration_directory=folder,
            wall_seconds=600,
            plots=False,
        )
        result = run_batch(
            order,
            directory=Path(folder),
            stop=NoStop(),
            progress=lambda _: None,
            now=lambda: "2026-01-01T00:00:00.000Z",
        )
        assert result.exit_code == 0
        played: float = float(json.loads(result.timing_path.read_text())["steps_per_second"])
    return played


def async_vector_rate(processes: int, steps: int) -> float:
    """Steps a second of Gymnasium's AsyncVectorEnv: one environment a process, resetting itself."""
    gymnasium: Any = importlib.import_module("gymnasium")
    make = [lambda: gymnasium.make("Blackjack-v1", disable_env_checker=True)] * processes
    environments = gymnasium.vector.AsyncVectorEnv(make, context="spawn")
    try:
        environments.reset(seed=1)
        began = time.monotonic()
        for _ in range(steps):
            environments.step(environments.action_space.sample())
        return processes * steps / (time.monotonic() - began)
    finally:
        environments.close()


def against_async_vector() -> float:
    game = {"gymnasium": "Blackjack-v1"}
    return paired(
        lambda: batch_rate(game, configuration(40_000, workers=2)), lambda: async_vector_rate(2, 2_000), rounds=3
    )


def two_workers() -> float:
    """Our speed-up from one worker to two, over that of two copies of the bare loop."""
    game = {"python": f"{Counter.__module__}:{Counter.__qualname__}"}
    params = {"steps": 400}

    def mine() -> float:
        one = batch_rate(game, configuration(1_500, params=params))
        return batch_rate(game, configuration(1_500, params=params, workers=2)) / one

    def bare() -> float:
        with ProcessPool(2, environment={**local_environment(os.environ), "PYTHONPATH": str(HERE.parents[1])}) as pool:
            list(pool.map(bare_wall, [10, 10], [400, 400]))
            alone: float = pool.submit(bare_wall, 3_000, 400).result()
            both: float = max(pool.map(bare_wall, [3_000, 3_000], [400, 400]))
        return 2 * alone / both

    return paired(mine, bare, rounds=3)


def paired(first: Callable[[], float], second: Callable[[], float], rounds: int = ROUNDS) -> float:
    """The median of the ratios of neighbours in time."""
    return statistics.median(first() / second() for _ in range(rounds))


CLAIMS = (
    Claim("one session a bridge, over a bare ping-pong", 0.7, True, one_session),
    Claim("eight sessions a bridge, over one session", 1.8, True, eight_sessions),
    Claim("in process: microseconds a step above the bare loop (calibrated)", 4.0, False, step_cost),
    Claim("in process: microseconds a game above the bare loop (calibrated)", 30.0, False, game_cost),
    Claim("Blackjack-v1 with traces on, over the bare loop", 0.7, True, blackjack),
    Claim("Blackjack-v1 with two processes, over AsyncVectorEnv with two", 3.0, True, against_async_vector),
    Claim("speed-up of two workers, over that of two bare loops", 0.85, True, two_workers),
)


def main() -> int:
    failed = 0
    for claim in CLAIMS:
        values: list[float] = []
        while len(values) < TRIES and not (values and claim.holds(values[-1])):
            values.append(claim.measure())
        holds = claim.holds(values[-1])
        failed += not holds
        sign = "at least" if claim.at_least else "at most"
        tried = "" if len(values) == 1 else f"  (tries: {', '.join(f'{value:.2f}' for value in values)})"
        print(
            f"{'ok  ' if holds else 'FAIL'} {values[-1]:6.2f}  {sign} {claim.bound:g}  {claim.name}{tried}", flush=True
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
