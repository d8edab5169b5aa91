"""The token estimate against counts of two real vocabularies, and the bound that is certain."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admission.counting import estimate, estimate_text, prompt_texts, upper_bound
from gateway.admission.parse import parse_request
from gateway.exchange import Endpoint, InferenceRequest

JSON_TYPE = [(b"content-type", b"application/json")]
#: text, and its tokens in an older and a newer public vocabulary of 100,000 and 200,000 entries.
MEASURED = [
    ("word " * 600, 601, 601),
    ("Съешь же ещё этих мягких французских булок, да выпей чаю. " * 20, 741, 401),
    ("人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。" * 20, 1000, 700),
    ("모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. " * 20, 802, 462),
    ("มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ " * 20, 1320, 860),
    ("כל בני אדם נולדו בני חורין ושווים בערכם ובזכויותיהם. כולם חוננו בתבונה ובמצפון. " * 20, 1681, 621),
    (" ".join(str(number * 7919) for number in range(2000)), 7871, 7871),
]


def request(endpoint: Endpoint = Endpoint.chat, **fields: Any) -> InferenceRequest:
    return parse_request(endpoint, json.dumps({"model": "m", **fields}).encode(), JSON_TYPE)


@pytest.mark.parametrize(("text", "older", "newer"), MEASURED, ids=lambda v: str(v)[:12])
def test_the_estimate_keeps_its_band(text: str, older: int, newer: int) -> None:
    """Over scripts and digits the estimate lies within the documented band of both vocabularies."""
    assert 0.43 * older <= estimate_text(text) <= 1.65 * newer


@given(st.text(max_size=200))
def test_no_text_is_negative_or_beyond_its_bytes(text: str) -> None:
    """Any text has between zero and (bytes + 1) estimated tokens, lone surrogates included; nothing has none."""
    tokens = estimate_text(text)
    assert (tokens == 0) == (not text)
    assert tokens <= len(text.encode("utf-8", "surrogatepass")) + 1


@given(st.lists(st.text(max_size=50), max_size=5))
def test_the_bound_covers_every_byte_and_message(texts: list[str]) -> None:
    """The bound is at least the UTF-8 bytes of all texts, however the body escapes them, plus template tokens."""
    messages = [{"role": "user", "content": text} for text in texts]
    asked = request(messages=messages)
    bound = upper_bound(asked)
    assert bound is not None
    assert bound >= sum(len(text.encode()) for text in texts) + 16 * len(texts)


def test_tools_widen_the_bound() -> None:
    """Templates print tool schemas indented, so a tool's bytes count several times."""
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    plain, tooled = upper_bound(request(messages=[])), upper_bound(request(messages=[], tools=[tool]))
    assert plain is not None and tooled is not None
    assert tooled - plain > 8 * len(json.dumps(tool, separators=(",", ":")))


def test_media_make_the_count_unknown() -> None:
    """With an image no count is certain: the method says unknown and there is no bound."""
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    asked = request(messages=[{"role": "user", "content": [{"type": "text", "text": "hi"}, part]}])
    assert estimate(asked).method == "unknown" and upper_bound(asked) is None
    assert estimate(request(messages=[{"role": "user", "content": "hi"}])).method == "estimated"


@pytest.mark.parametrize(
    ("endpoint", "fields", "expected"),
    [
        (
            Endpoint.chat,
            {
                "messages": [
                    {"role": "user", "content": "a"},
                    {"role": "user", "content": [{"type": "text", "text": "b"}]},
                ]
            },
            ["a", "b"],
        ),
        (
            Endpoint.chat,
            {"messages": [{"role": "assistant", "content": None, "tool_calls": [{"function": {"arguments": "c"}}]}]},
            ["c"],
        ),
        (Endpoint.completions, {"prompt": ["a", "b"], "suffix": "c"}, ["a", "b", "c"]),
        (Endpoint.embeddings, {"input": "a"}, ["a"]),
        (
            Endpoint.responses,
            {
                "instructions": "a",
                "input": [{"role": "user", "content": "b"}, {"type": "function_call_output", "output": "c"}],
            },
            ["a", "b", "c"],
        ),
        (
            Endpoint.messages,
            {
                "max_tokens": 1,
                "system": [{"type": "text", "text": "a"}],
                "messages": [
                    {"role": "user", "content": [{"type": "tool_result", "content": [{"type": "text", "text": "b"}]}]},
                    {"role": "assistant", "content": [{"type": "tool_use", "input": {"k": "c"}}]},
                ],
            },
            ["a", "b", '{"k":"c"}'],
        ),
    ],
)
def test_every_text_of_a_prompt_is_found(endpoint: Endpoint, fields: dict[str, Any], expected: list[str]) -> None:
    """Texts of all dialects are collected wherever they stand: content, parts, calls, results, instructions."""
    asked = request(endpoint, **fields)
    assert prompt_texts(endpoint.dialect, asked.fields)[0] == expected


def test_token_ids_count_themselves() -> None:
    """A prompt given as token ids has as many tokens as ids."""
    for prompt in ([1] * 50, [[1] * 20, [2] * 30]):
        assert estimate(request(Endpoint.completions, prompt=prompt)).prompt == 50
