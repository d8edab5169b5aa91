"""Chunks of a chat stream as the event grammar of the Responses API.

Grammar: response.created, response.in_progress; for each item output_item.added, its parts and deltas, their `done`
events, output_item.done; then one terminal event. Sequence numbers count from 0 without a gap.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gateway.protocols.bridges import responses_answer as answer
from gateway.protocols.bridges.shared import Json, derived_id, dicts, text
from gateway.protocols.bridges.steps import Step


@dataclass(slots=True)
class _Item:
    """An output item that is open: what it will be, and the pieces of its text so far."""

    index: int
    body: Json
    kind: str  # text, refusal, reasoning, function, custom
    pieces: list[str] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    annotations: list[Json] = field(default_factory=list)
    bare: bool = False  # without any part: sealed reasoning


#: For each kind: event name's stem and the member that carries the whole text in its `done` event.
_EVENTS = {
    "text": ("response.output_text", "text"),
    "refusal": ("response.refusal", "refusal"),
    "reasoning": ("response.reasoning_text", "text"),
    "function": ("response.function_call_arguments", "arguments"),
    "custom": ("response.custom_tool_call_input", "input"),
}


class ResponsesFromChat(Step):
    """State of one response on its way. Tool calls may interleave; text, refusal and reasoning follow one another."""

    def __init__(self, fields: Json) -> None:
        self._fields = fields
        self._sequence = 0
        self._events: list[Json] = []
        self._response: Json = {}
        self._output: list[Json] = []
        self._open: _Item | None = None  # text, refusal or reasoning
        self._calls: dict[int, _Item] = {}
        self._finish: str | None = None
        self._usage: Any = None
        self._blocks = 0

    def feed(self, event: Json) -> list[Json]:
        self._events = []
        if not self._response:
            self._begin(event)
        if event.get("usage") is not None:
            self._usage = event["usage"]
        for choice in dicts(event.get("choices")):
            if not choice.get("index"):
                delta = choice.get("delta")
                if isinstance(delta, dict):
                    self._delta(delta, choice.get("logprobs"))
                self._finish = text(choice.get("finish_reason")) or self._finish
        return self._events

    def end(self) -> list[Json]:
        self._events = []
        if not self._response:
            self._begin({})
        self._close()
        for call in self._calls.values():
            self._finish_item(call)
        if not self._output:
            self._open_item("text")
            self._close()
        response = answer.ended(self._response, self._finish, self._output, self._usage)
        self._emit(f"response.{response['status']}", response=response)
        return self._events

    def _begin(self, chunk: Json) -> None:
        id = derived_id("resp_", chunk.get("id"))
        created = answer.created_at(chunk)
        self._response = answer.skeleton(self._fields, id=id, created=created, model=text(chunk.get("model")))
        self._emit("response.created", response=self._response)
        self._emit("response.in_progress", response=self._response)

    def _delta(self, delta: Json, logprobs: Any) -> None:
        thought = text(delta.get("reasoning_content")) or text(delta.get("reasoning"))
        if thought:
            self._write("reasoning", thought)
        for block in dicts(delta.get("thinking_blocks")):
            self._seal(block)
        content = answer.content_text(delta.get("content"))
        if content:
            tokens = logprobs.get("content") if isinstance(logprobs, dict) else None
            self._write("text", content, tokens if isinstance(tokens, list) else [])
        refusal = text(delta.get("refusal"))
        if refusal:
            self._write("refusal", refusal)
        if delta.get("annotations") and self._open is not None and self._open.kind == "text":
            self._annotate(self._open, answer.citations(delta["annotations"]))
        for position, call in enumerate(dicts(delta.get("tool_calls"))):
            self._call(call, position)

    def _write(self, kind: str, piece: str, logprobs: list[Any] | None = None) -> None:
        item = self._open
        if item is None or item.kind != kind:
            self._close()
            item = self._open_item(kind)
        item.pieces.append(piece)
        more = {"logprobs": logprobs or []} if kind == "text" else {}
        item.logprobs += logprobs or []
        self._emit(f"{_EVENTS[kind][0]}.delta", **_at(item), delta=piece, **more)

    def _open_item(self, kind: str) -> _Item:
        """Opens an item with its one part."""
        item = self._open = self._add(self._item(kind))
        self._emit("response.content_part.added", **_at(item), part=_part(item))
        return item

    def _item(self, kind: str, *, bare: bool = False) -> _Item:
        id = self._response["id"]
        index = len(self._output)
        if kind == "reasoning":
            body = answer.reasoning_item(answer.item_id("rs_", id, index), None, None)
        else:
            body = {"id": answer.item_id("msg_", id, index), "type": "message", "role": "assistant", "content": []}
        body["status"] = "in_progress"
        return _Item(index, body, kind, bare=bare)

    def _add(self, item: _Item) -> _Item:
        self._output.append(item.body)
        self._emit("response.output_item.added", output_index=item.index, item=dict(item.body))
        return item

    def _annotate(self, item: _Item, found: list[Json]) -> None:
        for annotation in found:
            self._emit(
                "response.output_text.annotation.added",
                **_at(item),
                annotation_index=len(item.annotations),
                annotation=annotation,
            )
            item.annotations.append(annotation)

    def _seal(self, block: Json) -> None:
        """A thinking block is whole: its item takes what must come back byte by byte, and ends."""
        if self._open is None or self._open.kind != "reasoning":
            self._close()
            if text(block.get("thinking")):
                self._write("reasoning", block["thinking"])
            else:
                self._open = self._add(self._item("reasoning", bare=True))
        if self._open is not None and (encrypted := answer.sealed(block)):
            self._open.body["encrypted_content"] = encrypted
        self._close()

    def _call(self, call: Json, position: int) -> None:
        number = call["index"] if type(call.get("index")) is int else position
        item = self._calls.get(number)
        if item is None:
            self._close()
            id = answer.item_id("fc_", self._response["id"], len(self._output))
            kind = "custom" if call.get("type") == "custom" else "function"
            body = answer.call_item({**call, "function": _named(call), "custom": _named(call)}, id, "in_progress")
            item = self._calls[number] = self._add(_Item(len(self._output), body, kind))
        inner = call.get("custom" if item.kind == "custom" else "function")
        piece = text(inner.get("input" if item.kind == "custom" else "arguments")) if isinstance(inner, dict) else None
        if piece:
            item.pieces.append(piece)
            self._emit(f"{_EVENTS[item.kind][0]}.delta", **_at(item), delta=piece)

    def _close(self) -> None:
        if self._open is not None:
            self._finish_item(self._open)
            self._open = None

    def _finish_item(self, item: _Item) -> None:
        """The `done` events of an item, from the inside out. The item in the output becomes what it ended as."""
        whole = "".join(item.pieces)
        stem, member = _EVENTS[item.kind]
        more: Json = {"logprobs": item.logprobs} if item.kind == "text" else {}
        if item.kind == "function":
            more["name"] = item.body["name"]
        if not item.bare:
            self._emit(f"{stem}.done", **_at(item), **{member: whole}, **more)
        if item.kind in ("function", "custom"):
            item.body[member] = whole
        elif not item.bare:
            part = _part(item)
            self._emit("response.content_part.done", **_at(item), part=part)
            item.body["content"] = [part]
        last = item.index == len(self._output) - 1
        item.body["status"] = "incomplete" if last and answer.cut(self._finish) else "completed"
        self._emit("response.output_item.done", output_index=item.index, item=dict(item.body))

    def _emit(self, kind: str, **members: Any) -> None:
        self._events.append({"type": kind, "sequence_number": self._sequence, **members})
        self._sequence += 1


def _at(item: _Item) -> Json:
    place: Json = {"item_id": item.body["id"], "output_index": item.index}
    if item.kind in ("text", "refusal", "reasoning"):
        place["content_index"] = 0
    return place


def _part(item: _Item) -> Json:
    whole = "".join(item.pieces)
    if item.kind == "refusal":
        return {"type": "refusal", "refusal": whole}
    if item.kind == "reasoning":
        return {"type": "reasoning_text", "text": whole}
    return {
        "type": "output_text",
        "text": whole,
        "annotations": list(item.annotations),
        "logprobs": list(item.logprobs),
    }


def _named(call: Json) -> Json:
    """The opener's name without its first piece of text, which comes as a delta of its own."""
    inner = call.get("custom") or call.get("function")
    return {"name": inner.get("name")} if isinstance(inner, dict) else {}
