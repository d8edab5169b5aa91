"""Bodies that two readers could understand differently, and fields that steer what no tenant may steer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.admission import fields
from gateway.admission.parse import parse_count_tokens, parse_request
from gateway.errors import AssayError, InvalidRequest
from gateway.exchange import Endpoint

JSON_TYPE = [(b"content-type", b"application/json")]
BODIES: dict[Endpoint, dict[str, Any]] = {
    Endpoint.chat: {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
    Endpoint.completions: {"model": "m", "prompt": "hi"},
    Endpoint.embeddings: {"model": "m", "input": "hi"},
    Endpoint.responses: {"model": "m", "input": "hi"},
    Endpoint.messages: {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]},
}
ALL = list(Endpoint)


def refused(endpoint: Endpoint, body: bytes, headers: list[tuple[bytes, bytes]] = JSON_TYPE) -> AssayError:
    with pytest.raises(AssayError) as caught:
        parse_request(endpoint, body, headers)
    return caught.value


def with_fields(endpoint: Endpoint, **more: Any) -> bytes:
    return json.dumps({**BODIES[endpoint], **more}).encode()


BAD = {
    "empty": (b"", "invalid_json"),
    "blank": (b" \n", "invalid_json"),
    "byte order mark": (b'\xef\xbb\xbf{"model":"m","messages":[]}', "invalid_json"),
    "utf-16": ('{"model":"m","messages":[]}'.encode("utf-16"), "invalid_json"),
    "truncated": (b'{"model":"m","messages":[', "invalid_json"),
    "two values": (b'{"model":"m","messages":[]} {}', "invalid_json"),
    "trailing NUL": (b'{"model":"m","messages":[]}\x00', "invalid_json"),
    "overlong UTF-8": (b'{"model":"m","messages":[],"x":"\xc0\xaf"}', "invalid_json"),
    "raw surrogate": (b'{"model":"m","messages":[],"x":"\xed\xa0\xbd"}', "invalid_json"),
    "escaped half surrogate": (rb'{"model":"m","messages":[],"x":"\ud83d"}', "invalid_json"),
    "half surrogate in a key": (rb'{"model":"m","messages":[],"\udc00":1}', "invalid_json"),
    "half surrogates in wrong order": (rb'{"model":"m","messages":[],"x":"\udc00\ud83d"}', "invalid_json"),
    "NaN": (b'{"model":"m","messages":[],"temperature":NaN}', "invalid_json"),
    "minus infinity": (b'{"model":"m","messages":[],"temperature":-Infinity}', "invalid_json"),
    "a number no double holds": (b'{"model":"m","messages":[],"temperature":1e999}', "invalid_json"),
    "control character": (b'{"model":"m","messages":[],"x":"\x01"}', "invalid_json"),
    "single quotes": (b"{'model':'m','messages':[]}", "invalid_json"),
    "comment": (b'{"model":"m",/**/"messages":[]}', "invalid_json"),
    "trailing comma": (b'{"model":"m","messages":[],}', "invalid_json"),
    "array": (b"[1]", "invalid_value"),
    "text": (b'"x"', "invalid_value"),
    "null": (b"null", "invalid_value"),
    "number": (b"1", "invalid_value"),
    "duplicate at the top": (b'{"model":"a","messages":[],"model":"b"}', "duplicate_key"),
    "duplicate written with an escape": (b'{"model":"a","messages":[],"mod\\u0065l":"b"}', "duplicate_key"),
    "duplicate deep down": (b'{"model":"a","messages":[],"x":[{"y":{"z":1,"z":1}}]}', "duplicate_key"),
    "deep arrays": (b'{"model":"a","messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "invalid_json"),
    "deep objects": (b'{"model":"a","messages":[],"x":' + b'{"a":' * 70 + b"1" + b"}" * 70 + b"}", "invalid_json"),
    "unclosed deep arrays": (b'{"model":"a","messages":' + b"[" * 1_000_000, "invalid_json"),
    "a huge integer": (b'{"model":"m","messages":[],"seed":' + b"9" * 100_000 + b"}", "invalid_json"),
}


@pytest.mark.parametrize("name", BAD)
def test_ambiguous_or_broken_json_is_refused(name: str) -> None:
    """What RFC 8259 leaves to the reader, or forbids, is refused and never forwarded."""
    body, code = BAD[name]
    error = refused(Endpoint.chat, body)
    assert (error.status, error.code) == (400, code)


def test_depth_64_passes_and_65_does_not() -> None:
    """The nesting limit is exactly 64 levels, the body's own object counted."""

    def nested(levels: int) -> bytes:
        return b'{"model":"a","messages":[],"x":' + b"[" * levels + b"]" * levels + b"}"

    assert parse_request(Endpoint.chat, nested(63), JSON_TYPE).fields["x"]
    assert refused(Endpoint.chat, nested(64)).code == "invalid_json"


@pytest.mark.parametrize("padding", [0, 20_000])
def test_depth_is_bounded_in_large_bodies_too(padding: int) -> None:
    """The short way of finding depth for small bodies and the other one for large bodies agree."""
    body = (
        b'{"model":"a","messages":[{"role":"user","content":"%b"}],"x":' % (b"p" * padding)
        + b"[" * 70
        + b"]" * 70
        + b"}"
    )
    assert refused(Endpoint.chat, body).code == "invalid_json"


@pytest.mark.parametrize("endpoint", ALL, ids=lambda e: e.name)
@pytest.mark.parametrize("name", sorted(fields.CONTRACT | fields.KINDRED))
def test_steering_fields_never_pass(endpoint: Endpoint, name: str) -> None:
    """Every field that steers an engine or the gateway is refused by name on every endpoint, null included."""
    for value in ("x", None, {"a": 1}):
        error = refused(endpoint, with_fields(endpoint, **{name: value}))
        assert (error.code, error.param) == ("unsupported_parameter", name)


def test_steering_fields_hidden_behind_escapes_are_seen() -> None:
    """A refused name written with JSON escapes is the same name."""
    error = refused(Endpoint.chat, b'{"model":"m","messages":[],"cache\\u005fsalt":"x"}')
    assert (error.code, error.param) == ("unsupported_parameter", "cache_salt")


@pytest.mark.parametrize("endpoint", ALL, ids=lambda e: e.name)
def test_silent_truncation_is_refused(endpoint: Endpoint) -> None:
    """`truncation: auto` would cut a prompt without a word; only `disabled` passes."""
    for value in ("auto", True, {"type": "auto"}, ""):
        assert refused(endpoint, with_fields(endpoint, truncation=value)).param == "truncation"
    assert refused(endpoint, with_fields(endpoint, transforms=["middle-out"])).param == "transforms"
    for value in ("disabled", None):
        parse_request(endpoint, with_fields(endpoint, truncation=value), JSON_TYPE)


def test_a_template_is_not_smuggled_through_its_arguments() -> None:
    """Template arguments that would replace the template or the tokenizer are refused by path; others pass."""
    error = refused(Endpoint.chat, with_fields(Endpoint.chat, chat_template_kwargs={"chat_template": "{{ x }}"}))
    assert (error.code, error.param) == ("unsupported_parameter", "chat_template_kwargs.chat_template")
    parse_request(Endpoint.chat, with_fields(Endpoint.chat, chat_template_kwargs={"enable_thinking": False}), JSON_TYPE)


@pytest.mark.parametrize("kind", ["image_embeds", "audio_embeds", "prompt_embeds"])
def test_serialised_tensors_do_not_reach_an_engine(kind: str) -> None:
    """Content parts that an engine would load as tensors are refused wherever they stand."""
    part = {"type": kind, kind: "gASV"}
    body = with_fields(Endpoint.chat, messages=[{"role": "user", "content": [{"type": "text", "text": "a"}, part]}])
    assert refused(Endpoint.chat, body).code == "unsupported_parameter"


WRONG: list[tuple[Endpoint, dict[str, Any], str, str]] = [
    (Endpoint.chat, {"messages": "hi"}, "invalid_value", "messages"),
    (Endpoint.chat, {"messages": {}}, "invalid_value", "messages"),
    (Endpoint.chat, {"messages": None}, "missing_required_parameter", "messages"),
    (Endpoint.chat, {"messages": ["hi"]}, "invalid_value", "messages[0]"),
    (Endpoint.chat, {"stream": "true"}, "invalid_value", "stream"),
    (Endpoint.chat, {"stream": 1}, "invalid_value", "stream"),
    (Endpoint.chat, {"stream_options": []}, "invalid_value", "stream_options"),
    (Endpoint.chat, {"stream_options": {"include_usage": "yes"}}, "invalid_value", "stream_options"),
    (Endpoint.chat, {"n": 0}, "invalid_value", "n"),
    (Endpoint.chat, {"n": 129}, "invalid_value", "n"),
    (Endpoint.chat, {"n": 10**30}, "invalid_value", "n"),
    (Endpoint.chat, {"n": 1.0}, "invalid_value", "n"),
    (Endpoint.chat, {"n": True}, "invalid_value", "n"),
    (Endpoint.chat, {"max_tokens": -1}, "invalid_value", "max_tokens"),
    (Endpoint.chat, {"max_tokens": "5"}, "invalid_value", "max_tokens"),
    (Endpoint.chat, {"max_completion_tokens": 1.5}, "invalid_value", "max_completion_tokens"),
    (Endpoint.chat, {"max_tokens": 10**12}, "invalid_value", "max_tokens"),
    (Endpoint.chat, {"tools": "x"}, "invalid_value", "tools"),
    (Endpoint.chat, {"tools": ["x"]}, "invalid_value", "tools[0]"),
    (Endpoint.chat, {"store": 1}, "invalid_value", "store"),
    (Endpoint.chat, {"model": None}, "missing_required_parameter", "model"),
    (Endpoint.chat, {"model": ""}, "invalid_value", "model"),
    (Endpoint.chat, {"model": ["m"]}, "invalid_value", "model"),
    (Endpoint.chat, {"model": "m" * 300}, "invalid_value", "model"),
    (Endpoint.completions, {"prompt": None}, "missing_required_parameter", "prompt"),
    (Endpoint.completions, {"prompt": 3}, "invalid_value", "prompt"),
    (Endpoint.completions, {"prompt": []}, "invalid_value", "prompt"),
    (Endpoint.completions, {"prompt": ["a", 1]}, "invalid_value", "prompt"),
    (Endpoint.completions, {"best_of": 500}, "invalid_value", "best_of"),
    (Endpoint.completions, {"n": 3, "best_of": 2}, "invalid_value", "best_of"),
    (Endpoint.embeddings, {"input": []}, "invalid_value", "input"),
    (Endpoint.embeddings, {"encoding_format": "hex"}, "invalid_value", "encoding_format"),
    (Endpoint.embeddings, {"stream": True}, "unsupported_parameter", "stream"),
    (Endpoint.responses, {"input": 4}, "invalid_value", "input"),
    (Endpoint.responses, {"input": ["a"]}, "invalid_value", "input[0]"),
    (Endpoint.responses, {"background": True}, "unsupported_parameter", "background"),
    (Endpoint.responses, {"conversation": "conv_1"}, "unsupported_parameter", "conversation"),
    (Endpoint.messages, {"max_tokens": None}, "missing_required_parameter", "max_tokens"),
    (Endpoint.messages, {"messages": "x"}, "invalid_value", "messages"),
]


@pytest.mark.parametrize(("endpoint", "more", "code", "param"), WRONG, ids=lambda v: str(v)[:40])
def test_wrong_types_are_named(endpoint: Endpoint, more: dict[str, Any], code: str, param: str) -> None:
    """A member of the wrong type or size is refused with the contract's code and the member's name."""
    error = refused(endpoint, with_fields(endpoint, **more))
    assert (error.code, error.param) == (code, param)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"content-type", b"text/plain")],
        [(b"content-type", b"application/jsonp")],
        [(b"content-type", b"multipart/form-data; boundary=application/json")],
        [(b"content-type", b"application/json"), (b"content-type", b"text/plain")],
        [(b"content-type", b"application/json"), (b"content-encoding", b"gzip")],
    ],
)
def test_a_body_that_does_not_claim_to_be_plain_json_is_415(headers: list[tuple[bytes, bytes]]) -> None:
    """Another media type, several of them, or a coded body is 415 (RFC 9110, 15.5.16)."""
    assert refused(Endpoint.chat, with_fields(Endpoint.chat), headers).status == 415


@pytest.mark.parametrize(
    "value", [b"application/json; charset=utf-8", b"Application/JSON", b"application/vnd.x+json ;v=1"]
)
def test_json_types_with_parameters_pass(value: bytes) -> None:
    """Parameters, case and structured suffixes do not matter."""
    parse_request(Endpoint.chat, with_fields(Endpoint.chat), [(b"content-type", value)])


def test_provider_state_is_listed_and_never_assumed() -> None:
    """Every id of provider-side state in a body is listed, so that none reaches an upstream unowned."""
    items: list[dict[str, Any]] = [
        {"type": "item_reference", "id": "msg_1"},
        {"role": "user", "content": [{"type": "input_file", "file_id": "file-1"}]},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "file_id": "file-2"}]},
    ]
    tools = [
        {"type": "file_search", "vector_store_ids": ["vs_1"]},
        {"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["file-3"]}},
        {"type": "code_interpreter", "container": "cntr_1"},
    ]
    body = with_fields(Endpoint.responses, input=items, tools=tools, previous_response_id="resp_1")
    assert set(parse_request(Endpoint.responses, body, JSON_TYPE).references) == {
        ("previous_response_id", "resp_1"),
        ("item_reference", "msg_1"),
        ("file_id", "file-1"),
        ("file_id", "file-2"),
        ("file_id", "file-3"),
        ("vector_store_id", "vs_1"),
        ("container", "cntr_1"),
    }


REMOTE = [
    {"type": "image_url", "image_url": {"url": "http://169.254.169.254/latest"}},
    {"type": "image_url", "image_url": {"url": "HTTPS://x/y.png"}},
    {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
    {"type": "image_url", "image_url": {"url": "/etc/passwd"}},
    {"type": "image_url", "image_url": "http://x/y.png"},
    {"image_url": {"url": "http://x/y.png"}},
    {"type": "video_url", "video_url": {"url": "gopher://x"}},
    {"type": "audio_url", "audio_url": {"url": " http://x"}},
    {"type": "input_audio", "input_audio": {"data": "http://x/a.wav", "format": "wav"}},
    {"type": "file", "file": {"file_id": "file-1"}},
]
LOCAL = [
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    {"type": "image_url", "image_url": {"url": "DATA:image/png;base64,AAAA"}},
    {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
    {"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA", "filename": "a.pdf"}},
]


@pytest.mark.parametrize("part", REMOTE, ids=str)
def test_media_that_an_engine_would_fetch_are_seen(part: dict[str, Any]) -> None:
    """Anything but a `data:` URL where media is named counts as remote: URLs of any scheme, and paths."""
    body = with_fields(Endpoint.chat, messages=[{"role": "user", "content": [{"type": "text", "text": "a"}, part]}])
    request = parse_request(Endpoint.chat, body, JSON_TYPE)
    assert request.has_media and request.remote_media


@pytest.mark.parametrize("part", LOCAL, ids=str)
def test_media_in_the_body_are_not_remote(part: dict[str, Any]) -> None:
    """Media that came with the body is media, and fetches nothing."""
    body = with_fields(Endpoint.chat, messages=[{"role": "user", "content": [part]}])
    request = parse_request(Endpoint.chat, body, JSON_TYPE)
    assert request.has_media and not request.remote_media


def test_remote_media_are_seen_in_every_dialect() -> None:
    """Images in tool results and tool outputs, and Anthropic's sources, are found as well."""
    source = {"type": "image", "source": {"type": "url", "url": "http://x/y.png"}}
    nested = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [source]}]}
    messages = with_fields(Endpoint.messages, messages=[nested])
    assert parse_request(Endpoint.messages, messages, JSON_TYPE).remote_media
    output = {
        "type": "function_call_output",
        "call_id": "c",
        "output": [{"type": "input_image", "image_url": "http://x"}],
    }
    assert parse_request(Endpoint.responses, with_fields(Endpoint.responses, input=[output]), JSON_TYPE).remote_media
    screen = {"type": "computer_call_output", "output": {"type": "computer_screenshot", "image_url": "http://x"}}
    assert parse_request(Endpoint.responses, with_fields(Endpoint.responses, input=[screen]), JSON_TYPE).remote_media


HEADERS: list[tuple[bytes, bytes]] = [
    (b"x-assay-workload", b"a b"),
    (b"x-assay-workload", b""),
    (b"x-assay-workload", b"x" * 129),
    (b"x-assay-session", b"caf\xc3\xa9"),
    (b"x-assay-session", b"x" * 513),
    (b"idempotency-key", b"a\x01b"),
    (b"x-assay-tags", b"novalue"),
    (b"x-assay-tags", b",".join(b"k%d=v" % i for i in range(9))),
    (b"x-assay-tags", b"a=<script>"),
]


@pytest.mark.parametrize(("name", "value"), HEADERS)
def test_header_values_that_could_not_be_recorded_are_refused(name: bytes, value: bytes) -> None:
    """A header of ours with a value outside its alphabet is a 400 naming the header."""
    error = refused(Endpoint.chat, with_fields(Endpoint.chat), [*JSON_TYPE, (name, value)])
    assert (error.status, error.param) == (400, name.decode())


def test_two_workloads_in_one_request_are_refused() -> None:
    """Of two different values neither is taken."""
    headers = [*JSON_TYPE, (b"x-assay-workload", b"a"), (b"x-assay-workload", b"b")]
    assert refused(Endpoint.chat, with_fields(Endpoint.chat), headers).param == "x-assay-workload"


def test_only_listed_headers_are_forwarded() -> None:
    """Credentials, cookies and everything not on the list stop here."""
    secret = [
        (b"authorization", b"Bearer k"),
        (b"cookie", b"a=b"),
        (b"x-forwarded-for", b"1.2.3.4"),
        (b"openai-organization", b"o"),
    ]
    passing = [
        (b"openai-beta", b"x=1"),
        (b"anthropic-version", b"2023-06-01"),
        (b"anthropic-beta", b"a"),
        (b"anthropic-beta", b"b"),
    ]
    trace = [
        (b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        (b"tracestate", b"a=b\r\nx: y"),
    ]
    request = parse_request(Endpoint.chat, with_fields(Endpoint.chat), [*JSON_TYPE, *secret, *passing, *trace])
    assert request.forwarded_headers == tuple((n.decode(), v.decode()) for n, v in [*passing, trace[0]])


def test_a_clients_request_id_is_kept_within_bounds() -> None:
    """The client's own id is recorded cut to 128 characters, and not at all when it is not plain text."""
    for value, kept in ((b"a" * 300, "a" * 128), (b"caf\xe9", None), (b"", None), (b"my id", "my id")):
        headers = [*JSON_TYPE, (b"x-request-id", value)]
        assert parse_request(Endpoint.chat, with_fields(Endpoint.chat), headers).client_request_id == kept


def test_counting_needs_no_max_tokens() -> None:
    """Counting tokens takes the same body without `max_tokens`, under the same field rules."""
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    assert parse_count_tokens(json.dumps(body).encode(), JSON_TYPE).max_output_tokens is None
    with pytest.raises(InvalidRequest):
        parse_count_tokens(json.dumps({**body, "cache_salt": "x"}).encode(), JSON_TYPE)
