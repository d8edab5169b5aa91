"""Whole answers: what is read of them, and the repairs of answers that are otherwise relayed as bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.admission.parse import parse_request
from gateway.errors import PolicyDenied, UpstreamTimeout, render
from gateway.exchange import Dialect, Endpoint
from gateway.protocols import tolerant
from gateway.protocols.registry import translation
from gateway.protocols.views import NotAnAnswer, read_answer

Json = dict[str, Any]
HEAD: Json = {"id": "c1", "created": 1, "model": "m1", "system_fingerprint": "fp"}


def native(dialect: Dialect, answer: bytes, **fields: Any) -> Any:
    needed: Json = {"prompt": "p"} if dialect == "completions" else {"messages": [], "input": "i", "max_tokens": 1}
    body: Json = {"model": "m", **needed, **fields}
    request = parse_request(Endpoint[dialect], json.dumps(body).encode(), [(b"content-type", b"application/json")])
    found = translation(dialect, {dialect})
    assert found is not None
    return found.answer(answer, read_answer(dialect, answer), request)


def test_an_answer_that_needs_nothing_is_the_same_bytes() -> None:
    """No copy, no rewrite: the object that came in goes out."""
    for dialect, answer in (
        ("chat", b'{ "choices": [ ] , "x" : 12345678901234567890123}'),
        ("completions", b'{"choices":[{"text":"a","finish_reason":null}]}'),
        ("embeddings", b'{"data":[{"embedding":[1]}]}'),
        ("responses", b'{"output":[]}'),
        ("messages", b'{"content":[]}'),
    ):
        assert native(dialect, answer).body is answer  # type: ignore[arg-type]


def test_an_empty_finish_reason_becomes_null_and_nothing_else_changes() -> None:
    """The repair touches the two quotes and is named."""
    answer = b'{ "choices":[{"finish_reason" : "" , "index":0, "big":12345678901234567890123}] }'
    fixed = native("chat", answer)
    assert fixed.body == answer.replace(b'""', b"null") and fixed.repairs == ("empty_finish_reason",)


def test_everything_the_model_wrote_is_read() -> None:
    """Content in both forms, refusals, reasoning, and calls of every choice are there to be scanned."""
    message = {
        "content": [{"type": "text", "text": "part"}],
        "refusal": "refused",
        "reasoning_content": "thought",
        "tool_calls": [{"function": {"name": "fn", "arguments": "args"}}],
        "function_call": {"arguments": "old"},
    }
    body = {**HEAD, "choices": [{"message": {"content": "said"}}, {"message": message, "finish_reason": "stop"}]}
    view = read_answer("chat", json.dumps(body).encode())
    assert set(view.texts) == {"said", "part", "refused", "thought", "fn", "args", "old"}
    assert (view.id, view.model, view.created, view.fingerprint) == ("c1", "m1", 1, "fp")
    assert view.finish_reasons == (None, "stop")
    blocks = [
        {"type": "text", "text": "t"},
        {"type": "thinking", "thinking": "h"},
        {"type": "tool_use", "name": "n", "input": {"k": "v"}},
    ]
    assert {"t", "h", "n", '{"k":"v"}'} == set(read_answer("messages", json.dumps({"content": blocks}).encode()).texts)
    items = [
        {"type": "message", "content": [{"type": "output_text", "text": "o"}, {"type": "refusal", "refusal": "r"}]},
        {"type": "function_call", "name": "f", "arguments": "a"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]},
    ]
    assert {"o", "r", "f", "a", "s"} == set(read_answer("responses", json.dumps({"output": items}).encode()).texts)


def test_usage_of_every_dialect_is_one_value() -> None:
    """Cached tokens are part of the prompt everywhere, also where the dialect counts them apart."""
    chat = {
        "prompt_tokens": 10,
        "completion_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    responses = {
        "input_tokens": 10,
        "output_tokens": 4,
        "input_tokens_details": {"cached_tokens": 3},
        "output_tokens_details": {"reasoning_tokens": 2},
    }
    messages = {"input_tokens": 7, "output_tokens": 4, "cache_read_input_tokens": 3}
    views = [
        read_answer("chat", json.dumps({"choices": [], "usage": chat}).encode()),
        read_answer("responses", json.dumps({"output": [], "usage": responses}).encode()),
        read_answer("messages", json.dumps({"content": [], "usage": messages}).encode()),
    ]
    for view in views:
        assert view.usage is not None
        assert (view.usage.prompt, view.usage.cached, view.usage.completion) == (10, 3, 4)


@pytest.mark.parametrize("value", [-1, 1.5, "3", True, None, 2**60, {}])
def test_counts_that_are_none_are_no_usage(value: Any) -> None:
    """A negative, huge, fractional or textual count is not taken for a number of tokens."""
    body = {"choices": [], "usage": {"prompt_tokens": value, "completion_tokens": 1}}
    assert read_answer("chat", json.dumps(body).encode()).usage is None


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        ("chat", b"[]"),
        ("chat", b"{}"),
        ("chat", b'{"choices":{}}'),
        ("chat", b'{"choices":[1]}'),
        ("embeddings", b'{"choices":[]}'),
        ("responses", b'{"output":null}'),
        ("messages", b'{"content":"x"}'),
    ],
)
def test_another_shape_is_no_answer(dialect: Dialect, body: bytes) -> None:
    """A 200 whose body is not its endpoint's answer is a protocol error."""
    with pytest.raises(NotAnAnswer):
        read_answer(dialect, body)


@pytest.mark.parametrize("body", [b"", b"{", b'{"a":NaN}', b'{"a":1e999}', b"\xff", b"[" * 100_000, b"<html>"])
def test_what_is_not_json_is_refused(body: bytes) -> None:
    """Bytes that are no JSON value, however deep they pretend to be, are refused."""
    with pytest.raises(tolerant.NotJson):
        tolerant.loads(body)


def test_surrogates_and_big_numbers_survive_both_ways() -> None:
    """What the fast reader rejects or rounds is read and written exactly by the tolerant one."""
    value = tolerant.loads(rb'{"a":"\ud83d","b":12345678901234567890123}')
    assert tolerant.loads(tolerant.dumps(value)) == value
    assert value["b"] == 12345678901234567890123


def test_errors_have_their_dialects_shape(openai_shape: Any, anthropic_shape: Any) -> None:
    """Error bodies follow OpenAI's document, and Anthropic's on its endpoint."""
    for error in (PolicyDenied("no", reasons=("a",)), UpstreamTimeout("slow", param=None)):
        openai_shape("ErrorResponse", json.loads(render(error, receipt="rcpt_1")))
        anthropic_shape("ErrorResponse", {"request_id": None, **json.loads(render(error, anthropic=True))})


def test_a_deployment_serves_what_it_can_speak() -> None:
    """Native dialects win; what can be bridged is; embeddings and completions never are."""

    def pair(client: Dialect, *offered: str) -> tuple[str, str] | None:
        found = translation(client, offered)
        return (found.client, found.native) if found else None

    assert pair("responses", "chat", "responses") == ("responses", "responses")
    assert pair("responses", "chat") == ("responses", "chat")
    assert pair("responses", "messages") == ("responses", "messages")
    assert pair("messages", "chat", "responses") == ("messages", "chat")
    assert pair("chat", "messages") == ("chat", "messages")
    assert pair("embeddings", "chat", "messages") is None
    assert pair("completions", "chat", "responses") is None
    assert pair("chat") is None
