"""What the page for game developers shows is what the driver takes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec

from drivers.bridge import BridgeConfiguration, load_bridge, read_greeting
from drivers.jsonrpc import Answer, Conversation
from drivers.turns import Turn, read_turn

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "bridge-protocol.md").read_text(encoding="utf-8")


def test_the_example_file_is_read_and_names_a_game_that_is_there() -> None:
    settings = load_bridge(DOCS / "examples" / "bridge.json")
    assert (Path(settings["cwd"]) / settings["command"][1]).is_file()


def test_every_key_of_the_bridge_file_and_of_a_turn_stands_in_the_page() -> None:
    fields = [field.encode_name for kind in (BridgeConfiguration, Turn) for field in msgspec.structs.fields(kind)]
    assert [name for name in fields if f"`{name}`" not in PAGE] == []


def test_the_conversation_in_the_page_is_one_that_the_driver_has() -> None:
    conversation, results = Conversation(), []
    for sign, line in re.findall(r"^([<>]) (\{.*\})$", PAGE, re.MULTILINE):
        if sign == ">":
            request = json.loads(line)
            _, ours = conversation.request(request["method"], request["params"])
            assert json.loads(ours) == request
        else:
            (answer,) = conversation.feed(line.encode() + b"\n")
            assert isinstance(answer, Answer)
            results.append(answer.result)
    assert read_greeting(results[0]).name == "Counting"
    assert [read_turn("step", result).done for result in results[1:3]] == [False, True]
    assert results[3] == {}
