"""When a player is stopped and how hard; and how much of its output is kept. No clock, no process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from workers.contract import Limits
from workers.ladder import Ladder
from workers.output import BoundedLog

LIMITS = Limits(wall_seconds=100, silence_seconds=30, output_bytes=1000, grace_seconds=10)


def test_nothing_is_due_within_the_limits() -> None:
    ladder = Ladder(LIMITS, now=0)
    for second in range(0, 100, 20):
        ladder.progressed(now=second)
        assert ladder.due(now=second + 19) is None
    assert ladder.reason is None
    assert ladder.wait_seconds(now=99, most=5) == 1


def test_steps_come_in_order_once_each_with_their_grace() -> None:
    ladder = Ladder(LIMITS, now=0)
    ladder.ask("canceled", "asked", now=1)
    seen = [(second, step) for second in range(1, 60) if (step := ladder.due(now=second)) is not None]
    assert seen == [(1, "request"), (11, "terminate"), (16, "kill")]
    assert ladder.wait_seconds(now=60, most=5) == 5


@pytest.mark.parametrize(("now", "reason"), [(30, "harness_fault"), (100, "wall_clock")])
def test_silence_and_wall_clock_give_their_reasons(now: float, reason: str) -> None:
    ladder = Ladder(LIMITS, now=0)
    if reason == "wall_clock":
        ladder.progressed(now=now - 1)
    assert ladder.due(now=now - 0.001) is None
    assert ladder.due(now=now) == "request"
    assert ladder.reason == reason


def test_output_beyond_its_limit_is_a_fault() -> None:
    ladder = Ladder(LIMITS, now=0)
    ladder.printed(1000, now=1)
    assert ladder.due(now=1) is None
    ladder.printed(1001, now=2)
    assert ladder.due(now=2) == "request"
    assert ladder.reason == "harness_fault"


def test_first_reason_stands() -> None:
    ladder = Ladder(LIMITS, now=0)
    ladder.ask("canceled", "first", now=1)
    ladder.ask("interrupted", "second", now=1)
    ladder.due(now=200)
    assert (ladder.reason, ladder.why) == ("canceled", "first")


def test_hurry_climbs_one_step_at_once() -> None:
    ladder = Ladder(LIMITS, now=0)
    ladder.hurry(now=0)
    assert ladder.due(now=0) is None
    ladder.ask("interrupted", "asked", now=1)
    assert ladder.due(now=1) == "request"
    ladder.hurry(now=1)
    assert ladder.due(now=1) == "terminate"
    ladder.hurry(now=1)
    assert ladder.due(now=1) == "kill"
    ladder.hurry(now=1)
    assert ladder.due(now=1) is None


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_log_keeps_the_beginning_the_end_and_the_count_of_what_is_missing(tmp_path: Path, step: int) -> None:
    log = BoundedLog(tmp_path / "log", head_bytes=100, tail_bytes=50)
    data = bytes(range(48, 58)) * 100
    for start in range(0, len(data), step):
        log.feed(data[start : start + step])
    assert log.last_text(10) == "0123456789"
    log.close()
    assert log.seen_bytes == 1000
    expected = data[:100] + b"\n[... 850 bytes of output are not kept ...]\n" + data[-50:]
    assert (tmp_path / "log").read_bytes() == expected


def test_short_output_is_kept_whole(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "log", head_bytes=100, tail_bytes=50)
    log.feed(b"x" * 149)
    log.close()
    assert (tmp_path / "log").read_bytes() == b"x" * 149


def test_full_disk_loses_log_lines_and_not_the_run(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "log", head_bytes=10, tail_bytes=10)
    with Path("/dev/full").open("wb", buffering=0) as full:
        os.dup2(full.fileno(), log._descriptor)
    log.feed(b"y" * 100)
    log.close()
    assert log.seen_bytes == 100
    assert (tmp_path / "log").read_bytes() == b""
