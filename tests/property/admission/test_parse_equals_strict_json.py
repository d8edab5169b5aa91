"""The one parse against the standard library and against a second strict parser, over arbitrary bodies."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.admission import json_body
from gateway.admission.narrowing import narrowing
from gateway.admission.parse import parse_request
from gateway.errors import AssayError, DuplicateKey, InvalidRequest
from gateway.exchange import Endpoint

TEXT = st.text(max_size=8) | st.sampled_from(
    ["model", '"model":"x"', "\\", '\\"model\\"', "provider", "stream_options", "a:b"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=25,
)
SPACES = st.sampled_from(["", " ", "\n", "\t \r\n"])


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, list[tuple[str, Any]]]:
    """A JSON object as text with arbitrary white space and escapes, and its members in order."""
    names = draw(st.lists(TEXT.filter(bool), max_size=5, unique=True))
    members = [(name, draw(VALUES)) for name in names if name != "model"]
    members.insert(
        draw(st.integers(0, len(members))), ("model", draw(st.sampled_from(["m", 'a"b', "é漢", "model", "x\\"])))
    )
    parts = []
    for name, value in members:
        key = json.dumps(name, ensure_ascii=draw(st.booleans()))
        if name == "model" and draw(st.integers(0, 9)) == 0:
            key = '"mod\\u0065l"'
        text = json.dumps(value, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1])))
        parts.append(f"{draw(SPACES)}{key}{draw(SPACES)}:{draw(SPACES)}{text}{draw(SPACES)}")
    text = draw(SPACES) + "{" + ",".join(parts) + "}" + draw(SPACES)
    return text.encode("utf-8", "surrogatepass"), members


@settings(max_examples=1200, deadline=None)
@given(bodies())
def test_values_and_places_are_those_of_the_body(case: tuple[bytes, list[tuple[str, Any]]]) -> None:
    """The values are the standard library's, and each member's place holds exactly that member's value."""
    body, members = case
    try:
        fields = json_body.parse(body)
    except InvalidRequest:
        with pytest.raises((ValueError, UnicodeError)):
            orjson.loads(body)
        return
    assert fields == dict(members) == json.loads(body)
    for name, value in members:
        span = json_body.place(body, name) if '"' not in name and "\\" not in name else None
        if span is not None:
            assert json.loads(body[span.start : span.end]) == value
            cut = json_body.member_place(body, name)
            left = json.loads(body[: cut.start] + body[cut.end :])
            assert left == {key: other for key, other in members if key != name}


@settings(max_examples=1500, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "{",
                "}",
                "[",
                "]",
                ",",
                ":",
                '"a"',
                '"b"',
                '"model"',
                '""',
                '"\\ud83d"',
                '"\\ud83d\\ude00"',
                "1",
                "-0",
                "1e5",
                "1e999",
                "01",
            ]
            + [
                "true",
                "null",
                "NaN",
                " ",
                "\n",
                '"\\u0061"',
                "\ufeff",
                "1.5",
                "-",
                '"\x01"',
                "12345678901234567890123",
                "é",
            ]
        ),
        max_size=14,
    ).map("".join)
    | st.text(max_size=20)
)
def test_what_is_accepted_is_what_a_strict_parser_accepts(text: str) -> None:
    """Accepted is exactly: an object for a strict parser, with no key given twice at any depth."""
    body = text.encode("utf-8", "surrogatepass")
    repeated = False

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        repeated = repeated or len({key for key, _ in items}) != len(items)
        return dict(items)

    try:
        strict = msgspec.json.decode(body)
        assert strict == json.loads(body, object_pairs_hook=pairs)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        strict = None
    try:
        fields = json_body.parse(body)
    except DuplicateKey:
        assert repeated or strict is None
    except InvalidRequest:
        assert not isinstance(strict, dict)
    else:
        assert not repeated and fields == strict


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(list(Endpoint)),
    st.dictionaries(
        st.sampled_from(
            [
                "messages",
                "prompt",
                "input",
                "n",
                "best_of",
                "max_tokens",
                "stream",
                "stream_options",
                "tools",
                "provider",
                "store",
                "container",
                "system",
                "chat_template_kwargs",
                "previous_response_id",
                "instructions",
                "truncation",
            ]
        ),
        VALUES,
    ),
)
def test_no_body_makes_the_parse_fail_otherwise_than_by_the_contract(endpoint: Endpoint, more: dict[str, Any]) -> None:
    """Whatever types the members have, the outcome is a request or one of the contract's 400s."""
    body = json.dumps({"model": "m", **more}).encode("utf-8", "surrogatepass")
    try:
        request = parse_request(endpoint, body, [(b"content-type", b"application/json")])
    except AssayError as error:
        assert error.status in (400, 415)
    else:
        assert request.model == "m" and len(request.parameters_digest) == 64


PROVIDER = st.fixed_dictionaries(
    {},
    optional={
        "order": st.lists(st.sampled_from(["a", "b"])) | VALUES,
        "only": st.lists(st.sampled_from(["a", "b"])) | VALUES,
        "ignore": st.lists(st.just("a")) | VALUES,
        "allow_fallbacks": st.booleans() | VALUES,
        "data_collection": st.sampled_from(["allow", "deny"]) | VALUES,
        "zdr": st.booleans() | VALUES,
        "sort": st.sampled_from(["price", "latency"]) | VALUES,
        "max_price": st.fixed_dictionaries({}, optional={"prompt": st.floats(0, 5), "completion": st.just("0.5")})
        | VALUES,
        "unknown": st.just(1),
    },
)


@settings(max_examples=300, deadline=None)
@given(PROVIDER)
def test_narrowing_is_read_whole_or_refused(value: dict[str, Any]) -> None:
    """A `provider` object is taken with every member it has, or refused: a dropped member would widen."""
    try:
        read = narrowing(value)
    except InvalidRequest as error:
        assert error.param is not None and error.param.startswith("provider")
        return
    assert read is not None and "unknown" not in value
    assert list(read.order) == (value.get("order") or [])
    assert (read.only is None) == (value.get("only") is None)
    assert read.zdr == bool(value.get("zdr"))
    assert dict(read.max_price).keys() == (value.get("max_price") or {}).keys()
