"""The Responses API served by chat completions: shapes, event grammar, and the same answer whole or streamed."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
import pytest
from chat_cases import HEAD, answers, choice, stream
from hypothesis import HealthCheck, given, settings

from gateway.admission.parse import parse_request
from gateway.errors import InvalidRequest, UpstreamTruncated
from gateway.exchange import Endpoint, InferenceRequest
from gateway.protocols.registry import translation
from gateway.protocols.sse import SseParser
from gateway.protocols.views import read_answer

Json = dict[str, Any]
MANY = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}, "strict": False}


def request(**fields: Any) -> InferenceRequest:
    body = json.dumps({"model": "alias", "input": "hi", **fields}).encode()
    return parse_request(Endpoint.responses, body, [(b"content-type", b"application/json")])


def bridge() -> Any:
    found = translation("responses", {"chat"})
    assert found is not None
    return found


def sent(**fields: Any) -> Json:
    value: Json = json.loads(bridge().request(request(**fields), "m1", None))
    return value


def events_of(data: bytes) -> list[Json]:
    found = []
    for event in SseParser().feed(data):
        if event.data is not None:
            value = json.loads(event.data)
            assert event.event.decode() == value["type"]
            found.append(value)
    return found


def check_grammar(events: list[Json]) -> None:
    """created, in_progress; items that open, fill and close in order; one terminal event; numbers without a gap."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    ends = ("response.completed", "response.incomplete", "response.failed")
    assert [event["type"] in ends for event in events] == [False] * (len(events) - 1) + [True]
    open_items: dict[int, Json] = {}
    texts: dict[tuple[int, str], str] = {}
    closed = 0
    for event in events[2:-1]:
        kind = event["type"]
        if kind == "response.output_item.added":
            assert event["output_index"] == len(open_items) + closed
            open_items[event["output_index"]] = event["item"]
            continue
        index = event["output_index"]
        if kind == "response.output_item.done":
            assert event["item"]["id"] == open_items.pop(index)["id"]
            closed += 1
            continue
        assert event["item_id"] == open_items[index]["id"]
        if kind.endswith(".delta"):
            stem = kind.removesuffix(".delta")
            texts[index, stem] = texts.get((index, stem), "") + event["delta"]
        elif kind.endswith(".done") and kind != "response.content_part.done":
            whole = next(event[name] for name in ("text", "refusal", "arguments", "input") if name in event)
            assert whole == texts.get((index, kind.removesuffix(".done")), "")
    assert not open_items


@MANY
@given(answers())
def test_a_stream_ends_as_the_whole_answer(openai_shape: Any, case: tuple[Json, list[Json]]) -> None:
    """However a completion is cut into chunks, its last event holds the response that the whole completion gives."""
    whole, chunks = case
    asked = request(tools=[TOOL])
    body = json.dumps(whole).encode()
    answer = json.loads(bridge().answer(body, read_answer("chat", body), asked).body)
    openai_shape("Response", answer)
    relay = bridge().stream(asked)
    out = b"".join(piece.out for piece in relay.feed(stream(chunks)))
    assert relay.complete and relay.done
    end = relay.end("rcpt_1")
    events = events_of(out + end)
    check_grammar(events)
    for event in events:
        openai_shape("ResponseStreamEvent", event)
    assert events[-1]["response"] == answer
    _, _, terminal = end.partition(b": receipt rcpt_1\n\n")
    assert terminal.count(b"event: ") == 1


@MANY
@given(answers())
def test_what_is_scanned_is_what_is_delivered(case: tuple[Json, list[Json]]) -> None:
    """The text that the relay hands to inspection is the text that the client reads, in order."""
    _, chunks = case
    relay = bridge().stream(request())
    scanned = "".join(piece.text for chunk in chunks for piece in relay.feed(stream([chunk], done=False)))
    events = events_of(stream_out(chunks))
    names = [
        event["item"]["name"]
        for event in events
        if event["type"] == "response.output_item.added" and "name" in event["item"]
    ]
    deltas = [event["delta"] for event in events if event["type"].endswith(".delta")]
    assert sorted(scanned) == sorted("".join(deltas) + "".join(names))


def stream_out(chunks: list[Json], **fields: Any) -> bytes:
    relay = bridge().stream(request(**fields))
    return b"".join(piece.out for piece in relay.feed(stream(chunks))) + relay.end("rcpt_1")


def test_the_official_client_reads_the_stream() -> None:
    """The openai library accumulates the bridged events into a response with text and a tool call."""
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"a":'}}
    more = {"index": 0, "function": {"arguments": "1}"}}
    deltas: list[Json] = [{"role": "assistant", "content": ""}, {"reasoning_content": "hm"}, {"content": "Good "}]
    deltas += [{"content": "day"}, {"tool_calls": [call]}, {"tool_calls": [more]}]
    chunks = [{**HEAD, "object": "chat.completion.chunk", "choices": [choice(delta)]} for delta in deltas]
    chunks.append({**HEAD, "object": "chat.completion.chunk", "choices": [choice({}, "tool_calls")]})
    out = stream_out(chunks)
    transport = httpx.MockTransport(
        lambda _: httpx.Response(200, headers={"content-type": "text/event-stream"}, content=out)
    )
    client = openai.OpenAI(api_key="k", base_url="http://x/v1", http_client=httpx.Client(transport=transport))
    with client.responses.stream(model="m", input="hi") as events:
        final = events.get_final_response()
    assert final.output_text == "Good day"
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    assert final.output[2].arguments == '{"a":1}'


def test_a_truncated_stream_fails_with_one_event(openai_shape: Any) -> None:
    """A stream that breaks ends in one response.failed that continues the numbers and keeps what was known."""
    relay = bridge().stream(request())
    chunks = [{**HEAD, "object": "chat.completion.chunk", "choices": [choice({"content": "Hel"})]}]
    out = b"".join(piece.out for piece in relay.feed(stream(chunks, done=False)))
    assert not relay.complete
    failed = events_of(out + relay.error(UpstreamTruncated("cut"), "rcpt_1"))
    assert [event["sequence_number"] for event in failed] == list(range(len(failed)))
    last = failed[-1]
    assert last["type"] == "response.failed" and last["response"]["status"] == "failed"
    assert last["response"]["model"] == "m1"
    assert last["response"]["error"]["code"] == "upstream_truncated"
    assert not [event for event in failed if event["type"] == "response.completed"]


def test_a_request_becomes_chat() -> None:
    """Instructions, items, tools, formats and limits arrive where chat has them; unknown fields pass."""
    items: list[Json] = [
        {"role": "developer", "content": "Be kind."},
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Look"},
                {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low"},
            ],
        },
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "I see", "annotations": []}],
        },
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "time", "arguments": ""},
        {"type": "function_call_output", "call_id": "c1", "output": "rain"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "noon"}]},
        {"role": "user", "content": "And?"},
    ]
    body = sent(
        input=items,
        instructions="Be brief.",
        tools=[TOOL],
        tool_choice={"type": "function", "name": "weather"},
        max_output_tokens=50,
        temperature=0.5,
        text={
            "format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True},
            "verbosity": "low",
        },
        reasoning={"effort": "low", "summary": "auto"},
        parallel_tool_calls=False,
        store=False,
        include=["reasoning.encrypted_content"],
        x_foo=[1],
        stream=True,
    )
    function = {"name": "weather", "parameters": TOOL["parameters"], "strict": False}
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}},
        {"id": "c2", "type": "function", "function": {"name": "time", "arguments": "{}"}},
    ]
    assert body == {
        "model": "m1",
        "messages": [
            {"role": "system", "content": "Be brief.\n\nBe kind."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Look"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "low"}},
                ],
            },
            {"role": "assistant", "content": "I see", "reasoning_content": "hm", "tool_calls": calls},
            {"role": "tool", "tool_call_id": "c1", "content": "rain"},
            {"role": "tool", "tool_call_id": "c2", "content": "noon"},
            {"role": "user", "content": "And?"},
        ],
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "max_tokens": 50,
        "temperature": 0.5,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True},
        },
        "verbosity": "low",
        "reasoning_effort": "low",
        "parallel_tool_calls": False,
        "x_foo": [1],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


REFUSED: list[tuple[Json, str]] = [
    ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ({"store": True}, "store"),
    ({"tools": [{"type": "web_search"}]}, "tools[0]"),
    ({"tools": [TOOL, {"type": "mcp", "server_url": "http://x"}]}, "tools[1]"),
    ({"tool_choice": {"type": "file_search"}}, "tool_choice"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
    ({"input": [{"type": "computer_call_output", "output": {}}]}, "input[0]"),
    ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}, "input[0].content[0]"),
    ({"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "http://x"}]}]}, "input[0].content[0]"),
    ({"input": [{"role": "user", "content": 7}]}, "input[0].content"),
    ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
    ({"text": {"format": {"type": "grammar"}}}, "text.format"),
    ({"context_management": [{"type": "compaction"}]}, "context_management"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED, ids=lambda v: str(v)[:50])
def test_what_chat_has_no_equal_of_is_refused_by_name(fields: Json, param: str) -> None:
    """Nothing is dropped in silence: the refusal names the member."""
    with pytest.raises(InvalidRequest) as caught:
        bridge().request(request(**fields), "m1", None)
    assert caught.value.param == param and caught.value.status == 400


def test_incomplete_answers_say_why() -> None:
    """A completion cut by its limit or a filter is an incomplete response with the reason."""
    for finish, reason in (("length", "max_output_tokens"), ("content_filter", "content_filter")):
        whole = {
            **HEAD,
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": finish}],
        }
        body = json.dumps(whole).encode()
        answer = json.loads(bridge().answer(body, read_answer("chat", body), request()).body)
        assert (answer["status"], answer["incomplete_details"]) == ("incomplete", {"reason": reason})


def test_colliding_tool_indices_are_told_apart() -> None:
    """Calls that an upstream put at one index become two items."""

    def call(**fields: Any) -> Json:
        return {
            **HEAD,
            "object": "chat.completion.chunk",
            "choices": [choice({"tool_calls": [{"index": 0, **fields}]})],
        }

    chunks = [
        call(id="a", type="function", function={"name": "weather", "arguments": ""}),
        call(function={"arguments": "{}"}),
    ]
    chunks += [
        call(id="b", type="function", function={"name": "time", "arguments": ""}),
        call(function={"arguments": "[]"}),
    ]
    chunks.append({**HEAD, "object": "chat.completion.chunk", "choices": [choice({}, "tool_calls")]})
    relay = bridge().stream(request())
    out = b"".join(piece.out for piece in relay.feed(stream(chunks))) + relay.end("rcpt_1")
    output = events_of(out)[-1]["response"]["output"]
    assert [(item["call_id"], item["arguments"]) for item in output] == [("a", "{}"), ("b", "[]")]
    assert relay.repairs == ["tool_call_index"]
