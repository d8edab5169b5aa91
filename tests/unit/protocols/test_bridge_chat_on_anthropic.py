"""Chat completions and Responses served by an Anthropic deployment."""

from __future__ import annotations

import json
from typing import Any

import pytest
from chat_cases import stream
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.admission.parse import parse_request
from gateway.errors import InvalidRequest
from gateway.exchange import Endpoint, InferenceRequest
from gateway.protocols.registry import translation
from gateway.protocols.sse import SseParser
from gateway.protocols.translation import Translation
from gateway.protocols.views import NotAnAnswer, read_answer

Json = dict[str, Any]
MANY = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
JSON_TYPE = [(b"content-type", b"application/json")]
HEAD: Json = {"id": "msg_01", "type": "message", "role": "assistant", "model": "claude-x"}
WORDS = st.text(alphabet='ab é漢🦀\n"\\{', min_size=1, max_size=12)
SIGNATURE = st.text(alphabet="AZaz09+/=", min_size=1, max_size=40)
BLOCK = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": WORDS}),
    st.fixed_dictionaries({"type": st.just("thinking"), "thinking": WORDS | st.just(""), "signature": SIGNATURE}),
    st.fixed_dictionaries({"type": st.just("redacted_thinking"), "data": SIGNATURE}),
    st.fixed_dictionaries(
        {
            "type": st.just("tool_use"),
            "id": st.sampled_from(["toolu_1", "toolu_2"]),
            "name": st.just("weather"),
            "input": st.dictionaries(st.sampled_from(["a", "b"]), WORDS | st.integers(), max_size=2),
        }
    ),
)
STOPS = st.sampled_from(["end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal", "pause_turn"])


@st.composite
def messages(draw: st.DrawFn) -> tuple[Json, list[Json]]:
    """(whole message, events that stream it)."""
    content = draw(st.lists(BLOCK, max_size=5))
    usage = {
        "input_tokens": draw(st.integers(0, 99)),
        "cache_read_input_tokens": draw(st.integers(0, 9)),
        "output_tokens": 1,
    }
    final = {**usage, "output_tokens": draw(st.integers(1, 99))}
    stop = {"stop_reason": draw(STOPS), "stop_sequence": None}
    events: list[Json] = [
        {"type": "message_start", "message": {**HEAD, "content": [], "stop_reason": None, "usage": usage}}
    ]
    events.append({"type": "ping"})
    for index, block in enumerate(content):
        kind = block["type"]
        empty = {"text": {"text": ""}, "thinking": {"thinking": "", "signature": ""}, "tool_use": {"input": {}}}.get(
            kind, {}
        )
        events.append({"type": "content_block_start", "index": index, "content_block": {**block, **empty}})
        deltas: list[Json] = []
        if kind in ("text", "thinking"):
            cut = draw(st.integers(0, len(block[kind])))
            deltas += [{"type": f"{kind}_delta", kind: piece} for piece in (block[kind][:cut], block[kind][cut:])]
        if kind == "thinking":
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        if kind == "tool_use" and block["input"]:
            text = json.dumps(block["input"])
            cut = draw(st.integers(0, len(text)))
            deltas += [{"type": "input_json_delta", "partial_json": piece} for piece in (text[:cut], text[cut:])]
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": stop, "usage": {"output_tokens": final["output_tokens"]}})
    events.append({"type": "message_stop"})
    return {**HEAD, "content": content, **stop, "usage": final}, events


def chat_request(**fields: Any) -> InferenceRequest:
    base: Json = {"model": "alias", "messages": [{"role": "user", "content": "hi"}]}
    return parse_request(Endpoint.chat, json.dumps({**base, **fields}).encode(), JSON_TYPE)


def bridge(client: Any = "chat") -> Translation:
    found = translation(client, {"messages"})
    assert found is not None
    return found


def whole_answer(message: Json, client: Any, request: InferenceRequest) -> Json:
    body = json.dumps(message).encode()
    value: Json = json.loads(bridge(client).answer(body, read_answer("messages", body), request).body)
    return value


def accumulated(chunks: list[Json]) -> tuple[Json, str | None]:
    """The message a chat client builds: by choice and call index."""
    message: Json = {"content": "", "reasoning_content": "", "thinking_blocks": [], "tool_calls": []}
    finish = None
    for chunk in chunks:
        for choice in chunk["choices"]:
            delta = choice["delta"]
            finish = choice["finish_reason"] or finish
            message["content"] += delta.get("content") or ""
            message["reasoning_content"] += delta.get("reasoning_content") or ""
            message["thinking_blocks"] += delta.get("thinking_blocks") or []
            for call in delta.get("tool_calls") or ():
                if call["index"] == len(message["tool_calls"]):
                    message["tool_calls"].append({"id": call["id"], "name": call["function"]["name"], "arguments": ""})
                message["tool_calls"][call["index"]]["arguments"] += call["function"]["arguments"]
    return message, finish


@MANY
@given(messages(), st.booleans())
def test_a_stream_adds_up_to_the_whole_answer(openai_shape: Any, case: tuple[Json, list[Json]], usage: bool) -> None:
    """Text, thinking, signatures, calls, finish reason and usage are the same whole or streamed, in chat's shapes."""
    message, events = case
    request = chat_request(stream=True, stream_options={"include_usage": usage})
    whole = whole_answer(message, "chat", request)
    openai_shape("CreateChatCompletionResponse", whole)
    relay = bridge().stream(request)
    out = b"".join(piece.out for piece in relay.feed(stream(events, named=True, done=False)))
    assert relay.complete and relay.done
    out += relay.end("rcpt_1")
    assert out.endswith(b": receipt rcpt_1\n\ndata: [DONE]\n\n")
    chunks = [json.loads(e.data) for e in SseParser().feed(out) if e.data not in (None, b"[DONE]")]
    for chunk in chunks:
        openai_shape("CreateChatCompletionStreamResponse", chunk)
    built, finish = accumulated(chunks)
    choice = whole["choices"][0]
    assert finish == choice["finish_reason"]
    assert built["content"] == (choice["message"]["content"] or "")
    assert built["reasoning_content"] == choice["message"].get("reasoning_content", "")
    assert built["thinking_blocks"] == choice["message"].get("thinking_blocks", [])
    calls = [(call["id"], json.loads(call["arguments"])) for call in built["tool_calls"]]
    assert calls == [(c["id"], json.loads(c["function"]["arguments"])) for c in choice["message"].get("tool_calls", [])]
    usages = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
    assert usages == ([whole["usage"]] if usage else [])


@MANY
@given(messages())
def test_thinking_comes_back_byte_by_byte(case: tuple[Json, list[Json]]) -> None:
    """Thinking blocks with their signatures, handed back in the next request, reach Anthropic as they came."""
    message, _ = case
    thinking = [block for block in message["content"] if block["type"].endswith("thinking")]
    answer = whole_answer(message, "chat", chat_request())["choices"][0]["message"]
    turns = [
        {"role": "user", "content": "a"},
        {**answer, "content": answer["content"] or None},
        {"role": "user", "content": "b"},
    ]
    body = json.loads(bridge().request(chat_request(messages=turns), "claude-x", None) or b"")
    sent = [block for turn in body["messages"] if turn["role"] == "assistant" for block in turn["content"]]
    assert [block for block in sent if block["type"].endswith("thinking")] == thinking

    asked = parse_request(Endpoint.responses, b'{"model":"alias","input":"a"}', JSON_TYPE)
    output = whole_answer(message, "responses", asked)["output"]
    items = [{"role": "user", "content": "a"}, *output, {"role": "user", "content": "b"}]
    again = parse_request(Endpoint.responses, json.dumps({"model": "alias", "input": items}).encode(), JSON_TYPE)
    body = json.loads(bridge("responses").request(again, "claude-x", None) or b"")
    sent = [block for turn in body["messages"] if turn["role"] == "assistant" for block in turn["content"]]
    assert [block for block in sent if block["type"].endswith("thinking")] == thinking


@MANY
@given(messages())
def test_responses_on_anthropic_stream_as_they_answer(openai_shape: Any, case: tuple[Json, list[Json]]) -> None:
    """Two bridges in a row keep the grammar: every event has its shape, and the texts are those of the message."""
    message, events = case
    request = parse_request(Endpoint.responses, b'{"model":"alias","input":"a","stream":true}', JSON_TYPE)
    relay = bridge("responses").stream(request)
    out = b"".join(piece.out for piece in relay.feed(stream(events, named=True, done=False)))
    seen = [json.loads(e.data) for e in SseParser().feed(out + relay.end("rcpt_1")) if e.data is not None]
    assert [event["sequence_number"] for event in seen] == list(range(len(seen)))
    for event in seen:
        if event["type"] not in ("response.created", "response.in_progress"):
            openai_shape("ResponseStreamEvent", event)
    final = seen[-1]["response"]
    assert final["usage"]["output_tokens"] == message["usage"]["output_tokens"]
    text = "".join(p["text"] for item in final["output"] if item["type"] == "message" for p in item["content"])
    assert text == "".join(block["text"] for block in message["content"] if block["type"] == "text")
    sealed = [item["encrypted_content"] for item in final["output"] if "encrypted_content" in item]
    whole = whole_answer(message, "responses", request)
    assert sealed == [item["encrypted_content"] for item in whole["output"] if "encrypted_content" in item]


def test_a_request_becomes_messages(anthropic_shape: Any) -> None:
    """System, turns, tools, results, images, files, stops and limits arrive where Messages has them."""
    turns: list[Json] = [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
                {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
                {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA"}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}},
                {"id": "c2", "type": "function", "function": {"name": "time", "arguments": ""}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "noon"}]},
        {"role": "user", "content": "And?"},
    ]
    request = chat_request(
        messages=turns,
        tools=[{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}],
        tool_choice="required",
        parallel_tool_calls=False,
        max_completion_tokens=50,
        stop="END",
        temperature=0.5,
        user="u1",
        reasoning_effort="low",
        response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
        n=1,
        stream=True,
        provider={"order": ["a"]},
    )
    body = json.loads(bridge().request(request, "claude-x", 4096) or b"")
    anthropic_shape("CreateMessageParams", body)
    results = [
        {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "rain"}]},
        {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "noon"}]},
        {"type": "text", "text": "And?"},
    ]
    assert body == {
        "model": "claude-x",
        "max_tokens": 50,
        "system": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Look"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}},
                    {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
                    {
                        "type": "document",
                        "source": {"type": "base64", "media_type": "application/pdf", "data": "AA"},
                        "title": "a.pdf",
                    },
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Oslo"}},
                    {"type": "tool_use", "id": "c2", "name": "time", "input": {}},
                ],
            },
            {"role": "user", "content": results},
        ],
        "temperature": 0.5,
        "stop_sequences": ["END"],
        "metadata": {"user_id": "u1"},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        "tools": [{"name": "weather", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "stream": True,
    }


def test_a_limit_is_always_given() -> None:
    """Messages demands a limit: the client's, else the deployment's, else a fixed one."""
    for fields, most, expected in (({"max_tokens": 5}, 9, 5), ({}, 9, 9), ({}, None, 8192)):
        body = json.loads(bridge().request(chat_request(**fields), "claude-x", most) or b"")
        assert body["max_tokens"] == expected


REFUSED: list[tuple[Json, str]] = [
    ({"n": 2}, "n"),
    ({"logprobs": True}, "logprobs"),
    ({"seed": 0}, "seed"),
    ({"logit_bias": {"1": 2}}, "logit_bias"),
    ({"frequency_penalty": 0.5}, "frequency_penalty"),
    ({"store": True}, "store"),
    ({"modalities": ["text", "audio"]}, "modalities"),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"web_search_options": {}}, "web_search_options"),
    ({"temperature": 1.5}, "temperature"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"service_tier": "flex"}, "service_tier"),
    ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools[0]"),
    ({"tool_choice": {"type": "custom"}, "tools": [{"type": "function", "function": {"name": "f"}}]}, "tool_choice"),
    (
        {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]},
        "messages[0].content[0]",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]},
        "messages[0].content[0]",
    ),
    ({"messages": [{"role": "function", "name": "f", "content": "x"}]}, "messages[0].role"),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "["}}]}]},
        "messages[0].tool_calls[0].arguments",
    ),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED, ids=lambda v: str(v)[:50])
def test_what_messages_has_no_equal_of_is_refused_by_name(fields: Json, param: str) -> None:
    """Nothing is dropped in silence: the refusal names the member."""
    with pytest.raises(InvalidRequest) as caught:
        bridge().request(chat_request(**fields), "claude-x", None)
    assert caught.value.param == param


def test_neutral_values_pass() -> None:
    """Values that say what holds anyway are no reason to refuse."""
    fields: Json = {"n": 1, "logprobs": False, "presence_penalty": 0, "store": False, "logit_bias": {}, "seed": None}
    bridge().request(chat_request(**fields), "claude-x", None)


def test_blocks_nobody_asked_for_are_no_answer() -> None:
    """A server tool's block, which chat cannot carry, is a protocol error and not dropped."""
    message = {
        **HEAD,
        "content": [{"type": "server_tool_use", "id": "x", "name": "web_search", "input": {}}],
        "usage": {},
    }
    with pytest.raises(NotAnAnswer):
        whole_answer(message, "chat", chat_request())
