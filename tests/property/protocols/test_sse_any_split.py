"""The event-stream parser against a reader of the standard's text, over arbitrary bytes and arbitrary splits."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.protocols.sse import SseError, SseParser, event

PIECES = st.sampled_from(
    [
        b"data: ",
        b"data:",
        b"data",
        b"event: x",
        b"event:y",
        b"id: 7",
        b"retry: 10",
        b": note",
        b":",
        b"\n",
        b"\r",
        b"\r\n",
    ]
    + [b"\n\n", b"\r\n\r\n", b"\r\r", b"{}", "é漢🦀".encode(), b" ", b"\xef\xbb\xbf", b"\x00", b"[DONE]", b"\xff"]
)
STREAMS = st.lists(PIECES, max_size=40).map(b"".join)


def reference(stream: bytes) -> list[tuple[bytes, bytes]]:
    """Dispatched (event, data) pairs, read line by line as WHATWG HTML 9.2.6 tells."""
    stream = stream.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    found: list[tuple[bytes, bytes]] = []
    name, data = b"", b""
    for line in stream.split(b"\n")[:-1]:
        if not line:
            if data:
                found.append((name, data[:-1]))
            name, data = b"", b""
        elif not line.startswith(b":"):
            field, _, value = line.partition(b":")
            value = value[1:] if value.startswith(b" ") else value
            if field == b"event":
                name = value
            elif field == b"data":
                data += value + b"\n"
    return found


def parsed(chunks: list[bytes]) -> list[tuple[bytes, bytes]]:
    parser = SseParser()
    return [(e.event, e.data) for chunk in chunks for e in parser.feed(chunk) if e.data is not None]


@settings(max_examples=1500, deadline=None)
@given(STREAMS, st.data())
def test_any_split_gives_the_events_of_the_standard(stream: bytes, data: st.DataObject) -> None:
    """Wherever the bytes are cut, the events are those that the standard dispatches for the whole stream."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    borders = [0, *cuts, len(stream)]
    chunks = [stream[a:b] for a, b in zip(borders, borders[1:])]
    assert parsed(chunks) == reference(stream)


@settings(max_examples=300, deadline=None)
@given(STREAMS)
def test_byte_by_byte_is_the_same_as_whole(stream: bytes) -> None:
    """One byte at a time gives the same events as all at once."""
    assert parsed([bytes([b]) for b in stream]) == parsed([stream])


@settings(max_examples=300, deadline=None)
@given(STREAMS)
def test_raw_bytes_are_the_event_and_nothing_else(stream: bytes) -> None:
    """The raw bytes of an event, parsed alone, are that event; those of plain ones are what a writer would write."""
    for item in SseParser().feed(b"\n" + stream):
        if item.data is None:
            assert parsed([item.raw]) == []
            continue
        assert parsed([item.raw]) == [(item.event, item.data)]
        if item.plain:
            assert item.raw == event(item.data, item.event) or item.event == b""


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60).filter(lambda b: b"\r" not in b), st.sampled_from([b"", b"name"]))
def test_what_is_written_is_read_again(data: bytes, name: bytes) -> None:
    """An event that was written with any data, line ends included, is read back as it was."""
    assert parsed([event(data, name)]) == [(name, data)]


def test_an_endless_event_is_refused() -> None:
    """An event that never ends stops the stream at the limit instead of filling memory."""
    parser = SseParser(limit=1000)
    with pytest.raises(SseError):
        for _ in range(100):
            parser.feed(b"data: " + b"x" * 100)


def test_an_oversized_event_in_one_piece_is_refused() -> None:
    """The limit holds for an event that arrives whole, too."""
    with pytest.raises(SseError):
        SseParser(limit=1000).feed(b"data: " + b"x" * 2000 + b"\n\n")
