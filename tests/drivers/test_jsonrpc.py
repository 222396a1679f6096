"""The framing is read whole, byte by byte and with trailing data, and gives the same events each time."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivers.jsonrpc import MAX_LINE_BYTES, Answer, Conversation, Event, Fault, LineReader, Noise, Overlong, Refusal


def ask(count: int = 1) -> Conversation:
    conversation = Conversation()
    for number in range(count):
        request_id, line = conversation.request("step", {"n": number})
        assert json.loads(line) == {"jsonrpc": "2.0", "id": request_id, "method": "step", "params": {"n": number}}
        assert line.endswith(b"\n") and line.count(b"\n") == 1
    return conversation


def answer(request_id: object, result: str = "{}") -> bytes:
    return f'{{"jsonrpc":"2.0","id":{json.dumps(request_id)},"result":{result}}}'.encode()


def feed_all(conversation: Conversation, data: bytes, size: int) -> list[Event]:
    events: list[Event] = []
    for start in range(0, len(data), size):
        events += conversation.feed(data[start : start + size])
    return events + conversation.end()


STREAMS: list[tuple[str, bytes, list[Event]]] = [
    ("plain", answer(1, '{"a":1}') + b"\n", [Answer(id=1, result={"a": 1})]),
    ("CRLF", answer(1) + b"\r\n", [Answer(id=1, result={})]),
    ("BOM", b"\xef\xbb\xbf" + answer(1) + b"\n", [Answer(id=1, result={})]),
    ("no newline at the end", answer(1), [Answer(id=1, result={})]),
    ("UTF-8", answer(1, '"Grüße, 世界 🎲"') + b"\n", [Answer(id=1, result="Grüße, 世界 🎲")]),
    ("blank lines", b"\n\r\n  \n" + answer(1) + b"\n\n", [Answer(id=1, result={})]),
    (
        "two answers in one write",
        answer(1) + b"\n" + answer(2) + b"\n",
        [Answer(id=1, result={}), Answer(id=2, result={})],
    ),
    ("answers out of order", answer(2) + b"\n" + answer(1) + b"\n", [Answer(id=2, result={}), Answer(id=1, result={})]),
    ("a banner before", b"Welcome!\n" + answer(1) + b"\n", [Noise(text="Welcome!"), Answer(id=1, result={})]),
    (
        "JSON that is no message",
        b'[1,2]\n{"event":"x"}\n7\n',
        [Noise(text="[1,2]"), Noise(text='{"event":"x"}'), Noise(text="7")],
    ),
    ("an id written as a float", answer(1.0) + b"\n", [Answer(id=1, result={})]),
    ("minus zero", answer(1, "[-0, -0.0, -5]") + b"\n", [Answer(id=1, result=[0, 0.0, -5])]),
    (
        "an error",
        b'{"jsonrpc":"2.0","id":1,"error":{"code":-32010,"message":"no"}}\n',
        [Refusal(id=1, code=-32010, message="no")],
    ),
    ("a notification", b'{"jsonrpc":"2.0","method":"log"}\n', [Noise(text='{"jsonrpc":"2.0","method":"log"}')]),
    ("bytes that are no UTF-8", b"\xff\xfe\n" + answer(1) + b"\n", [Noise(text="��"), Answer(id=1, result={})]),
]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1 << 20])
@pytest.mark.parametrize(("name", "data", "expected"), STREAMS, ids=[name for name, _, _ in STREAMS])
def test_a_stream_gives_the_same_events_in_chunks_of_any_size(
    name: str, data: bytes, expected: list[Event], size: int
) -> None:
    assert feed_all(ask(2), data, size) == expected


def test_minus_zero_does_not_keep_its_sign() -> None:
    (event,) = ask().feed(answer(1, '{"x": [-0.0]}') + b"\n")
    assert isinstance(event, Answer)
    assert json.dumps(event.result) == '{"x": [0.0]}'


FAULTS = [
    (answer(1, "NaN"), "NaN"),
    (answer(1, "[-Infinity]"), "-Infinity"),
    (answer(1, "1e400"), "1e400"),
    (answer(1, "-1e999"), "-1e999"),
    (answer(3), "never asked"),
    (answer(0), "never asked"),
    (answer("1"), "no number of ours"),
    (answer(True), "no number of ours"),
    (answer(1.5), "no number of ours"),
    (b'{"id":1,"result":{}}', 'lacks "jsonrpc"'),
    (b'{"jsonrpc":"1.0","id":1,"result":{}}', 'lacks "jsonrpc"'),
    (b'{"jsonrpc":"2.0","id":1}', "neither"),
    (b'{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1}}', "both"),
    (b'{"jsonrpc":"2.0","id":1,"error":"no"}', "code"),
    (b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error"}}', "could not read"),
    (b'{"jsonrpc":"2.0","id":1,"result":{"a":', "not whole JSON"),
    (answer(1, '"\xff"').replace(b"\xc3\xbf", b"\xff"), "not UTF-8"),
    (answer(1, '"\\ud800"'), "lone surrogate"),
    (answer(1, "[" * 100_000), "nested too deeply"),
]


@pytest.mark.parametrize(("line", "word"), FAULTS, ids=[f"{number} {word}" for number, (_, word) in enumerate(FAULTS)])
def test_a_broken_answer_is_a_fault_that_names_the_rule(line: bytes, word: str) -> None:
    conversation = ask()
    (event,) = conversation.feed(line + b"\n")
    assert isinstance(event, Fault), event
    assert word in event.what
    assert len(event.line) <= 200


def test_a_second_answer_to_one_request_is_a_fault() -> None:
    first, second = ask().feed(answer(1) + b"\n" + answer(1) + b"\n")
    assert first == Answer(id=1, result={})
    assert isinstance(second, Fault)
    assert "answered twice" in second.what


def test_a_line_of_exactly_the_limit_is_read_and_one_byte_more_is_refused() -> None:
    room = MAX_LINE_BYTES - len(answer(1, '""'))
    for end in (b"\n", b"\r\n"):
        (event,) = ask().feed(answer(1, '"' + "x" * room + '"') + end)
        assert isinstance(event, Answer)
        assert len(event.result) == room
    (event,) = ask().feed(answer(1, '"' + "x" * (room + 1) + '"') + b"\n")
    assert isinstance(event, Fault)
    assert str(MAX_LINE_BYTES) in event.what


def test_an_endless_line_is_told_once_at_the_limit_and_the_next_line_is_read() -> None:
    conversation = ask()
    events: list[Event] = []
    for _ in range(40):
        events += conversation.feed(b"x" * (1 << 17))
    assert [type(event) for event in events] == [Noise]
    assert events[0] == Noise(text="x" * 2_000, cut=True)
    assert conversation.feed(b"\n" + answer(1) + b"\n") == [Answer(id=1, result={})]


def test_an_overlong_answer_is_a_fault_before_its_end_arrives() -> None:
    (event,) = ask().feed(answer(1)[:-3] + b" " * MAX_LINE_BYTES)
    assert isinstance(event, Fault)


def test_a_request_over_the_limit_is_not_made() -> None:
    conversation = Conversation()
    with pytest.raises(ValueError, match="over the limit"):
        conversation.request("step", {"action": "x" * MAX_LINE_BYTES})
    assert conversation.open_requests == frozenset()


def test_a_line_break_in_a_move_stays_inside_its_line() -> None:
    _, line = Conversation().request("step", {"action": 'a\nb\r\n"\u2028'})
    assert line.count(b"\n") == 1
    assert json.loads(line)["params"]["action"] == 'a\nb\r\n"\u2028'


def test_answered_requests_are_no_longer_open() -> None:
    conversation = ask(3)
    conversation.feed(answer(2) + b"\n")
    assert conversation.open_requests == {1, 3}


def plain(lines: list[bytes | Overlong]) -> list[bytes]:
    return [line for line in lines if isinstance(line, bytes)]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_lines_do_not_depend_on_how_the_bytes_arrive(data: bytes, sizes: list[int]) -> None:
    reader, lines, start, turn = LineReader(), [], 0, 0
    while start < len(data):
        size = sizes[turn % len(sizes)]
        lines += plain(reader.feed(data[start : start + size]))
        start, turn = start + size, turn + 1
    lines += plain(reader.end())
    expected = data.split(b"\n")
    assert lines == (expected if expected[-1] else expected[:-1])


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=120))
def test_any_bytes_give_events_and_never_an_exception(data: bytes) -> None:
    for prefix in (b"", b'{"jsonrpc":"2.0","id":1,"result":'):
        conversation = ask()
        for event in [*conversation.feed(prefix + data), *conversation.end()]:
            assert isinstance(event, Answer | Refusal | Noise | Fault)
