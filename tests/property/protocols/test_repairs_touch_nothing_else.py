"""Repairs of answers: the one value changes, every other byte stays."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.protocols import repairs

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)


def paths(value: Any, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    found = [at] if at else []
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in children:
        found += paths(inner, (*at, key))
    return found


def put(value: Any, path: tuple[str | int, ...], new: Any) -> None:
    for step in path[:-1]:
        value = value[step]
    value[path[-1]] = new


@settings(max_examples=500, deadline=None)
@given(st.dictionaries(st.text(max_size=4), JSON, min_size=1, max_size=5), st.data(), st.sampled_from([None, 1]))
def test_one_value_is_replaced(value: dict[str, Any], data: st.DataObject, indent: int | None) -> None:
    """Replacing the value at any path gives the document with just that value changed."""
    text = json.dumps(value, ensure_ascii=data.draw(st.booleans()), indent=indent).encode("utf-8", "surrogatepass")
    path = data.draw(st.sampled_from(paths(value)))
    try:
        text.decode()
    except UnicodeDecodeError:
        return
    edited = repairs.apply(text, [(path, '"new"')])
    put(value, path, "new")
    assert json.loads(edited) == value


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.text(max_size=4), JSON, min_size=1, max_size=5), st.data(), st.sampled_from([None, 1]))
def test_a_member_is_removed_with_its_comma(value: dict[str, Any], data: st.DataObject, indent: int | None) -> None:
    """Removing any top-level member leaves valid JSON of the others, in their order."""
    text = json.dumps(value, indent=indent).encode()
    name = data.draw(st.sampled_from(list(value)))
    left = json.loads(repairs.apply(text, [((name,), None)]))
    del value[name]
    assert left == value and list(left) == list(value)


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=50))
def test_vectors_survive_both_encodings(vector: list[float]) -> None:
    """32-bit floats come back bit for bit from either encoding."""
    packed = base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
    for sent, wanted, expected in ((vector, "base64", packed), (packed, "float", vector)):
        body = {"data": [{"index": 0, "embedding": sent, "x": 1e400}], "n": 12345678901234567890123}
        text = json.dumps(body).encode()
        edits = repairs.embedding_encodings(body, wanted)
        got = json.loads(repairs.apply(text, edits))
        assert got["data"][0]["embedding"] == expected
        assert got["n"] == body["n"]


@pytest.mark.parametrize(
    ("vector", "wanted"),
    [
        ("!!", "float"),
        ("AAA=", "float"),
        ([1, "x"], "base64"),
        ([1e300], "base64"),
        ([None], "base64"),
        ("AADAfw==", "float"),
    ],
)
def test_a_vector_that_is_none_is_refused(vector: Any, wanted: str) -> None:
    """What is not a vector of 32-bit floats is no answer, rather than a wrong vector."""
    with pytest.raises(repairs.NotRepairable):
        repairs.embedding_encodings({"data": [{"embedding": vector}]}, wanted)
