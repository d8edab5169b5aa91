"""Anthropic Messages served by chat completions: shapes, block grammar, and the same answer whole or streamed."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx2 as httpx  # the one this client is built on
import pytest
from chat_cases import HEAD, answers, choice, stream
from hypothesis import HealthCheck, given, settings

from gateway.admission.parse import parse_request
from gateway.errors import InvalidRequest, UpstreamTruncated
from gateway.exchange import Endpoint, InferenceRequest
from gateway.protocols.messages_stream import count_tokens_answer
from gateway.protocols.registry import translation
from gateway.protocols.sse import SseParser
from gateway.protocols.views import NotAnAnswer, read_answer

Json = dict[str, Any]
MANY = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def request(**fields: Any) -> InferenceRequest:
    base = {"model": "alias", "max_tokens": 64, "messages": [{"role": "user", "content": "hi"}]}
    return parse_request(
        Endpoint.messages, json.dumps({**base, **fields}).encode(), [(b"content-type", b"application/json")]
    )


def bridge(native: set[str] | None = None) -> Any:
    found = translation("messages", native or {"chat"})
    assert found is not None
    return found


def events_of(data: bytes) -> list[Json]:
    found = []
    for event in SseParser().feed(data):
        if event.data is not None:
            value = json.loads(event.data)
            assert event.event.decode() == value["type"]
            found.append(value)
    return found


def accumulated(events: list[Json]) -> Json:
    """The message that a client builds from the events; asserts the grammar on the way."""
    assert events[0]["type"] == "message_start"
    assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]
    message: Json = events[0]["message"]
    open_block: Json | None = None
    written = ""
    for event in events[1:-2]:
        if event["type"] == "content_block_start":
            assert open_block is None and event["index"] == len(message["content"])
            open_block, written = event["content_block"], ""
            message["content"].append(open_block)
            continue
        assert open_block is not None and event["index"] == len(message["content"]) - 1
        if event["type"] == "content_block_stop":
            if open_block["type"] == "tool_use":
                open_block["input"] = json.loads(written or "{}")
            open_block = None
            continue
        delta = event["delta"]
        kind = delta["type"].removesuffix("_delta")
        if kind == "input_json":
            written += delta["partial_json"]
        else:
            open_block[kind] += delta[kind]
    assert open_block is None
    message.update(events[-2]["delta"])
    message["usage"].update(events[-2]["usage"])
    return message


@MANY
@given(answers())
def test_a_stream_adds_up_to_the_whole_answer(anthropic_shape: Any, case: tuple[Json, list[Json]]) -> None:
    """However a completion is cut into chunks, interleaved calls included, a client ends with the whole message."""
    whole, chunks = case
    body = json.dumps(whole).encode()
    answer = json.loads(bridge().answer(body, read_answer("chat", body), request()).body)
    anthropic_shape("Message", answer)
    relay = bridge().stream(request())
    out = b"".join(piece.out for piece in relay.feed(stream(chunks)))
    assert relay.complete and relay.done
    end = relay.end("rcpt_1")
    assert end.endswith(b': receipt rcpt_1\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n')
    events = events_of(out + end)
    for event in events:
        anthropic_shape("MessageStreamEvent", event)
    assert accumulated(events) == answer


def stream_out(chunks: list[Json]) -> bytes:
    relay = bridge().stream(request())
    return b"".join(piece.out for piece in relay.feed(stream(chunks))) + relay.end("rcpt_1")


def chunk(delta: Json, finish: str | None = None, **more: Any) -> Json:
    return {**HEAD, "object": "chat.completion.chunk", "choices": [{**choice(delta, finish), **more}]}


def test_the_official_client_reads_the_stream() -> None:
    """The anthropic library builds text, thinking and two interleaved calls from the bridged events."""

    def call(index: int, **fields: Any) -> Json:
        return chunk({"tool_calls": [{"index": index, **fields}]})

    chunks = [
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning_content": "hm"}),
        chunk({"content": "Good"}),
    ]
    chunks += [
        chunk({"content": " day"}),
        call(0, id="a", type="function", function={"name": "weather", "arguments": ""}),
    ]
    chunks += [call(1, id="b", type="function", function={"name": "time", "arguments": '{"z"'})]
    chunks += [call(0, function={"arguments": '{"city":"Oslo"}'}), call(1, function={"arguments": ":1}"})]
    chunks += [chunk({}, "tool_calls")]
    out = stream_out(chunks)
    transport = httpx.MockTransport(
        lambda _: httpx.Response(200, headers={"content-type": "text/event-stream"}, content=out)
    )
    client = anthropic.Anthropic(api_key="k", base_url="http://x", http_client=httpx.Client(transport=transport))
    with client.messages.stream(model="m", max_tokens=5, messages=[{"role": "user", "content": "hi"}]) as events:
        final = events.get_final_message()
    assert [block.type for block in final.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert final.content[1].text == "Good day"
    assert [(block.id, block.input) for block in final.content[2:]] == [("a", {"city": "Oslo"}), ("b", {"z": 1})]
    assert final.stop_reason == "tool_use"


def test_text_after_a_call_is_kept() -> None:
    """What comes after a call began is not lost, and no block opens inside another."""
    chunks = [
        chunk(
            {"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": "{"}}]}
        )
    ]
    chunks += [
        chunk({"content": "late"}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]}),
        chunk({}, "stop"),
    ]
    message = accumulated(events_of(stream_out(chunks)))
    assert [(block["type"], block.get("text")) for block in message["content"]] == [
        ("tool_use", None),
        ("text", "late"),
    ]


def test_a_broken_stream_ends_with_event_error(anthropic_shape: Any) -> None:
    """A failure in mid-stream is one `event: error` in Anthropic's shape and no message_stop."""
    relay = bridge().stream(request())
    out = b"".join(piece.out for piece in relay.feed(stream([chunk({"content": "Hel"})], done=False)))
    events = events_of(out + relay.error(UpstreamTruncated("cut"), "rcpt_1"))
    assert [event["type"] for event in events][-1] == "error"
    assert events[-1]["error"]["type"] == "api_error" and events[-1]["error"]["receipt"] == "rcpt_1"
    anthropic_shape("ErrorResponse", {"request_id": None, **events[-1]})
    assert b"message_stop" not in out


def test_stop_reasons() -> None:
    """Finish reasons become stop reasons; a stop text that the engine names becomes the stop sequence."""
    for finish, matched, expected in (
        ("stop", None, ("end_turn", None)),
        ("stop", "END", ("stop_sequence", "END")),
        ("stop", 151643, ("end_turn", None)),
        ("length", None, ("max_tokens", None)),
        ("tool_calls", None, ("tool_use", None)),
        ("content_filter", None, ("refusal", None)),
        (None, None, ("end_turn", None)),
    ):
        message = {"role": "assistant", "content": "a"}
        whole = {**HEAD, "choices": [{"index": 0, "message": message, "finish_reason": finish, "stop_reason": matched}]}
        body = json.dumps(whole).encode()
        answer = json.loads(bridge().answer(body, read_answer("chat", body), request()).body)
        assert (answer["stop_reason"], answer["stop_sequence"]) == expected


def test_arguments_that_are_no_object_are_no_answer() -> None:
    """A call whose arguments cannot be an input object is a protocol error, not an invented input."""
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "[1]"}}
    body = json.dumps(
        {**HEAD, "choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [call]}}]}
    ).encode()
    with pytest.raises(NotAnAnswer):
        bridge().answer(body, read_answer("chat", body), request())


def sent(native: set[str] | None = None, **fields: Any) -> Json:
    value: Json = json.loads(bridge(native).request(request(**fields), "m1", None))
    return value


def test_an_agents_request_becomes_chat() -> None:
    """System blocks, thinking, tool use and results, images and documents arrive where chat has them."""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}
    messages: list[Json] = [
        {"role": "user", "content": [{"type": "text", "text": "Look", "cache_control": {"type": "ephemeral"}}, image]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "I see"},
                {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Oslo"}},
                {"type": "tool_use", "id": "t2", "name": "time", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "rain"}]},
                {"type": "tool_result", "tool_use_id": "t2", "is_error": True},
                {"type": "text", "text": "And?"},
            ],
        },
    ]
    tool = {
        "name": "weather",
        "description": "d",
        "input_schema": {"type": "object"},
        "cache_control": {"type": "ephemeral"},
    }
    body = sent(
        messages=messages,
        system=[
            {"type": "text", "text": "Be brief."},
            {"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}},
        ],
        tools=[tool],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
        stop_sequences=["END"],
        temperature=0.5,
        top_k=5,
        metadata={"user_id": "u1"},
        thinking={"type": "enabled", "budget_tokens": 1024},
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}},
        stream=True,
    )
    calls = [
        {"id": "t1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}},
        {"id": "t2", "type": "function", "function": {"name": "time", "arguments": "{}"}},
    ]
    parts = [{"type": "text", "text": "Look"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]
    assert body == {
        "model": "m1",
        "messages": [
            {"role": "system", "content": "Be brief.\n\nBe kind."},
            {"role": "user", "content": parts},
            {"role": "assistant", "content": "I see", "reasoning_content": "hm", "tool_calls": calls},
            {"role": "tool", "tool_call_id": "t1", "content": "rain"},
            {"role": "tool", "tool_call_id": "t2", "content": "error"},
            {"role": "user", "content": "And?"},
        ],
        "temperature": 0.5,
        "top_k": 5,
        "stop": ["END"],
        "user": "u1",
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": True},
        },
        "tools": [
            {"type": "function", "function": {"name": "weather", "description": "d", "parameters": {"type": "object"}}}
        ],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "max_tokens": 64,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_the_output_limit_has_the_name_the_upstream_takes() -> None:
    """An upstream that speaks Responses too takes the newer name, which its reasoning models insist on."""
    assert "max_completion_tokens" in sent({"chat", "responses"}) and "max_tokens" not in sent({"chat", "responses"})
    assert "max_tokens" in sent({"chat"})


REFUSED: list[tuple[Json, str]] = [
    ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0]"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0]"),
    ({"mcp_servers": [{"url": "http://x"}]}, "mcp_servers"),
    ({"context_management": {"edits": [{"type": "compact_20260112"}]}}, "context_management.edits[0]"),
    (
        {"messages": [{"role": "user", "content": [{"type": "container_upload", "file_id": "f"}]}]},
        "messages[0].content[0]",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "file", "file_id": "f"}}]}]},
        "messages[0].content[0]",
    ),
    ({"messages": [{"role": "assistant", "content": [{"type": "server_tool_use"}]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
    ({"tool_choice": {"type": "sometimes"}}, "tool_choice"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED, ids=lambda v: str(v)[:50])
def test_what_chat_has_no_equal_of_is_refused_by_name(fields: Json, param: str) -> None:
    """Nothing is dropped in silence: the refusal names the member."""
    with pytest.raises(InvalidRequest) as caught:
        bridge().request(request(**fields), "m1", None)
    assert caught.value.param == param


def test_the_count_of_tokens_is_one_number() -> None:
    """The body of count_tokens."""
    assert json.loads(count_tokens_answer(7)) == {"input_tokens": 7}
