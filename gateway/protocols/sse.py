"""Server-sent events (WHATWG HTML, 9.2): an incremental parser exact at any byte split, and the few lines we write.

The parser never decodes: fields are bytes. A line may end in LF, CRLF or CR; a leading byte order mark is ignored;
a block of nothing but comments is given as such. `id` and `retry` mean nothing here, as nobody reconnects.
"""

from __future__ import annotations

from typing import NamedTuple

MAX_EVENT_BYTES = 8 * 1024 * 1024
DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
_BOM = b"\xef\xbb\xbf"


class SseEvent(NamedTuple):
    """One dispatched event, or (with `data` None) a comment.

    `raw` are its bytes with the blank line that ended it, line ends as LF; `plain` says that they are exactly one
    `data: ` line, behind at most one `event: ` line, so that they can be relayed as they are.
    """

    data: bytes | None
    event: bytes
    raw: bytes
    plain: bool = False


class SseError(ValueError):
    """The stream is not server-sent events, or one event is larger than the limit."""


class SseParser:
    """Feed bytes, get the events they complete. Linear in the bytes, whatever their splits."""

    __slots__ = ("_carriage", "_limit", "_parts", "_pending", "_start")

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._parts: list[bytes] = []  # of the event that no blank line has ended yet
        self._pending = 0
        self._start: bytes | None = b""  # bytes that may be a byte order mark; None once that is decided
        self._carriage = False  # the last byte was a CR, and an LF after it belongs to it
        self._limit = limit

    @property
    def idle(self) -> bool:
        """Nothing of an event is open: the next byte begins one."""
        return not self._pending and self._start is None and not self._carriage

    @property
    def rest(self) -> bytes:
        """Bytes of an event that no blank line has ended; at the end of a stream they are dropped (WHATWG)."""
        return b"".join(self._parts)

    def feed(self, data: bytes) -> list[SseEvent]:
        """Events that are complete with these bytes, in order. Raises `SseError`."""
        if self._start is not None:
            data = self._begin(data)
        if self._carriage or b"\r" in data:
            data = self._line_feeds(data)
        if not data:
            return []
        if self._pending:
            split_end = data[:1] == b"\n" and self._parts[-1][-1:] == b"\n"
            if not split_end and b"\n\n" not in data:
                self._keep(data)
                return []
            data = b"".join((*self._parts, data))
            self._parts.clear()
            self._pending = 0
        events: list[SseEvent] = []
        start = 0
        while (end := data.find(b"\n\n", start)) >= 0:
            raw = data[start : end + 2] if start or end + 2 != len(data) else data
            start = end + 2
            if len(raw) > self._limit:
                raise SseError("an event of the stream is too large")
            _interpret(raw, events)
        if start < len(data):
            self._keep(data[start:])
        return events

    def _begin(self, data: bytes) -> bytes:
        """Skips a byte order mark, which may come in pieces."""
        data = (self._start or b"") + data
        if len(data) < len(_BOM) and _BOM.startswith(data):
            self._start = data
            return b""
        self._start = None
        return data[len(_BOM) :] if data.startswith(_BOM) else data

    def _line_feeds(self, data: bytes) -> bytes:
        """The bytes with every line end as LF."""
        if self._carriage and data[:1] == b"\n":
            data = data[1:]
            self._carriage = False
        if data:
            self._carriage = data[-1:] == b"\r"
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _keep(self, rest: bytes) -> None:
        self._pending += len(rest)
        if self._pending > self._limit:
            raise SseError("an event of the stream is too large")
        self._parts.append(rest)


def _interpret(raw: bytes, events: list[SseEvent]) -> None:
    """Appends the event of one block of lines, or its comment, by the field rules of the standard."""
    if raw.startswith(b"data: "):
        if raw.find(b"\n") == len(raw) - 2:
            events.append(SseEvent(raw[6:-2], b"", raw, True))
            return
    elif raw.startswith(b"event: "):
        end = raw.find(b"\n")
        if raw.startswith(b"data: ", end + 1) and raw.find(b"\n", end + 1) == len(raw) - 2:
            events.append(SseEvent(raw[end + 7 : -2], raw[7:end], raw, True))
            return
    name = b""
    data: list[bytes] = []
    comments = False
    for line in raw.split(b"\n"):
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
    """One event on the wire. Line ends within `data` (white space, in JSON) become further `data` lines."""
    if b"\n" in data:
        data = data.replace(b"\n", b"\ndata: ")
    return b"event: %b\ndata: %b\n\n" % (name, data) if name else b"data: %b\n\n" % data


def comment(text: str) -> bytes:
    """A comment line, which every parser ignores."""
    return f": {text}\n\n".encode()
