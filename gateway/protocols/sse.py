"""Server-sent events (WHATWG HTML, 9.2): an incremental parser exact at any byte split, and the few lines we write.

The parser never decodes: fields are bytes, and each event keeps the raw bytes it came in, so that a stream can be
relayed untouched. A line may end in LF, CRLF or CR; a leading byte order mark is ignored; comments are given as such.
"""

from __future__ import annotations

from typing import NamedTuple

MAX_EVENT_BYTES = 8 * 1024 * 1024
DONE = b"data: [DONE]\n\n"
_BOM = b"\xef\xbb\xbf"


class SseEvent(NamedTuple):
    """One dispatched event, or (with `data` None) a comment. `raw` includes the blank line that ended it."""

    data: bytes | None
    event: bytes
    raw: bytes


class SseError(ValueError):
    """The stream is not server-sent events, or one event is larger than `MAX_EVENT_BYTES`."""


class SseParser:
    """Feed bytes, get events. `feed` returns the events completed by these bytes; `rest` is what is still open."""

    __slots__ = ("_buffer", "_first", "_limit")

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._buffer = b""
        self._first = True
        self._limit = limit

    @property
    def rest(self) -> bytes:
        """Bytes of an event that no blank line has ended yet."""
        return self._buffer

    def feed(self, data: bytes) -> list[SseEvent]:
        """Events that are complete with these bytes, in order."""
        buffer = self._buffer + data if self._buffer else data
        if self._first:
            if len(buffer) < 3 and _BOM.startswith(buffer):
                self._buffer = buffer
                return []
            self._first = False
            if buffer.startswith(_BOM):
                buffer = buffer[3:]
        if b"\r" in buffer:
            return self._feed_cr(buffer)
        events: list[SseEvent] = []
        start = 0
        while (end := buffer.find(b"\n\n", start)) >= 0:
            raw = buffer[start : end + 2]
            start = end + 2
            # Fast path: exactly one data line, which is nearly every event there is.
            if raw.startswith(b"data: ") and raw.find(b"\n") == len(raw) - 2:
                events.append(SseEvent(raw[6:-2], b"", raw))
            else:
                _interpret(raw, events)
        self._keep(buffer[start:])
        return events

    def _feed_cr(self, buffer: bytes) -> list[SseEvent]:
        """The same for streams that use CR or CRLF; a CR at the very end waits, as an LF may belong to it."""
        events: list[SseEvent] = []
        start = line = index = 0
        length = len(buffer)
        while index < length:
            byte = buffer[index]
            if byte not in (10, 13):
                following = min(
                    (i for i in (buffer.find(b"\n", index), buffer.find(b"\r", index)) if i >= 0), default=length
                )
                index = following
                continue
            if byte == 13 and index + 1 == length:
                break
            width = 2 if byte == 13 and buffer[index + 1] == 10 else 1
            if index == line:
                raw = buffer[start : index + width]
                _interpret(raw, events)
                start = index + width
            index += width
            line = index
        self._keep(buffer[start:])
        return events

    def _keep(self, rest: bytes) -> None:
        if len(rest) > self._limit:
            raise SseError("an event of the stream is too large")
        self._buffer = rest


def _interpret(raw: bytes, events: list[SseEvent]) -> None:
    """Appends the comments and the event of one block of lines, by the field rules of the standard."""
    name = b""
    data: list[bytes] = []
    comments = False
    for line in raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
        if line.startswith(b":"):
            comments = True
            continue
        field, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
    if data:
        events.append(SseEvent(b"\n".join(data), name, raw))
    elif comments:
        events.append(SseEvent(None, b"", raw))


def event(data: bytes, name: bytes = b"") -> bytes:
    """One event on the wire; `data` must be a single line (JSON is)."""
    return b"event: %b\ndata: %b\n\n" % (name, data) if name else b"data: %b\n\n" % data


def comment(text: str) -> bytes:
    """A comment line, which every parser ignores."""
    return f": {text}\n\n".encode()
