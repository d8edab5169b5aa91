"""What can go wrong, with the status, type and code that the client sees; one place renders it.

The table is the contract's: an `AssayError` is a refusal or failure that becomes the answer; an `UpstreamFailure`
is one failed attempt, which retry and fallback look at before it becomes one.
"""

from __future__ import annotations

import json
from typing import Any, Literal

Source = Literal["gateway", "provider"]
FailureKind = Literal["connect", "first_byte", "idle", "read", "protocol", "refused", "limited", "server", "truncated"]


class AssayError(Exception):
    """An answer that is an error. Class attributes fix the contract's row; instances carry message and details."""

    status: int = 500
    type: str = "server_error"
    code: str | None = "internal_error"
    source: Source = "gateway"

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        reasons: tuple[str, ...] = (),
        retry_after_s: int | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.reasons = reasons
        self.retry_after_s = retry_after_s
        self.headers = headers


class InvalidRequest(AssayError):
    status, type, code = 400, "invalid_request_error", "invalid_value"


class InvalidJson(InvalidRequest):
    code = "invalid_json"


class InvalidValue(InvalidRequest):
    code = "invalid_value"


class MissingRequiredParameter(InvalidRequest):
    code = "missing_required_parameter"


class UnsupportedParameter(InvalidRequest):
    code = "unsupported_parameter"


class DuplicateKey(InvalidRequest):
    code = "duplicate_key"


class ContextLengthExceeded(InvalidRequest):
    code = "context_length_exceeded"


class InvalidApiKey(AssayError):
    status, type, code = 401, "authentication_error", "invalid_api_key"


class PolicyDenied(AssayError):
    status, type, code = 403, "permission_error", "policy_denied"


class ModelNotFound(AssayError):
    status, type, code = 404, "invalid_request_error", "model_not_found"


class NotFound(AssayError):
    status, type, code = 404, "invalid_request_error", "not_found"


class MethodNotAllowed(AssayError):
    status, type, code = 405, "invalid_request_error", "method_not_allowed"


class Conflict(AssayError):
    status, type, code = 409, "invalid_request_error", "conflict"


class ManagedByConfig(Conflict):
    code = "managed_by_config"


class RequestTooLarge(AssayError):
    status, type, code = 413, "invalid_request_error", "request_too_large"


class UnsupportedMediaType(AssayError):
    status, type, code = 415, "invalid_request_error", "unsupported_media_type"


class HeadersTooLarge(AssayError):
    status, type, code = 431, "invalid_request_error", "headers_too_large"


class RateLimitExceeded(AssayError):
    status, type, code = 429, "rate_limit_error", "rate_limit_exceeded"


class TooManyParallelRequests(RateLimitExceeded):
    code = "too_many_parallel_requests"


class InsufficientQuota(AssayError):
    status, type, code = 429, "insufficient_quota", "insufficient_quota"


class InternalError(AssayError):
    """Opaque by design: what went wrong is in the log under the request id."""


class ReceiptUnavailable(AssayError):
    status, type, code = 503, "server_error", "receipt_unavailable"


class Overloaded(AssayError):
    status, type, code = 503, "server_error", "overloaded"


class UpstreamError(AssayError):
    status, type, code = 502, "upstream_error", "upstream_error"
    source: Source = "provider"


class UpstreamTruncated(UpstreamError):
    code = "upstream_truncated"


class UpstreamProtocolError(UpstreamError):
    code = "upstream_protocol_error"


class UpstreamTimeout(UpstreamError):
    status, code = 504, "upstream_timeout"


class NoHealthyDeployment(UpstreamError):
    status, code = 503, "no_healthy_deployment"
    source: Source = "gateway"


class DeploymentQuarantined(NoHealthyDeployment):
    code = "deployment_quarantined"


class IntegrityViolation(AssayError):
    status, type, code = 502, "integrity_error", "integrity_violation"


class ModelSubstituted(IntegrityViolation):
    code = "model_substituted"


class UpstreamRejected(AssayError):
    """An upstream's own 4xx, passed on with its status and OpenAI code."""

    source: Source = "provider"

    def __init__(
        self, message: str, *, status: int, type: str, code: str | None, param: str | None = None, **details: Any
    ) -> None:
        super().__init__(message, param=param, **details)
        self.status, self.type, self.code = status, type, code


class UpstreamFailure(Exception):
    """One failed attempt. `kind` decides retry, fallback and cool-off; the last one's `answer` is the client's.

    connect: no connection (also refused by the egress rule or TLS); first_byte / idle: a deadline passed; read: the
    connection broke; protocol: not HTTP, not JSON, wrong coding; truncated: ended before it was complete;
    refused: a 4xx; limited: 429; server: 5xx and 408.
    """

    def __init__(
        self,
        kind: FailureKind,
        answer: AssayError,
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        sent: bool = True,
    ) -> None:
        super().__init__(f"{kind}: {answer.message}")
        self.kind: FailureKind = kind
        self.answer = answer
        self.status = status
        self.retry_after_s = retry_after_s
        self.sent = sent


_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def error_object(error: AssayError, receipt: str | None = None) -> dict[str, Any]:
    """The `error` member of the contract's error body: message, type, param and code always, then our own fields."""
    body: dict[str, Any] = {
        "message": error.message,
        "type": error.type,
        "param": error.param,
        "code": error.code,
        "source": error.source,
    }
    if receipt is not None:
        body["receipt"] = receipt
    if error.reasons:
        body["reasons"] = list(error.reasons)
    return body


def render(error: AssayError, *, anthropic: bool = False, receipt: str | None = None) -> bytes:
    """The JSON body of an error answer, in OpenAI's shape or (for `/v1/messages`) in Anthropic's."""
    body = error_object(error, receipt)
    if anthropic:
        body["type"] = _ANTHROPIC_TYPES.get(error.status, "api_error")
        return json.dumps({"type": "error", "error": body}, ensure_ascii=False).encode("utf-8", "backslashreplace")
    return json.dumps({"error": body}, ensure_ascii=False).encode("utf-8", "backslashreplace")
