"""The supervisor over real player processes: what it starts, what it enforces, what it delivers."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.workers.runs import KEY, LIMIT_SECONDS, Run, limits, living_with, rounds, wait_for_file
from workers.contract import ENVIRONMENT_ALLOWED, Begun

LOADED = {"PATH": os.environ["PATH"], "LC_TIME": "C", "PLAYLANE_TOKEN": "account-token-123", "AWS_SECRET": "xyz"}


def test_result_of_the_player_is_delivered_with_its_artefacts(tmp_path: Path) -> None:
    run = Run(tmp_path)
    delivery = run.run("""
        open("report.json", "w").write("{}")
        progress(1)
        finish(artefacts=["report.json"])
    """)
    assert (delivery.end_reason, delivery.completion.outcome, delivery.completion.cleanup) == (
        "goal_reached", "passed", "passed",
    )  # fmt: skip
    assert delivery.stop is None
    first = delivery.artefacts[0]
    assert first.path == "control/runs/r1/report.json"
    assert (first.bytes, first.sha256) == (2, hashlib.sha256(b"{}").hexdigest())
    assert delivery.completion.evidence_paths == [one.path for one in delivery.artefacts]
    for one in delivery.artefacts:
        assert hashlib.sha256((tmp_path / one.path).read_bytes()).hexdigest() == one.sha256


def test_begun_names_the_supervisor_before_the_player_runs(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with run.start("""
        say("seen", open("begun").read())
        finish()
    """) as process:
        begun = msgspec.json.decode(wait_for_file(run.folder / "seen"), type=Begun)
        assert begun.pid == process.pid
        assert process.wait(LIMIT_SECONDS) == 0
    assert begun.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert int(begun.process_start) > 0


def test_run_that_was_begun_is_never_begun_again(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.run("finish()")
    before = (run.folder / "begun").read_bytes()
    with run.start("open('played-twice', 'w')", stderr=subprocess.DEVNULL) as second:
        assert second.wait(LIMIT_SECONDS) == 73
    assert not (run.folder / "played-twice").exists()
    assert (run.folder / "begun").read_bytes() == before
    assert len(list((run.control / "inbox").iterdir())) == 1


def test_two_workers_on_one_job_begin_it_once(tmp_path: Path) -> None:
    run = Run(tmp_path)
    player = "open('played-%d' % os.getpid(), 'w'); finish()"
    with run.start(player, stderr=subprocess.DEVNULL) as one, run.start(player, stderr=subprocess.DEVNULL) as two:
        assert sorted([one.wait(LIMIT_SECONDS), two.wait(LIMIT_SECONDS)]) == [0, 73]
    assert len(list(run.folder.glob("played-*"))) == 1
    assert run.delivery().completion.outcome == "passed"


def test_player_gets_the_job_without_its_key(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.run("""
        say("order", json.dumps(job))
        finish()
    """)
    order = json.loads((run.folder / "order").read_text())
    assert order["key"] == ""
    assert order["reservationId"] == "r1"


def test_player_sees_only_the_allowed_environment_and_a_home_of_its_own(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.run("say('env', json.dumps(dict(os.environ))); finish()", env=LOADED)
    seen = json.loads((run.folder / "env").read_text())
    assert {name for name in seen if name != "LC_CTYPE"} == {"PATH", "LC_TIME", "HOME", "TMPDIR"}
    assert set(LOADED) & set(seen) <= ENVIRONMENT_ALLOWED | {"LC_TIME"}
    assert (seen["HOME"], seen["TMPDIR"]) == (str(run.folder / "home"), str(run.folder / "tmp"))


def test_secrets_stand_in_no_command_line_and_no_environment(tmp_path: Path) -> None:
    run = Run(tmp_path, secrets=["SERVICE_TOKEN"])
    token = "very-secret-token-8812"
    with run.start("say('up'); time.sleep(60)", secrets={"SERVICE_TOKEN": token}, env=LOADED) as process:
        wait_for_file(run.folder / "up")
        looked = 0
        for folder in Path("/proc").glob("[0-9]*"):
            for name in ("cmdline", "environ"):
                try:
                    content = (folder / name).read_bytes()
                except OSError:
                    continue
                assert KEY.encode() not in content
                assert token.encode() not in content
                looked += 1
        assert looked > 4
        process.terminate()
        assert process.wait(LIMIT_SECONDS) == 0
    assert all(token.encode() not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_everything_in_the_run_is_private_and_no_core_is_dumped(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.run("""
        import resource
        os.mkdir("shots")
        open("shots/one", "w").write("x")
        say("limits", json.dumps(resource.getrlimit(resource.RLIMIT_CORE)))
        finish(artefacts=["shots/one"])
    """)
    assert json.loads((run.folder / "limits").read_text()) == [0, 0]
    for path in [run.folder, *run.folder.rglob("*"), *(run.control / "inbox").iterdir()]:
        assert stat.S_IMODE(path.lstat().st_mode) & 0o077 == 0, path


def test_supervisor_and_player_lead_sessions_of_their_own(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with run.start("say('sid', f'{os.getsid(0)} {os.getsid(os.getppid())} {os.getppid()}'); finish()") as process:
        assert process.wait(LIMIT_SECONDS) == 0
    player, supervisor, parent = map(int, (run.folder / "sid").read_text().split())
    assert supervisor == parent == process.pid
    assert player not in (supervisor, os.getsid(0))


def test_scratch_folders_are_gone_after_the_run(tmp_path: Path) -> None:
    run = Run(tmp_path)
    delivery = run.run("""
        os.makedirs(os.environ["TMPDIR"] + "/deep/er")
        open(os.environ["HOME"] + "/profile", "w").write("x")
        os.symlink("/etc", os.environ["TMPDIR"] + "/link")
        os.chmod(os.environ["TMPDIR"] + "/deep/er", 0)
        os.chmod(os.environ["TMPDIR"] + "/deep", 0o500)
        finish()
    """)
    assert not (run.folder / "tmp").exists()
    assert not (run.folder / "home").exists()
    assert Path("/etc/passwd").exists()
    assert delivery.completion.cleanup == "passed"


def test_player_that_dies_without_a_result_is_a_harness_fault_with_its_last_words(tmp_path: Path) -> None:
    run = Run(tmp_path)
    delivery = run.run("""
        open("half-a-transcript.jsonl", "w").write("{}\\n")
        raise RuntimeError("the brain fell out")
    """)
    assert (delivery.end_reason, delivery.completion.outcome) == ("harness_fault", "failed")
    assert "exit code 1" in delivery.completion.observed_failure
    assert "RuntimeError: the brain fell out" in delivery.completion.observed_failure
    assert "control/runs/r1/half-a-transcript.jsonl" in delivery.completion.evidence_paths
    assert delivery.completion.usage == {"costUsd": None, "tokens": None, "coverage": "unknown"}


def test_result_that_does_not_have_its_form_is_no_result(tmp_path: Path) -> None:
    delivery = Run(tmp_path).run("""open("result.json", "w").write('{"outcome": "passed"}')""")
    assert (delivery.end_reason, delivery.completion.outcome) == ("harness_fault", "failed")


def test_artefacts_that_are_missing_linked_or_outside_are_named_not_delivered(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("not of this run")
    delivery = Run(tmp_path).run("""
        os.symlink("../../../outside", "link")
        open("one", "w").write("x")
        os.link("one", "two")
        os.mkfifo("pipe")
        finish(artefacts=["missing", "link", "../../../outside", "one", "pipe", "/etc/passwd"])
    """)
    assert {Path(one.path).name for one in delivery.artefacts} == {"supervision.json", "player.log"}
    for name in ("missing", "link", "outside", "one", "pipe", "passwd"):
        assert name in delivery.completion.observed_failure


@pytest.mark.parametrize(("reason", "given"), [("canceled", "canceled"), ("interrupted", "interrupted")])
def test_stop_file_ends_the_run_with_its_reason(tmp_path: Path, reason: str, given: str) -> None:
    run = Run(tmp_path)
    with run.start("""
        say("up")
        wish = json.loads(sys.stdin.readline())["stop"]
        finish(endReason=wish, outcome=wish, partial=True)
    """) as process:
        wait_for_file(run.folder / "up")
        (run.folder / "stop").write_text(json.dumps({"reason": reason}))
        assert process.wait(LIMIT_SECONDS) == 0
    assert (run.delivery().end_reason, run.delivery().completion.outcome) == (given, given)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_to_the_supervisor_interrupts_the_run_and_it_is_delivered(tmp_path: Path, number: int) -> None:
    run = Run(tmp_path, limits=limits())
    with run.start("say('up'); time.sleep(60)") as process:
        wait_for_file(run.folder / "up")
        process.send_signal(number)
        assert process.wait(LIMIT_SECONDS) == 0
    assert (run.delivery().end_reason, run.delivery().completion.outcome) == ("interrupted", "interrupted")


def test_each_further_signal_climbs_at_once(tmp_path: Path) -> None:
    run = Run(tmp_path, limits=limits(grace_seconds=3600))
    with run.start("signal.signal(signal.SIGTERM, signal.SIG_IGN); say('up'); time.sleep(3600)") as process:
        wait_for_file(run.folder / "up")
        for _ in rounds(LIMIT_SECONDS, "the supervisor did not end"):
            process.send_signal(signal.SIGINT)
            if process.poll() is not None:
                break
    assert process.returncode == 0
    assert run.delivery().end_reason == "interrupted"
    assert run.supervision()["playerEnded"] == "signal 9"


def test_wall_clock_limit_ends_a_player_that_only_makes_progress(tmp_path: Path) -> None:
    run = Run(tmp_path, limits=limits(wall_seconds=1, silence_seconds=20))
    delivery = run.run("""
        open("transcript.jsonl", "w").write("{}\\n")
        for step in range(10000):
            progress(step)
            time.sleep(0.01)
    """)
    assert (delivery.end_reason, delivery.completion.outcome) == ("wall_clock", "failed")
    assert "control/runs/r1/transcript.jsonl" in delivery.completion.evidence_paths
    assert run.supervision()["stoppedFor"] == "wall_clock"


def test_player_that_reports_when_the_wall_clock_strikes_keeps_its_outcome(tmp_path: Path) -> None:
    run = Run(tmp_path, limits=limits(wall_seconds=0.5, grace_seconds=10))
    delivery = run.run("""
        wish = json.loads(sys.stdin.readline())["stop"]
        finish(endReason=wish, outcome="passed", partial=True)
    """)
    assert (delivery.end_reason, delivery.completion.outcome) == ("wall_clock", "passed")


def test_silence_of_the_progress_file_ends_the_run(tmp_path: Path) -> None:
    run = Run(tmp_path, limits=limits(silence_seconds=0.7))
    delivery = run.run("progress(1); time.sleep(60)")
    assert delivery.end_reason == "harness_fault"
    assert "no progress for 0.7 s" in delivery.completion.observed_failure


def test_flood_of_output_is_drained_counted_and_stopped_at_its_limit(tmp_path: Path) -> None:
    run = Run(tmp_path, limits=limits(output_bytes=40 << 20))
    delivery = run.run("""
        block = b"x" * (1 << 20)
        for _ in range(1024):
            sys.stderr.buffer.write(block)
        finish()
    """)
    assert delivery.end_reason == "harness_fault"
    assert "more than 41943040 bytes of output" in delivery.completion.observed_failure
    assert 40 << 20 < run.supervision()["outputBytes"] < 1 << 30
    assert (run.folder / "player.log").stat().st_size < 1 << 20


def test_flood_below_the_limit_neither_blocks_nor_fills_the_disk(tmp_path: Path) -> None:
    run = Run(tmp_path, limits=limits(output_bytes=1 << 30))
    delivery = run.run("""
        print("first line", flush=True)
        for _ in range(64):
            sys.stdout.buffer.write(b"y" * (1 << 20))
        print("\\nlast line", flush=True)
        finish()
    """)
    assert delivery.completion.outcome == "passed"
    log = (run.folder / "player.log").read_bytes()
    assert len(log) < 1 << 20
    assert log.startswith(b"first line\n")
    assert log.endswith(b"\nlast line\n")
    assert b"bytes of output are not kept" in log
    assert run.supervision()["outputBytes"] == len("first line\n\nlast line\n") + (64 << 20)


def test_supervisor_outlives_whoever_started_it_and_its_closed_pipes(tmp_path: Path) -> None:
    """The starter is killed by kill -9 while the run plays; its pipes break; the run ends and is delivered."""
    run = Run(tmp_path)
    script = tmp_path / "player-r1.py"
    starter = tmp_path / "starter.py"
    starter.write_text(
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "import subprocess\n"
        "from tests.workers.runs import Run\n"
        "process = Run(Path(sys.argv[2])).start(Path(sys.argv[3]).read_text(), stdout=subprocess.PIPE,"
        " stderr=subprocess.PIPE)\n"
        "process.wait()\n"
    )
    lines = tmp_path / "lines.py"
    lines.write_text("""
say("up")
while not os.path.exists("go"):
    time.sleep(0.01)
print("a line for the log")
finish()
""")
    here = str(Path(__file__).parents[2])
    with subprocess.Popen([sys.executable, "-P", str(starter), here, str(tmp_path), str(lines)]) as process:
        wait_for_file(run.folder / "up")
        process.kill()
        process.wait(LIMIT_SECONDS)
    (run.folder / "go").write_text("")
    for _ in rounds(LIMIT_SECONDS, "nothing was delivered"):
        if any(path.suffix == ".json" for path in (run.control / "inbox").iterdir()):
            break
    assert run.delivery().completion.outcome == "passed"
    for _ in rounds(LIMIT_SECONDS, "a process was left"):
        if not living_with(str(script)):
            break


def test_folder_of_the_run_that_is_a_link_is_refused(tmp_path: Path) -> None:
    run = Run(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    run.folder.symlink_to(elsewhere)
    with run.start("finish()", stderr=subprocess.DEVNULL) as process:
        assert process.wait(LIMIT_SECONDS) != 0
    assert list(elsewhere.iterdir()) == []
