"""A witness over HTTP: one call, and its key for whoever sets up a policy."""

from __future__ import annotations

import asyncio
import socket

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.receipts.witness import MAX_BODY, Witness


def witness_app(witness: Witness) -> Starlette:
    """`POST /add-checkpoint` (C2SP tlog-witness), `GET /vkey`."""

    async def add(request: Request) -> Response:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY:
                return Response(b"the request is too large\n", 413, media_type="text/plain")
        answer = await asyncio.to_thread(witness.add_checkpoint, bytes(body))
        return Response(answer.body, answer.status, {"content-type": answer.content_type})

    async def vkey(_: Request) -> Response:
        return Response(f"{witness.key}\n", media_type="text/plain")

    return Starlette(routes=[Route("/add-checkpoint", add, methods=["POST"]), Route("/vkey", vkey, methods=["GET"])])


def serve_witness(witness: Witness, listener: socket.socket) -> None:
    """Runs until it is told to stop."""
    config = uvicorn.Config(
        witness_app(witness),
        http="httptools",
        ws="none",
        lifespan="off",
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_level="warning",
    )
    uvicorn.Server(config).run(sockets=[listener])
