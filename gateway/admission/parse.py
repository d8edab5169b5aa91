"""From bytes and headers to an `InferenceRequest`, or to the contract's error."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import orjson

from gateway.admission import fields as rules
from gateway.admission.json_body import member_place, parse, place
from gateway.admission.media import find_media
from gateway.admission.narrowing import narrowing
from gateway.errors import InvalidValue, MissingRequiredParameter, UnsupportedMediaType
from gateway.exchange import Endpoint, InferenceRequest

Headers = list[tuple[bytes, bytes]]
_FORWARDED = frozenset({b"openai-beta", b"anthropic-version", b"anthropic-beta", b"traceparent", b"tracestate"})
_OURS = frozenset({b"x-assay-workload", b"x-assay-session", b"x-request-id", b"idempotency-key", b"x-assay-tags"})
_READ = _FORWARDED | _OURS
_VISIBLE = re.compile(r"[\x20-\x7e]{1,512}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_TAG = re.compile(r"[A-Za-z0-9._-]{1,32}=[A-Za-z0-9._:@/ -]{1,64}")
_JSON_TYPE = re.compile(rb"application/(?:[a-z0-9!#$&^_.-]+\+)?json[ \t]*(?:;.*)?", re.IGNORECASE | re.DOTALL)
MAX_MODEL_LENGTH = 256
MAX_CLIENT_ID = 128


def require_json(headers: Headers) -> None:
    """Raises 415 unless the body claims to be JSON as it is: no other type, no content coding (RFC 9110, 15.5.16)."""
    claimed = False
    for name, value in headers:
        if name == b"content-type":
            if value != b"application/json" and not _JSON_TYPE.fullmatch(value):
                raise UnsupportedMediaType("the content-type must be application/json")
            claimed = True
        elif name == b"content-encoding" and value.strip().lower() != b"identity":
            raise UnsupportedMediaType("a request body must not be compressed")
    if not claimed:
        raise UnsupportedMediaType("the content-type must be application/json")


def parse_request(endpoint: Endpoint, body: bytes, headers: Headers) -> InferenceRequest:
    """The request as everything after reads it. One parse; raises the contract's errors."""
    require_json(headers)
    return _request(endpoint, body, headers, counting=False)


def parse_count_tokens(body: bytes, headers: Headers) -> InferenceRequest:
    """A request to count a message's tokens: as for messages, but `max_tokens` may be absent and nothing streams."""
    require_json(headers)
    return _request(Endpoint.messages, body, headers, counting=True)


def _request(endpoint: Endpoint, body: bytes, headers: Headers, *, counting: bool) -> InferenceRequest:
    fields = parse(body)
    model = _model(fields)
    dialect = endpoint.dialect
    rules.refuse_steering(dialect, fields)
    rules.check_shape(dialect, fields, counting=counting)
    options = fields.get("stream_options")
    media = find_media(dialect, fields)
    provider = fields.get("provider")
    workload, session, client_id, idempotency, tags, forwarded = _header_fields(headers)
    return InferenceRequest(
        endpoint,
        body,
        fields,
        model,
        fields.get("stream") is True and not counting,
        options is not None and options.get("include_usage") is True,
        place(body, "model"),
        place(body, "stream_options") if "stream_options" in fields else None,
        member_place(body, "provider") if "provider" in fields else None,
        narrowing(provider) if provider is not None else None,
        workload,
        session,
        client_id,
        rules.choices(dialect, fields),
        rules.max_output_tokens(dialect, fields),
        media.found,
        _digest(fields),
        forwarded,
        idempotency,
        tags,
        media.remote is not None,
        media.references,
    )


def _model(fields: dict[str, Any]) -> str:
    model = fields.get("model")
    if model is None:
        raise MissingRequiredParameter("the parameter `model` is required", param="model")
    if type(model) is not str:
        raise InvalidValue("`model` must be text", param="model")
    if not model or len(model) > MAX_MODEL_LENGTH:
        raise InvalidValue("`model` must be the name of a model", param="model")
    return model


def _digest(fields: dict[str, Any]) -> str:
    parameters = {key: value for key, value in fields.items() if key not in rules.CONTENT}
    try:
        canonical = orjson.dumps(parameters, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # integers beyond 64 bits
        canonical = json.dumps(parameters, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(canonical).hexdigest()


_HeaderFields = tuple[
    str | None, str | None, str | None, str | None, tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]
]


def _header_fields(headers: Headers) -> _HeaderFields:
    """Workload, session, client's request id, idempotency key, cost tags, headers to forward.

    A value that could not be recorded as it is is refused, not repaired; so is one given twice.
    """
    own: dict[bytes, bytes] = {}
    forwarded: list[tuple[str, str]] = []
    for name, value in headers:
        if name not in _READ:
            continue
        if name in _FORWARDED:
            text = value.decode("latin-1")
            if _VISIBLE.fullmatch(text):
                forwarded.append((name.decode("ascii"), text))
        elif own.setdefault(name, value) != value:
            label = name.decode("ascii")
            raise InvalidValue(f"the header {label} is given twice", param=label)
    if not own:
        return None, None, None, None, (), tuple(forwarded)
    return (
        _matching(_NAME, own, "x-assay-workload"),
        _matching(_VISIBLE, own, "x-assay-session"),
        _client_id(own.get(b"x-request-id")),
        _matching(_VISIBLE, own, "idempotency-key"),
        _tags(own.get(b"x-assay-tags")),
        tuple(forwarded),
    )


def _matching(pattern: re.Pattern[str], own: dict[bytes, bytes], name: str) -> str | None:
    value = own.get(name.encode())
    if value is None:
        return None
    text = value.decode("latin-1")
    if not pattern.fullmatch(text):
        raise InvalidValue(f"the header {name} has a value that is not allowed", param=name)
    return text


def _client_id(value: bytes | None) -> str | None:
    """The client's own id, cut to what a receipt keeps; one that is not plain text is not kept."""
    if value is None:
        return None
    text = value[:MAX_CLIENT_ID].decode("latin-1")
    return text if _VISIBLE.fullmatch(text) else None


def _tags(value: bytes | None) -> tuple[tuple[str, str], ...]:
    if value is None:
        return ()
    parts = [part.strip() for part in value.decode("latin-1").split(",") if part.strip()]
    if len(parts) > 8 or not all(_TAG.fullmatch(part) for part in parts):
        raise InvalidValue("x-assay-tags takes up to eight name=value pairs", param="x-assay-tags")
    return tuple((name, text) for name, _, text in (part.partition("=") for part in parts))


def client_request_id(headers: Headers) -> str | None:
    """The client's own x-request-id, for the receipts of requests that were refused before they were parsed."""
    for name, value in headers:
        if name == b"x-request-id":
            return _client_id(value)
    return None
