"""Players and games that will not end, leave helpers, or lose their supervisor: nothing of them is left."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.runs import LIMIT_SECONDS, Run, end_marked, limits, living_with, rounds, wait_for_file
from workers.descendants import (
    end_descendants,
    living_descendants,
    open_process,
    process_table,
    read_process,
)
from workers.folders import remove_tree

HELPER = """
def helper(mark, respawn=False, deaf=True):
    # A daemon: forked twice, in a session of its own, deaf to SIGTERM; with `respawn` each copy makes the next.
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            code = ("import os, signal, sys, time\\n"
                    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\\n"
                    "open(sys.argv[1] + '.up', 'w').close()\\n"
                    "time.sleep(0.05 if sys.argv[2] == 'True' else 3600)\\n"
                    "os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable] + sys.orig_argv[1:])\\n")
            os.execv(sys.executable, [sys.executable, "-c", code, mark, str(respawn)])
        os._exit(0)
    os.wait()
    while not os.path.exists(mark + ".up"):
        time.sleep(0.01)
"""


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[str]:
    """A text in the command line of every helper of a test; none may be left, whatever the test does."""
    text = str(tmp_path / "helper")
    yield text
    left = end_marked(text)
    assert left == []


def test_player_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    run = Run(tmp_path, limits=limits(wall_seconds=0.5, grace_seconds=0.2))
    delivery = run.run("signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)")
    assert delivery.end_reason == "wall_clock"
    assert run.supervision()["playerEnded"] == "signal 9"
    assert delivery.completion.cleanup == "passed"


def test_player_that_is_stopped_is_ended_all_the_same(tmp_path: Path) -> None:
    run = Run(tmp_path, limits=limits(wall_seconds=0.5, grace_seconds=0.2))
    delivery = run.run("""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            os.kill(os.getpid(), signal.SIGSTOP)
    """)
    assert delivery.end_reason == "wall_clock"
    assert run.supervision()["playerEnded"] == "signal 9"


def test_daemon_left_by_a_finished_player_is_ended_and_named(tmp_path: Path, mark: str) -> None:
    run = Run(tmp_path)
    delivery = run.run(HELPER + f"helper({mark!r}); finish()")
    assert living_with(mark) == []
    assert len(run.supervision()["processesKilled"]) == 1
    assert run.supervision()["processesLeft"] == []
    assert delivery.completion.cleanup == "passed"
    assert "processes ended by the supervisor" in delivery.completion.observed_failure


def test_daemon_that_starts_itself_again_and_again_cannot_outrun_the_end(tmp_path: Path, mark: str) -> None:
    run = Run(tmp_path)
    delivery = run.run(HELPER + f"helper({mark!r}, respawn=True); time.sleep(0.3); finish()")
    assert living_with(mark) == []
    assert delivery.completion.outcome == "passed"
    assert delivery.completion.cleanup == "passed"


def test_grandchild_that_holds_the_output_open_does_not_hold_up_the_end(tmp_path: Path, mark: str) -> None:
    run = Run(tmp_path, limits=limits(wall_seconds=60, silence_seconds=60))
    delivery = run.run(HELPER + f"print('before'); helper({mark!r}); finish()")
    assert (delivery.end_reason, delivery.completion.outcome) == ("goal_reached", "passed")
    assert (run.folder / "player.log").read_text() == "before\n"


def test_helpers_end_with_a_player_that_hits_its_limit(tmp_path: Path, mark: str) -> None:
    run = Run(tmp_path, limits=limits(wall_seconds=1.5, grace_seconds=0.2))
    delivery = run.run(HELPER + f"helper({mark!r}, respawn=True); time.sleep(3600)")
    assert delivery.end_reason == "wall_clock"
    assert delivery.completion.cleanup == "passed"
    assert living_with(mark) == []


def test_what_cannot_be_ended_in_time_is_named_as_left(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"]) as child:
        ended = end_descendants(os.getpid(), limit_seconds=0, reap=lambda: None)
        assert any(str(child.pid) in name for name in ended.survivors)
        assert child.poll() is None
        child.kill()


def test_process_whose_number_was_given_away_gets_no_signal() -> None:
    own = read_process(os.getpid())
    assert own is not None
    somebody_before = type(own)(pid=own.pid, parent=own.parent, state="S", start="1", name="before")
    assert open_process(somebody_before) is None
    descriptor = open_process(own)
    assert descriptor is not None
    os.close(descriptor)


def test_process_table_reads_names_with_brackets_and_spaces(tmp_path: Path) -> None:
    odd = tmp_path / "a) R 1 (b"
    odd.symlink_to(sys.executable)
    with subprocess.Popen([str(odd), "-c", "input()"], stdin=subprocess.PIPE) as child:
        facts = read_process(child.pid)
        for _ in rounds(LIMIT_SECONDS, "the child did not become the odd program"):
            facts = read_process(child.pid)
            if facts is not None and facts.name == "a) R 1 (b":
                break
        assert facts is not None
        assert facts.parent == os.getpid()
        assert child.pid in {one.pid for one in living_descendants(os.getpid())}
        assert child.pid in {one.pid for one in process_table()}
        child.kill()
    assert read_process(child.pid) is None


def test_folder_that_cannot_be_removed_fails_the_cleanup(tmp_path: Path) -> None:
    """A file system is mounted in the run's temporary folder, which no process of ours can take away."""
    run = Run(tmp_path)
    target = run.folder / "tmp" / "mounted"
    mounted = False
    try:
        with run.start(
            "os.mkdir(os.environ['TMPDIR'] + '/mounted'); say('up'); sys.stdin.readline(); finish()"
        ) as process:
            wait_for_file(run.folder / "up")
            mount = subprocess.run(["mount", "-t", "tmpfs", "none", str(target)], capture_output=True, check=False)
            mounted = mount.returncode == 0
            process.terminate()
            assert process.wait(LIMIT_SECONDS) == 0
        if not mounted:
            pytest.skip(f"this user may not mount: {mount.stderr.decode()}")
        assert run.delivery().completion.cleanup == "failed"
        assert "mounted" in run.delivery().completion.observed_failure
        assert len(run.supervision()["foldersLeft"]) == 1
    finally:
        if mounted:
            subprocess.run(["umount", str(target)], check=True)


def test_removing_follows_no_link_and_opens_closed_folders(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    scratch = tmp_path / "scratch"
    (scratch / "a" / "b").mkdir(parents=True)
    (scratch / "a" / "link").symlink_to(kept)
    os.mkfifo(scratch / "a" / "b" / "pipe")
    (scratch / "a").chmod(0o400)
    assert remove_tree(scratch) == []
    assert not scratch.exists()
    assert (kept / "file").read_text() == "x"
    assert remove_tree(scratch) == []


@pytest.mark.parametrize("stopped", [False, True])
def test_player_whose_supervisor_is_killed_ends_itself_and_everything_below(
    tmp_path: Path, mark: str, stopped: bool
) -> None:
    """The real lifeline over the shipped player module; the play itself is a small program's."""
    run = Run(tmp_path)
    with run.start(f"""
        import asyncio, threading
        os.dup2(os.open("/dev/null", os.O_RDONLY), 9)
        from pathlib import Path
        from workers import player
        from workers.descendants import become_subreaper, wake_when_parent_ends
        from workers.stop import StopFlag
        wake_when_parent_ends()
        become_subreaper()
        lifeline = player._take_over_input()
        threading.Thread(
            target=player._hold_lifeline, args=(lifeline, b"", StopFlag(), Path.cwd()), daemon=True
        ).start()
        {"".join(HELPER.replace(chr(10), chr(10) + "        "))}
        helper({mark!r}, respawn=True)
        say("up", str(os.getpid()))
        if {stopped}:
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(3600)
    """) as process:
        player = int(wait_for_file(run.folder / "up"))
        if stopped:
            for _ in rounds(LIMIT_SECONDS, "the player did not stop"):
                facts = read_process(player)
                if facts is not None and facts.state == "T":
                    break
        process.kill()
        process.wait(LIMIT_SECONDS)
    for _ in rounds(LIMIT_SECONDS, "the player outlived its supervisor"):
        if read_process(player) is None and not living_with(mark):
            break
    assert not (run.folder / "tmp").exists()
    assert list((run.control / "inbox").iterdir()) == []
