"""`terminal` on small games that each do one thing: how answers end, what is seen, how games die."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from drivers.base import Action, Launch, Observation, Recording
from drivers.errors import DriverStartError, GameEndedError, GameUnresponsiveError
from drivers.keys import KEYBOARD, key_bytes
from drivers.screen import GameScreen
from drivers.terminal import MAX_COMMAND_CHARACTERS, TerminalDriver
from tests.drivers.children import ENVIRONMENT, is_alive

GAMES = Path(__file__).parent / "terminals"
Result = TypeVar("Result")


def settings(game: str, *arguments: str, **more: Any) -> dict[str, Any]:
    return {"command": [sys.executable, str(GAMES / game), *arguments], "startup_timeout_ms": 60_000, **more}


def play(
    directory: Path, given: dict[str, Any], body: Callable[[TerminalDriver, Observation], Awaitable[Result]]
) -> tuple[Result, TerminalDriver, Recording]:
    async def session() -> tuple[Result, TerminalDriver, Recording]:
        driver = TerminalDriver()
        launch = Launch(settings=given, directory=directory, seed=7, environment=ENVIRONMENT)
        try:
            result = await body(driver, await driver.start(launch))
        finally:
            recording = await driver.stop("end of test")
        return result, driver, recording

    return asyncio.run(session())


async def type_line(driver: TerminalDriver, text: str) -> Observation:
    result = await driver.act(Action(kind="command", text=text))
    assert result.status == "done"
    return result.observation


def texts(directory: Path, given: dict[str, Any], *lines: str) -> list[str]:
    """What is seen at the start and after each line."""

    async def body(driver: TerminalDriver, first: Observation) -> list[str]:
        return [first.text, *[(await type_line(driver, line)).text for line in lines]]

    return play(directory, given, body)[0]


def test_an_answer_is_what_was_printed_since_the_line_without_its_echo(tmp_path: Path) -> None:
    first, up, again = texts(tmp_path, settings("lines.py", "0"), "up", "up")
    assert first == "A counter stands at 49.\n>"
    assert (up, again) == ("The counter stands at 50.\n>", "The counter stands at 51.\n>")


def test_a_slow_answer_is_waited_for_to_its_end_by_silence_alone(tmp_path: Path) -> None:
    assert texts(tmp_path, settings("lines.py"), "slow")[1] == "This is said letter by letter.\n>"


def test_a_prompt_ends_an_answer_before_the_silence(tmp_path: Path) -> None:
    given = settings("lines.py", prompt="^> $", silence_ms=10_000, step_timeout_ms=60_000)

    async def body(driver: TerminalDriver, first: Observation) -> float:
        began = asyncio.get_running_loop().time()
        for _ in range(3):
            assert (await type_line(driver, "up")).text.startswith("The counter")
        return asyncio.get_running_loop().time() - began

    # By silence the three answers would take thirty seconds.
    assert play(tmp_path, given, body)[0] < 20


def test_lines_that_were_wrapped_at_the_edge_are_whole_again(tmp_path: Path) -> None:
    long = texts(tmp_path, settings("lines.py"), "long")[1]
    assert long.splitlines()[0] == " ".join(f"word{number}" for number in range(40))


def test_an_echo_longer_than_the_screen_is_wide_is_taken_away_whole(tmp_path: Path) -> None:
    line = "y" * 300
    assert texts(tmp_path, settings("lines.py"), line)[1] == f"I do not know {line!r}.\n>"


def test_a_line_editor_is_told_apart_from_a_game_of_keys(tmp_path: Path) -> None:
    async def body(driver: TerminalDriver, first: Observation) -> list[str]:
        assert first.controls == ()
        return [(await type_line(driver, line)).text for line in ("hello", "hello again")]

    assert play(tmp_path, settings("edited.py"), body)[0] == ["You said hello.\n>", "You said hello again.\n>"]


def test_a_game_of_keys_shows_its_whole_screen_and_the_keyboard(tmp_path: Path) -> None:
    async def body(driver: TerminalDriver, first: Observation) -> None:
        assert first.text.splitlines() == ["Keys: h left, l right, q: quit", "", "", "", "", " " * 10 + "@"]
        assert [control.name for control in first.controls] == list(KEYBOARD)
        assert {control.role for control in first.controls} == {"key"}
        moved = (await driver.act(Action(kind="press", key="l"))).observation
        assert moved.text.splitlines()[5] == " " * 11 + "@"
        far = (await driver.act(Action(kind="press", key="Right"))).observation
        assert far.text.splitlines()[5] == " " * 16 + "@"
        same = (await driver.act(Action(kind="press", key="x"))).observation
        assert same.frame_hash == far.frame_hash
        gone = (await driver.act(Action(kind="press", key="q"))).observation
        assert (gone.done, gone.outcome, gone.controls) == (True, "the program ended", ())

    play(tmp_path, settings("keys.py"), body)


def test_an_uncaught_error_is_a_crash_with_its_traceback(tmp_path: Path) -> None:
    async def body(driver: TerminalDriver, first: Observation) -> GameEndedError:
        with pytest.raises(GameEndedError) as ended:
            await type_line(driver, "raise")
        return ended.value

    error = play(tmp_path, settings("lines.py"), body)[0]
    assert error.exit_code == 1 and "RuntimeError: the counter is jammed" in error.tail
    assert 'lines.py", line' in error.tail


def test_a_signal_is_a_crash(tmp_path: Path) -> None:
    async def body(driver: TerminalDriver, first: Observation) -> int | None:
        with pytest.raises(GameEndedError) as ended:
            await type_line(driver, "signal")
        return ended.value.exit_code

    assert play(tmp_path, settings("lines.py"), body)[0] == -11


def test_leaving_with_any_exit_code_is_an_end_and_no_crash(tmp_path: Path) -> None:
    async def body(driver: TerminalDriver, first: Observation) -> None:
        end = await type_line(driver, "leave")
        assert (end.done, end.outcome) == (True, "the program ended (exit code 3)")
        assert end.text.startswith("Goodbye.")
        refused = await driver.act(Action(kind="command", text="up"))
        assert (refused.status, refused.detail) == ("illegal", "the game is over")

    play(tmp_path, settings("lines.py"), body)


def test_reload_starts_the_same_game_again_in_a_fresh_folder(tmp_path: Path) -> None:
    async def body(driver: TerminalDriver, first: Observation) -> None:
        before = await type_line(driver, "where")
        await type_line(driver, "leave")
        assert await driver.reload() == first
        after = await type_line(driver, "where")
        assert before.text != after.text

    play(tmp_path, settings("lines.py", "{seed}"), body)


def test_the_game_has_a_terminal_of_its_own_and_a_home_in_its_session(tmp_path: Path) -> None:
    told = texts(tmp_path, settings("lines.py"), "where")[1]
    home = tmp_path / "terminal-1"
    assert f"cwd={home} home={home} term=linux tty=True" in told and "ctty=True" in told
    assert home.stat().st_mode & 0o077 == 0


def test_the_seed_is_in_the_command_and_a_game_without_one_says_so(tmp_path: Path) -> None:
    async def body(driver: TerminalDriver, first: Observation) -> str:
        return first.text

    (tmp_path / "a").mkdir()
    text, driver, _ = play(tmp_path / "a", settings("lines.py", "{seed}"), body)
    assert text.startswith("A counter stands at 41.")
    assert driver.facts["seed_control"] == "seed given in the command" and driver.facts["seed_confirmed"] is False
    (tmp_path / "b").mkdir()
    _, driver, _ = play(tmp_path / "b", settings("lines.py"), body)
    assert driver.facts["seed_control"] == "seed not controlled" and driver.facts["seed_confirmed"] is None


def test_a_game_that_does_not_read_any_more_is_unresponsive_within_the_limit(tmp_path: Path) -> None:
    async def body(driver: TerminalDriver, first: Observation) -> None:
        await type_line(driver, "hang")
        with pytest.raises(GameUnresponsiveError):
            await type_line(driver, "up")
        with pytest.raises(GameUnresponsiveError):
            await driver.observe()

    play(tmp_path, settings("lines.py", step_timeout_ms=1_000), body)


def test_a_flood_is_bounded_and_said(tmp_path: Path) -> None:
    async def body(driver: TerminalDriver, first: Observation) -> Observation:
        return await type_line(driver, "flood")

    seen = play(tmp_path, settings("lines.py", step_timeout_ms=60_000), body)[0]
    assert len(seen.text) <= 8_000 and seen.cut
    assert ["more than 1048576 bytes" in line.text for line in seen.log] == [True]


def test_hostile_sequences_do_no_more_than_draw(tmp_path: Path) -> None:
    _, hostile, after = texts(tmp_path, settings("lines.py"), "hostile", "up")
    assert "</script>red" in hostile and "\x1b" not in hostile and "\x00" not in hostile
    # The terminal answered a question about itself; the game took that as the start of the next line.
    assert "up" in after or "stands" in after


def test_a_helper_that_left_the_session_is_ended_and_named(tmp_path: Path) -> None:
    async def body(driver: TerminalDriver, first: Observation) -> None:
        await type_line(driver, "helper")

    recording = play(tmp_path, settings("lines.py"), body)[2]
    assert len(recording.leftovers) == 1 and "sleep 600" in recording.leftovers[0]
    assert not is_alive(int(recording.leftovers[0].split()[1]))


def test_what_no_terminal_can_type_is_refused_and_the_game_is_untouched(tmp_path: Path) -> None:
    async def body(driver: TerminalDriver, first: Observation) -> None:
        for action in (
            Action(kind="command", text="z" * (MAX_COMMAND_CHARACTERS + 1)),
            Action(kind="press", key="Hyper"),
        ):
            assert (await driver.act(action)).status == "illegal"
        assert (await driver.observe()).frame_hash == first.frame_hash
        # A control code in a line would be a key: the end of file, an interrupt.
        assert "I do not know" in (await type_line(driver, "a\x04b\x03")).text

    play(tmp_path, settings("lines.py"), body)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"command": ["no-such-game-anywhere"]}, "was not found"),
        ({"command": []}, "command is empty"),
        ({"command": ["sh"], "prompt": "("}, "no regular expression"),
        ({"command": ["sh"], "silence_ms": 1}, "silence_ms = 1"),
        ({"command": ["sh"], "speed": 3}, "speed"),
        ({"command": ["sh", "-c", "echo broken; exit 4"]}, "exit code 4"),
        ({"command": ["sh"], "cwd": "/no/such/folder"}, "folder does not exist"),
    ],
)
def test_a_start_that_fails_says_what_and_why(tmp_path: Path, given: dict[str, Any], told: str) -> None:
    async def body(driver: TerminalDriver, first: Observation) -> None:
        return None

    with pytest.raises(DriverStartError, match=told):
        play(tmp_path, given, body)


def test_keys_send_what_a_terminal_sends() -> None:
    assert [key_bytes(key) for key in ("Up", "Enter", "a", "Ctrl+C", "é", "Hyper", "")] == [
        b"\x1b[A", b"\r", b"a", b"\x03", "é".encode(), None, None,
    ]  # fmt: skip
    assert all(key_bytes(key) for key in KEYBOARD)


def test_a_screen_reads_the_same_in_any_cutting_of_its_bytes() -> None:
    raw = "one\r\ntwo é 漢字\r\n\x1b[2J\x1b[3;5Hthree\x1b[31m!\x1b[0m".encode() + b"\xff end"
    whole = GameScreen(40, 8)
    whole.feed(raw)
    bytewise = GameScreen(40, 8)
    for index in range(len(raw)):
        bytewise.feed(raw[index : index + 1])
    assert whole.picture() == bytewise.picture() == "\n\n    three!\ufffd end"
    assert whole.position == bytewise.position and whole.is_addressed
