"""An upstream's refusal as one attempt's failure: which kind it is, and what the client is told if it is the last."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import orjson

from gateway.config.snapshot import Provider
from gateway.errors import (
    AssayError,
    ContextLengthExceeded,
    UpstreamError,
    UpstreamFailure,
    UpstreamProtocolError,
    UpstreamRejected,
)
from gateway.providers.pool import Origin

_OVERFLOW = re.compile(
    r"maximum context length|context[ _]length[ _]exceeded|context window|longer than the maximum model length"
    r"|prompt is too long|input is too long|maximum input length|exceeds the (?:model's )?maximum"
    r"|too many (?:input )?tokens|maximum number of tokens|reduce the length of (?:the messages|your prompt|the input)",
    re.IGNORECASE,
)
_URL = re.compile(r"https?://[^\s\"'<>]+", re.IGNORECASE)
_MAX_MESSAGE = 2000


def failure_of(provider: Provider, status: int, headers: list[tuple[str, str]], body: bytes) -> UpstreamFailure:
    """The failure that an answer with this status is. A 3xx is one too: redirects are never followed."""
    message, type_, code, param = _error_fields(body)
    message = scrub(provider, message)[:_MAX_MESSAGE]
    if status < 400:
        return UpstreamFailure("protocol", UpstreamProtocolError(f"the upstream answered {status}"), status=status)
    if status in (401, 403):
        return UpstreamFailure("refused", _credential_error(), status=status)
    if status in (400, 413, 422) and (code == "context_length_exceeded" or _OVERFLOW.search(message)):
        answer: AssayError = ContextLengthExceeded(message or "the prompt is too long", param=param)
        answer.source = "provider"
        return UpstreamFailure("refused", answer, status=status)
    if status == 429:
        return _limited(message, type_, code, param, headers)
    if status == 408 or status >= 500:
        text = message or f"the upstream answered {status}"
        return UpstreamFailure("server", UpstreamError(text), status=status, retry_after_s=retry_after(headers))
    answer = UpstreamRejected(
        message or f"the upstream refused the request ({status})",
        status=status,
        type=type_ or "invalid_request_error",
        code=code,
        param=param,
    )
    return UpstreamFailure("refused", answer, status=status)


def failure_of_event(provider: Provider, error: Mapping[str, Any]) -> UpstreamFailure:
    """A first stream event that is an error counts as a failure with status."""
    status = error.get("code") if isinstance(error.get("code"), int) else error.get("status")
    if not isinstance(status, int) or not 400 <= status < 600:
        kind = str(error.get("type", ""))
        status = 429 if "rate_limit" in kind else 400 if "invalid_request" in kind else 500
    return failure_of(provider, status, [], orjson.dumps({"error": dict(error)}, default=str))


def _credential_error() -> AssayError:
    return UpstreamError("the provider refused the gateway's credential")


def _limited(
    message: str, type_: str | None, code: str | None, param: str | None, headers: list[tuple[str, str]]
) -> UpstreamFailure:
    wait = retry_after(headers)
    answer = UpstreamRejected(
        message or "the upstream asks for patience",
        status=429,
        type=type_ or "rate_limit_error",
        code=code or "rate_limit_exceeded",
        param=param,
        retry_after_s=max(1, math.ceil(wait)) if wait is not None else None,
    )
    return UpstreamFailure("limited", answer, status=429, retry_after_s=wait)


def retry_after(headers: list[tuple[str, str]]) -> float | None:
    """Seconds to wait, from `retry-after-ms` or `retry-after` (RFC 9110, 10.2.3); None when nobody named a time."""
    values = dict(headers)
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = values.get(name)
        if text is None:
            continue
        try:
            seconds = float(text) * scale
        except ValueError:
            try:
                seconds = parsedate_to_datetime(text).timestamp() - time.time()
            except (ValueError, TypeError):
                continue
        if math.isfinite(seconds):
            return min(max(seconds, 0.0), 86_400.0)
    return None


def _error_fields(body: bytes) -> tuple[str, str | None, str | None, str | None]:
    """message, type, code, param of an error body in OpenAI's, vLLM's flat or Anthropic's shape."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return "", None, None, None
    error = value.get("error") if isinstance(value, dict) else None
    if isinstance(error, str):
        return error, None, None, None
    if not isinstance(error, dict):
        error = value if isinstance(value, dict) else {}
    message = error.get("message")
    return (
        message if isinstance(message, str) else "",
        error["type"] if isinstance(error.get("type"), str) else None,
        error["code"] if isinstance(error.get("code"), str) else None,
        error["param"] if isinstance(error.get("param"), str) else None,
    )


def scrub(provider: Provider, text: str) -> str:
    """An upstream's message without our credentials and without addresses of upstreams."""
    for credential in provider.credentials:
        secret = credential.reveal()
        if secret:
            text = text.replace(secret, "[credential]")
            # Providers echo keys with the middle cut out; any run of eight characters is too much.
            for start in range(max(len(secret) - 7, 0)):
                if secret[start : start + 8] in text:
                    text = text.replace(secret[start : start + 8], "[credential]")
    text = _URL.sub("[upstream]", text)
    if provider.base_url:
        origin = Origin.of(provider.base_url)
        for name in (origin.authority, origin.host, f"{origin.host}:{origin.port}"):
            text = text.replace(name, "[upstream]")
    return text
