"""From bytes and headers to an `InferenceRequest`, or to the contract's error."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import orjson

from gateway.admission import fields as rules
from gateway.admission.json_body import JsonBody, Member, parse
from gateway.errors import InvalidValue, MissingRequiredParameter, UnsupportedMediaType
from gateway.exchange import Endpoint, InferenceRequest, Span

Headers = list[tuple[bytes, bytes]]
_FORWARDED = frozenset({b"openai-beta", b"anthropic-version", b"anthropic-beta", b"traceparent", b"tracestate"})
_VISIBLE = re.compile(r"^[\x20-\x7e]{1,512}$")
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$")
_TAG = re.compile(r"^[A-Za-z0-9._-]{1,32}=[A-Za-z0-9._:@/ -]{1,64}$")
MAX_MODEL_LENGTH = 256


def require_json(headers: Headers) -> None:
    """Raises 415 unless the body claims to be JSON (RFC 9110, 15.5.16)."""
    for name, value in headers:
        if name == b"content-type":
            if value[:16] == b"application/json" or b"+json" in value.split(b";")[0]:
                return
            raise UnsupportedMediaType("the body must be application/json")
    raise UnsupportedMediaType("the content-type must be application/json")


def parse_request(endpoint: Endpoint, body: bytes, headers: Headers) -> InferenceRequest:
    """The request as everything after reads it. One parse; raises the contract's errors."""
    parsed = parse(body)
    fields = parsed.fields
    model = _model(fields)
    rules.refuse_steering(fields)
    dialect = endpoint.dialect
    rules.check_shape(dialect, fields)
    stream = bool(fields.get("stream")) and dialect != "embeddings"
    options = fields.get("stream_options")
    media, remote = rules.media_urls(fields)
    extras = _header_fields(headers)
    return InferenceRequest(
        endpoint=endpoint,
        body=body,
        fields=fields,
        model=model,
        stream=stream,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
        model_span=_span(parsed.members["model"]),
        stream_options_span=_span(parsed.members["stream_options"]) if "stream_options" in fields else None,
        provider_span=_member_span(parsed, "provider") if "provider" in fields else None,
        narrowing=rules.narrowing(fields.get("provider")),
        choices=rules.choices(fields),
        max_output_tokens=rules.max_output_tokens(dialect, fields),
        has_media=media,
        remote_media=remote,
        parameters_digest=_digest(fields),
        **extras,
    )


def _model(fields: dict[str, Any]) -> str:
    model = fields.get("model")
    if model is None:
        raise MissingRequiredParameter("the parameter `model` is required", param="model")
    if not isinstance(model, str):
        raise InvalidValue("`model` must be text", param="model")
    if not model or len(model) > MAX_MODEL_LENGTH:
        raise InvalidValue("`model` must be the name of a model", param="model")
    return model


def _span(member: Member) -> Span:
    return Span(member.value_start, member.value_end)


def _member_span(parsed: JsonBody, name: str) -> Span:
    """The member with the comma that goes with it, so that what stays is still JSON."""
    member = parsed.members[name]
    places = list(parsed.members.values())
    index = places.index(member)
    if index + 1 < len(places):
        return Span(member.key_start, places[index + 1].key_start)
    if index:
        return Span(places[index - 1].value_end, member.value_end)
    return Span(member.key_start, member.value_end)


def _digest(fields: dict[str, Any]) -> str:
    parameters = {key: value for key, value in fields.items() if key not in rules.CONTENT}
    try:
        canonical = orjson.dumps(parameters, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        canonical = json.dumps(parameters, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(canonical).hexdigest()


def _header_fields(headers: Headers) -> dict[str, Any]:
    """What headers contribute; values that could not be recorded as they are are refused, not repaired."""
    workload = session = client_id = idempotency = None
    tags: tuple[tuple[str, str], ...] = ()
    forwarded: list[tuple[str, str]] = []
    for name, value in headers:
        if name in _FORWARDED:
            text = value.decode("latin-1")
            if _VISIBLE.match(text):
                forwarded.append((name.decode("ascii"), text))
        elif name == b"x-assay-workload":
            workload = _matching(_NAME, value, "x-assay-workload")
        elif name == b"x-assay-session":
            session = _matching(_VISIBLE, value, "x-assay-session")
        elif name == b"x-request-id":
            text = value.decode("latin-1")
            client_id = text[:128] if _VISIBLE.match(text) else None
        elif name == b"idempotency-key":
            idempotency = _matching(_VISIBLE, value, "idempotency-key")
        elif name == b"x-assay-tags":
            tags = _tags(value)
    return {
        "workload": workload,
        "session": session,
        "client_request_id": client_id,
        "idempotency_key": idempotency,
        "forwarded_headers": tuple(forwarded),
        "cost_tags": tags,
    }


def _matching(pattern: re.Pattern[str], value: bytes, name: str) -> str:
    text = value.decode("latin-1")
    if not pattern.match(text):
        raise InvalidValue(f"the header {name} has a value that is not allowed", param=name)
    return text


def _tags(value: bytes) -> tuple[tuple[str, str], ...]:
    parts = [part.strip() for part in value.decode("latin-1").split(",") if part.strip()]
    if len(parts) > 8 or not all(_TAG.match(part) for part in parts):
        raise InvalidValue("x-assay-tags takes up to eight name=value pairs", param="x-assay-tags")
    return tuple((name, text) for name, _, text in (part.partition("=") for part in parts))


def client_request_id(headers: Headers) -> str | None:
    """The client's own x-request-id, for the receipts of requests that were refused before they were parsed."""
    for name, value in headers:
        if name == b"x-request-id":
            text = value.decode("latin-1")
            return text[:128] if _VISIBLE.match(text) else None
    return None

