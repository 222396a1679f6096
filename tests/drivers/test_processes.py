"""Game processes are ended by the ladder, with all they started, and what they wrote last is read."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from drivers.logs import ErrorOutput, LogFolder
from drivers.processes import GameProcess, StopReport
from tests.drivers.children import ENVIRONMENT, children_of_this_process, is_alive

Result = TypeVar("Result")


class Listener:
    """What a process wrote; `line` is set at the first whole line of its output."""

    def __init__(self) -> None:
        self.output, self.errors = bytearray(), bytearray()
        self.line, self.ended = asyncio.Event(), asyncio.Event()

    def take_output(self, data: bytes) -> None:
        self.output += data
        if b"\n" in self.output:
            self.line.set()
        if not data:
            self.ended.set()


def run_script(
    script: str, directory: Path, body: Callable[[GameProcess, Listener], Awaitable[Result]]
) -> tuple[Result, StopReport]:
    async def session() -> tuple[Result, StopReport]:
        listener = Listener()
        process = GameProcess.spawn(
            [sys.executable, "-S", "-c", script],
            directory=directory,
            environment=ENVIRONMENT,
            on_output=listener.take_output,
            on_error=listener.errors.extend,
        )
        try:
            async with asyncio.timeout(20):
                result = await body(process, listener)
        finally:
            report = await process.stop(grace_seconds=0.3, terminate_seconds=0.3)
        assert await process.stop() == report
        assert not is_alive(process.pid)
        return result, report

    return asyncio.run(session())


async def until_ready(process: GameProcess, listener: Listener) -> list[int]:
    """Wait for the first line: process ids that the script tells."""
    await listener.line.wait()
    return [int(word) for word in listener.output.split()]


READY = "import os,signal,sys; print(os.getpid(), flush=True);"
IGNORE = "signal.signal(signal.SIGTERM, signal.SIG_IGN);"


@pytest.mark.parametrize(
    ("script", "how", "exit_code"),
    [
        (READY + "sys.stdin.read()", "end of input", 0),
        (READY + "sys.stdin.read(); sys.exit(4)", "end of input", 4),
        ("import signal;" + READY + "signal.pause()", "SIGTERM", -signal.SIGTERM),
        ("import signal;" + IGNORE + READY + "\nwhile True: signal.pause()", "SIGKILL", -signal.SIGKILL),
    ],
)
def test_the_ladder_stops_at_the_rung_that_is_heard(tmp_path: Path, script: str, how: str, exit_code: int) -> None:
    _, report = run_script(script, tmp_path, until_ready)
    assert report == StopReport(how=how, exit_code=exit_code, leftovers=())


def test_a_stopped_process_is_ended_too(tmp_path: Path) -> None:
    async def body(process: GameProcess, listener: Listener) -> None:
        (pid,) = await until_ready(process, listener)
        os.kill(pid, signal.SIGSTOP)

    assert run_script(READY + "sys.stdin.read()", tmp_path, body)[1].how == "SIGKILL"


HELPERS = {
    "a child in the same session": "if os.fork() == 0: tell()",
    "an orphan in the same session": "if os.fork() == 0:\n  if os.fork() == 0: tell()\n  os._exit(0)",
    "an orphan elsewhere": "if os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0: tell()\n  os._exit(0)",
}


@pytest.mark.parametrize("form", list(HELPERS))
def test_a_helper_is_found_named_and_ended(tmp_path: Path, form: str) -> None:
    script = (
        "import os, signal, sys\n"
        "def tell():\n"
        "  signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "  print(os.getpid(), flush=True)\n"
        "  while True: signal.pause()\n" + HELPERS[form] + "\nsys.stdin.read()"
    )
    (helper,), report = run_script(script, tmp_path, until_ready)
    assert report.how == "end of input"
    assert len(report.leftovers) == 1
    assert f"process {helper} (" in report.leftovers[0]
    assert not is_alive(helper)


def test_helpers_that_start_others_when_ended_are_all_gone(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "def again(*_):\n"
        "  if os.fork() == 0: os.setsid()\n"
        "signal.signal(signal.SIGTERM, again)\n"
        "if os.fork() == 0:\n"
        "  print(os.getpid(), flush=True)\n"
        "  while True: signal.pause()\n"
        "sys.stdin.read()\n"
    )
    (helper,), report = run_script(script, tmp_path, until_ready)
    assert report.leftovers
    assert not is_alive(helper)
    assert not [path for path in Path("/proc").glob("[0-9]*") if _runs_in(path, tmp_path)]


def _runs_in(process: Path, directory: Path) -> bool:
    try:
        return (process / "cwd").resolve() == directory.resolve()
    except OSError:
        return False


def test_what_a_process_wrote_before_its_end_is_drained_though_nobody_waited(tmp_path: Path) -> None:
    async def body(process: GameProcess, listener: Listener) -> None:
        await process.wait_exit(20)
        process.drain()
        assert listener.output == b"x" * 50_000
        assert process.exit_code == 0

    run_script("import sys; sys.stdout.write('x' * 50_000)", tmp_path, body)


def test_the_exit_is_seen_while_a_helper_holds_the_pipes(tmp_path: Path) -> None:
    async def body(process: GameProcess, listener: Listener) -> tuple[bool, bool]:
        return await process.wait_exit(20), listener.ended.is_set()

    script = "import os, signal\nif os.fork() == 0: signal.pause()\nos._exit(5)"
    (exited, output_ended), report = run_script(script, tmp_path, body)
    assert (exited, output_ended, report.exit_code) == (True, False, 5)
    assert len(report.leftovers) == 1


def test_writing_more_than_a_pipe_holds_waits_for_the_reader(tmp_path: Path) -> None:
    async def body(process: GameProcess, listener: Listener) -> None:
        await process.write(b"y" * 400_000 + b"\n")
        await listener.line.wait()
        assert listener.output == b"400000\n"

    run_script("import sys; print(len(sys.stdin.readline()) - 1, flush=True)", tmp_path, body)


def test_writing_to_a_process_that_is_gone_is_a_broken_pipe(tmp_path: Path) -> None:
    async def body(process: GameProcess, listener: Listener) -> None:
        await process.wait_exit(20)
        with pytest.raises(BrokenPipeError):
            await process.write(b"hello\n")
        process.close_input()
        with pytest.raises(BrokenPipeError):
            await process.write(b"hello\n")

    run_script("pass", tmp_path, body)


def test_a_stop_that_is_cancelled_kills_at_once(tmp_path: Path) -> None:
    async def body() -> tuple[int, bool]:
        listener = Listener()
        process = GameProcess.spawn(
            [sys.executable, "-S", "-c", "import signal;" + IGNORE + READY + "\nwhile True: signal.pause()"],
            directory=tmp_path,
            environment=ENVIRONMENT,
            on_output=listener.take_output,
            on_error=listener.errors.extend,
        )
        (pid,) = await until_ready(process, listener)
        stopping = asyncio.ensure_future(process.stop(grace_seconds=600))
        asyncio.get_running_loop().call_soon(stopping.cancel)
        with pytest.raises(asyncio.CancelledError):
            await stopping
        return pid, is_alive(pid)

    _, alive = asyncio.run(body())
    assert not alive
    assert children_of_this_process() == []


def test_a_command_that_cannot_be_executed_leaves_no_process(tmp_path: Path) -> None:
    async def body() -> None:
        with pytest.raises(OSError, match="No such file"):
            GameProcess.spawn(
                [str(tmp_path / "nothing")],
                directory=tmp_path,
                environment={},
                on_output=lambda data: None,
                on_error=lambda data: None,
            )

    asyncio.run(body())
    assert children_of_this_process() == []


# -- the log ----------------------------------------------------------------------------------------------------------


def test_equal_lines_in_a_row_are_folded_and_others_capped_and_counted() -> None:
    folder = LogFolder()
    for _ in range(1_000):
        folder.add("warning", "again", "stderr")
    for number in range(300):
        folder.add("warning", f"line {number}", "stderr")
    rows = folder.take()
    assert (rows[0].text, rows[0].count) == ("again", 1_000)
    assert len(rows) == 200
    assert (folder.total, folder.dropped) == (1_300, 101)
    assert folder.take() == ()


def test_the_tail_is_the_end_of_the_output_however_it_arrives() -> None:
    data = "".join(f"line {number} é\n" for number in range(5_000)).encode()
    for size in (1, 7, 4_096, len(data)):
        output = ErrorOutput(LogFolder())
        for start in range(0, len(data), size):
            output.feed(data[start : start + size])
        assert output.tail.endswith("line 4999 é")
        assert output.tail.startswith("line ")
        assert len(output.tail) <= 4_096


def test_a_line_without_an_end_is_bounded_and_counted_once() -> None:
    folder = LogFolder()
    output = ErrorOutput(folder)
    for _ in range(100):
        output.feed(b"x" * 100_000)
    output.end()
    (row,) = folder.take()
    assert row.text == "x" * 500


def test_lines_that_speak_of_errors_are_errors_and_others_warnings() -> None:
    folder = LogFolder()
    ErrorOutput(folder).feed(b"ValueError: no\nTraceback (most recent call last):\nfatal: gone\nloading terror.png\n")
    assert [row.level for row in folder.take()] == ["warning", "error", "error", "warning"]
