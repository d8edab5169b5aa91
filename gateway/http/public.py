"""FastAPI's part: receipts for their owners, the public log and keys, health, and errors in one shape."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from gateway.errors import AssayError, InvalidValue, MethodNotAllowed, NotFound, render
from gateway.exchange import Principal
from gateway.ids import request_id
from gateway.receipts.document import document
from gateway.receipts.record import ReceiptFilter, ReceiptStore
from gateway.receipts.tiles import parse_tile_path


class Log(Protocol):
    """The transparency log, as it is read."""

    async def checkpoint(self) -> str | None: ...

    async def proof(self, index: int) -> tuple[dict[str, Any], str] | None: ...

    async def tile(self, level: int, number: int, width: int) -> bytes | None: ...

    async def bundle(self, number: int, width: int) -> bytes | None: ...


@dataclass(slots=True)
class PublicServices:
    """What these routes are given."""

    store: ReceiptStore
    log: Log
    jwks: Callable[[], dict[str, Any]]
    authenticate: Callable[[list[tuple[bytes, bytes]]], Awaitable[Principal]]
    readiness: Callable[[], Awaitable[list[str]]]
    metrics: Callable[[], bytes]


def install_errors(app: FastAPI) -> None:
    """Every error of these routes in the contract's shape, and never a stack."""

    async def assay(_: Request, error: Exception) -> Response:
        assert isinstance(error, AssayError)
        headers = {"x-request-id": request_id(), **dict(error.headers)}
        if error.retry_after_s is not None:
            headers["retry-after"] = str(error.retry_after_s)
        return Response(render(error), error.status, headers, "application/json")

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 405:
            allow = (error.headers or {}).get("allow", "GET")
            return await assay(
                request, MethodNotAllowed("this method is not allowed here", headers=(("allow", allow),))
            )
        if error.status_code == 404:
            return await assay(request, NotFound("there is nothing at this path"))
        problem = InvalidValue(str(error.detail)[:200])
        problem.status = error.status_code
        return await assay(request, problem)

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0] if error.errors() else {}
        place = ".".join(str(part) for part in first.get("loc", ())[1:]) or None
        return await assay(request, InvalidValue(str(first.get("msg", "the request is not valid")), param=place))

    app.add_exception_handler(AssayError, assay)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)


def public_routes(services: PublicServices) -> APIRouter:
    """Routes without a key: keys, log, health, metrics."""
    router = APIRouter()

    @router.get("/.well-known/assay/keys.json", include_in_schema=False)
    async def keys() -> Response:
        return Response(orjson.dumps(services.jwks()), media_type="application/json")

    @router.get("/log/checkpoint", include_in_schema=False)
    async def checkpoint() -> Response:
        text = await services.log.checkpoint()
        if text is None:
            raise NotFound("the log has no checkpoint yet")
        return Response(text, media_type="text/plain; charset=utf-8", headers={"cache-control": "no-cache"})

    @router.get("/log/tile/{level}/{path:path}", include_in_schema=False)
    async def tile(level: str, path: str) -> Response:
        place = parse_tile_path(path)
        data = None
        if place is not None and level == "entries":
            data = await services.log.bundle(*place)
        elif place is not None and level.isdigit() and len(level) == 1:
            data = await services.log.tile(int(level), *place)
        if data is None:
            raise NotFound("the log has no such tile")
        return Response(
            data,
            media_type="application/octet-stream",
            headers={"cache-control": "public, max-age=31536000, immutable"},
        )

    async def alive() -> Response:
        return Response(b'{"status":"ok"}', media_type="application/json")

    async def ready() -> Response:
        failing = await services.readiness()
        body = orjson.dumps({"status": "ok"} if not failing else {"status": "unavailable", "failing": failing})
        return Response(body, 503 if failing else 200, media_type="application/json")

    for path in ("/healthz", "/livez", "/health/liveness"):
        router.add_api_route(path, alive, methods=["GET", "HEAD"], include_in_schema=False)
    for path in ("/readyz", "/health/readiness"):
        router.add_api_route(path, ready, methods=["GET", "HEAD"], include_in_schema=False)

    @router.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        return Response(services.metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router


def receipt_routes(services: PublicServices) -> APIRouter:
    """A tenant's own receipts; another tenant's do not exist."""
    router = APIRouter()

    async def listing(request: Request) -> Response:
        principal = await services.authenticate(request.scope["headers"])
        wanted = receipt_filter(request, principal.tenant)
        found, more = await services.store.search(wanted)
        body = {
            "object": "list",
            "data": [await document(services.store, services.log, receipt) for receipt in found],
            "has_more": more,
        }
        return Response(orjson.dumps(body), media_type="application/json")

    async def one(request: Request, id: str) -> Response:
        principal = await services.authenticate(request.scope["headers"])
        receipt = await services.store.get(id, principal.tenant)
        if receipt is None:
            raise NotFound("there is no such receipt")
        wanted = request.query_params.get("openings") == "true"
        body = await document(services.store, services.log, receipt, openings=wanted)
        return Response(orjson.dumps(body), media_type="application/json")

    for prefix in ("/v1", ""):
        for slash in ("", "/"):
            router.add_api_route(f"{prefix}/receipts{slash}", listing, methods=["GET"], include_in_schema=False)
            router.add_api_route(f"{prefix}/receipts/{{id}}{slash}", one, methods=["GET"], include_in_schema=False)
    return router


def receipt_filter(request: Request, tenant: str | None) -> ReceiptFilter:
    """The filter of a query string; raises `InvalidValue` for what is no number."""
    query = request.query_params

    def number(name: str) -> int | None:
        text = query.get(name)
        if text is None:
            return None
        if not text.isdigit() or len(text) > 15:
            raise InvalidValue(f"`{name}` must be a whole number", param=name)
        return int(text)

    limit = number("limit")
    return ReceiptFilter(
        tenant,
        query.get("session"),
        query.get("deployment"),
        query.get("model"),
        query.get("outcome"),
        query.get("integrity"),
        number("since_ms"),
        number("until_ms"),
        number("min_prompt_tokens"),
        number("max_prompt_tokens"),
        query.get("after"),
        50 if limit is None else max(1, min(limit, 1000)),
    )
