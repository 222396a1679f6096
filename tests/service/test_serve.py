"""`coordinate serve` as a real process: its address, its tokens, its price, its end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.client import AuthenticationError
from coordinator.errors import InvalidInputError
from coordinator.service.audit import inconsistencies
from coordinator.service.ledger import Ledger
from coordinator.service.remote import RemoteService
from coordinator.serving import is_loopback, read_price, read_tokens
from tests.cli.command import command_line, coordinate
from tests.service.stage import body_of, plan, played, refused, run

TOKEN = "team-token-0123456789"
OTHER = "second-token-987654321"
LIMIT_SECONDS = 60


def token_file(folder: Path, text: str = f"{TOKEN}\n\n  {OTHER}  \n", mode: int = 0o600) -> Path:
    path = folder / "tokens.txt"
    path.write_text(text)
    path.chmod(mode)
    return path


class Serving:
    def __init__(self, process: subprocess.Popen[str], first_line: str) -> None:
        self.process, self.first_line = process, first_line
        self.address = first_line.split()[-1]

    def ended(self, number: signal.Signals) -> tuple[int, str]:
        self.process.send_signal(number)
        output, errors = self.process.communicate(timeout=LIMIT_SECONDS)
        assert errors == ""
        return self.process.returncode, output


@contextlib.contextmanager
def serving(folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> Iterator[Serving]:
    """A server that was started and has said its first line; ended at the latest when the block ends."""
    process = subprocess.Popen(
        command_line("serve", "--project", str(folder), *arguments),
        env={**os.environ, "NO_COLOR": "1", **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate(timeout=LIMIT_SECONDS)[1]
        yield Serving(process, line)
    finally:
        process.kill()
        process.communicate(timeout=LIMIT_SECONDS)


def test_a_team_buys_at_the_flat_price_and_the_first_signal_ends_the_server(tmp_path: Path) -> None:
    async def buy(address: str) -> None:
        service = RemoteService(address, "cavern", OTHER)
        quote = await service.estimate(plan())
        assert (quote.estimate_cents, quote.balance_cents) == (50, 100)
        assert (await service.estimate(plan(run_length="long"))).estimate_cents == 150
        batch = await service.estimate(plan(modules=["balance_sim"], personas=[], controllers=None))
        assert (batch.estimate_cents, batch.execution_mode) == (7, "direct_command_batch")
        assert batch.simulation_limits == {"wall_seconds": 900.0}
        assert [(row.unit, row.count, row.unit_cents) for row in batch.breakdown] == [("playtest_run", 1, 7)]
        job = await service.register("key-1", body_of(50))
        await service.complete(job.job_id, job.runs[0].run_id, played(1))
        await service.complete(job.job_id, job.runs[1].run_id, played(report=None))
        found = await service.finish(job.job_id)
        assert (found.state, found.refunded_cents) == ("succeeded", 25)
        with refused(402, "insufficient_balance"):
            await service.register("key-2", body_of(150, plan(run_length="long")))
        await service.close()

    async def look(address: str, token: str) -> None:
        service = RemoteService(address, "cavern", token)
        try:
            await service.pack()
        finally:
            await service.close()

    with serving(
        tmp_path,
        *("--game", "cavern", "--price-per-run", "0.25", "--price-per-simulation", "0.07", "--balance", "1"),
        *("--token-file", str(token_file(tmp_path))),
    ) as server:
        assert server.process.stdout is not None
        assert server.first_line == "$1.00 to be spent, $0.00 held, $0.00 spent\n"
        line = server.process.stdout.readline()
        address = line.split()[-1]
        assert line == f"serving cavern at {address}\n"
        assert address.startswith("http://127.0.0.1:")
        run(buy(address))
        run(look(address, TOKEN))
        with pytest.raises(AuthenticationError):
            run(look(address, TOKEN[:-1]))
        raised = coordinate("serve", "--balance", "9", "--project", str(tmp_path), cwd=tmp_path)
        assert (raised.code, raised.out) == (0, "$8.75 to be spent, $0.00 held, $0.25 spent\n")
        code, output = server.ended(signal.SIGTERM)
        assert (code, output.splitlines()[-1]) == (0, "ended")
        assert TOKEN not in output
    ledger_path = tmp_path / ".playlane" / "served.sqlite"
    assert stat.S_IMODE(ledger_path.stat().st_mode) == 0o600
    ledger = Ledger(ledger_path, read_only=True)
    assert (inconsistencies(ledger), ledger.balances().spent) == ([], 250_000)
    ledger.close()


def test_the_token_of_the_environment_works_and_json_tells_the_address(tmp_path: Path) -> None:
    arguments = ("--game", "a", "--game", "b", "--price-per-run", "0.01", "--token-env", "TEAM", "--json")
    with serving(tmp_path, *arguments, environment={"TEAM": TOKEN}) as server:
        assert server.process.stdout is not None
        lines = [server.first_line]
        while lines[-1] != "}\n":
            lines.append(server.process.stdout.readline())
        document = json.loads("".join(lines))
        assert document["games"] == ["a", "b"]

        async def look() -> None:
            for game in ("a", "b"):
                service = RemoteService(document["address"], game, TOKEN)
                assert (await service.pack()).routing.controller_plans
                await service.close()

        run(look())
        server.process.send_signal(signal.SIGINT)
        output, errors = server.process.communicate(timeout=LIMIT_SECONDS)
        assert (server.process.returncode, output) == (0, "")
        assert TOKEN not in errors


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (["--price-per-run", "0"], "at least $0.01"),
        (["--price-per-run", "0.005"], "whole cents"),
        (["--price-per-run", "0.015"], "whole cents"),
        (["--price-per-run", "-1"], "--price-per-run"),
        (["--price-per-run", "nan"], "not an amount"),
        (["--price-per-run", "1e2"], "not an amount"),
        (["--price-per-run", "99999999999"], "not an amount"),
        (["--price-per-long-run", "0"], "--price-per-long-run"),
        (["--price-per-simulation", "0.00"], "--price-per-simulation"),
        (["--game", ".."], "game's id"),
        (["--game", "a/b"], "game's id"),
        (["--host", "no such host"], "no address"),
        (["--port", "70000"], "70000"),
        (["--token-env", "PLAYLANE_NO_SUCH_VARIABLE"], "not set"),
        (["--token-file", "missing.txt"], "missing.txt"),
    ],
)
def test_serve_refuses_what_it_could_not_stand_by(tmp_path: Path, change: list[str], said: str) -> None:
    usual = ["--game", "cavern", "--price-per-run", "0.25", "--token-file", str(token_file(tmp_path))]
    found = coordinate("serve", "--project", str(tmp_path), *usual, *change, cwd=tmp_path)
    assert found.code == 3
    assert said in found.err
    assert TOKEN not in found.err


@pytest.mark.parametrize(
    "arguments", [[], ["--game", "a"], ["--price-per-run", "1"], ["--game", "a", "--balance", "1"]]
)
def test_serve_needs_a_game_and_a_price_or_a_balance_alone(tmp_path: Path, arguments: list[str]) -> None:
    found = coordinate("serve", "--project", str(tmp_path), *arguments, cwd=tmp_path)
    assert found.code == 3
    assert "--balance alone" in found.err
    assert not (tmp_path / ".playlane").exists()


def test_serve_without_a_token_is_refused(tmp_path: Path) -> None:
    found = coordinate("serve", "--project", str(tmp_path), "--game", "a", "--price-per-run", "1", cwd=tmp_path)
    assert found.code == 3
    assert "--token-file" in found.err


def test_a_port_in_use_is_refused_with_its_number(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        usual = ["--game", "a", "--price-per-run", "1", "--token-file", str(token_file(tmp_path)), "--port", port]
        found = coordinate("serve", "--project", str(tmp_path), *usual, cwd=tmp_path)
    assert found.code == 3
    assert f"port {port}" in found.err


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        (f"{TOKEN}\n", 0o640, "chmod 600"),
        (f"{TOKEN}\n", 0o604, "chmod 600"),
        ("short\n", 0o600, "token 1 is not usable"),
        ("has a space in it it has\n", 0o600, "token 1 is not usable"),
        ("tökens-are-not-this-kind\n", 0o600, "not ASCII"),
        ("\n\n", 0o600, "no token"),
        ("x" * 70_000, 0o600, "more than"),
    ],
)
def test_a_token_file_that_is_open_to_others_or_holds_no_token_is_refused(
    tmp_path: Path, text: str, mode: int, said: str
) -> None:
    path = token_file(tmp_path, text, mode)
    with pytest.raises(Exception, match=said) as found:
        read_tokens(str(path), None)
    assert text.strip() == "" or text.strip() not in str(found.value)


def test_a_token_of_the_environment_is_taken_out_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEAM", TOKEN)
    assert read_tokens(None, "TEAM") == (TOKEN,)
    assert "TEAM" not in os.environ


def test_prices_are_whole_cents() -> None:
    assert [read_price(text, "price") for text in ("0.01", "2", "$0.25")] == [10_000, 2_000_000, 250_000]
    with pytest.raises(InvalidInputError):
        read_price("0", "price")


def test_only_addresses_of_this_machine_are_loopback() -> None:
    ours, others = ("127.0.0.1", "127.8.8.8", "::1", "localhost"), ("0.0.0.0", "::", "10.0.0.1", "example.org")
    assert [host for host in (*ours, *others) if is_loopback(host)] == list(ours)
