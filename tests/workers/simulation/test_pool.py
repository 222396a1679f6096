"""No piece of work is ever lost in the pool: it is done, or its future says what happened."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Executor, wait
from pathlib import Path

import pytest

from workers.simulation.errors import GameStartError, PoolError, ProcessDiedError
from workers.simulation.pool import ProcessPool, current_channel

LIMIT_SECONDS = 60


def answer(number: int) -> tuple[int, int]:
    return number * number, os.getpid()


def die_until(marks: str, times: int, exit_code: int) -> str:
    """Die `times` times, then answer; each death leaves a mark."""
    folder = Path(marks)
    done = len(list(folder.iterdir()))
    if done < times:
        (folder / str(done)).touch()
        os._exit(exit_code)
    return "answered"


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hang() -> None:
    channel = current_channel()
    assert channel is not None
    channel.tick(0, 0)
    threading.Event().wait()


def beat_until_stopped() -> str:
    channel = current_channel()
    assert channel is not None
    limit = time.monotonic() + LIMIT_SECONDS
    while not channel.stop_requested():
        channel.tick(3, 30)
        assert time.monotonic() < limit
    return "stopped"


def raise_own() -> None:
    raise GameStartError("the game is not there", tail="the last words")


def raise_foreign() -> None:
    class LocalError(Exception):
        pass

    raise LocalError("cannot cross a pipe")


def seen_environment() -> dict[str, str]:
    return dict(os.environ)


@pytest.fixture
def pool() -> Iterator[ProcessPool]:
    with ProcessPool(2, environment={"PATH": os.environ["PATH"], "MARK": "1"}) as made:
        yield made


def test_it_is_an_executor_whose_processes_share_the_work(pool: ProcessPool) -> None:
    assert isinstance(pool, Executor)
    results = list(pool.map(answer, range(40), timeout=LIMIT_SECONDS))
    assert [square for square, _ in results] == [n * n for n in range(40)]
    assert os.getpid() not in {pid for _, pid in results}


def test_work_of_a_process_that_died_is_given_back_at_most_twice(pool: ProcessPool, tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    (tmp_path / "three").mkdir()
    survives = pool.submit(die_until, str(tmp_path / "two"), 2, 3)
    lost = pool.submit(die_until, str(tmp_path / "three"), 3, 3)
    assert survives.result(LIMIT_SECONDS) == "answered"
    with pytest.raises(ProcessDiedError) as caught:
        lost.result(LIMIT_SECONDS)
    assert (caught.value.exit_code, caught.value.reason) == (3, "crash: the game ended its process (exit code 3)")
    assert len(list((tmp_path / "three").iterdir())) == 3
    assert pool.submit(answer, 3).result(LIMIT_SECONDS)[0] == 9


def test_a_signal_is_named_and_no_retry_means_one_death(pool: ProcessPool) -> None:
    with pytest.raises(ProcessDiedError) as caught:
        pool.submit_with(0, kill_self).result(LIMIT_SECONDS)
    assert caught.value.exit_code == -signal.SIGKILL
    assert pool.deaths == 1


def test_a_process_without_a_sign_of_life_is_ended() -> None:
    with ProcessPool(1, environment={}, silence_seconds=0.5) as pool:
        with pytest.raises(ProcessDiedError) as caught:
            pool.submit_with(0, hang).result(LIMIT_SECONDS)
        assert caught.value.silent_seconds == 0.5
        assert pool.submit(answer, 2).result(LIMIT_SECONDS)[0] == 4


def test_errors_of_ours_cross_with_their_facts_and_foreign_ones_as_words(pool: ProcessPool) -> None:
    with pytest.raises(GameStartError) as own:
        pool.submit(raise_own).result(LIMIT_SECONDS)
    assert (own.value.what, own.value.tail) == ("the game is not there", "the last words")
    with pytest.raises(PoolError, match="LocalError: cannot cross a pipe"):
        pool.submit(raise_foreign).result(LIMIT_SECONDS)


def test_processes_see_the_given_environment_only(pool: ProcessPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATER_SECRET", "x")
    assert pool.submit(seen_environment).result(LIMIT_SECONDS) == {"PATH": os.environ["PATH"], "MARK": "1"}


def test_a_stop_reaches_work_in_progress_which_shows_how_far_it_is(pool: ProcessPool) -> None:
    future = pool.submit(beat_until_stopped)
    limit = time.monotonic() + LIMIT_SECONDS
    while pool.in_play() != (3, 30):
        assert time.monotonic() < limit
        wait([future], timeout=0.05)
    pool.stop_games()
    assert future.result(LIMIT_SECONDS) == "stopped"


def test_shutdown_cancels_what_has_not_begun_and_leaves_no_process() -> None:
    pool = ProcessPool(1, environment={})
    first = pool.submit(beat_until_stopped)
    second = pool.submit(answer, 1)
    limit = time.monotonic() + LIMIT_SECONDS
    while pool.in_play() == (0, 0):
        assert time.monotonic() < limit
        wait([first], timeout=0.05)
    pids = pool.pids
    pool.stop_games()
    pool.shutdown(cancel_futures=True)
    assert first.result(0) == "stopped"
    with pytest.raises(CancelledError):
        second.result(0)
    assert len(pids) == 1 and pool.pids == []
    with pytest.raises(PoolError, match="shut down"):
        pool.submit(answer, 1)


def test_a_pool_whose_processes_do_not_start_fails_its_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A module that ends every interpreter which starts with it on its path, before the pool's own code runs.
    (tmp_path / "sitecustomize.py").write_text("import os\nos._exit(9)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with (
        ProcessPool(2, environment={}) as pool,
        pytest.raises((PoolError, ProcessDiedError), match=r"did not start|ended its process"),
    ):
        pool.submit_with(5, answer, 1).result(LIMIT_SECONDS)
