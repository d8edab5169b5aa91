"""Translations between dialects, put together from the pure functions of this package."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from gateway.errors import AssayError
from gateway.exchange import AnswerView, Dialect, EventView, InferenceRequest
from gateway.protocols import sse, tolerant
from gateway.protocols.bridges import (
    anthropic_answer,
    anthropic_request,
    messages_answer,
    messages_request,
    responses_answer,
    responses_request,
)
from gateway.protocols.bridges.anthropic_events import ChatFromMessages
from gateway.protocols.bridges.messages_events import MessagesFromChat
from gateway.protocols.bridges.responses_events import ResponsesFromChat
from gateway.protocols.bridges.shared import Json
from gateway.protocols.bridges.steps import Step
from gateway.protocols.chat_stream import ChatRelay
from gateway.protocols.sse import SseEvent
from gateway.protocols.stream import (
    Relay,
    Relayed,
    messages_error,
    openai_error,
    receipt_comment,
    responses_error,
)
from gateway.protocols.translation import Answer, Translation, native_relay
from gateway.protocols.views import read_event

Clock = Callable[[], float]


class Bridge(Translation):
    """One dialect served by another. `modern`: the upstream takes chat's newer name of the output limit."""

    def __init__(self, client: Dialect, native: Dialect, *, modern: bool, clock: Clock = time.time) -> None:
        super().__init__(client, native)
        self._modern = modern
        self._clock = clock

    def request(self, request: InferenceRequest, model: str, max_output_tokens: int | None) -> bytes | None:
        fields: Json = dict(request.fields)
        if self.client == "responses":
            chat = responses_request.to_chat(fields, carry=self.native == "messages")
            self._limit(chat, fields.get("max_output_tokens"))
        elif self.client == "messages":
            chat = messages_request.to_chat(fields)
            self._limit(chat, fields.get("max_tokens"))
        else:
            chat = {name: value for name, value in fields.items() if name != "provider"}
        body = anthropic_request.from_chat(chat, max_output_tokens) if self.native == "messages" else chat
        body = {"model": model, **{name: value for name, value in body.items() if name not in _OWN}}
        if request.stream:
            body["stream"] = True
            if self.native == "chat":
                body["stream_options"] = {"include_usage": True}
        return tolerant.dumps(body)

    def _limit(self, chat: Json, limit: Any) -> None:
        if limit is not None:
            chat["max_completion_tokens" if self._modern else "max_tokens"] = limit

    def answer(self, body: bytes, view: AnswerView, request: InferenceRequest) -> Answer:
        value: Json = dict(view.body)
        if self.native == "messages":
            value = anthropic_answer.to_chat(value, int(self._clock()))
        if self.client == "responses":
            value = responses_answer.from_chat(value, dict(request.fields))
        elif self.client == "messages":
            value = messages_answer.from_chat(value)
        return Answer(tolerant.dumps(value))

    def stream(self, request: InferenceRequest) -> Relay:
        steps: list[Step] = []
        if self.native == "messages":
            usage = self.client != "chat" or request.include_usage
            steps.append(ChatFromMessages(int(self._clock()), usage=usage))
        if self.client == "responses":
            steps.append(ResponsesFromChat(dict(request.fields)))
        elif self.client == "messages":
            steps.append(MessagesFromChat())
        upstream = native_relay(self.native, request, include_usage=True)
        return BridgedRelay(self.client, self.native, upstream, steps)


#: What the bridge itself sets.
_OWN = frozenset({"model", "stream", "stream_options"})


class BridgedRelay(Relay):
    """The upstream's own relay keeps the state of its stream; its events go through the steps to the client."""

    __slots__ = ("_client", "_native", "_response", "_sequence", "_steps", "_upstream")

    def __init__(self, client: Dialect, native: Dialect, upstream: Relay, steps: list[Step]) -> None:
        super().__init__()
        self._client = client
        self._native = native
        self._upstream = upstream
        self._steps = steps
        self._response: Json = {}
        self._sequence = 0
        self.repairs = upstream.repairs

    def feed(self, data: bytes) -> list[Relayed]:
        relayed: list[Relayed] = []
        upstream = self._upstream
        for piece in upstream.feed(data):
            view = piece.view
            if view is None:
                view = _view_of(self._native, piece)
            if view.kind == "data":
                events = self._through(self._repaired_body(view))
                relayed.append(Relayed(self._write(events), piece.text, piece.view))
            else:
                relayed.append(Relayed(b"", piece.text, view))
        self.complete, self.done, self.usage = upstream.complete, upstream.done, upstream.usage
        return relayed

    def _repaired_body(self, view: EventView) -> Json:
        """The event with colliding tool-call indices put apart, as the steps tell calls by their index."""
        body: Json = dict(view.body)
        if isinstance(self._upstream, ChatRelay):
            for path, value in self._upstream.tool_edits(view):
                _put(body, path, int(value or 0))
        return body

    def _through(self, event: Json) -> list[Json]:
        events = [event]
        for step in self._steps:
            events = [made for one in events for made in step.feed(one)]
        return events

    def _event(self, event: SseEvent, data: bytes) -> Relayed:
        raise NotImplementedError("the upstream's relay reads events")

    def _write(self, events: list[Json]) -> bytes:
        if self._client == "chat":
            return b"".join(sse.event(tolerant.dumps(event)) for event in events)
        out: list[bytes] = []
        for event in events:
            if self._client == "responses":
                self._sequence = event["sequence_number"] + 1
                self._response = event.get("response", self._response)
            out.append(sse.event(tolerant.dumps(event), str(event["type"]).encode("ascii")))
        return b"".join(out)

    def end(self, receipt: str) -> bytes:
        events: list[Json] = []
        for step in self._steps:
            events = [made for one in events for made in step.feed(one)] + step.end()
        if self._client == "chat":
            return self._write(events) + receipt_comment(receipt) + sse.DONE
        return self._write(events[:-1]) + receipt_comment(receipt) + self._write(events[-1:])

    def error(self, error: AssayError, receipt: str | None) -> bytes:
        if self._client == "messages":
            return messages_error(error, receipt)
        if self._client == "responses":
            return responses_error(error, receipt, self._response, self._sequence)
        return openai_error(error, receipt)


def _view_of(native: Dialect, piece: Relayed) -> EventView:
    """The view of an event in a known frame, which its relay did not parse."""
    return read_event(native, b"", piece.out[6:-2])


def _put(value: Any, path: tuple[str | int, ...], new: Any) -> None:
    for step in path[:-1]:
        value = value[step]
    value[path[-1]] = new
