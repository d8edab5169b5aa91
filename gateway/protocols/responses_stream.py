"""Streams of the Responses API (OpenAI): named events with sequence numbers, one terminal event, no `[DONE]`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.errors import AssayError
from gateway.exchange import EventView
from gateway.protocols.sse import SseEvent
from gateway.protocols.stream import Relay, Relayed, named_by_type, receipt_comment, relayable, responses_error
from gateway.protocols.usage import count
from gateway.protocols.views import item_texts, read_event

TERMINAL = frozenset({"response.completed", "response.incomplete"})


class ResponsesRelay(Relay):
    """Events pass as they are; the terminal one waits for the receipt.

    Text counts once: a delta's where there are deltas, an item's or the whole response's where there were none.
    """

    __slots__ = ("_held", "_response", "_sequence", "_told")

    def __init__(self) -> None:
        super().__init__()
        self._held = b""
        self._response: Mapping[str, Any] = {}
        self._sequence = 0
        self._told: set[int] = set()  # output items whose text was seen

    def _event(self, event: SseEvent, data: bytes) -> Relayed:
        view = read_event("responses", event.event, data)
        body = view.body
        self._sequence = max(self._sequence, (count(body.get("sequence_number")) or 0) + 1)
        response = body.get("response")
        if isinstance(response, Mapping):
            self._response = response
        if view.kind == "error":
            return self._failed(view)
        if view.usage is not None:
            self.usage = view.usage
        kind = body.get("type") if isinstance(body.get("type"), str) else None
        out = relayable(event, data, named_by_type(event, kind))
        text = self._text(view, kind)
        if kind in TERMINAL:
            self._held = out
            self.complete = self.done = True
            return Relayed(b"", text, view)
        return Relayed(out, text, view)

    def _text(self, view: EventView, kind: Any) -> str:
        body = view.body
        index = count(body.get("output_index"))
        if view.text:
            if index is not None:
                self._told.add(index)
            return view.text
        if kind == "response.output_item.done" and index not in self._told:
            if index is not None:
                self._told.add(index)
            return "".join(item_texts(body.get("item")))
        if kind in TERMINAL:
            output = self._response.get("output")
            items = enumerate(output if isinstance(output, list) else ())
            return "".join(text for at, item in items if at not in self._told for text in item_texts(item))
        return ""

    def _marked_done(self) -> None:
        # Some compatible engines add the marker of another dialect; before a terminal event it completes nothing.
        pass

    def end(self, receipt: str) -> bytes:
        return receipt_comment(receipt) + self._held

    def error(self, error: AssayError, receipt: str | None) -> bytes:
        return responses_error(error, receipt, self._response, self._sequence)
