"""Streams of Anthropic Messages: message_start, content blocks, message_delta, message_stop; pings in between."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson

from gateway.errors import AssayError
from gateway.exchange import Usage
from gateway.protocols import sse
from gateway.protocols.sse import SseEvent
from gateway.protocols.stream import Relay, Relayed, messages_error, named_by_type, receipt_comment, relayable
from gateway.protocols.views import read_event

MESSAGE_STOP = sse.event(b'{"type":"message_stop"}', b"message_stop")


class MessagesRelay(Relay):
    """Events pass as they are; `message_stop` waits for the receipt, and is supplied when only it is missing."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        super().__init__()
        self._held = MESSAGE_STOP

    def _event(self, event: SseEvent, data: bytes) -> Relayed:
        view = read_event("messages", event.event, data)
        if view.kind == "error":
            return self._failed(view)
        body = view.body
        kind = body.get("type")
        out = relayable(event, data, named_by_type(event, kind))
        if kind == "message_delta" and isinstance(body.get("delta"), dict):
            self.complete = self.complete or isinstance(body["delta"].get("stop_reason"), str)
        if view.usage is not None:
            self.usage = merged(self.usage, view.usage)
        if kind == "message_stop":
            self.done = True
            self._held = out
            return Relayed(b"", view.text, view)
        return Relayed(out, view.text, view)

    def end(self, receipt: str) -> bytes:
        return receipt_comment(receipt) + self._held

    def error(self, error: AssayError, receipt: str | None) -> bytes:
        return messages_error(error, receipt)


def merged(known: Usage | None, later: Usage) -> Usage:
    """The prompt is counted at the start, the answer at the end; a later count of the same thing is the better one."""
    if known is None or later.prompt:
        return later if known is None or later.completion else replace(later, completion=known.completion)
    return replace(known, completion=later.completion)


def count_tokens_answer(tokens: int) -> bytes:
    """The answer of `/v1/messages/count_tokens`."""
    body: dict[str, Any] = {"input_tokens": tokens}
    return orjson.dumps(body)
