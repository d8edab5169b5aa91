"""The inference endpoints and the list of models, as one raw ASGI callable: thin, and the same for every path.

Authorization hangs on the route: each entry of the table names its handler, and every handler authenticates.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

import orjson

from gateway.errors import AssayError, InternalError, MethodNotAllowed, ModelNotFound, render
from gateway.exchange import Endpoint, Principal
from gateway.http.reply import Cors, Reply
from gateway.http.server import Cycle
from gateway.ids import request_id
from gateway.pipeline import Pipeline

LOG = logging.getLogger("assay.http")
Headers = list[tuple[bytes, bytes]]


def spellings(path: str) -> list[bytes]:
    """The path with and without `/v1` and with and without a trailing slash: the same endpoint."""
    bare = path.removeprefix("/v1")
    return [p.encode() for p in (path, f"{path}/", bare, f"{bare}/")]


class InferenceApp:
    """Dispatches by the raw path; what it does not know goes to `rest` (admin, receipts, log, health)."""

    def __init__(self, pipeline: Pipeline, cors: Cors, rest: Callable[..., Awaitable[None]], created: int) -> None:
        self._pipeline = pipeline
        self._cors = cors
        self._rest = rest
        self._created = created
        self._posts: dict[bytes, Endpoint] = {p: e for e in Endpoint for p in spellings(e.value)}
        self._lists = frozenset(spellings("/v1/models"))
        self._counts = frozenset(spellings("/v1/messages/count_tokens"))

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._rest(scope, receive, send)
            return
        path: bytes = scope["raw_path"]
        endpoint = self._posts.get(path)
        counting = path in self._counts
        if counting:
            endpoint = Endpoint.messages
        card = None if endpoint else self._model_path(path)
        if endpoint is None and card is None:
            await self._rest(scope, receive, send)
            return
        cycle: Cycle = scope["extensions"]["assay.cycle"]
        headers: Headers = scope["headers"]
        method = scope["method"]
        reply = Reply(cycle, self._cors.headers(headers))
        anthropic = endpoint is Endpoint.messages
        try:
            if method == "OPTIONS":
                allow = b"POST, OPTIONS" if endpoint else b"GET, HEAD, OPTIONS"
                cycle.start(204, self._cors.preflight(headers, allow), length=0, end=True)
            elif endpoint is not None:
                if method != "POST":
                    raise MethodNotAllowed(f"{method} is not allowed here", headers=(("allow", "POST, OPTIONS"),))
                if counting:
                    await self._pipeline.count_tokens(headers, cycle.read_body, reply)
                else:
                    await self._pipeline.run(endpoint, headers, cycle.read_body, reply)
            else:
                if method not in ("GET", "HEAD"):
                    raise MethodNotAllowed(f"{method} is not allowed here", headers=(("allow", "GET, HEAD, OPTIONS"),))
                await self._models(card or "", headers, reply)
        except AssayError as error:
            _send_error(reply, error, anthropic=anthropic)
        except ConnectionResetError:
            return
        except Exception:
            LOG.exception("request failed")
            _send_error(reply, InternalError("an internal error occurred"), anthropic=anthropic)

    def _model_path(self, path: bytes) -> str | None:
        """ "" for the list, an id for one model's card, None for any other path."""
        if path in self._lists:
            return ""
        for prefix in (b"/v1/models/", b"/models/"):
            if path.startswith(prefix):
                return unquote(path[len(prefix) :].decode("latin-1"))
        return None

    async def _models(self, id: str, headers: Headers, reply: Reply) -> None:
        stages = self._pipeline.stages
        principal = await stages.authenticator.authenticate(headers)
        names = stages.policy().models_of(stages.snapshot(), principal)
        if not id:
            body: dict[str, Any] = {"object": "list", "data": [self._card(name, principal) for name in names]}
        elif id in names:
            body = self._card(id, principal)
        else:
            raise ModelNotFound("the model does not exist or you do not have access to it", param="model")
        reply.send(200, [("x-request-id", request_id())], orjson.dumps(body))

    def _card(self, name: str, principal: Principal) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._created, "owned_by": principal.tenant}


def _send_error(reply: Reply, error: AssayError, *, anthropic: bool = False) -> None:
    """An error that has no receipt: 401, 405, 413, 415, or one on a read."""
    if reply.opened or reply.gone:
        return
    headers = [("x-request-id", request_id()), *error.headers]
    if error.status == 401:
        headers.append(("www-authenticate", "Bearer"))
    if error.retry_after_s is not None:
        headers.append(("retry-after", str(error.retry_after_s)))
    reply.send(error.status, headers, render(error, anthropic=anthropic))
