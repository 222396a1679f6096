"""Games on a terminal through the real command: `run -- COMMAND`, `kind = "terminal"`, refusals, the plan's digest."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from coordinator.builds import command_build
from coordinator.configuration import ConfigurationError, parse_configuration, target_name
from tests.cli.command import ROOT, coordinate

CAVERN = ROOT / "examples" / "cavern" / "terminal.py"


def game(folder: Path) -> Path:
    path = folder / "game.py"
    path.write_text('import sys\nprint("A hall.", sys.argv[1:])\nwhile input("> "):\n    print("Nothing happens.")\n')
    (folder / "rules.py").write_text("RULES = 1\n")
    return path


def transcript(run: dict[str, Any]) -> list[dict[str, Any]]:
    path = Path(run["report"]).with_name("transcript.jsonl")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_command_after_the_dashes_is_played_and_its_crash_is_stamped(tmp_path: Path) -> None:
    ran = coordinate(
        "run", "--json", "--no-control", "--personas", "explorer", "--seed", "2", "--fail-on", "critical", "--",
        sys.executable, str(CAVERN), "--seed", "{seed}", "--bugs", "crash", cwd=tmp_path,
    )  # fmt: skip
    assert ran.code == 1, ran.err
    (run,) = ran.document["runs"]
    report = json.loads(Path(run["report"]).read_text())
    assert [(one["severity"], one["replay"], len(one["actions"])) for one in report["findings"]] == [
        ("critical", "3/3", 3)
    ]
    assert report["driver"] == "terminal" and report["tested"]["seed_control"] == "seed given in the command"
    assert "Mouth of the Cave" in transcript(run)[0]["text"] or "Mouth of the Cave" in json.dumps(transcript(run))


def test_a_target_of_kind_terminal_runs_in_its_path_with_vocabulary_and_prompt(tmp_path: Path) -> None:
    (tmp_path / "hall").mkdir()
    game(tmp_path / "hall")
    (tmp_path / "playlane.toml").write_text(
        f"""
[target]
kind = "terminal"
command = ["{sys.executable}", "game.py", "{{seed}}"]
path = "hall"
seed = 5
vocabulary = ["plugh"]
prompt = "^> $"
[run]
personas = ["newcomer"]
control_run = false
[run.limits]
max_actions = 12
"""
    )
    ran = coordinate("run", "--json", cwd=tmp_path)
    assert ran.code == 0, ran.err
    manifest = json.loads(
        (tmp_path / ".playlane" / "campaigns" / ran.document["campaign"] / "manifest.json").read_text()
    )
    playtest = manifest["scenarios"][0]["playtest"]
    assert playtest["driverSettings"] == {"command": [sys.executable, "game.py", "{seed}"], "prompt": "^> $"}
    assert (playtest["driverConfig"], playtest["vocabulary"], playtest["target"]) == ("hall", ["plugh"], "game")
    assert "plugh" in [row["label"] for row in transcript(ran.document["runs"][0])]


def test_a_command_that_does_not_start_is_refused_before_anything_is_registered(tmp_path: Path) -> None:
    ran = coordinate("run", "--json", "--", "no-such-game-anywhere", cwd=tmp_path)
    assert ran.code == 3
    assert "no-such-game-anywhere" in ran.document["error"]["message"] and "was not found" in ran.err + ran.out
    assert not (tmp_path / ".playlane" / "campaigns").exists() or not any(
        (tmp_path / ".playlane" / "campaigns").iterdir()
    )


def test_a_command_beside_another_target_is_refused(tmp_path: Path) -> None:
    ran = coordinate("run", "--json", "--driver-config", "bridge.json", "--", "game", cwd=tmp_path)
    assert ran.code == 3 and "several targets" in ran.document["error"]["message"]


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ('kind = "terminal"', "command"),
        ('command = []\nkind = "terminal"', "command"),
        ('command = "un\'closed"', "split into words"),
        ('command = "game"\nprompt = "("', "no regular expression"),
        ('command = "game"\nkind = "bridge"\ndriver_config = "x.json"', "no meaning"),
    ],
)
def test_a_terminal_target_that_cannot_be_played_is_refused_by_key(table: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        parse_configuration(f"[target]\n{table}\n", "playlane.toml")


def test_a_terminal_target_is_named_after_its_game() -> None:
    names = {
        "python3 game.py --seed {seed}": "game", "nethack -u Hero": "nethack", "python3 -m adventure": "adventure",
    }  # fmt: skip
    for command, name in names.items():
        target = parse_configuration(f'[target]\ncommand = "{command}"\n', "playlane.toml").target
        assert target is not None and target_name(target) == name


def test_the_build_of_a_command_changes_with_its_files_and_with_its_words(tmp_path: Path) -> None:
    script = game(tmp_path)
    first = command_build(["python3", "game.py"], tmp_path)
    assert first.files == 3 and command_build(["python3", "game.py"], tmp_path) == first
    (tmp_path / "rules.py").write_text("RULES = 2\n")
    second = command_build(["python3", "game.py"], tmp_path)
    third = command_build(["python3", "game.py", "--hard"], tmp_path)
    script.write_text("print('another game')\n")
    fourth = command_build(["python3", "game.py"], tmp_path)
    assert len({one.digest for one in (first, second, third, fourth)}) == 4
