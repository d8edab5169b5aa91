"""Relays of each dialect's own streams: what the client sees, when a stream is complete, how it ends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from chat_cases import HEAD, choice, stream

from gateway.errors import UpstreamTimeout
from gateway.protocols.chat_stream import ChatRelay
from gateway.protocols.messages_stream import MessagesRelay
from gateway.protocols.responses_stream import ResponsesRelay
from gateway.protocols.sse import KEEP_ALIVE, SseError, SseParser
from gateway.protocols.stream import Relay, error_event
from gateway.protocols.tolerant import NotJson
from gateway.protocols.views import NotAnAnswer

Json = dict[str, Any]
USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}


def chunk(delta: Json, finish: str | None = None, index: int = 0, **more: Any) -> Json:
    one = {**choice(delta, finish), "index": index}
    return {**HEAD, "object": "chat.completion.chunk", "choices": [one], **more}


def chat(include_usage: bool = False, choices: int = 1) -> ChatRelay:
    return ChatRelay(choices=choices, include_usage=include_usage)


def out(relay: Relay, *events: Json, done: bool = False) -> bytes:
    return b"".join(piece.out for piece in relay.feed(stream(list(events), done=done)))


def payloads(data: bytes) -> list[Json]:
    return [json.loads(e.data) for e in SseParser().feed(data) if e.data not in (None, b"[DONE]")]


USAGE_CHUNK: Json = {**HEAD, "object": "chat.completion.chunk", "choices": [], "usage": USAGE}


def test_bytes_pass_as_they_came() -> None:
    """White space, member order, unknown members and numbers beyond doubles are relayed byte for byte."""
    data = b'data: { "x" : 12345678901234567890123 , "choices":[ {"delta":{"content":"a"}, "index":0 } ]}\n\n'
    relay = chat()
    assert [piece.out for piece in relay.feed(data)] == [data]


def test_usage_is_shown_only_when_asked() -> None:
    """The usage chunk is metered either way; the client sees it, or nothing of it."""
    for asked in (True, False):
        relay = chat(include_usage=asked)
        shown = out(relay, chunk({"content": "a"}, "stop"), USAGE_CHUNK)
        assert [p for p in payloads(shown) if p.get("usage")] == ([USAGE_CHUNK] if asked else [])
        assert relay.usage is not None and relay.usage.completion == 2


def test_usage_beside_choices_is_cut_out_alone() -> None:
    """Usage on a chunk that also has choices is removed for a client that did not ask, and only that."""
    event = chunk({"content": "a"}, usage=USAGE, x_last=1)
    assert payloads(out(chat(), event)) == [{k: v for k, v in event.items() if k != "usage"}]
    assert payloads(out(chat(include_usage=True), event)) == [event]


@pytest.mark.parametrize("event", [{**HEAD, "usage": USAGE}, {**HEAD, "choices": None, "usage": USAGE}])
def test_a_usage_chunk_without_choices_gets_an_empty_list(event: Json) -> None:
    """Clients index `choices` on every chunk, so an absent or null one becomes `[]`, and the receipt says so."""
    relay = chat(include_usage=True)
    assert payloads(out(relay, event)) == [{**event, "choices": []}]
    assert relay.repairs == ["usage_choices"]


def test_an_empty_finish_reason_becomes_null() -> None:
    """`finish_reason: ""` on a running stream is null, and ends no choice."""
    relay = chat()
    assert payloads(out(relay, chunk({"content": "a"}, "")))[0]["choices"][0]["finish_reason"] is None
    assert relay.repairs == ["empty_finish_reason"] and not relay.complete


def test_tool_indices_are_put_apart_per_choice() -> None:
    """Two calls at one index of one choice are renumbered; the same index in another choice is its own."""

    def call(id: str | None, index: int = 0, place: int = 0) -> Json:
        opener = {"id": id, "type": "function"} if id else {}
        return chunk({"tool_calls": [{"index": index, **opener, "function": {"arguments": "x"}}]}, index=place)

    relay = chat(choices=2)
    shown = payloads(
        out(relay, call("a"), call("b"), call(None), call("c", place=1), call(None, place=1), call("d", 1))
    )
    assert [p["choices"][0]["delta"]["tool_calls"][0]["index"] for p in shown] == [0, 1, 1, 0, 0, 2]
    assert relay.repairs == ["tool_call_index"]


def test_a_call_repeated_with_its_id_is_one_call() -> None:
    """Upstreams that repeat the id on every delta keep their index."""
    call = chunk({"tool_calls": [{"index": 0, "id": "a", "function": {"arguments": "x"}}]})
    relay = chat()
    out(relay, call, call, call)
    assert relay.repairs == []


def test_complete_is_when_every_choice_has_ended() -> None:
    """With n=2 one finish reason is not the end, and content of a further choice reopens the stream."""
    relay = chat(choices=2)
    out(relay, chunk({"content": "a"}), chunk({}, "stop"))
    assert not relay.complete
    out(relay, chunk({"content": "b"}, index=1), chunk({}, "length", index=1))
    assert relay.complete
    out(relay, chunk({"content": "c"}, index=2))
    assert not relay.complete


def test_done_before_the_end_completes_nothing() -> None:
    """`[DONE]` without any finish reason, or with a choice still open, is a truncated stream."""
    for events in ((), (chunk({"content": "a"}),), (chunk({}, "stop"), chunk({"content": "b"}, index=1))):
        relay = chat()
        out(relay, *events, done=True)
        assert relay.done and not relay.complete


def test_an_upstream_that_ignores_n_is_complete_when_it_says_so() -> None:
    """One finished choice of two asked is complete only with the upstream's own end marker."""
    relay = chat(choices=2)
    out(relay, chunk({}, "stop"))
    assert not relay.complete
    out(relay, done=True)
    assert relay.complete


def test_nothing_passes_after_done() -> None:
    """Events behind the end marker, in the same bytes or later, never reach the client."""
    relay = chat()
    late = b"data: {}\n\n"
    assert late not in b"".join(p.out for p in relay.feed(stream([chunk({}, "stop")]) + late))
    assert relay.feed(late) == []


def test_nothing_passes_after_done_in_a_known_frame() -> None:
    """The short way for known frames is closed behind the end marker, too."""
    relay = chat()
    one, two = chunk({"content": "a"}), chunk({"content": "b"})
    out(relay, one, two, chunk({}, "stop"), done=True)
    assert relay.feed(stream([two], done=False)) == []


def test_comments_are_dropped_and_never_data() -> None:
    """Comments of the upstream, alone or inside an event's block, do not reach the client."""
    relay = chat()
    body = json.dumps(chunk({"content": "a"})).encode()
    pieces = relay.feed(b": working\n\n:\n\n: more\ndata: " + body + b"\n\n")
    assert [piece.out for piece in pieces] == [b"", b"", b"data: " + body + b"\n\n"]
    assert [piece.view.kind for piece in pieces if piece.view] == ["ping", "ping", "data"]


def test_other_line_ends_become_plain_ones() -> None:
    """CRLF, several data lines and fields that mean nothing here leave as one plain event."""
    pieces = chat().feed(b'id: 3\r\ndata: {"choices":\r\ndata: []}\r\nretry: 5\r\n\r\n')
    assert [piece.out for piece in pieces] == [b'data: {"choices":\ndata: []}\n\n']


@pytest.mark.parametrize(
    ("relay", "data", "message"),
    [
        (chat(), b'data: {"error": {"message": "boom", "code": 500}}\n\n', "boom"),
        (chat(), b'data: {"error": "boom"}\n\n', "boom"),
        (chat(), b'data: {"object": "error", "message": "boom"}\n\n', "boom"),
        (chat(), b'event: error\ndata: {"message": "boom"}\n\n', "boom"),
        (ResponsesRelay(), b'event: error\ndata: {"type": "error", "message": "boom"}\n\n', "boom"),
        (
            ResponsesRelay(),
            b'data: {"type": "response.failed", "response": {"error": {"message": "boom"}}}\n\n',
            "boom",
        ),
        (MessagesRelay(), b'data: {"type": "error", "error": {"type": "x", "message": "boom"}}\n\n', "boom"),
    ],
)
def test_an_upstreams_error_event_is_told_apart(relay: Relay, data: bytes, message: str) -> None:
    """Error events of every dialect end the stream and are not relayed as data."""
    (piece, *rest) = relay.feed(data + data)
    assert piece.view is not None and piece.view.kind == "error" and piece.out == b"" and not rest
    assert piece.view.error is not None and piece.view.error["message"] == message
    assert relay.done and not relay.complete


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"data: {nope}\n\n", NotJson),
        (b"data: \xff\n\n", NotJson),
        (b'data: {"a": NaN}\n\n', NotJson),
        (b"data: [1]\n\n", NotAnAnswer),
        (b"data: " + b"x" * 9_000_000, SseError),
    ],
)
def test_what_is_no_stream_is_refused(data: bytes, error: type[Exception]) -> None:
    """Data that is neither JSON objects nor the end marker is a protocol error, never relayed."""
    for relay in (chat(), ResponsesRelay(), MessagesRelay()):
        with pytest.raises(error):
            relay.feed(data)


def test_half_a_surrogate_reaches_the_client() -> None:
    """An escaped lone surrogate, valid by RFC 8259, is relayed as it came."""
    data = rb'data: {"choices":[{"index":0,"delta":{"content":"\ud83d"}}]}' + b"\n\n"
    (piece,) = chat().feed(data)
    assert piece.out == data and piece.text == "\ud83d"


def test_the_end_names_the_receipt_before_the_marker() -> None:
    """The comment with the receipt stands right before each dialect's end marker."""
    assert chat().end("rcpt_1") == b": receipt rcpt_1\n\ndata: [DONE]\n\n"
    assert (
        MessagesRelay().end("rcpt_1") == b': receipt rcpt_1\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n'
    )


RESPONSE: Json = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m1", "output": []}
DELTA: Json = {"type": "response.output_text.delta", "sequence_number": 1, "output_index": 0, "delta": "hi"}


@pytest.mark.parametrize("status", ["completed", "incomplete"])
def test_responses_hold_their_terminal_event(status: str) -> None:
    """The terminal event waits for the receipt; text of items without deltas is scanned all the same."""
    said = {"type": "message", "content": [{"type": "output_text", "text": "unstreamed"}]}
    final = {"type": f"response.{status}", "sequence_number": 2, "response": {**RESPONSE, "output": [{}, said]}}
    relay = ResponsesRelay()
    events = [{"type": "response.created", "sequence_number": 0, "response": RESPONSE}, DELTA, final]
    pieces = relay.feed(stream(events, named=True, done=False))
    assert [piece.text for piece in pieces] == ["", "hi", "unstreamed"]
    assert relay.complete and relay.done and pieces[-1].out == b""
    assert relay.end("rcpt_1") == b": receipt rcpt_1\n\n" + stream([final], named=True, done=False)


def test_responses_text_counts_once() -> None:
    """An item's `done` events repeat its deltas and are not scanned again."""
    item = {"type": "message", "content": [{"type": "output_text", "text": "hi"}]}
    done = {"type": "response.output_item.done", "sequence_number": 2, "output_index": 0, "item": item}
    final = {"type": "response.completed", "sequence_number": 3, "response": {**RESPONSE, "output": [item]}}
    pieces = ResponsesRelay().feed(stream([DELTA, done, final], named=True, done=False))
    assert "".join(piece.text for piece in pieces) == "hi"


def test_events_without_a_name_get_their_type() -> None:
    """`event:` equals `type`, also when the upstream left it out or lied; a type with line ends is no name."""
    for written in (b"data: {}\n\n", b"event: other\ndata: {}\n\n"):
        data = written.replace(b"{}", json.dumps(DELTA).encode())
        assert ResponsesRelay().feed(data)[0].out.startswith(b"event: response.output_text.delta\ndata: ")
    evil = json.dumps({"type": "x\ndata: [DONE]\n\n"}).encode()
    assert b"[DONE]\n" not in ResponsesRelay().feed(b"data: " + evil + b"\n\n")[0].out


def test_responses_end_without_a_terminal_event_is_truncated() -> None:
    """The end marker of another dialect, or the end of the body, completes no response."""
    relay = ResponsesRelay()
    relay.feed(stream([DELTA], named=True))
    assert relay.done and not relay.complete


def test_a_failed_response_keeps_what_was_known() -> None:
    """response.failed continues the sequence and carries id and model of the response that failed."""
    relay = ResponsesRelay()
    relay.feed(
        stream(
            [{"type": "response.created", "sequence_number": 0, "response": RESPONSE}, DELTA], named=True, done=False
        )
    )
    (failed,) = payloads(relay.error(UpstreamTimeout("slow"), "rcpt_1"))
    assert (failed["type"], failed["sequence_number"]) == ("response.failed", 2)
    assert failed["response"]["id"] == "resp_1" and failed["response"]["status"] == "failed"
    assert failed["response"]["error"]["code"] == "upstream_timeout"
    assert failed["response"]["error"]["receipt"] == "rcpt_1"


def message_events(stop: bool = True) -> list[Json]:
    message = {
        "id": "msg_1",
        "type": "message",
        "model": "m1",
        "content": [],
        "usage": {"input_tokens": 7, "output_tokens": 1},
    }
    events: list[Json] = [
        {"type": "message_start", "message": message},
        {"type": "ping"},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
    ]
    return events + ([{"type": "message_stop"}] if stop else [])


@pytest.mark.parametrize("stop", [True, False])
def test_messages_hold_or_supply_their_last_event(stop: bool) -> None:
    """message_stop waits for the receipt; where only it is missing it is supplied. Usage is merged, pings pass."""
    relay = MessagesRelay()
    events = message_events(stop)
    pieces = relay.feed(stream(events, named=True, done=False))
    assert relay.complete and relay.done == stop
    assert b"".join(p.out for p in pieces) == stream(message_events(False), named=True, done=False)
    assert relay.end("rcpt_1").count(b"message_stop") == 2
    assert relay.usage is not None and (relay.usage.prompt, relay.usage.completion) == (7, 3)
    assert pieces[1].view is not None and pieces[1].view.kind == "ping"


def test_messages_without_a_stop_reason_are_truncated() -> None:
    """A message whose stop reason never came is not complete, even behind message_stop."""
    relay = MessagesRelay()
    relay.feed(stream(message_events()[:4] + [{"type": "message_stop"}], named=True, done=False))
    assert relay.done and not relay.complete


def test_error_events_before_anything_was_relayed() -> None:
    """A stream in which only keep-alives were sent ends in its dialect's error event."""
    error = UpstreamTimeout("slow")
    assert payloads(error_event("chat", error, "rcpt_1"))[0]["error"]["code"] == "upstream_timeout"
    assert payloads(error_event("completions", error, None))[0]["error"]["source"] == "provider"
    assert payloads(error_event("responses", error, "rcpt_1"))[0]["type"] == "response.failed"
    (anthropic,) = payloads(error_event("messages", error, "rcpt_1"))
    assert (anthropic["type"], anthropic["error"]["type"]) == ("error", "timeout_error")
    assert KEEP_ALIVE == b": keep-alive\n\n"
