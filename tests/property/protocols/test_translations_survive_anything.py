"""Requests, answers and streams with any value in any place: a translation, or an error of its own kind."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.admission.parse import parse_request
from gateway.errors import AssayError, InvalidRequest
from gateway.exchange import Dialect, Endpoint
from gateway.protocols.registry import translation
from gateway.protocols.sse import SseError
from gateway.protocols.tolerant import NotJson
from gateway.protocols.views import NotAnAnswer, read_answer

Json = dict[str, Any]
JUNK: list[Any] = [
    None,
    True,
    0,
    -1,
    2**70,
    1.5,
    "",
    "x",
    "\ud83d",
    [],
    {},
    [None],
    [1],
    ["x"],
    [{}],
    {"type": "text"},
    {"a": {}},
]
PAIRS: list[tuple[Dialect, Dialect]] = [
    ("chat", "chat"),
    ("completions", "completions"),
    ("embeddings", "embeddings"),
    ("responses", "responses"),
    ("messages", "messages"),
    ("responses", "chat"),
    ("messages", "chat"),
    ("chat", "messages"),
    ("responses", "messages"),
]
CALL: Json = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CUSTOM: Json = {"index": 1, "id": "d", "type": "custom", "custom": {"name": "f", "input": "x"}}
SAID: Json = {
    "role": "assistant",
    "content": "hi",
    "refusal": "no",
    "reasoning_content": "hm",
    "thinking_blocks": [{"type": "thinking", "thinking": "a", "signature": "s"}],
    "annotations": [{"type": "url_citation", "url_citation": {"url": "u"}}],
    "tool_calls": [CALL, CUSTOM],
}
USAGE: Json = {"prompt_tokens": 3, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 1}}
HEAD: Json = {"id": "c1", "created": 1, "model": "m"}
LOGPROBS: Json = {"content": [{"token": "a", "logprob": -1, "bytes": [97], "top_logprobs": []}]}
BLOCKS: list[Json] = [
    {"type": "thinking", "thinking": "a", "signature": "s"},
    {"type": "redacted_thinking", "data": "d"},
    {"type": "text", "text": "hi"},
    {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}},
]
MESSAGE: Json = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": BLOCKS,
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 1, "output_tokens": 2, "cache_read_input_tokens": 0},
}
ITEM: Json = {"id": "msg_1", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]}
RESPONSE: Json = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "output": [ITEM],
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
ANSWERS: dict[Dialect, Json] = {
    "chat": {
        **HEAD,
        "choices": [{"index": 0, "message": SAID, "logprobs": LOGPROBS, "finish_reason": "stop"}],
        "usage": USAGE,
    },
    "completions": {**HEAD, "choices": [{"index": 0, "text": "hi", "finish_reason": ""}], "usage": USAGE},
    "embeddings": {
        **HEAD,
        "data": [{"index": 0, "embedding": [0.5]}, {"index": 1, "embedding": "AAAAPw=="}],
        "usage": USAGE,
    },
    "responses": RESPONSE,
    "messages": MESSAGE,
}
_CHUNK: Json = {**HEAD, "choices": [{"index": 0, "delta": SAID, "logprobs": LOGPROBS, "finish_reason": None}]}
_CHAT: list[Json] = [
    _CHUNK,
    {**HEAD, "choices": [{"index": 0, "delta": {"tool_calls": [{**CALL, "id": "e"}]}, "finish_reason": ""}]},
    {**HEAD, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": USAGE},
    {**HEAD, "usage": USAGE},
]
STREAMS: dict[Dialect, list[Json]] = {
    "chat": _CHAT,
    "completions": [{**HEAD, "choices": [{"index": 0, "text": "hi", "finish_reason": "stop"}]}],
    "embeddings": [],
    "responses": [
        {"type": "response.created", "sequence_number": 0, "response": {**RESPONSE, "output": []}},
        {"type": "response.output_text.delta", "sequence_number": 1, "output_index": 0, "delta": "hi"},
        {"type": "response.output_item.done", "sequence_number": 2, "output_index": 1, "item": ITEM},
        {"type": "response.completed", "sequence_number": 3, "response": RESPONSE},
    ],
    "messages": [
        {"type": "message_start", "message": {**MESSAGE, "content": []}},
        *[
            event
            for index, block in enumerate(BLOCKS)
            for event in (
                {"type": "content_block_start", "index": index, "content_block": block},
                {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": "a"}},
                {"type": "content_block_delta", "index": index, "delta": {"type": "signature_delta", "signature": "a"}},
                {
                    "type": "content_block_delta",
                    "index": index,
                    "delta": {"type": "input_json_delta", "partial_json": "{}"},
                },
                {"type": "content_block_stop", "index": index},
            )
        ],
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ],
}
TOOL: Json = {"type": "function", "function": {"name": "f", "parameters": {}}}
PARTS: list[Json] = [
    {"type": "text", "text": "a"},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
    {"type": "file", "file": {"file_data": "data:application/pdf;base64,AA"}},
]
REQUESTS: dict[Dialect, Json] = {
    "chat": {
        "model": "m",
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": PARTS},
            {**SAID, "content": "x", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c", "content": "r"},
        ],
        "tools": [TOOL],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
        "stream_options": {"include_usage": True},
        "stop": ["a"],
        "reasoning_effort": "low",
        "temperature": 0.5,
        "n": 1,
    },
    "responses": {
        "model": "m",
        "instructions": "i",
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "a"},
                    {"type": "input_image", "image_url": "data:image/png;base64,AA"},
                ],
            },
            {
                "type": "reasoning",
                "content": [{"type": "reasoning_text", "text": "t"}],
                "encrypted_content": "assay.thinking:s",
            },
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "x"}, {"type": "refusal", "refusal": "n"}],
            },
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "r"},
        ],
        "tools": [{"type": "function", "name": "f", "parameters": {}}],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}},
        "reasoning": {"effort": "low"},
        "include": ["message.output_text.logprobs"],
    },
    "messages": {
        "model": "m",
        "max_tokens": 5,
        "system": [{"type": "text", "text": "s"}],
        "messages": [
            {
                "role": "user",
                "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}],
            },
            {"role": "assistant", "content": BLOCKS},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "r"}]}],
            },
            {
                "role": "user",
                "content": [
                    {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "d"}]}}
                ],
            },
        ],
        "tools": [{"name": "f", "input_schema": {}}],
        "tool_choice": {"type": "tool", "name": "f"},
        "output_config": {"format": {"type": "json_schema", "schema": {}}},
        "context_management": {"edits": [{"type": "clear_thinking"}]},
    },
    "completions": {"model": "m", "prompt": "p"},
    "embeddings": {"model": "m", "input": "p", "encoding_format": "base64"},
}


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [at] if at else []
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        found += places(inner, (*at, key))
    return found


def spoiled(value: Any, dice: random.Random, times: int) -> Any:
    """The value with junk in some places, or with members gone."""
    value = copy.deepcopy(value)
    for _ in range(times):
        path = dice.choice(places(value) or [()])
        if not path:
            break
        holder = value
        for step in path[:-1]:
            holder = holder[step]
        if dice.random() < 0.2:
            del holder[path[-1]]
        else:
            holder[path[-1]] = copy.deepcopy(dice.choice(JUNK))
    return value


def request_of(dialect: Dialect) -> Any:
    body = json.dumps(REQUESTS[dialect]).encode()
    return parse_request(Endpoint[dialect], body, [(b"content-type", b"application/json")])


@pytest.mark.parametrize(("client", "native"), PAIRS)
@settings(max_examples=250, deadline=None)
@given(seed=st.integers(0, 2**32), times=st.integers(0, 4))
def test_requests(client: Dialect, native: Dialect, seed: int, times: int) -> None:
    """A request with anything in it is translated or refused as the client's mistake."""
    body = json.dumps(spoiled(REQUESTS[client], random.Random(seed), times)).encode()
    found = translation(client, {native})
    assert found is not None
    try:
        request = parse_request(Endpoint[client], body, [(b"content-type", b"application/json")])
        sent = found.request(request, "m1", 100)
    except InvalidRequest as error:
        assert error.status == 400 and error.message
    else:
        assert (sent is None) == (client == native)
        if sent is not None:
            assert json.loads(sent)["model"] == "m1"


@pytest.mark.parametrize(("client", "native"), PAIRS)
@settings(max_examples=250, deadline=None)
@given(seed=st.integers(0, 2**32), times=st.integers(0, 4))
def test_answers(client: Dialect, native: Dialect, seed: int, times: int) -> None:
    """An answer with anything in it becomes the client's, or is no answer."""
    body = json.dumps(spoiled(ANSWERS[native], random.Random(seed), times)).encode()
    found = translation(client, {native})
    assert found is not None
    try:
        answer = found.answer(body, read_answer(native, body), request_of(client))
    except (NotAnAnswer, NotJson):
        return
    assert isinstance(json.loads(answer.body), dict)


@pytest.mark.parametrize(("client", "native"), PAIRS)
@settings(max_examples=250, deadline=None)
@given(seed=st.integers(0, 2**32), times=st.integers(0, 5))
def test_streams(client: Dialect, native: Dialect, seed: int, times: int) -> None:
    """A stream with anything in it is relayed, or is no stream; its end or its error can always be written."""
    dice = random.Random(seed)
    events = spoiled(STREAMS[native], dice, times)
    dice.shuffle(events) if dice.random() < 0.2 else None
    data = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events) + b"data: [DONE]\n\n"
    found = translation(client, {native})
    assert found is not None
    relay = found.stream(request_of(client))
    out = b""
    try:
        while data:
            cut = dice.randint(1, 400)
            out += b"".join(piece.out for piece in relay.feed(data[:cut]))
            data = data[cut:]
        out += relay.end("rcpt_1") if relay.complete else relay.error(AssayError("x"), None)
    except (NotAnAnswer, NotJson, SseError):
        out += relay.error(AssayError("x"), "rcpt_1")
    out.decode()
    assert out.endswith(b"\n\n")
