"""Streams of chat completions and completions (OpenAI API): chunks, finish reasons, usage, `[DONE]`."""

from __future__ import annotations

from dataclasses import replace
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from gateway.errors import AssayError
from gateway.exchange import EventView
from gateway.protocols import repairs, sse
from gateway.protocols.repairs import Edit, ToolIndices
from gateway.protocols.sse import SseEvent
from gateway.protocols.stream import Relay, Relayed, openai_error, receipt_comment, relayable
from gateway.protocols.views import choice_index, read_event

_MARKERS = tuple(
    b'"%b":%b"' % (name, space)
    for name in (b"content", b"text", b"reasoning_content", b"reasoning")
    for space in (b"", b" ")
)
_PROBE = "\u2063probe"
_ATTEMPTS = 4


def _text_of(inside: bytes) -> str | None:
    """The text that these bytes are between the quotes of a JSON string; None when they are more or less than one."""
    try:
        text = inside.decode()
    except UnicodeDecodeError:
        return None
    if b"\\" not in inside and b'"' not in inside and text.isprintable():
        return text
    try:
        unescaped, end = scanstring(f'{text}"', 0, True)
    except ValueError:
        return None
    return unescaped if end == len(text) + 1 else None


class ChatRelay(Relay):
    """Chunks pass as they are, but for the contract's repairs and the usage rule.

    Nearly every chunk of a stream differs from the one before it only in its content. Once such a frame is known
    (proven by parsing it with another content in its place), chunks in that frame are not parsed again.
    """

    __slots__ = ("_attempts", "_choices", "_expected", "_finished", "_include_usage", "_indices", "_prefix", "_suffix")

    def __init__(self, *, choices: int, include_usage: bool) -> None:
        super().__init__()
        self._expected = choices
        self._include_usage = include_usage
        self._choices: set[int] = set()
        self._finished: set[int] = set()
        self._indices = ToolIndices()
        self._prefix = b""
        self._suffix = b""
        self._attempts = _ATTEMPTS

    def feed(self, data: bytes) -> list[Relayed]:
        prefix = self._prefix
        if prefix and data.startswith(prefix) and data.endswith(self._suffix) and self._parser.idle and not self.done:
            text = _text_of(data[len(prefix) : -len(self._suffix)])
            if text is not None and len(data) >= len(prefix) + len(self._suffix):
                self._attempts = _ATTEMPTS
                return [Relayed(data, text, None)]
        return super().feed(data)

    def _event(self, event: SseEvent, data: bytes) -> Relayed:
        view = read_event("chat", event.event, data)
        if view.kind == "error":
            return self._failed(view)
        self._note(view)
        edits, hidden = self.edits(view)
        if hidden:
            return Relayed(b"", view.text, view)
        if edits:
            return Relayed(sse.event(self._edited(data, edits)), view.text, view)
        out = relayable(event, data, b"")
        if self._attempts and view.text and not view.finish_reasons:
            self._frame(out, view)
        return Relayed(out, view.text, view)

    def _note(self, view: EventView) -> None:
        self._choices.update(view.choices_seen)
        for index, _ in view.finish_reasons:
            self._finished.add(index)
        if view.finish_reasons:
            self.complete = len(self._finished) >= self._expected and self._choices <= self._finished
        elif self.complete:
            self.complete = self._choices <= self._finished
        if view.usage is not None:
            self.usage = view.usage

    def _marked_done(self) -> None:
        # An upstream that ignores `n` and says that it is done is believed: every choice it began has ended.
        self.complete = bool(self._finished) and self._choices <= self._finished

    def edits(self, view: EventView) -> tuple[list[Edit], bool]:
        """The repairs of this chunk, and whether the client sees nothing of it."""
        body: dict[str, Any] = view.body  # type: ignore[assignment]
        choices = body.get("choices")
        edits: list[Edit] = []
        if not choices and body.get("usage"):
            if not self._include_usage:
                return edits, True
            if choices is None:
                self._repaired(repairs.USAGE_CHOICES)
                edits.append((("choices",), "[]"))
        elif body.get("usage") and not self._include_usage:
            edits.append((("usage",), None))
        for edit in repairs.empty_finishes(body):
            self._repaired(repairs.EMPTY_FINISH)
            edits.append(edit)
        return edits + self.tool_edits(view), False

    def tool_edits(self, view: EventView) -> list[Edit]:
        """Indices that this chunk's tool calls must have; the same chunk again gives the same."""
        edits: list[Edit] = []
        choices = view.body.get("choices")
        for place, choice in enumerate(choices if type(choices) is list else ()):
            delta = choice.get("delta") if type(choice) is dict else None
            calls = delta.get("tool_calls") if type(delta) is dict else None
            for at, call in enumerate(calls if type(calls) is list else ()):
                index = self._indices.place(choice_index(choice), call)
                if index is not None:
                    self._repaired(repairs.TOOL_INDEX)
                    edits.append((("choices", place, "delta", "tool_calls", at, "index"), str(index)))
        return edits

    @staticmethod
    def _edited(data: bytes, edits: list[Edit]) -> bytes:
        if edits[0] == (("choices",), "[]"):
            if b'"choices"' in data:  # there, and null
                return repairs.apply(data, edits)
            return repairs.apply(repairs.add_member(data, "choices", b"[]"), edits[1:])
        return repairs.apply(data, edits)

    def _frame(self, out: bytes, view: EventView) -> None:
        """Takes this chunk as the frame of those to come, if its text stands in one place and nowhere else."""
        self._attempts -= 1
        self._prefix = b""
        written = view.text.encode("utf-8", "surrogatepass")
        for marker in _MARKERS:
            start = out.find(marker) + len(marker)
            end = start + len(written)
            if start < len(marker) or out[start : end + 1] != written + b'"' or b"\\" in written:
                continue
            prefix, suffix = out[:start], out[end:]
            probe = read_event("chat", b"", prefix[6:] + _PROBE.encode() + suffix[:-2])
            if replace(probe, text=view.text, body=view.body) == view and probe.text == _PROBE:
                self._prefix, self._suffix = prefix, suffix
            return

    def end(self, receipt: str) -> bytes:
        return receipt_comment(receipt) + sse.DONE

    def error(self, error: AssayError, receipt: str | None) -> bytes:
        return openai_error(error, receipt)
