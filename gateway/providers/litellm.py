"""Providers that only litellm speaks to: loaded when one is configured, and told nothing that a tenant could steer by.

litellm brings its own HTTP client, so nothing of the connection can be observed: no key, no raw bytes, evidence at most
`asserted`. Only OpenAI's documented chat parameters are passed; everything else litellm would take from keyword
arguments (hosts, credentials, made-up answers, callbacks) is refused.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import orjson

from gateway.config.environment import keep_litellm_offline
from gateway.config.secrets import Secret
from gateway.config.snapshot import Deployment
from gateway.errors import (
    UnsupportedParameter,
    UpstreamError,
    UpstreamFailure,
    UpstreamTimeout,
)
from gateway.exchange import Dialect
from gateway.providers.rejection import failure_of

_CHAT = frozenset(
    {
        *("messages", "stream", "stream_options", "temperature", "top_p", "n", "stop", "seed", "user", "logit_bias"),
        *("max_tokens", "max_completion_tokens", "presence_penalty", "frequency_penalty", "response_format"),
        *("tools", "tool_choice", "parallel_tool_calls", "logprobs", "top_logprobs", "reasoning_effort"),
        *("service_tier", "modalities", "audio", "prediction", "verbosity"),
    }
)
_EMBEDDINGS = frozenset({"input", "dimensions", "encoding_format", "user"})
_DONE = b"data: [DONE]\n\n"


def refuse_unknown(dialect: Dialect, fields: Mapping[str, Any]) -> None:
    """Raises for a parameter that is not OpenAI's own: litellm gives many others a meaning of its own."""
    known = _CHAT if dialect == "chat" else _EMBEDDINGS
    for name in fields:
        if name not in known and name not in ("model", "provider"):
            raise UnsupportedParameter(f"`{name[:64]}` is not supported by this model's provider", param=name[:64])


class LitellmAnswer:
    """An answer with the shape of the transport's: status, no headers, and the body as it comes."""

    tls_spki = None

    def __init__(self, host: str, body: bytes, events: AsyncIterator[Any] | None, idle_s: float) -> None:
        self.status = 200
        self.host = host
        kind = "application/json" if events is None else "text/event-stream"
        self.headers: list[tuple[str, str]] = [("content-type", kind)]
        self._body = body
        self._events = events
        self._idle_s = idle_s

    def header(self, name: str) -> str | None:
        """The first value of a header (lower-case name)."""
        return dict(self.headers).get(name)

    async def read(self) -> bytes:
        """The whole body."""
        return self._body

    async def next_chunk(self) -> bytes:
        """The next event; `b""` at the end."""
        if self._events is None:
            return b""
        try:
            async with asyncio.timeout(self._idle_s):
                chunk = await anext(self._events)
        except StopAsyncIteration:
            self._events = None
            return _DONE
        except TimeoutError:
            self._events = None
            raise UpstreamFailure("idle", UpstreamTimeout("the upstream did not answer in time")) from None
        except Exception as error:
            self._events = None
            raise UpstreamFailure("read", UpstreamError("the upstream's stream broke")) from error
        data: str = chunk.model_dump_json(exclude_none=True)
        return b"data: " + data.encode() + b"\n\n"

    def close(self) -> None:
        """Lets go of the stream; litellm's client closes its connection when the iterator is dropped."""
        self._events = None


class Litellm:
    """Calls through litellm, imported on the first one."""

    def __init__(self) -> None:
        self._module: Any = None

    def _load(self) -> Any:
        if self._module is None:
            keep_litellm_offline()
            module: Any = importlib.import_module("litellm")
            module.telemetry = False
            module.drop_params = False
            module.suppress_debug_info = True
            self._module = module
        return self._module

    async def open(
        self, deployment: Deployment, dialect: Dialect, fields: Mapping[str, Any], credential: Secret | None
    ) -> LitellmAnswer:
        """One attempt, whole or streamed. Raises `UpstreamFailure`."""
        try:
            module = await asyncio.to_thread(self._load)
        except ImportError as error:
            answer = UpstreamError("litellm is not installed: pip install 'assay-gateway[litellm]'")
            raise UpstreamFailure("connect", answer, sent=False) from error
        arguments = {name: value for name, value in fields.items() if name not in ("model", "provider")}
        provider, timeouts = deployment.provider, deployment.timeouts
        stream = arguments.get("stream") is True
        if stream:
            arguments["stream_options"] = {**(arguments.get("stream_options") or {}), "include_usage": True}
        call = module.acompletion if dialect == "chat" else module.aembedding
        try:
            async with asyncio.timeout(timeouts.connect_s + timeouts.first_byte_s):
                result = await call(
                    model=deployment.model,
                    api_key=credential.reveal() if credential else None,
                    base_url=provider.base_url or None,
                    timeout=timeouts.first_byte_s,
                    max_retries=0,
                    num_retries=0,
                    **arguments,
                )
        except TimeoutError:
            raise UpstreamFailure("first_byte", UpstreamTimeout("the upstream did not answer in time")) from None
        except asyncio.CancelledError:
            raise
        except Exception as error:
            raise _failure(deployment, error) from error
        if stream:
            return LitellmAnswer("litellm", b"", aiter(result), timeouts.idle_s)
        return LitellmAnswer("litellm", result.model_dump_json(exclude_none=True).encode(), None, timeouts.idle_s)


def _failure(deployment: Deployment, error: Exception) -> UpstreamFailure:
    """litellm's exceptions carry an HTTP status; those without one never reached a provider."""
    status = getattr(error, "status_code", None)
    if not isinstance(status, int) or not 400 <= status < 600:
        return UpstreamFailure("connect", UpstreamError("the upstream could not be reached"))
    message = str(getattr(error, "message", error))
    body = orjson.dumps({"error": {"message": message, "code": getattr(error, "code", None)}}, default=str)
    return failure_of(deployment.provider, status, [], body)
