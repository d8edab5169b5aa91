"""Canonical bytes equal an independent implementation of RFC 8785."""

from __future__ import annotations

import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from gateway.receipts.canonical import canonical, clean
from gateway.storage.receipts_rows import pack, unpack

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
KEYS = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | TEXT,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(KEYS, children, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(KEYS, VALUES, max_size=6))
def test_sorted_orjson_is_rfc_8785_for_statements(value: dict[str, object]) -> None:
    """ASCII keys and whole numbers: the two agree byte for byte."""
    assert canonical(value) == rfc8785.dumps(value)


@given(st.text())
def test_foreign_text_can_always_be_stated(text: str) -> None:
    """Lone surrogates and long text do not stop a receipt."""
    canonical({"a": clean(text)})


@given(st.binary(max_size=4000))
def test_packed_statements_come_back_byte_for_byte(payload: bytes) -> None:
    """Compression loses nothing."""
    assert unpack(pack(payload)) == payload
