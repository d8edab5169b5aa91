"""What a parsed request says, on good bodies."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from gateway.admission.media import refuse_foreign_references
from gateway.admission.parse import parse_request
from gateway.errors import NotFound
from gateway.exchange import Endpoint, InferenceRequest, Span
from gateway.protocols.edits import splice

JSON_TYPE = [(b"content-type", b"application/json")]


def parsed(body: bytes, endpoint: Endpoint = Endpoint.chat, *headers: tuple[bytes, bytes]) -> InferenceRequest:
    return parse_request(endpoint, body, [*JSON_TYPE, *headers])


def chat(**fields: Any) -> InferenceRequest:
    return parsed(json.dumps({"model": "m", "messages": [], **fields}).encode())


def cut(request: InferenceRequest, span: Span | None) -> bytes:
    assert span is not None
    return request.body[span.start : span.end]


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m","messages":[]}',
        b' { "messages" : [] , "model" : "m" } ',
        '{"messages":[{"role":"user","content":"é漢🦀"}],"model":"m"}'.encode(),
        b'{"messages":[{"role":"user","content":"\\"model\\":\\"x\\""}],"model":"m"}',
        b'{"messages":[{"role":"user","content":"hi"}],"x":{"model":"y"},"model":"m","z":{"model":"w"}}',
        b'{"messages":[{"model":"y"}],"mod\\u0065l":"m"}',
        b'{"messages":[],"x":"model","model":"m","y":["model"]}',
    ],
)
def test_the_models_place_is_found(body: bytes) -> None:
    """The model can be replaced in the caller's bytes wherever it stands, and nothing else moves."""
    request = parsed(body)
    assert cut(request, request.model_span) == b'"m"'
    edited = splice(body, [(request.model_span.start, request.model_span.end, b'"other"')])
    assert json.loads(edited) == {**json.loads(body), "model": "other"}


@pytest.mark.parametrize(
    "body",
    [
        b'{"provider":{"order":["a"]},"model":"m","messages":[]}',
        b'{"model":"m", "provider" : {"order":["a"]} ,"messages":[]}',
        b'{"model":"m","messages":[], "provider":{"order":["a"]} }',
    ],
)
def test_our_own_member_can_be_cut_out(body: bytes) -> None:
    """`provider` is ours and leaves no trace: the rest is valid JSON of the same members."""
    request = parsed(body)
    span = request.provider_span
    assert span is not None
    left = json.loads(splice(body, [(span.start, span.end, b"")]))
    assert left == {"model": "m", "messages": []}
    assert request.narrowing is not None and request.narrowing.order == ("a",)


def test_stream_options_are_found_and_read() -> None:
    """Whether the client asked for usage, and where its options stand."""
    request = parsed(b'{"messages":[],"stream":true,"stream_options": {"include_usage":true},"model":"m"}')
    assert request.stream and request.include_usage
    assert cut(request, request.stream_options_span) == b'{"include_usage":true}'
    assert not chat(stream_options=None).include_usage
    assert not chat(stream=True).include_usage


def test_choices_are_answers_times_prompts() -> None:
    """`n` answers for each prompt of a batch; token ids are one prompt."""

    def completions(**fields: Any) -> int:
        return parsed(json.dumps({"model": "m", **fields}).encode(), Endpoint.completions).choices

    assert chat().choices == 1 and chat(n=3).choices == 3 and chat(n=None).choices == 1
    assert completions(prompt="a", n=2) == 2
    assert completions(prompt=["a", "b"], n=2) == 4
    assert completions(prompt=[1, 2, 3]) == 1
    assert completions(prompt=[[1], [2]]) == 2


def test_of_two_limits_the_larger_counts() -> None:
    """Which of two limits an upstream obeys is not known, so the larger is what may come."""
    assert chat(max_tokens=5, max_completion_tokens=7).max_output_tokens == 7
    assert chat(max_tokens=5).max_output_tokens == 5
    assert chat().max_output_tokens is None


def test_the_parameters_digest_is_about_parameters() -> None:
    """Content, names and order of members do not change it; any parameter does."""
    one = chat(temperature=0.5, seed=2**70)
    same = parsed(
        json.dumps(
            {
                "seed": 2**70,
                "messages": [{"role": "user", "content": "x"}],
                "temperature": 0.5,
                "user": "u",
                "model": "k",
            }
        ).encode()
    )
    assert one.parameters_digest == same.parameters_digest
    assert one.parameters_digest != chat(temperature=0.5, seed=2**70 + 1).parameters_digest
    assert one.parameters_digest != chat(temperature=0.6, seed=2**70).parameters_digest


def test_headers_are_read() -> None:
    """Workload, session, tags, idempotency key and the client's id come from headers."""
    body = b'{"model":"m","messages":[]}'
    headers = [
        (b"x-assay-workload", b"healthcare"),
        (b"x-assay-session", b"chat 1"),
        (b"x-assay-tags", b"team=red, cost=ab/c"),
        (b"idempotency-key", b"k1"),
        (b"x-request-id", b"mine"),
    ]
    request = parsed(body, Endpoint.chat, *headers)
    assert (request.workload, request.session, request.idempotency_key) == ("healthcare", "chat 1", "k1")
    assert request.cost_tags == (("team", "red"), ("cost", "ab/c")) and request.client_request_id == "mine"


def test_the_provider_field_is_read_whole() -> None:
    """Every member of OpenRouter's object that is known has its meaning here."""
    value = {
        "order": ["a"], "only": ["a", "b"], "ignore": ["c"], "allow_fallbacks": False, "data_collection": "deny",
        "zdr": True, "require_parameters": True, "quantizations": ["fp8"], "sort": "price",
        "max_price": {"prompt": 0.1, "completion": "2"},
    }  # fmt: skip
    narrowing = chat(provider=value).narrowing
    assert narrowing is not None
    assert (narrowing.order, narrowing.only, narrowing.ignore) == (("a",), ("a", "b"), ("c",))
    assert (narrowing.allow_fallbacks, narrowing.zdr, narrowing.require_parameters) == (False, True, True)
    assert (narrowing.data_collection, narrowing.sort, narrowing.quantizations) == ("deny", "price", ("fp8",))
    assert narrowing.max_price == (("prompt", Decimal("0.1")), ("completion", Decimal("2")))
    assert chat(provider=None).narrowing is None
    assert chat(provider={"only": []}).narrowing.only == ()  # type: ignore[union-attr]


def test_foreign_state_does_not_exist() -> None:
    """A reference that the tenant does not own is a 404, whether or not it exists elsewhere."""
    request = parsed(b'{"model":"m","input":"x","previous_response_id":"resp_1"}', Endpoint.responses)
    refuse_foreign_references(request, lambda kind, name: (kind, name) == ("previous_response_id", "resp_1"))
    with pytest.raises(NotFound) as caught:
        refuse_foreign_references(request, lambda kind, name: False)
    assert caught.value.status == 404
