"""The two wire formats: the official clients accept the test server, and our reading agrees with theirs."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest

from tests.workers.models.playing import PROVIDERS, access
from tests.workers.models.server import Asked, Counted, ModelServer, Said, spell
from workers.models.access import Provider, Tokens
from workers.models.conversation import Ask, Picture, Reply, StreamFailedError, Tool, WireError
from workers.models.opening import wire_of
from workers.models.sse import Event, EventDecoder

SAID = Said(
    text="I go on — 漢字 🙂.",
    calls=[("choose", {"label": "north «ü»"}), ("note", {"text": "a\nb"})],
    usage=Counted(input=70, output=31, cache_read=1_000, cache_write=7),
)
TOKENS = Tokens(input=70, output=31, cache_read=1_000, cache_write=7)
TOOL = Tool(
    name="choose", description="Choose.", schema={"type": "object", "properties": {"label": {"type": "string"}}}
)
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360000002000001e221bc3300"
    "00000049454e44ae426082"
)


def ask(**changes: Any) -> Ask:
    given: dict[str, Any] = {"system": "You play.", "text": "A hall.", "tools": (TOOL,), "max_output_tokens": 99}
    return Ask(**{**given, **changes})


def read(provider: Provider, said: Said, *, streamed: bool, split: int = 1 << 20) -> Reply:
    wire = wire_of(access("http://x", provider))
    data = spell(provider, said, streamed=streamed)
    if not streamed:
        return wire.decode(data)
    reader, decoder = wire.stream_reader(), EventDecoder()
    for at in range(0, len(data), split):
        for event in decoder.feed(data[at : at + split]):
            reader.take(event.name, event.data)
    assert reader.is_whole
    return reader.reply()


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_text_calls_stop_and_each_token_once_are_read(provider: Provider, streamed: bool) -> None:
    reply = read(provider, SAID, streamed=streamed)
    assert (reply.text, reply.stop, reply.usage) == (SAID.text, "calls", TOKENS)
    assert [(call.name, json.loads(call.arguments)) for call in reply.calls] == list(SAID.calls)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_stream_split_at_every_byte_says_the_same(provider: Provider) -> None:
    whole = read(provider, SAID, streamed=True)
    assert read(provider, SAID, streamed=True, split=1) == whole
    data = spell(provider, SAID, streamed=True)
    wire = wire_of(access("http://x", provider))
    for at in range(len(data)):
        reader, decoder = wire.stream_reader(), EventDecoder()
        for piece in (data[:at], data[at:]):
            for event in decoder.feed(piece):
                reader.take(event.name, event.data)
        assert reader.is_whole and reader.reply() == whole, at


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_stream_without_its_end_is_not_whole_wherever_it_is_cut(provider: Provider) -> None:
    data = spell(provider, SAID, streamed=True)
    last = data.rindex(b"data: ")
    wire = wire_of(access("http://x", provider))
    for at in range(0, last, 7):
        reader, decoder = wire.stream_reader(), EventDecoder()
        for event in decoder.feed(data[:at]):
            reader.take(event.name, event.data)
        assert not reader.is_whole, at


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_refusal_and_length_are_told_apart(provider: Provider, streamed: bool) -> None:
    refused = read(provider, Said(refusal="not this one"), streamed=streamed)
    assert (refused.stop, refused.refusal) == ("refusal", "not this one")
    word = "max_tokens" if provider == "anthropic" else "length"
    assert read(provider, Said(text="and th", stop=word), streamed=streamed).stop == "length"


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"input_tokens": -1, "output_tokens": 3, "prompt_tokens": -1, "completion_tokens": 3},
        {"input_tokens": "9", "output_tokens": 3, "prompt_tokens": "9", "completion_tokens": 3},
        {"input_tokens": 1.5, "output_tokens": 3, "prompt_tokens": 1.5, "completion_tokens": 3},
        {"input_tokens": True, "output_tokens": 3, "prompt_tokens": True, "completion_tokens": 3},
        {
            "input_tokens": 5, "output_tokens": 3, "cache_read_input_tokens": -4, "prompt_tokens": 5,
            "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 6},
        },
    ],
)  # fmt: skip
@pytest.mark.parametrize("provider", PROVIDERS)
def test_missing_negative_and_impossible_usage_is_no_usage(provider: Provider, usage: dict[str, Any] | None) -> None:
    assert read(provider, Said(text="x", usage=usage), streamed=False).usage is None


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"nonsense", b"{}", b'{"choices":[]}', b"\xff\xfe", b"[" * 5_000])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_is_no_answer_is_refused(provider: Provider, raw: bytes) -> None:
    with pytest.raises(WireError):
        wire_of(access("http://x", provider)).decode(raw)


def test_a_stream_that_breaks_off_by_saying_so_is_a_failure() -> None:
    reader = wire_of(access("http://x")).stream_reader()
    with pytest.raises(StreamFailedError) as caught:
        reader.take("error", '{"type": "error", "error": {"type": "overloaded_error", "message": "full"}}')
    assert caught.value.busy


def test_events_are_read_with_any_line_end_comments_and_a_byte_order_mark() -> None:
    for end in ("\n", "\r\n", "\r"):
        text = end.join(["\ufeff: hello", "event: one", "data: a", "data: b", "", "data:c", "id: 7", "", "data: lost"])
        for size in (1, 2, 3, 1_000):
            decoder, found = EventDecoder(), []
            data = text.encode()
            for at in range(0, len(data), size):
                found += decoder.feed(data[at : at + size])
            assert found == [Event(name="one", data="a\nb"), Event(name="", data="c")]


def test_the_cache_mark_and_the_picture_stand_where_anthropic_wants_them() -> None:
    picture = Picture(media_type="image/png", data=PIXEL, reference="p1")
    body = json.loads(wire_of(access("http://x")).encode(ask(picture=picture)))
    assert body["system"][-1]["cache_control"] == {"type": "ephemeral"}
    assert [part["type"] for part in body["messages"][0]["content"]] == ["image", "text"]
    assert "tool_choice" not in body and "temperature" not in body


@pytest.mark.parametrize(("official", "limit"), [(True, "max_completion_tokens"), (False, "max_tokens")])
def test_openais_own_address_gets_the_newer_name_of_the_limit(official: bool, limit: str) -> None:
    body = json.loads(wire_of(access("http://x", "openai", official=official)).encode(ask()))
    assert body[limit] == 99 and body["stream_options"] == {"include_usage": True}


# -- the official clients against the server that all other tests use


def test_the_official_anthropic_client_accepts_the_server_and_reads_what_we_read() -> None:
    anthropic = pytest.importorskip("anthropic", reason="anthropic is not installed; the extra ci brings it")
    with ModelServer(lambda asked: SAID) as server:
        client = anthropic.Anthropic(api_key="k", base_url=server.url, max_retries=0)
        body: Any = json.loads(wire_of(access(server.url, stream=False)).encode(ask()))
        message = client.messages.create(**body)
        with client.messages.stream(**body) as stream:
            streamed = stream.get_final_message()
        client.close()
        ours = read("anthropic", SAID, streamed=True)
        for theirs in (message, streamed):
            used = theirs.usage
            assert used.input_tokens == TOKENS.input and used.cache_read_input_tokens == TOKENS.cache_read
            assert used.output_tokens == TOKENS.output and used.cache_creation_input_tokens == TOKENS.cache_write
            calls = [(block.name, block.input) for block in theirs.content if block.type == "tool_use"]
            assert calls == [(call.name, json.loads(call.arguments)) for call in ours.calls]
            assert "".join(block.text for block in theirs.content if block.type == "text") == ours.text
        sent = [asked.body for asked in server.asked]
        assert sent[0] == body


def test_the_official_openai_client_accepts_the_server_and_reads_what_we_read() -> None:
    openai = pytest.importorskip("openai", reason="openai is not installed; the extra ci brings it")
    with ModelServer(lambda asked: SAID) as server:
        client = openai.OpenAI(api_key="k", base_url=f"{server.url}/v1", max_retries=0)
        body: Any = json.loads(wire_of(access(server.url, "openai", stream=False)).encode(ask()))
        completion = client.chat.completions.create(**body)
        with client.chat.completions.stream(**body, stream_options={"include_usage": True}) as stream:
            for _ in stream:
                pass
            streamed = stream.get_final_completion()
        client.close()
        ours = read("openai", SAID, streamed=True)
        for theirs in (completion, streamed):
            assert theirs.usage.prompt_tokens == TOKENS.input + TOKENS.cache_read + TOKENS.cache_write
            assert theirs.usage.prompt_tokens_details.cached_tokens == TOKENS.cache_read
            assert theirs.usage.completion_tokens == TOKENS.output
            message = theirs.choices[0].message
            calls = [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls]
            assert calls == [(call.name, json.loads(call.arguments)) for call in ours.calls]
            assert message.content == ours.text
        assert server.asked[0].body == body


@pytest.mark.parametrize("kind", ["anthropic", "openai"])
def test_the_official_clients_read_refusals_and_errors_as_published(kind: Literal["anthropic", "openai"]) -> None:
    library: Any = pytest.importorskip(kind, reason=f"{kind} is not installed; the extra ci brings it")
    from tests.workers.models.server import Trouble

    def think(asked: Asked) -> Said | Trouble:
        return Said(refusal="no") if asked.number == 1 else Trouble(status=429, headers={"retry-after": "7"})

    with ModelServer(think) as server:
        wire = wire_of(access(server.url, kind, stream=False))
        body: Any = json.loads(wire.encode(ask()))
        if kind == "anthropic":
            client = library.Anthropic(api_key="k", base_url=server.url, max_retries=0)
            assert client.messages.create(**body).stop_reason == "refusal"
            call = client.messages.create
        else:
            client = library.OpenAI(api_key="k", base_url=f"{server.url}/v1", max_retries=0)
            assert client.chat.completions.create(**body).choices[0].message.refusal == "no"
            call = client.chat.completions.create
        with pytest.raises(library.RateLimitError) as caught:
            call(**body)
        assert caught.value.response.headers["retry-after"] == "7"
        client.close()
