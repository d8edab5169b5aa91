"""A stream on its way to the client: what every dialect's relay is, and the events that end a stream.

A relay takes the upstream's bytes and gives, event by event, the client's. It decides what of an event the client
sees and when the stream is complete; it never invents a finish reason. One relay per attempt.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

from gateway.errors import AssayError, error_object, render
from gateway.exchange import Dialect, EventView, Usage
from gateway.protocols import sse, tolerant
from gateway.protocols.sse import SseEvent, SseParser
from gateway.protocols.views import DONE_EVENT

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
PING = EventView("ping")


class Relayed(NamedTuple):
    """One upstream event: the client's bytes for it, what the model wrote in it, and what can be read of it.

    `view` is None when the event is byte for byte like one given before but for its text: nothing new to check.
    """

    out: bytes
    text: str
    view: EventView | None


_PINGED = Relayed(b"", "", PING)
_DONE = Relayed(b"", "", DONE_EVENT)


class Relay(ABC):
    """State of one stream. `feed` until the upstream ends or `done`; then `end` if `complete`, else `error`."""

    __slots__ = ("_parser", "complete", "done", "repairs", "usage")

    def __init__(self) -> None:
        self._parser = SseParser()
        self.complete = False  # every choice has had its finish reason, or the terminal event came
        self.done = False  # the end marker or an error came: nothing after it is read
        self.repairs: list[str] = []
        self.usage: Usage | None = None

    def feed(self, data: bytes) -> list[Relayed]:
        """What these bytes complete. Raises `NotJson`, `NotAnAnswer` or `SseError` when it is not such a stream."""
        relayed: list[Relayed] = []
        for event in self._parser.feed(data):
            if self.done:
                break
            if event.data is None:
                relayed.append(_PINGED)
            elif event.data == b"[DONE]":
                self.done = True
                self._marked_done()
                relayed.append(_DONE)
            else:
                relayed.append(self._event(event, event.data))
        return relayed

    def _failed(self, view: EventView) -> Relayed:
        self.done = True
        self.complete = False
        return Relayed(b"", "", view)

    def _repaired(self, name: str) -> None:
        if name not in self.repairs:
            self.repairs.append(name)

    def _marked_done(self) -> None:  # noqa: B027
        """The upstream said `[DONE]`; a dialect that has it looks here whether that was true."""

    @abstractmethod
    def _event(self, event: SseEvent, data: bytes) -> Relayed:
        """One event that is neither a comment nor `[DONE]`."""

    @abstractmethod
    def end(self, receipt: str) -> bytes:
        """The last bytes of a complete stream: what is still open, the receipt's comment, the end marker. Once."""

    @abstractmethod
    def error(self, error: AssayError, receipt: str | None) -> bytes:
        """The one event that ends a failed stream; no end marker follows it."""


def relayable(event: SseEvent, data: bytes, name: bytes) -> bytes:
    """The event as it came, if it came in plain lines and under this name; else the same event in plain lines."""
    if event.plain and event.event == name:
        return event.raw
    return sse.event(data, name)


def named_by_type(event: SseEvent, kind: Any) -> bytes:
    """The event's name: its `type`, as these dialects demand, where that is a name and not a text with line ends."""
    return kind.encode("ascii") if isinstance(kind, str) and _NAME.fullmatch(kind) else event.event


def receipt_comment(receipt: str) -> bytes:
    """The comment that names the receipt, right before the end marker."""
    return sse.comment(f"receipt {receipt}")


def error_event(dialect: Dialect, error: AssayError, receipt: str | None) -> bytes:
    """The error event of a stream in which nothing but keep-alives was sent."""
    if dialect == "messages":
        return messages_error(error, receipt)
    if dialect == "responses":
        return responses_error(error, receipt, {}, 0)
    return openai_error(error, receipt)


def openai_error(error: AssayError, receipt: str | None) -> bytes:
    """`data: {"error": ...}` of chat completions and completions."""
    return sse.event(render(error, receipt=receipt))


def messages_error(error: AssayError, receipt: str | None) -> bytes:
    """`event: error` of Anthropic Messages."""
    return sse.event(render(error, anthropic=True, receipt=receipt), b"error")


def responses_error(error: AssayError, receipt: str | None, response: Mapping[str, Any], sequence: int) -> bytes:
    """`response.failed`: the response as far as it was known, with the error in it."""
    value = error_object(error, receipt)
    failed = {
        "id": None,
        "object": "response",
        "created_at": None,
        "model": None,
        "output": [],
        **response,
        "status": "failed",
        "error": value,
    }
    body = {"type": "response.failed", "sequence_number": sequence, "response": failed}
    return sse.event(tolerant.dumps(body), b"response.failed")
