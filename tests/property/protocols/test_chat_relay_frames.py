"""The relay's short way (known frames are not parsed) against its long way, over arbitrary chunks."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.protocols.chat_stream import ChatRelay
from gateway.protocols.views import read_event

TEXT = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["a", " b", '"', "\\", "\n", "é", "🦀", '","finish_reason":"stop', 'x"},"a":{"b":"', "\u2028", ""]),
)
DELTA = st.one_of(
    st.fixed_dictionaries({"content": TEXT}),
    st.fixed_dictionaries({"reasoning_content": TEXT}),
    st.fixed_dictionaries({"role": st.just("assistant"), "content": TEXT}),
    st.fixed_dictionaries({"content": TEXT, "reasoning_content": TEXT}),
)


def chunk(delta: dict[str, Any], index: int, finish: str | None, extra: dict[str, Any], compact: bool) -> bytes:
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
    body = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m1", "choices": [choice], **extra}
    separators = (",", ":") if compact else (", ", ": ")
    return f"data: {json.dumps(body, ensure_ascii=False, separators=separators)}\n\n".encode()


CHUNK = st.builds(
    chunk,
    DELTA,
    st.sampled_from([0, 0, 0, 1]),
    st.sampled_from([None, None, None, "stop"]),
    st.sampled_from([{}, {}, {"content": "a"}, {"x": {"content": "b"}}, {"model": "m2"}]),
    st.booleans(),
)


@settings(max_examples=800, deadline=None)
@given(st.lists(CHUNK, max_size=12))
def test_a_known_frame_changes_nothing_that_can_be_seen(chunks: list[bytes]) -> None:
    """Bytes, text, identity, finish reasons and completion are the same whether or not a chunk was parsed."""
    relay = ChatRelay(choices=1, include_usage=False)
    shown: set[tuple[Any, ...]] = set()
    finished: set[int] = set()
    seen: set[int] = set()
    for data in chunks:
        (relayed,) = relay.feed(data)
        view = read_event("chat", b"", data[6:-2])
        identity = (view.id, view.model, view.created, view.choices_seen, view.finish_reasons)
        assert relayed.out == data
        assert relayed.text == view.text
        if relayed.view is None:
            assert identity in shown
        else:
            assert relayed.view == view
        shown.add(identity)
        seen.update(view.choices_seen)
        finished.update(index for index, _ in view.finish_reasons)
        assert relay.complete == (bool(finished) and seen <= finished)


@settings(max_examples=200, deadline=None)
@given(st.lists(CHUNK, max_size=6), st.data())
def test_any_split_relays_the_same_bytes(chunks: list[bytes], data: st.DataObject) -> None:
    """However the upstream's bytes arrive, the client's bytes and the text are the same."""
    stream = b"".join(chunks)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    borders = [0, *cuts, len(stream)]
    relay = ChatRelay(choices=1, include_usage=False)
    pieces = [r for a, b in zip(borders, borders[1:]) for r in relay.feed(stream[a:b])]
    assert b"".join(piece.out for piece in pieces) == stream
    assert [piece.text for piece in pieces] == [read_event("chat", b"", c[6:-2]).text for c in chunks]
