"""A bridge with one fault: `python hostile.py FAULT`. A game is three steps; faulty games are those of `is_faulty`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

FAULT = sys.argv[1]
SESSIONS = int(sys.argv[2]) if len(sys.argv) > 2 else 1


def say(message_id: object, result: object) -> None:
    out({"jsonrpc": "2.0", "id": message_id, "result": result})


def out(message: dict[str, Any], end: str = "\n") -> None:
    os.write(1, (json.dumps(message) + end).encode())


def is_faulty(seed: str) -> bool:
    return int(seed) % 3 == 0


def turn(session: dict[str, Any]) -> dict[str, Any]:
    place = session["place"]
    if place == 3:
        return {"state": place, "done": True, "outcome": "end"}
    return {"state": place, "actions": [{"id": "go"}], "done": False}


def misbehave(message_id: int, session: dict[str, Any]) -> bool:
    """Do the fault in place of an answer; tell whether the answer is still to be given."""
    if FAULT == "dies":
        os.write(2, b"about to die of a planted fault\n")
        os._exit(3)
    if FAULT == "killed":
        os.kill(os.getpid(), 9)
    if FAULT == "closes":
        os.close(1)
        sys.stdin.read()
        os._exit(0)
    if FAULT == "silent":
        return False
    if FAULT == "unknown":
        say(message_id + 1_000_000, {})
        return False
    if FAULT == "twice":
        say(message_id, turn(session))
        say(message_id, turn(session))
        return False
    if FAULT in ("NaN", "Infinity", "-Infinity", "1e400"):
        os.write(1, b'{"jsonrpc":"2.0","id":%d,"result":{"state":%s,"done":false}}\n' % (message_id, FAULT.encode()))
        return False
    if FAULT == "overlong":
        say(message_id, {"state": "x" * (1 << 20), "done": False})
        return False
    if FAULT == "no_newline":
        out({"jsonrpc": "2.0", "id": message_id, "result": turn(session)}, end="")
        return False
    if FAULT == "no_turn":
        say(message_id, {"state": 1, "done": "yes"})
        return False
    if FAULT == "refuses":
        out({"jsonrpc": "2.0", "id": message_id, "error": {"code": -32010, "message": "not now"}})
        return False
    if FAULT == "raises":
        out({"jsonrpc": "2.0", "id": message_id, "error": {"code": -32603, "message": "KeyError at 0x7f00deadbeef"}})
        return False
    if FAULT == "stalemate":
        say(message_id, {"state": "stuck", "actions": [], "done": False})
        return False
    if FAULT == "helper_and_exit":
        helper = "import os, time; os.setsid(); time.sleep(600)"
        subprocess.Popen([sys.executable, "-c", helper], stdin=subprocess.DEVNULL)
        os._exit(0)
    return True


def answer(message: dict[str, Any], sessions: dict[str, dict[str, Any]]) -> None:
    params, message_id = message["params"], message["id"]
    if message["method"] == "initialize":
        if FAULT == "no_greeting":
            return
        say(
            message_id,
            {"name": "hostile", "version": "1", "protocol": 2 if FAULT == "protocol" else 1, "sessions": SESSIONS},
        )
    elif message["method"] == "reset":
        session = sessions[params["session"]] = {"place": 0, "seed": params["seed"]}
        reply = {**turn(session), "seed": params["seed"]}
        if FAULT == "binary64_seed":
            reply["seed"] = f"{float(params['seed']):.0f}"
        if FAULT == "no_echo":
            del reply["seed"]
        say(message_id, reply)
    elif message["method"] == "step":
        session = sessions[params["session"]]
        session["place"] += 1
        if FAULT == "dribbles":
            data = json.dumps(
                {"jsonrpc": "2.0", "id": message_id, "result": {**turn(session), "text": "żółw 🐢"}}, ensure_ascii=False
            )
            for byte in b"\xef\xbb\xbf" + data.encode() + b"\r\n":
                os.write(1, bytes([byte]))
            return
        if FAULT == "chatty":
            os.write(1, b'DEBUG thinking\n{"level": "info"}\nWARN: still thinking\n')
        if FAULT == "large":
            say(message_id, {**turn(session), "text": "x" * 300_000})
            return
        if FAULT == "minus_zero":
            os.write(
                1, b'{"jsonrpc":"2.0","id":%d,"result":{"state":-0.0,"done":true,"metrics":{"m":-0.0}}}\n' % message_id
            )
            return
        if FAULT == "text":
            outcome = "</script><script>alert(1)</script>\x1b[31mred"
            say(message_id, {"state": "</script><script>alert(2)</script>", "done": True, "outcome": outcome})
            return
        if session["place"] == 2 and is_faulty(session["seed"]) and not misbehave(message_id, session):
            return
        say(message_id, turn(session))
    else:
        say(message_id, {})


def main() -> None:
    sessions: dict[str, dict[str, Any]] = {}
    if FAULT == "chatty":
        os.write(1, "Hostile 1.0 — ©\n\n".encode())
    for line in sys.stdin:
        answer(json.loads(line), sessions)


if __name__ == "__main__":
    if FAULT == "ends_at_once":
        os.write(2, b"no licence file\n")
        os._exit(5)
    main()
